//! Disks in memory with a volatile cache, whose power may be cut, for tests of everything that relies on flushes: what was
//! not flushed is lost then, or torn.
//!
//! A disk outlives the devices that are opened of it. All choices come from outside, so a seed replays a run.

use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bytes that reach a disk as a whole or not at all.
const SECTOR: usize = 512;

/// Writes and flushes that a machine does before its power is cut, on all its disks together.
#[derive(Clone, Default)]
pub struct Fuse(Rc<Cell<Option<u64>>>);

impl Fuse {
    /// The power is cut during operation `count`, counted from here on; a write may have reached the disk all the same.
    pub fn set(&self, count: u64) {
        self.0.set(Some(count));
    }

    /// There is power for ever.
    pub fn mend(&self) {
        self.0.set(None);
    }

    /// There is no power any more.
    pub fn is_blown(&self) -> bool {
        self.0.get() == Some(0)
    }

    fn burn(&self) -> Result<(), IoError> {
        let Some(left) = self.0.get() else { return Ok(()) };
        self.0.set(Some(left.saturating_sub(1)));
        if left <= 1 { Err(IoError::new(IoErrorKind::Gone)) } else { Ok(()) }
    }
}

#[derive(Clone, Default)]
struct Surface {
    durable: Vec<u8>,
    /// With what was not flushed.
    seen: Vec<u8>,
    unsynced: Vec<(u64, Vec<u8>)>,
    /// Everything fails from now on.
    broken: bool,
    /// Reads of these bytes fail.
    unreadable: Vec<u64>,
    /// Flushes fail; nothing becomes durable by them.
    refuses_flushes: bool,
}

/// See the module's documentation. Cheap to clone; clones are the same disk.
#[derive(Clone)]
pub struct VolatileDisk {
    info: DeviceInfo,
    fuse: Fuse,
    surface: Rc<RefCell<Surface>>,
}

impl VolatileDisk {
    /// `size` zero bytes, in a machine with that fuse. Logical blocks have 4096 bytes, sectors that reach the disk as a whole 512.
    pub fn new(name: &str, size: usize, fuse: &Fuse) -> VolatileDisk {
        let surface = Surface { durable: vec![0; size], seen: vec![0; size], ..Surface::default() };
        let info = DeviceInfo {
            logical_block: 4096,
            volatile_cache: true,
            ..DeviceInfo::plain(name, size as u64)
        };
        VolatileDisk { info, fuse: fuse.clone(), surface: Rc::new(RefCell::new(surface)) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The same disk, of which only the first bytes can be reached.
    pub fn first(&self, bytes: usize) -> VolatileDisk {
        let info = DeviceInfo { size: bytes as u64, ..self.info.clone() };
        VolatileDisk { info, ..self.clone() }
    }

    /// The device, for one shard.
    pub fn device(&self) -> Rc<dyn Device> {
        Rc::new(self.clone())
    }

    /// The power goes: of each sector that was written since the last flush, any of what was written to it stays, or
    /// what was there before. `choose` gives one of as many choices as it is told.
    pub fn cut(&self, choose: &mut dyn FnMut(u64) -> u64) {
        let Surface { durable, seen, unsynced, .. } = &mut *self.surface.borrow_mut();
        // All, nothing, or some of it.
        let fate = choose(4);
        for (offset, data) in unsynced.drain(..) {
            let whole = choose(3);
            for (n, sector) in data.chunks(SECTOR).enumerate() {
                let stays = match (fate, whole) {
                    (0, _) => false,
                    (1, _) | (_, 0) => true,
                    (_, 1) => false,
                    _ => choose(2) == 0,
                };
                if stays {
                    let at = offset as usize + n * SECTOR;
                    durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        seen.clone_from(durable);
    }

    /// From now on every request fails.
    pub fn fail(&self) {
        self.surface.borrow_mut().broken = true;
    }

    /// Reads of the byte fail.
    pub fn make_unreadable(&self, byte: u64) {
        self.surface.borrow_mut().unreadable.push(byte);
    }

    /// Flushes fail, or no more.
    pub fn refuse_flushes(&self, refused: bool) {
        self.surface.borrow_mut().refuses_flushes = refused;
    }

    /// Another disk that is as this one is now, cache and all.
    pub fn fork(&self) -> VolatileDisk {
        let surface = self.surface.borrow().clone();
        VolatileDisk { surface: Rc::new(RefCell::new(surface)), ..self.clone() }
    }

    /// Its bytes, with what was not flushed.
    pub fn bytes(&self) -> Vec<u8> {
        self.surface.borrow().seen.clone()
    }

    /// Replaces all bytes, behind everybody's back; as many as it has.
    pub fn set_bytes(&self, bytes: Vec<u8>) {
        let mut surface = self.surface.borrow_mut();
        surface.seen.clone_from(&bytes);
        surface.durable = bytes;
        surface.unsynced.clear();
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        if self.fuse.is_blown() {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        let surface = self.surface.borrow();
        let bytes = offset..offset + out.len() as u64;
        if surface.broken || surface.unreadable.iter().any(|byte| bytes.contains(byte)) {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        let at = offset as usize;
        let found = surface.seen.get(at..at + out.len());
        out.copy_from_slice(found.ok_or(IoError::new(IoErrorKind::Invalid))?);
        Ok(())
    }

    fn write(&self, offset: u64, data: Vec<u8>) -> Result<(), IoError> {
        let dead = self.fuse.burn();
        let mut surface = self.surface.borrow_mut();
        if surface.broken {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        // Writes in flight when the power fails may have reached the disk.
        let at = offset as usize;
        let place = surface.seen.get_mut(at..at + data.len());
        place.ok_or(IoError::new(IoErrorKind::Invalid))?.copy_from_slice(&data);
        surface.unsynced.push((offset, data));
        dead
    }

    fn flush(&self) -> Result<(), IoError> {
        self.fuse.burn()?;
        let mut surface = self.surface.borrow_mut();
        if surface.broken || surface.refuses_flushes {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        let Surface { durable, seen, unsynced, .. } = &mut *surface;
        for (offset, data) in unsynced.drain(..) {
            let range = offset as usize..offset as usize + data.len();
            durable[range.clone()].copy_from_slice(&seen[range]);
        }
        Ok(())
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), IoError> {
        request.check(&self.info)?;
        let mut at = request.offset;
        match &mut request.op {
            Op::Read(bufs) => bufs.iter_mut().try_for_each(|buf| {
                self.read(at, buf)?;
                at += buf.len() as u64;
                Ok(())
            }),
            Op::Write { bufs, fua } => {
                let fua = *fua;
                let data = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
                self.write(at, data)?;
                if fua { self.flush() } else { Ok(()) }
            }
            Op::Flush => self.flush(),
            Op::Discard { .. } => Ok(()),
            Op::WriteZeroes { len, fua, .. } => {
                let (zeroes, fua) = (vec![0; *len as usize], *fua);
                self.write(at, zeroes)?;
                if fua { self.flush() } else { Ok(()) }
            }
        }
    }
}

impl Device for VolatileDisk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut request: Request, done: Completion) {
        let result = self.carry_out(&mut request);
        done.complete(Outcome { result, op: request.op });
    }

    fn may_hang(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask, bytes, fill, shard};

    #[test]
    fn a_power_cut_costs_what_was_not_flushed_and_nothing_else() {
        let shard = shard();
        let fuse = Fuse::default();
        let disk = VolatileDisk::new("d", 1 << 20, &fuse);
        let device = disk.device();
        assert!(ask(&shard, &device, fill(&shard, 0, 8192, 1)).result.is_ok());
        assert!(ask(&shard, &device, Request::flush()).result.is_ok());
        assert!(ask(&shard, &device, fill(&shard, 4096, 8192, 2)).result.is_ok());
        let read = || {
            let read = Request::read(0, shard.pool().get(12288));
            bytes(ask(&shard, &device, read))
        };
        assert_eq!(read()[4096..], [2; 8192]);
        let torn = disk.fork();
        // Every second sector stays.
        let mut turn = 0;
        torn.cut(&mut |sides| match sides {
            2 => {
                turn += 1;
                turn % 2
            }
            sides => sides - 1,
        });
        assert_eq!(torn.bytes()[..4096], [1; 4096]);
        assert_eq!(torn.bytes()[4096..5120], [[1; 512], [2; 512]].concat());
        disk.cut(&mut |_| 0);
        assert_eq!(read(), [vec![1; 8192], vec![0; 4096]].concat());
        fuse.set(2);
        assert!(ask(&shard, &device, fill(&shard, 0, 4096, 3)).result.is_ok());
        assert!(ask(&shard, &device, Request::flush()).result.is_err());
        assert!(ask(&shard, &device, Request::read(0, shard.pool().get(4096))).result.is_err());
        disk.cut(&mut |_| 0);
        fuse.mend();
        assert_eq!(read()[..4096], [1; 4096]);
    }
}
