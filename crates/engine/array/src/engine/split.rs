//! A request that was split into parts: it completes when the last part has.
//!
//! A split is itself the sink of requests that go straight to members, so a healthy read needs no
//! task. Splits are kept for reuse.

use crate::engine::balance::Balance;
use crate::engine::hold::Hold;
use crate::state::reports::Reports;
use braid_device::{BufMuts, Completion, IoError, IoErrorKind, Op, Outcome, Sink};
use braid_layout::Slot;
use braid_shard::sync::Notify;
use braid_shard::{BufMut, Shard};
use slab::Slab;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The kind of request that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write { fua: bool },
    WriteZeroes { len: u64, unmap: bool, fua: bool },
}

/// A token is the index of a part, and what else its outcome needs: the slot that it was read from, plus one;
/// or that it is not to be recovered again.
const SLOT_SHIFT: u32 = 32;
const RECOVERED: u64 = 1 << 63;

/// The token of part `index` of a read of the member of `slot`, whose end the balance waits for.
pub(crate) fn counted(index: u32, slot: Slot) -> u64 {
    (slot as u64 + 1) << SLOT_SHIFT | u64::from(index)
}

/// The token of part `index`, had by recovery: its error is final.
pub(crate) fn recovered(index: u32) -> u64 {
    RECOVERED | u64::from(index)
}

/// One part: where it is in the array, and, for reads, its buffer while nobody else has it.
struct Part {
    offset: u64,
    buf: Option<BufMut>,
    /// The part starts a buffer of the request (rather than continuing one).
    starts: bool,
}

/// See the module's documentation.
pub(crate) struct Split {
    all: Weak<Splits>,
    own: Weak<Split>,
    remaining: Cell<u32>,
    error: Cell<Option<IoError>>,
    kind: Cell<Kind>,
    parts: RefCell<SmallVec<[Part; 4]>>,
    done: Cell<Option<Completion>>,
}

impl Split {
    /// One of `all`, and kept there for reuse.
    fn new(all: &Rc<Splits>) -> Rc<Split> {
        Rc::new_cyclic(|own| Split {
            all: Rc::downgrade(all),
            own: own.clone(),
            remaining: Cell::new(0),
            error: Cell::new(None),
            kind: Cell::new(Kind::Read),
            parts: RefCell::new(SmallVec::new()),
            done: Cell::new(None),
        })
    }

    /// Starts a request that ends with `done`. Holds one part itself until [`Split::all_submitted`].
    pub(crate) fn begin(&self, kind: Kind, done: Completion) {
        self.kind.set(kind);
        self.error.set(None);
        self.remaining.set(1);
        self.done.set(Some(done));
    }

    /// Announces a part at array byte `offset` and gives its index.
    pub(crate) fn add(&self, offset: u64, starts: bool) -> u32 {
        self.remaining.set(self.remaining.get() + 1);
        let mut parts = self.parts.borrow_mut();
        parts.push(Part { offset, buf: None, starts });
        parts.len() as u32 - 1
    }

    /// No further parts will be announced.
    pub(crate) fn all_submitted(&self) {
        self.part_ended();
    }

    /// Where part `index` is, in array bytes.
    pub(crate) fn offset_of(&self, index: u32) -> u64 {
        self.parts.borrow().get(index as usize).map_or(0, |part| part.offset)
    }

    /// Ends part `index`; for reads with its buffer.
    pub(crate) fn part_done(&self, index: u32, result: Result<(), IoError>, buf: Option<BufMut>) {
        if let Err(error) = result
            && self.error.get().is_none()
        {
            self.error.set(Some(error));
        }
        if let Some(buf) = buf
            && let Some(part) = self.parts.borrow_mut().get_mut(index as usize)
        {
            part.buf = Some(buf);
        }
        self.part_ended();
    }

    fn part_ended(&self) {
        let remaining = self.remaining.get() - 1;
        self.remaining.set(remaining);
        if remaining == 0 {
            self.finish();
        }
    }

    fn finish(&self) {
        let op = match self.kind.get() {
            Kind::Read => Op::Read(self.take_buffers()),
            Kind::Write { fua } => Op::Write { bufs: SmallVec::new(), fua },
            Kind::WriteZeroes { len, unmap, fua } => Op::WriteZeroes { len, unmap, fua },
        };
        self.parts.borrow_mut().clear();
        self.end(Outcome { result: self.error.get().map_or(Ok(()), Err), op });
    }

    /// The request has ended like this.
    fn end(&self, mut outcome: Outcome) {
        let done = self.done.take();
        if let (Some(all), Some(own)) = (self.all.upgrade(), self.own.upgrade()) {
            if let (Err(error), Kind::Write { fua: true }) = (outcome.result, self.kind.get()) {
                all.durable_write_failed(error);
            }
            outcome.result = all.told(outcome.result);
            all.keep(own);
        }
        if let Some(done) = done {
            done.complete(outcome);
        }
    }

    fn take_buffers(&self) -> BufMuts {
        let mut bufs = BufMuts::new();
        // Of the buffer in work: parts that are not where they were cut from it.
        let mut strays: SmallVec<[BufMut; 4]> = SmallVec::new();
        for part in self.parts.borrow_mut().drain(..) {
            let Some(buf) = part.buf else { continue };
            if part.starts || bufs.is_empty() {
                self.join(&mut bufs, &mut strays);
                bufs.push(buf);
                continue;
            }
            match bufs.last_mut() {
                Some(last) if strays.is_empty() => {
                    if let Err(stray) = last.rejoin(buf) {
                        strays.push(stray);
                    }
                }
                _ => strays.push(buf),
            }
        }
        self.join(&mut bufs, &mut strays);
        bufs
    }

    /// Makes one buffer again of the last one and what does not lie behind it in memory: a device that was given up
    /// keeps the part that it was to fill, and another was filled instead. Or a part is missing, and the request has
    /// failed anyway.
    fn join(&self, bufs: &mut BufMuts, strays: &mut SmallVec<[BufMut; 4]>) {
        if strays.is_empty() {
            return;
        }
        let (Some(all), Some(first)) = (self.all.upgrade(), bufs.pop()) else {
            return strays.clear();
        };
        bufs.extend(all.shard.pool().joined(std::iter::once(first).chain(strays.drain(..))));
    }
}

impl Sink for Split {
    fn complete(&self, token: u64, outcome: Outcome) {
        let index = token as u32;
        let slot = (token & !RECOVERED) >> SLOT_SHIFT;
        if slot > 0
            && let Some(all) = self.all.upgrade()
        {
            all.read_ended(slot as Slot - 1);
        }
        let buf = match outcome.op {
            Op::Read(mut bufs) => bufs.pop(),
            _ => None,
        };
        match (outcome.result, buf) {
            (Err(error), Some(buf)) if token & RECOVERED == 0 => {
                // A member could not give its part: the engine tries the redundancy.
                match (self.all.upgrade(), self.own.upgrade()) {
                    (Some(all), Some(own)) => all.recover_later(own, index, buf, error),
                    _ => self.part_done(index, Err(error), Some(buf)),
                }
            }
            (result, buf) => self.part_done(index, result, buf),
        }
    }
}

/// Splits kept for reuse.
const KEPT: usize = 1024;

/// A part of a read whose member failed.
pub(crate) struct Unrecovered {
    pub(crate) split: Rc<Split>,
    pub(crate) index: u32,
    pub(crate) buf: BufMut,
    /// The error that the member gave.
    pub(crate) error: IoError,
}

/// A request that one member carries out as it is: nothing has to be joined unless that fails.
struct Alone {
    /// Array byte of its first.
    offset: u64,
    /// `None`: it is a read. Else a write, which is to be durable or not.
    fua: Option<bool>,
    done: Completion,
}

/// The splits of one array on one shard, and its requests that need none: how many requests are under way, splits kept for reuse, and parts of reads
/// whose member failed, which wait for recovery.
pub(crate) struct Splits {
    own: Weak<Splits>,
    shard: Shard,
    balance: Rc<Balance>,
    /// Where lost writes are counted that no redundancy makes good; `None` where there is redundancy.
    losses: RefCell<Option<Arc<Reports>>>,
    kept: RefCell<Vec<Rc<Split>>>,
    under_way: Cell<u32>,
    alone: RefCell<Slab<Alone>>,
    unrecovered: RefCell<VecDeque<Unrecovered>>,
    unrecovered_there: Notify,
    stopping: Cell<bool>,
    /// Requests wait while stripes move to other shards.
    pub(crate) hold: Hold,
}

/// Held while a request without a split of its own is under way: a stop waits for it.
pub(crate) struct RequestInFlight(Rc<Splits>);

impl RequestInFlight {
    /// See [`Splits::told`].
    pub(super) fn told(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        self.0.told(result)
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

impl Sink for Splits {
    fn complete(&self, token: u64, outcome: Outcome) {
        let slot = token >> SLOT_SHIFT;
        if slot > 0 {
            self.read_ended(slot as Slot - 1);
        }
        let Some(alone) = self.alone.borrow_mut().try_remove(token as u32 as usize) else { return };
        if outcome.result.is_err()
            && let Some(own) = self.own.upgrade()
        {
            return own.alone_failed(alone, outcome);
        }
        self.under_way.set(self.under_way.get() - 1);
        alone.done.complete(outcome);
    }
}

impl Splits {
    /// For requests whose reads `balance` shares out.
    pub(super) fn new(
        shard: &Shard,
        balance: &Rc<Balance>,
        losses: Option<Arc<Reports>>,
    ) -> Rc<Splits> {
        Rc::new_cyclic(|own| Splits {
            own: own.clone(),
            shard: shard.clone(),
            balance: Rc::clone(balance),
            losses: RefCell::new(losses),
            kept: RefCell::default(),
            under_way: Cell::new(0),
            alone: RefCell::default(),
            unrecovered: RefCell::default(),
            unrecovered_there: Notify::new(shard),
            stopping: Cell::new(false),
            hold: Hold::default(),
        })
    }

    /// A split for one request; comes back by itself when that has ended.
    pub(super) fn take(self: &Rc<Splits>) -> Rc<Split> {
        self.under_way.set(self.under_way.get() + 1);
        self.kept.borrow_mut().pop().unwrap_or_else(|| Split::new(self))
    }

    /// Enters a request at array byte `offset` that one member carries out as it is: a read, or a write without redundancy.
    /// The latter is durable at its end where `fua` says so. The member's request is to complete under the token that is
    /// returned, as part 0 of a split would.
    #[inline(always)]
    pub(crate) fn enter_alone(&self, offset: u64, fua: Option<bool>, done: Completion) -> u32 {
        self.under_way.set(self.under_way.get() + 1);
        self.alone.borrow_mut().insert(Alone { offset, fua, done }) as u32
    }

    /// A member could not carry out all of a request: from now on it is joined, and what is missing of a read is recovered.
    #[cold]
    fn alone_failed(self: &Rc<Splits>, alone: Alone, outcome: Outcome) {
        let split = self.take();
        // It was counted when it was entered.
        self.under_way.set(self.under_way.get() - 1);
        split.begin(alone.fua.map_or(Kind::Read, |fua| Kind::Write { fua }), alone.done);
        let index = split.add(alone.offset, true);
        split.complete(u64::from(index), outcome);
        split.all_submitted();
    }

    /// Enters a request that needs no split of its own.
    pub(super) fn enter(self: &Rc<Splits>) -> RequestInFlight {
        self.under_way.set(self.under_way.get() + 1);
        RequestInFlight(Rc::clone(self))
    }

    /// The result that a client is told. A stop may have given up members that requests under way need: to the client it is
    /// the stop that refuses.
    fn told(&self, result: Result<(), IoError>) -> Result<(), IoError> {
        match result {
            Err(_) if self.stopping.get() => Err(IoError::new(IoErrorKind::Refused)),
            result => result,
        }
    }

    /// Requests that have not completed.
    pub(super) fn under_way(&self) -> u32 {
        self.under_way.get()
    }

    /// The request of `split` has ended.
    pub(super) fn keep(&self, split: Rc<Split>) {
        self.under_way.set(self.under_way.get() - 1);
        let mut kept = self.kept.borrow_mut();
        if kept.len() < KEPT {
            kept.push(split);
        }
    }

    /// A durable write has failed, perhaps for what its member had taken before: that is told once, and
    /// no flush would say it again. Where there is redundancy settling has seen to it.
    pub(crate) fn durable_write_failed(&self, error: IoError) {
        let of_the_array = matches!(error.kind, IoErrorKind::Refused | IoErrorKind::Invalid);
        if let Some(losses) = self.losses.borrow().as_ref().filter(|_| !of_the_array) {
            losses.count_loss();
        }
    }

    /// Counts lost writes there from now on, or, with redundancy, nowhere.
    pub(crate) fn count_losses(&self, losses: Option<Arc<Reports>>) {
        *self.losses.borrow_mut() = losses;
    }

    pub(super) fn read_ended(&self, slot: Slot) {
        self.balance.end(slot);
    }

    /// Has part `index` of a read, whose member gave `error`, recovered from redundancy.
    pub(super) fn recover_later(&self, split: Rc<Split>, index: u32, buf: BufMut, error: IoError) {
        if self.stopping.get() {
            // A stop waits for writes only.
            split.part_done(index, Err(error), Some(buf));
            return;
        }
        self.unrecovered.borrow_mut().push_back(Unrecovered { split, index, buf, error });
        self.unrecovered_there.notify_all();
    }

    /// Waits for a part that is to be recovered; `None` when the array is stopped.
    pub(crate) async fn next_unrecovered(&self) -> Option<Unrecovered> {
        let there = || match self.unrecovered.borrow_mut().pop_front() {
            Some(next) => Some(Some(next)),
            None => self.stopping.get().then_some(None),
        };
        self.unrecovered_there.wait_for(there).await
    }

    /// The array is being stopped.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Nothing that fails from now on is recovered.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.unrecovered_there.notify_all();
    }
}
