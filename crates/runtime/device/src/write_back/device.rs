//! The filter: requests on their way through it.

use super::kept::{BLOCK, Blocks, Kept};
use crate::agreeing::{FindAgreeing, Sought};
use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::IoError;
use crate::info::DeviceInfo;
use crate::io_set::IoSets;
use crate::request::{Op, Request};
use crate::reservation::Reservations;
use braid_shard::plant::planted;
use braid_shard::ring::BufMuts;
use braid_shard::sync::Notify;
use braid_shard::{BufMut, Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The longest write that is kept. A longer one is worth a request of its own, and a copy of it costs more.
const WRITE_MAX: u64 = 64 << 10;
/// Bytes that are kept at most; beyond that writers wait for the device.
const KEPT_MAX: u64 = 8 << 20;
/// So many new bytes are written out although nobody has asked for it, and fewer after so many nanoseconds: time enough for
/// neighbours to come, and little in which nobody knows that the device is gone.
const BATCH_AT: u64 = 1 << 20;
const LINGER: Nanos = 200_000_000;

/// See the module's documentation.
pub struct WriteBack {
    pub(super) shard: Shard,
    pub(super) sets: IoSets,
    pub(super) below: Rc<dyn Device>,
    pub(super) kept: RefCell<Kept>,
    /// A batch is on its way.
    pub(super) leaving: Cell<bool>,
    /// A batch has ended.
    pub(super) ended: Notify,
    /// The device did not take what was acknowledged. From then on each flush fails.
    pub(super) failure: Cell<Option<IoError>>,
    info: DeviceInfo,
    me: Weak<WriteBack>,
}

impl WriteBack {
    /// Over `below`, on the same shard, with nothing kept.
    pub fn new(shard: &Shard, below: Rc<dyn Device>) -> Rc<WriteBack> {
        let info = DeviceInfo { volatile_cache: true, ..below.info().clone() };
        Rc::new_cyclic(|me| WriteBack {
            shard: shard.clone(),
            sets: IoSets::new(shard),
            below,
            kept: RefCell::default(),
            leaving: Cell::new(false),
            ended: Notify::new(shard),
            failure: Cell::new(None),
            info,
            me: Weak::clone(me),
        })
    }

    /// Takes a write at once, as done. What becomes of it is told by the next flush, which fails if it is lost. False: this
    /// one cannot be kept, or there is no room for it; it is to be submitted.
    pub fn keep(&self, request: &Request) -> bool {
        let Op::Write { bufs, fua: false } = &request.op else { return false };
        let len = request.len();
        let is_whole = (request.offset | len).is_multiple_of(BLOCK) && len > 0;
        let has_room = self.kept.borrow().bytes() + len <= KEPT_MAX;
        let is_sound = self.failure.get().is_none() && request.check(&self.info).is_ok();
        if !is_whole || len > WRITE_MAX || !has_room || !is_sound {
            return false;
        }
        let mut copy = self.shard.pool().get(len as usize);
        let mut at = 0;
        for buf in bufs {
            copy[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        let (copy, mut kept) = (copy.freeze(), self.kept.borrow_mut());
        let is_first = kept.new_bytes() == 0;
        for at in (0..len).step_by(BLOCK as usize) {
            kept.put(request.offset + at, copy.slice(at as usize..(at + BLOCK) as usize));
        }
        let is_enough = kept.new_bytes() >= BATCH_AT && !self.leaving.get();
        drop(kept);
        if is_enough {
            self.begin(async |own| own.write_out().await);
        } else if is_first {
            // Whoever lets the device go before has flushed it, and it is to be free at once.
            let (shard, own) = (self.shard.clone(), Weak::clone(&self.me));
            self.shard.spawn(async move {
                shard.sleep(LINGER).await;
                if let Some(own) = own.upgrade() {
                    own.write_out().await;
                }
            });
        }
        true
    }

    /// Something of these bytes is not on the device yet.
    pub fn holds_back(&self, bytes: &Range<u64>) -> bool {
        self.kept.borrow().overlaps(bytes)
    }

    /// Starts a task that holds on to this.
    fn begin(&self, work: impl AsyncFnOnce(Rc<WriteBack>) + 'static) {
        // Whoever is called is held by somebody.
        let Some(own) = self.me.upgrade() else { return };
        self.shard.spawn(async move { work(own).await });
    }

    /// A read, of which some blocks are newer here than on the device.
    fn read(&self, request: Request, done: Completion) {
        let bytes = request.offset..request.offset + request.len();
        let mut found = self.kept.borrow().within(&bytes);
        if planted("kept-not-read") {
            found.clear();
        }
        if found.is_empty() {
            return self.below.submit(request, done);
        }
        let Op::Read(mut bufs) = request.op else { return done.complete(Outcome::ok(request.op)) };
        let blocks = bytes.end.div_ceil(BLOCK) - bytes.start / BLOCK;
        if found.len() as u64 == blocks {
            apply(&found, &bytes, &mut bufs);
            return done.complete(Outcome::ok(Op::Read(bufs)));
        }
        self.begin(async move |own| {
            let request = Request { offset: bytes.start, op: Op::Read(bufs) };
            let mut outcome = own.sets.one(&*own.below, request).await;
            if let (Ok(()), Op::Read(bufs)) = (&outcome.result, &mut outcome.op) {
                apply(&found, &bytes, bufs);
            }
            done.complete(outcome);
        });
    }

    fn flush(&self, request: Request, done: Completion) {
        self.begin(async move |own| {
            if !planted("kept-not-flushed") {
                own.write_out().await;
            }
            if let Some(error) = own.failure.get() {
                return done.complete(Outcome::failed(error, request.op));
            }
            if !own.below.info().volatile_cache {
                return done.complete(Outcome::ok(request.op));
            }
            let outcome = own.sets.one(&*own.below, request).await;
            // A write that the device did not take may have been on its way before this flush was asked for.
            match own.failure.get() {
                Some(error) => done.complete(Outcome::failed(error, outcome.op)),
                None => done.complete(outcome),
            }
        });
    }
}

/// Puts the blocks of `found` into `bufs`, which hold `bytes`.
fn apply(found: &Blocks, bytes: &Range<u64>, bufs: &mut BufMuts) {
    let mut at = bytes.start;
    for buf in bufs.iter_mut() {
        let part = at..at + buf.len() as u64;
        let first = part.start / BLOCK * BLOCK;
        for (start, block) in found.range(first..part.end.max(first)) {
            copy_overlap(*start, block, part.start, buf);
        }
        at = part.end;
    }
}

/// Copies what `block`, which begins at byte `from`, has of the bytes of `buf`, which begins at byte `at`.
fn copy_overlap(from: u64, block: &[u8], at: u64, buf: &mut BufMut) {
    let start = from.max(at);
    let end = (from + block.len() as u64).min(at + buf.len() as u64);
    if start < end {
        buf[(start - at) as usize..(end - at) as usize]
            .copy_from_slice(&block[(start - from) as usize..(end - from) as usize]);
    }
}

impl Device for WriteBack {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let is_empty = self.kept.borrow().is_empty() && !self.leaving.get();
        match &request.op {
            Op::Flush if !is_empty || self.failure.get().is_some() => {
                return self.flush(request, done);
            }
            Op::Flush if !self.below.info().volatile_cache => {
                return done.complete(Outcome::ok(request.op));
            }
            Op::Flush => {}
            _ if is_empty => {}
            Op::Read(_) => return self.read(request, done),
            Op::Write { .. } | Op::Discard { .. } | Op::WriteZeroes { .. } => {
                let bytes = request.offset..request.offset + request.len();
                let overlaps = self.kept.borrow().overlaps(&bytes);
                if overlaps {
                    return self.begin(async move |own| {
                        own.write_out().await;
                        own.below.submit(request, done);
                    });
                }
            }
        }
        self.below.submit(request, done);
    }

    fn cut_from(&self, bytes: u64) {
        self.below.cut_from(bytes);
    }

    fn layers(&self) -> u32 {
        self.below.layers()
    }

    fn may_hang(&self) -> bool {
        self.below.may_hang()
    }

    fn hurry(&self) {
        self.below.hurry();
    }

    fn waits_for_silent(&self) -> bool {
        self.below.waits_for_silent()
    }

    fn find_agreeing(&self, sought: Sought) -> FindAgreeing {
        let end = sought.offset.saturating_add(sought.len as u64);
        // What is kept is newer than what lies below.
        match self.kept.borrow().overlaps(&(sought.offset..end)) {
            true => Sought::nowhere(),
            false => self.below.find_agreeing(sought),
        }
    }

    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        self.below.reservations()
    }

    fn waits_for_space(&self) -> bool {
        self.below.waits_for_space()
    }
}
