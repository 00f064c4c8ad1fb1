//! Which copy a read is had from, where several hold the same bytes.
//!
//! A read that begins where another on the same member ended goes on there: a disk need not move its head,
//! and what is read ahead is used. Any other is for the member with the fewest reads in flight. Where several
//! have as few, disks compare how far their heads would have to move, and other members take turns.
//!
//! - Disks keep a stream for as long as it lasts, unless something else has moved the head away from it and
//!   another disk has nothing to do. Members without heads keep it for [`RUN_MIN`] bytes, or
//!   for what the array's requests are cut from where that is more; then it goes on where less
//!   is in flight, so that one deep stream gets the bandwidth of all copies.
//! - In layout far the first copy wins ties, and disks read no other: first copies are spread over all
//!   members like a stripe, in the outer, faster zone.
//! - In layout offset disks are asked for the copies of a stream in turn by the number of the chunk: what it reads
//!   of a disk lies together then, and the disks between are left to others.
//! - A write-mostly member of level 1 is asked when there is no other.
//! - Where copies may differ, before a resync has come by, all reads take the first.
//!
//! As in md (`raid1.c` and `raid10.c`, `read_balance`), but for the runs and for streams that share a disk. What is
//! known is this shard's alone, so it is no more than a guess about the member; what is forgotten or out of date
//! costs a seek.

use braid_layout::{Place, Slot};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

/// Ends of streams that are remembered of each member.
const STREAMS: usize = 8;
/// A stream is read from one member without a head for at least so many bytes, before it may go to another.
const RUN_MIN: u64 = 128 << 10;
/// And for no more than these, so that one large request has the bandwidth of all copies.
const RUN_MAX: u64 = 1 << 20;
/// The same below another array, which shares large requests out itself: no plug makes larger ones.
const RUN_MAX_BELOW: u64 = 4 << 20;

/// Where reads ended that may go on.
#[derive(Clone, Copy)]
struct Stream {
    /// Component byte; `u64::MAX`: unused.
    end: u64,
    /// Bytes read in one go up to there.
    run: u64,
    /// Has gone on since it was last looked at for being replaced.
    alive: bool,
}

const UNUSED: Stream = Stream { end: u64::MAX, run: 0, alive: false };

/// The load of one slot's member on this shard.
struct Load {
    in_flight: u32,
    /// When it was asked last, counted in reads of this shard.
    asked: u64,
    /// Component byte at which the read that was submitted last ends.
    head: u64,
    streams: [Stream; STREAMS],
    /// The next to be replaced, unless it is alive.
    hand: usize,
}

impl Load {
    const NEW: Load = Load { in_flight: 0, asked: 0, head: 0, streams: [UNUSED; STREAMS], hand: 0 };

    fn stream(&self, at: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.end == at)
    }

    fn note(&mut self, start: u64, end: u64, enough: u64) {
        self.head = end;
        let len = end - start;
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.end == start) {
            let run = if stream.run >= enough { len } else { stream.run + len };
            *stream = Stream { end, run, alive: true };
            return;
        }
        // Reads here and there must not push the streams out that go on between them.
        while let Some(stream) = self.streams.get_mut(self.hand) {
            self.hand = (self.hand + 1) % STREAMS;
            if !std::mem::take(&mut stream.alive) {
                *stream = Stream { end, run: len, alive: false };
                return;
            }
        }
    }
}

/// See the module's documentation.
pub(crate) struct Balance {
    by_slot: RefCell<SmallVec<[Load; 4]>>,
    /// Reads so far.
    reads: Cell<u64>,
    /// Streams of the array, by array bytes; its other fields are of no use.
    of_array: RefCell<Load>,
    /// Bytes that a stream stays on a member without a head, a power of two.
    run: Cell<u64>,
}

/// The rule for ties.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ties {
    Nearest,
    Turns,
    First,
}

impl Balance {
    pub(crate) fn new(slots: usize) -> Balance {
        let by_slot = (0..slots).map(|_| Load::NEW).collect();
        Balance {
            by_slot: RefCell::new(by_slot),
            reads: Cell::new(0),
            of_array: RefCell::new(Load::NEW),
            run: Cell::new(RUN_MIN),
        }
    }

    /// There are so many slots now; nothing is read meanwhile.
    pub(crate) fn suit(&self, slots: usize) {
        *self.by_slot.borrow_mut() = (0..slots).map(|_| Load::NEW).collect();
    }

    /// Array bytes `start..end` are read: true when another read ended where they begin.
    pub(crate) fn goes_on(&self, start: u64, end: u64) -> bool {
        let mut of_array = self.of_array.borrow_mut();
        let goes_on = of_array.stream(start).is_some();
        of_array.note(start, end, u64::MAX);
        goes_on
    }

    /// Bytes that a stream stays on a member without a head.
    pub(crate) fn run(&self) -> u64 {
        self.run.get()
    }

    /// Requests are cut from such of `bytes` bytes, perhaps by an array above this one.
    pub(crate) fn set_run(&self, bytes: u64, below: bool) {
        let most = if below { RUN_MAX_BELOW } else { RUN_MAX };
        self.run.set(bytes.clamp(RUN_MIN, most).next_power_of_two());
    }

    /// A read of component bytes is about to be submitted to the member of `slot`.
    pub(crate) fn begin(&self, slot: Slot, start: u64, end: u64) {
        if let Some(load) = self.by_slot.borrow_mut().get_mut(slot) {
            self.reads.set(self.reads.get() + 1);
            load.asked = self.reads.get();
            load.in_flight += 1;
            load.note(start, end, self.run.get());
        }
    }

    /// A read of the member of `slot` has ended.
    pub(crate) fn end(&self, slot: Slot) {
        if let Some(load) = self.by_slot.borrow_mut().get_mut(slot) {
            // Each `end` follows a `begin`.
            load.in_flight = load.in_flight.saturating_sub(1);
        }
    }

    /// One of `copies`, which all hold what is to be read.
    pub(crate) fn choose(&self, copies: &[Place], heads: bool, ties: Ties) -> Option<Place> {
        if let [only] = copies {
            return Some(*only);
        }
        let by_slot = self.by_slot.borrow();
        let loads = || copies.iter().filter_map(|copy| Some((copy, by_slot.get(copy.slot)?)));
        let going_on =
            loads().find_map(|(copy, load)| Some((copy, load, load.stream(copy.offset)?)));
        if let Some((copy, load, stream)) = going_on {
            let least = loads().map(|(_, load)| load.in_flight).min().unwrap_or(0);
            let leaves = match heads {
                true => load.head != copy.offset && least == 0,
                false => stream.run >= self.run.get(),
            };
            if !leaves || load.in_flight <= least {
                return Some(*copy);
            }
        }
        let rank = |copy: &Place, load: &Load| match ties {
            Ties::Nearest => load.head.abs_diff(copy.offset),
            Ties::Turns => load.asked,
            Ties::First => 0,
        };
        // Of equal ones the first.
        let best = loads().min_by_key(|(copy, load)| (load.in_flight, rank(copy, load)));
        best.map(|(copy, _)| *copy)
    }
}
