//! A disk for tests: its cache is volatile, its power may be cut, and it may be damaged.

use crate::region::{BLOCK, Region, Underway, Write};
use braid_device::{IoError, IoErrorKind};
use std::sync::{Arc, Mutex};

/// Choices from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// One of `0..sides`.
    pub(crate) fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }
}

/// Writes and syncs that the machine does before its power is cut.
#[derive(Clone, Default)]
pub(crate) struct Fuse(Arc<Mutex<Option<u64>>>);

impl Fuse {
    /// The power is cut before operation `count`, counted from here on.
    pub(crate) fn set(&self, count: u64) {
        *self.0.lock().unwrap() = Some(count);
    }

    /// There is power for ever.
    pub(crate) fn mend(&self) {
        *self.0.lock().unwrap() = None;
    }

    pub(crate) fn is_blown(&self) -> bool {
        *self.0.lock().unwrap() == Some(0)
    }

    fn burn(&self) -> Result<(), IoError> {
        match &mut *self.0.lock().unwrap() {
            Some(0) => Err(IoError::new(IoErrorKind::Gone)),
            Some(left) => {
                *left -= 1;
                if *left == 0 { Err(IoError::new(IoErrorKind::Gone)) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }
}

#[derive(Clone, Default)]
struct Surface {
    durable: Vec<u8>,
    /// With what was not synced.
    seen: Vec<u8>,
    unsynced: Vec<Write>,
    /// Everything fails from now on.
    broken: bool,
    /// Reads of these blocks fail.
    unreadable: Vec<u64>,
    /// Syncs fail; nothing becomes durable by them.
    refuses_syncs: bool,
}

/// A disk with a volatile cache, whose power may be cut; outlives the regions on it.
#[derive(Clone)]
pub(crate) struct Disk {
    name: &'static str,
    fuse: Fuse,
    surface: Arc<Mutex<Surface>>,
    /// Bytes that a region on it has.
    shown: usize,
}

impl Disk {
    pub(crate) fn new(name: &'static str, size: usize, fuse: &Fuse) -> Disk {
        let surface = Surface { durable: vec![0; size], seen: vec![0; size], ..Surface::default() };
        Disk { name, fuse: fuse.clone(), surface: Arc::new(Mutex::new(surface)), shown: size }
    }

    /// The first bytes of it.
    pub(crate) fn first(&self, bytes: usize) -> Disk {
        Disk { shown: bytes, ..self.clone() }
    }

    pub(crate) fn region(&self) -> Box<dyn Region> {
        Box::new(self.clone())
    }

    /// The power goes: of each sector that was written since the last sync, any of what was written to it stays, or
    /// what was there before.
    pub(crate) fn cut(&self, dice: &mut Dice) {
        let mut surface = self.surface.lock().unwrap();
        let Surface { durable, seen, unsynced, .. } = &mut *surface;
        // All, nothing, or some of it.
        let fate = dice.throw(4);
        for write in unsynced.drain(..) {
            let whole = dice.throw(3);
            for (n, sector) in write.data.chunks(512).enumerate() {
                let stays = match (fate, whole) {
                    (0, _) => false,
                    (1, _) | (_, 0) => true,
                    (_, 1) => false,
                    _ => dice.throw(2) == 0,
                };
                if stays {
                    let at = write.offset as usize + n * 512;
                    durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        seen.clone_from(durable);
    }

    pub(crate) fn fail(&self) {
        self.surface.lock().unwrap().broken = true;
    }

    pub(crate) fn make_unreadable(&self, block: u64) {
        self.surface.lock().unwrap().unreadable.push(block);
    }

    pub(crate) fn refuse_syncs(&self, refused: bool) {
        self.surface.lock().unwrap().refuses_syncs = refused;
    }

    /// Another disk that is as this one is now, cache and all.
    pub(crate) fn fork(&self) -> Disk {
        let surface = self.surface.lock().unwrap().clone();
        Disk { surface: Arc::new(Mutex::new(surface)), ..self.clone() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.surface.lock().unwrap().seen.clone()
    }

    /// Changes what is there, behind everybody's back.
    pub(crate) fn set_bytes(&self, bytes: Vec<u8>) {
        let mut surface = self.surface.lock().unwrap();
        surface.seen.clone_from(&bytes);
        surface.durable = bytes;
        surface.unsynced.clear();
    }
}

impl Region for Disk {
    fn name(&self) -> &str {
        self.name
    }

    fn size(&self) -> u64 {
        self.shown as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        if self.fuse.is_blown() {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        assert!(offset.is_multiple_of(BLOCK as u64) && buf.len().is_multiple_of(BLOCK));
        let surface = self.surface.lock().unwrap();
        let blocks = offset / BLOCK as u64..(offset + buf.len() as u64) / BLOCK as u64;
        if surface.broken || surface.unreadable.iter().any(|block| blocks.contains(block)) {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        let at = offset as usize;
        let bytes = surface.seen.get(at..at + buf.len());
        buf.copy_from_slice(bytes.ok_or(IoError::new(IoErrorKind::Invalid))?);
        Ok(())
    }

    fn write(&mut self, writes: &Arc<Vec<Write>>) -> Underway {
        Underway::Ended(self.write_now(writes))
    }

    fn sync(&mut self) -> Underway {
        Underway::Ended(self.sync_now())
    }
}

impl Disk {
    fn write_now(&self, writes: &Arc<Vec<Write>>) -> Result<(), IoError> {
        for write in writes.iter() {
            assert!(write.offset.is_multiple_of(BLOCK as u64));
            assert!(write.data.len().is_multiple_of(BLOCK));
            let dead = self.fuse.burn();
            let mut surface = self.surface.lock().unwrap();
            if surface.broken {
                return Err(IoError::new(IoErrorKind::Medium));
            }
            // Writes in flight when the power fails may have reached the disk.
            let at = write.offset as usize;
            let place = surface.seen.get_mut(at..at + write.data.len());
            place.ok_or(IoError::new(IoErrorKind::Invalid))?.copy_from_slice(&write.data);
            surface.unsynced.push(write.clone());
            drop(surface);
            dead?;
        }
        Ok(())
    }

    fn sync_now(&self) -> Result<(), IoError> {
        self.fuse.burn()?;
        let mut surface = self.surface.lock().unwrap();
        if surface.broken || surface.refuses_syncs {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        let Surface { durable, seen, unsynced, .. } = &mut *surface;
        for write in unsynced.drain(..) {
            let range = write.offset as usize..write.offset as usize + write.data.len();
            durable[range.clone()].copy_from_slice(&seen[range]);
        }
        Ok(())
    }
}
