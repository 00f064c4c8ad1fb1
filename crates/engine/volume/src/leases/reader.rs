//! The leases of one shard, and reads by them.

use super::lease::{LEASED, Part, WindowLease};
use crate::file_counts::FileCounts;
use crate::stripes::{down, up};
use braid_device::{Device, IoSets, Op, Request};
use braid_filesystem::{Ino, Lease, Leased, LeasedRead, Leases};
use braid_format::volume::BLOCK;
use braid_format::volume::sums::{UNKNOWN, sum_of};
use braid_shard::{Buf, BufMut, Nanos, Shard};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use uuid::Uuid;

/// Opens a brick on this shard; `None`: it is not read here.
pub type OpenBrick = Box<dyn Fn(&Shard, Uuid) -> Option<Rc<dyn Device>>>;

/// Leases that are kept: with the checksums of their windows some 8 KiB each.
const KEPT: usize = 2048;
/// Nanoseconds for which nothing is asked about a file that changes, or of which no lease was had.
const PAUSE: Nanos = 20_000_000;
/// The interval at which leases that are over are let go, with the bricks that they keep open, in nanoseconds.
const SWEEP: Nanos = 100_000_000;

/// A file, and the number of a window.
type Key = (Ino, u64);

/// A lease with the devices of its bricks, on this shard.
struct Usable {
    lease: WindowLease,
    devices: SmallVec<[Rc<dyn Device>; 2]>,
}

/// Those that are kept.
#[derive(Default)]
struct Kept {
    windows: HashMap<Key, Rc<Usable>>,
    /// In the order in which they came.
    order: VecDeque<Key>,
    /// Files about which nothing is asked until then.
    pauses: HashMap<Ino, Nanos>,
    /// By the number of the bricks and the brick. The leases keep them open.
    devices: HashMap<(u64, Uuid), Weak<dyn Device>>,
}

/// See the module's documentation.
pub struct LeaseReader {
    shard: Shard,
    sets: IoSets,
    open: OpenBrick,
    kept: RefCell<Kept>,
    sweeps: Cell<bool>,
    reads: Cell<u64>,
    counts: Arc<FileCounts>,
    me: Weak<LeaseReader>,
}

type Windows = SmallVec<[Rc<Usable>; 2]>;

impl LeaseReader {
    /// Without leases; `counts`: those of the volume.
    pub fn new(shard: &Shard, open: OpenBrick, counts: Arc<FileCounts>) -> Rc<LeaseReader> {
        Rc::new_cyclic(|me| LeaseReader {
            shard: shard.clone(),
            sets: IoSets::new(shard),
            open,
            kept: RefCell::default(),
            sweeps: Cell::new(false),
            reads: Cell::new(0),
            counts,
            me: Weak::clone(me),
        })
    }

    /// Reads that leases have answered.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// The lease of a window, if there is one that is current.
    fn find(&self, key: Key) -> Option<Rc<Usable>> {
        let mut kept = self.kept.borrow_mut();
        let found = kept.windows.get(&key)?;
        if found.lease.is_current() {
            return Some(Rc::clone(found));
        }
        kept.windows.remove(&key);
        let until = self.shard.coarse_now() + PAUSE;
        kept.pauses.insert(key.0, until);
        None
    }

    /// The leases that a read takes.
    fn leases_of(&self, ino: Ino, offset: u64, len: usize) -> Option<Windows> {
        let mut window = offset / LEASED;
        let first = self.find((ino, window))?;
        let end = offset.saturating_add(len as u64).min(first.lease.size);
        let mut found = Windows::new();
        found.push(first);
        while (window + 1) * LEASED < end {
            window += 1;
            found.push(self.find((ino, window))?);
        }
        Some(found)
    }

    fn may_ask(&self, ino: Ino) -> bool {
        let mut kept = self.kept.borrow_mut();
        match kept.pauses.get(&ino) {
            Some(until) if self.shard.coarse_now() < *until => false,
            Some(_) => {
                kept.pauses.remove(&ino);
                true
            }
            None => true,
        }
    }

    async fn read_leased(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        room: Option<BufMut>,
    ) -> Option<Buf> {
        let start = self.shard.now();
        let leases = self.leases_of(ino, offset, len)?;
        let size = leases.first()?.lease.size;
        let end = offset.saturating_add(len as u64).min(size);
        if offset >= end {
            let is_current = leases.iter().all(|one| one.lease.is_current());
            return is_current.then(|| self.shard.pool().get(0).freeze());
        }
        let (first, last) = (down(offset, BLOCK), up(end, BLOCK));
        let memory = room.filter(|room| room.len() as u64 >= last - first);
        let mut rest = memory.unwrap_or_else(|| self.shard.pool().get((last - first) as usize));
        rest.truncate((last - first) as usize);
        // The parts in the order of the file; those on their way are not there.
        let mut parts: Vec<Option<BufMut>> = Vec::new();
        let mut from: Vec<(&Usable, Part)> = Vec::new();
        let mut reads = self.sets.start();
        for usable in &leases {
            let start = usable.lease.window * LEASED;
            let bytes = first.max(start)..last.min(start + LEASED);
            for part in usable.lease.parts_of(bytes) {
                let mut memory = rest;
                rest = memory.split_off((part.bytes.end - part.bytes.start) as usize);
                match part.place {
                    Some((brick, offset)) => {
                        let Some(device) = usable.devices.get(usize::from(brick)) else { continue };
                        reads.submit(parts.len() as u32, &**device, Request::read(offset, memory));
                        parts.push(None);
                    }
                    None => {
                        memory.fill(0);
                        parts.push(Some(memory));
                    }
                }
                from.push((usable, part));
            }
        }
        let mut failed = !rest.is_empty();
        for (tag, outcome) in reads.finish().await {
            failed |= outcome.result.is_err();
            if let Op::Read(mut bufs) = outcome.op {
                parts[tag as usize] = bufs.pop();
            }
        }
        // The bytes that have come are of now, or there is no answer.
        let is_current = || leases.iter().all(|one| one.lease.is_current());
        if failed || !is_current() {
            return None;
        }
        for ((usable, part), bytes) in from.iter().zip(&parts) {
            if part.place.is_some() && !agree(usable, part, bytes.as_deref()?) {
                return None;
            }
        }
        let whole = self.shard.pool().joined(parts.into_iter().flatten())?;
        for (usable, part) in &from {
            let brick =
                part.place.and_then(|(brick, _)| usable.lease.bricks.get(usize::from(brick)));
            if let Some(brick) = brick {
                brick.taken.add(part.bytes.end - part.bytes.start);
            }
        }
        self.reads.set(self.reads.get() + 1);
        self.counts.read(end - offset, self.shard.now().saturating_sub(start));
        let skip = (offset - first) as usize;
        Some(whole.freeze().slice(skip..skip + (end - offset) as usize))
    }

    /// A brick that was lost and is there again is another device, under the same UUID.
    fn device(&self, of_bricks: u64, uuid: Uuid) -> Option<Rc<dyn Device>> {
        let key = (of_bricks, uuid);
        let known = self.kept.borrow().devices.get(&key).and_then(Weak::upgrade);
        known.or_else(|| {
            let opened = (self.open)(&self.shard, uuid)?;
            self.kept.borrow_mut().devices.insert(key, Rc::downgrade(&opened));
            Some(opened)
        })
    }

    fn usable(&self, lease: Lease) -> Option<Usable> {
        let lease = *lease.downcast::<WindowLease>().ok()?;
        let devices = lease.bricks.iter().map(|brick| self.device(lease.of_bricks, brick.uuid));
        let devices = devices.collect::<Option<_>>()?;
        Some(Usable { lease, devices })
    }

    /// Lets go of leases and pauses that are over, as long as there are any.
    fn sweep(&self) {
        if self.sweeps.replace(true) {
            return;
        }
        let (shard, own) = (self.shard.clone(), Weak::clone(&self.me));
        self.shard.spawn(async move {
            loop {
                shard.sleep(SWEEP).await;
                let Some(own) = own.upgrade() else { return };
                let over = {
                    let mut kept = own.kept.borrow_mut();
                    let (now, kept) = (shard.now(), &mut *kept);
                    let over: Vec<Rc<Usable>> = kept
                        .windows
                        .extract_if(|_, one| !one.lease.is_current())
                        .map(|(_, one)| one)
                        .collect();
                    kept.order.retain(|key| kept.windows.contains_key(key));
                    kept.pauses.retain(|_, until| *until > now);
                    kept.devices.retain(|_, device| device.strong_count() > 0);
                    own.sweeps.set(!kept.windows.is_empty() || !kept.pauses.is_empty());
                    over
                };
                drop(over);
                if !own.sweeps.get() {
                    return;
                }
            }
        });
    }
}

/// The bytes of a part are as their checksums say.
fn agree(usable: &Usable, part: &Part, bytes: &[u8]) -> bool {
    if usable.lease.sums.is_empty() {
        return true;
    }
    let blocks = part.bytes.start / BLOCK..part.bytes.end / BLOCK;
    blocks.zip(bytes.chunks_exact(BLOCK as usize)).all(|(block, bytes)| {
        let sum = usable.lease.sum(block);
        sum == UNKNOWN || sum == sum_of(bytes)
    })
}

impl Leases for LeaseReader {
    fn suffice(&self, ino: Ino, offset: u64, len: usize) -> Leased {
        match self.leases_of(ino, offset, len) {
            Some(_) => Leased::Yes,
            None if self.may_ask(ino) => Leased::Ask,
            None => Leased::No,
        }
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, room: Option<BufMut>) -> LeasedRead<'_> {
        Box::pin(self.read_leased(ino, offset, len, room))
    }

    fn keep(&self, ino: Ino, lease: Option<Lease>) {
        let Some(usable) = lease.and_then(|lease| self.usable(lease)) else {
            let until = self.shard.now() + PAUSE;
            self.kept.borrow_mut().pauses.insert(ino, until);
            return self.sweep();
        };
        let key = (usable.lease.ino, usable.lease.window);
        let (before, oldest) = {
            let mut kept = self.kept.borrow_mut();
            let before = kept.windows.insert(key, Rc::new(usable));
            if before.is_none() {
                kept.order.push_back(key);
            }
            let oldest = match kept.order.len() > KEPT {
                true => kept.order.pop_front().and_then(|oldest| kept.windows.remove(&oldest)),
                false => None,
            };
            (before, oldest)
        };
        // A device that goes with them may do something.
        drop((before, oldest));
        self.sweep();
    }
}
