//! A disk in memory with a volatile cache.
//!
//! The model is that of the simulator's members, as far as a door can see it: reads see the *live* image. A write without
//! FUA that has completed is only live. A flush makes durable what had completed before the flush was submitted, nothing
//! later; FUA makes the one write durable. At a power cut each write that is not durable is kept whole, lost whole, or
//! torn at logical blocks; an older version of a block never replaces a newer one that is durable. Requests complete in
//! any order, some turns after they came.

use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, OpenError, Request, Target,
    TargetInfo,
};
use braid_shard::Shard;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nanoseconds between looks of a request that is held.
const HELD_NANOS: u64 = 1_000_000;

/// The properties of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Bytes of a logical block.
    pub block: u32,
    /// Writes are refused.
    pub read_only: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { size: 8 << 20, block: 512, read_only: false }
    }
}

struct Cached {
    seq: u64,
    offset: usize,
    data: Vec<u8>,
}

struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    cache: Vec<Cached>,
    seq: u64,
    /// Reads and writes that touch it fail.
    bad: Option<Range<u64>>,
    random: fastrand::Rng,
}

/// See the module's documentation. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

struct Inner {
    shape: Shape,
    state: Mutex<State>,
    size: AtomicU64,
    held: AtomicBool,
    under_way: AtomicU64,
    changes: AtomicU64,
}

impl Disk {
    /// A disk of zeroes whose name is `disk`; choices come from `seed`.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Disk {
        let zeroes = || vec![0; shape.size as usize];
        let state = State {
            live: zeroes(),
            durable: zeroes(),
            cache: Vec::new(),
            seq: 0,
            bad: None,
            random: fastrand::Rng::with_seed(seed),
        };
        Disk(Arc::new(Inner {
            shape,
            state: Mutex::new(state),
            size: AtomicU64::new(shape.size),
            held: AtomicBool::new(false),
            under_way: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that has failed elsewhere fails in any case.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests stay under way until it is called again with false.
    pub fn hold(&self, held: bool) {
        self.0.held.store(held, Ordering::SeqCst);
    }

    /// Reads and writes that touch these bytes fail.
    pub fn break_at(&self, bad: Range<u64>) {
        self.state().bad = Some(bad);
    }

    /// Says from now on that it has so many bytes, up to those that it was made with.
    pub fn resize(&self, size: u64) {
        self.0.size.store(size.min(self.0.shape.size), Ordering::SeqCst);
    }

    /// Requests under way.
    pub fn under_way(&self) -> u64 {
        self.0.under_way.load(Ordering::SeqCst)
    }

    /// Requests that changed content, or tried to.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::SeqCst)
    }

    /// The power fails and comes back: what is not durable is kept, lost or torn.
    pub fn cut_power(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let block = self.0.shape.block as usize;
        for Cached { offset, data, .. } in state.cache.drain(..) {
            let fate = state.random.u8(..3);
            for (nr, bytes) in data.chunks(block).enumerate() {
                if fate == 0 || fate == 1 && state.random.bool() {
                    let at = offset + nr * block;
                    state.durable[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        state.live.copy_from_slice(&state.durable);
    }

    fn carry_out(&self, offset: u64, op: &mut Op, flush_up_to: u64) -> Result<(), IoError> {
        let mut state = self.state();
        let at = offset as usize;
        let bytes: u64 = match op {
            Op::Read(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Op::Write { bufs, .. } => bufs.iter().map(|buf| buf.len() as u64).sum(),
            _ => 0,
        };
        let touches = |bad: &Range<u64>| bad.start < offset + bytes && offset < bad.end;
        if state.bad.as_ref().is_some_and(touches) {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        match op {
            Op::Read(bufs) => {
                let mut at = at;
                for buf in bufs {
                    let end = at + buf.len();
                    buf.copy_from_slice(&state.live[at..end]);
                    at = end;
                }
            }
            Op::Write { bufs, fua } => {
                let data = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
                state.write(at, data, *fua);
            }
            Op::WriteZeroes { len, fua, .. } => state.write(at, vec![0; *len as usize], *fua),
            // Reads may give anything: something that nobody has written.
            Op::Discard { len } => state.write(at, vec![0xd1; *len as usize], false),
            Op::Flush => state.flush(flush_up_to),
        }
        Ok(())
    }
}

impl State {
    fn write(&mut self, at: usize, data: Vec<u8>, fua: bool) {
        self.live[at..at + data.len()].copy_from_slice(&data);
        self.seq += 1;
        let seq = self.seq;
        if fua {
            // Cached writes of these bytes are older.
            let end = at + data.len();
            let (over, rest): (Vec<Cached>, Vec<Cached>) = self
                .cache
                .drain(..)
                .partition(|cached| cached.offset < end && at < cached.offset + cached.data.len());
            self.cache = rest;
            over.iter().for_each(|cached| self.keep(cached));
            self.keep(&Cached { seq, offset: at, data });
        } else {
            self.cache.push(Cached { seq, offset: at, data });
        }
    }

    fn keep(&mut self, Cached { offset, data, .. }: &Cached) {
        self.durable[*offset..*offset + data.len()].copy_from_slice(data);
    }

    fn flush(&mut self, up_to: u64) {
        let (due, later): (Vec<Cached>, Vec<Cached>) =
            self.cache.drain(..).partition(|cached| cached.seq <= up_to);
        due.iter().for_each(|cached| self.keep(cached));
        self.cache = later;
    }
}

impl Target for Disk {
    fn info(&self) -> TargetInfo {
        let Shape { block, read_only, .. } = self.0.shape;
        let size = self.0.size.load(Ordering::SeqCst);
        let device = DeviceInfo {
            logical_block: block,
            volatile_cache: true,
            ..DeviceInfo::plain("disk", size)
        };
        TargetInfo { name: "disk".into(), description: "a disk".into(), device, read_only }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let info = self.info().device;
        Ok(Rc::new(Front { disk: self.clone(), info, shard: shard.clone() }))
    }
}

struct Front {
    disk: Disk,
    info: DeviceInfo,
    shard: Shard,
}

impl Device for Front {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let (disk, shard) = (self.disk.clone(), self.shard.clone());
        disk.0.under_way.fetch_add(1, Ordering::SeqCst);
        if !matches!(request.op, Op::Read(_) | Op::Flush) {
            disk.0.changes.fetch_add(1, Ordering::SeqCst);
        }
        let (up_to, turns) = {
            let mut state = disk.state();
            (state.seq, state.random.u8(..4))
        };
        // Doors check bounds and alignment; a panic would show that one did not.
        request.check(&self.info).expect("a request within the disk");
        self.shard.spawn(async move {
            let Request { offset, mut op } = request;
            for _ in 0..turns {
                shard.next_turn().await;
            }
            while disk.0.held.load(Ordering::SeqCst) {
                shard.sleep(HELD_NANOS).await;
            }
            let result = disk.carry_out(offset, &mut op, up_to);
            disk.0.under_way.fetch_sub(1, Ordering::SeqCst);
            done.finish(result, op);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte_at(disk: &Disk, at: usize) -> u8 {
        disk.state().live[at]
    }

    #[test]
    fn writes_are_durable_by_flush_and_by_fua_only() {
        let mut lost = 0;
        for seed in 0..20 {
            let disk = Disk::new(Shape { size: 8192, ..Shape::default() }, seed);
            disk.state().write(0, vec![1; 512], false);
            let so_far = disk.state().seq;
            disk.state().write(512, vec![2; 512], false);
            disk.state().flush(so_far);
            disk.state().write(1024, vec![3; 512], true);
            disk.cut_power();
            assert_eq!((byte_at(&disk, 0), byte_at(&disk, 1024)), (1, 3));
            lost += u32::from(byte_at(&disk, 512) == 0);
        }
        assert!(lost > 0 && lost < 20);
    }

    #[test]
    fn an_older_version_never_replaces_a_durable_one() {
        for seed in 0..20 {
            let disk = Disk::new(Shape { size: 8192, ..Shape::default() }, seed);
            disk.state().write(0, vec![1; 1024], false);
            disk.state().write(512, vec![2; 512], true);
            disk.cut_power();
            assert_eq!(byte_at(&disk, 512), 2);
        }
    }
}
