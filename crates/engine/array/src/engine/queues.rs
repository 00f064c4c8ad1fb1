//! Writes that wait for their stripe: a queue for each stripe of which something waits. A queue is looked up by its stripe
//! when a write comes; whoever leads has its key, which is good until the queue is taken.
//!
//! A stripe whose data comes in several writes while the stripes before it, which came so too, are being carried out is
//! part of a stream: the answers to those bring the next writes, so it is [held](Waiting::due) until it is whole or one of
//! them [has ended](Waiting::ended).
//!
//! Knows no task: whoever joins as the first sees to it that somebody leads.

use super::by_unit::ByUnit;
use crate::engine::work::WriteArgs;
use crate::state::extent::{Extent, rows_of_all};
use braid_layout::Parity;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Writes carried out together, at most.
const TOGETHER_MAX: usize = 256;
/// Writes of one stripe that are looked at for being apart, at most.
const APART_MAX: usize = 8;
/// Turns without another write of the stripe after which none is expected. A request that lies in a
/// socket takes two: its header, and what it carries.
const TURNS_WITHOUT: u64 = 2;
/// Turns after which a stripe is carried out although writes keep coming.
const TURNS_MAX: u64 = 64;
/// A stream has so many stripes under way at once, at most, as far as is looked for them.
const STREAM_MAX: u64 = 16;
/// A stripe is held back so many times: as often as stripes before it can end while its own data is on the way.
const HELD_MAX: u32 = 16;

/// The writes that wait for one stripe, in the order of arrival.
struct Queue {
    unit: u64,
    /// Mostly the only one: no list is needed then. `None` when the queue is not in use.
    first: Option<WriteArgs>,
    more: Vec<WriteArgs>,
    /// Of all pieces; pieces that overlap count twice.
    bytes: u64,
    sizes: Sizes,
    /// The turns in which the first has come, and the last.
    since: u64,
    last: u64,
    /// Turns for which whole stripes went ahead.
    passed: u32,
    /// The number of times that it was held back for the rest of its data.
    held: u32,
    /// Nobody else can join: it is one write of all of the stripe.
    closed: bool,
}

/// The sizes of a stripe, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) chunk: u64,
    /// Of its data.
    pub(crate) stripe: u64,
}

impl Sizes {
    #[inline]
    pub(crate) fn of(parity: &Parity) -> Sizes {
        Sizes { chunk: parity.chunk_size(), stripe: parity.stripe_size() }
    }
}

/// A queue as its leader needs to know it.
pub(crate) struct Leading {
    pub(crate) unit: u64,
    pub(crate) sizes: Sizes,
    /// Rows that its writes touch.
    pub(crate) rows: Range<u64>,
    /// It is one write, so far.
    pub(crate) lone: bool,
}

/// The key of a queue.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Key(u32);

impl Queue {
    #[cold]
    fn new(first: WriteArgs, bytes: u64, sizes: Sizes, turn: u64, closed: bool) -> Queue {
        Queue {
            unit: first.unit,
            first: Some(first),
            more: Vec::new(),
            bytes,
            sizes,
            since: turn,
            last: turn,
            passed: 0,
            held: 0,
            closed,
        }
    }

    fn pieces(&self) -> impl Iterator<Item = &WriteArgs> {
        self.first.iter().chain(&self.more)
    }

    /// The turn after which no other write is waited for.
    fn due(&self) -> u64 {
        quiet_after(self.last).min(self.since + TURNS_MAX)
    }
}

/// The turn in which nothing more is expected after a write that came in `turn`.
fn quiet_after(turn: u64) -> u64 {
    turn + 1 + TURNS_WITHOUT
}

/// The place of a write that has joined its stripe.
pub(crate) enum Joined {
    /// Another write is there, and somebody takes it along.
    Follows,
    /// It is the last of a stripe that was held back for it, and now needs somebody who leads.
    Completes(Key),
    /// It is the first, and needs somebody who leads.
    Leads(Key),
    /// So does a write of all of the stripe, which waits for no others.
    Whole(Key),
}

/// Lists that the plan of writes that are carried out together is made of: their memory is kept for the next.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) extents: Vec<Extent>,
    /// Rows at which what is written changes.
    pub(crate) cuts: Vec<u64>,
}

/// A stripe whose writes wait for others.
struct Batching {
    key: Key,
    /// The turn in which it is looked at.
    due: u64,
}

#[derive(Default)]
struct Queues {
    /// Queues stay where they are: they are used again, and what they hold is large.
    all: Vec<Queue>,
    unused: Vec<Key>,
    /// By unit, those that can be joined.
    open: ByUnit<Key>,
}

impl Queues {
    fn get(&mut self, key: Key) -> Option<&mut Queue> {
        self.all.get_mut(key.0 as usize)
    }

    /// Ends a queue: nobody joins it any more.
    #[inline]
    fn end(&mut self, key: Key) -> Option<&mut Queue> {
        let queue = self.all.get_mut(key.0 as usize)?;
        if !queue.closed {
            self.open.remove(queue.unit);
        }
        self.unused.push(key);
        Some(queue)
    }
}

/// The waiting writes of one array on one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    queues: RefCell<Queues>,
    /// In the order in which their first writes came. The other stripes wait for their rows.
    batching: RefCell<Vec<Batching>>,
    watched: Cell<bool>,
    /// No turn before this one is the `due` of a stripe.
    next_due: Cell<u64>,
    /// Stripes that have all their data, about.
    whole: Cell<u32>,
    /// Stripes that came whole in several writes and are being carried out.
    under_way: RefCell<Vec<u64>>,
    /// Stripes that are held back until one of those has ended.
    held: RefCell<Vec<Key>>,
    /// Memory that is kept for reuse.
    due: Cell<Vec<Key>>,
    lists: RefCell<Vec<Vec<WriteArgs>>>,
    rooms: RefCell<Vec<Room>>,
}

impl Waiting {
    /// Has a write that came in this `turn` wait for its stripe, which is so large.
    // A write is large: called, it would be moved for that.
    #[inline(always)]
    pub(crate) fn join(&self, args: WriteArgs, sizes: Sizes, turn: u64) -> Joined {
        let unit = args.unit;
        let bytes = args.extent.end - args.extent.start;
        let mut queues = self.queues.borrow_mut();
        let Queues { all, unused, open } = &mut *queues;
        if let Some(there) = open.get_mut(unit) {
            let key = *there;
            if let Some(queue) = all.get_mut(key.0 as usize) {
                return self.follow(key, queue, args, turn);
            }
        }
        let key = unused.pop().unwrap_or(Key(all.len() as u32));
        let closed = bytes == sizes.stripe;
        if !closed {
            open.insert(unit, key);
        }
        match all.get_mut(key.0 as usize) {
            Some(queue) => {
                (queue.unit, queue.bytes, queue.sizes) = (unit, bytes, sizes);
                (queue.since, queue.last, queue.passed, queue.held) = (turn, turn, 0, 0);
                queue.closed = closed;
                queue.first = Some(args);
            }
            None => all.push(Queue::new(args, bytes, sizes, turn, closed)),
        }
        if closed { Joined::Whole(key) } else { Joined::Leads(key) }
    }

    #[inline(never)]
    fn follow(&self, key: Key, queue: &mut Queue, args: WriteArgs, turn: u64) -> Joined {
        let before = queue.bytes;
        queue.bytes += args.extent.end - args.extent.start;
        let completes = before < queue.sizes.stripe && queue.bytes >= queue.sizes.stripe;
        if completes {
            self.whole.set(self.whole.get() + 1);
        }
        queue.last = turn;
        if queue.more.capacity() == 0 {
            queue.more = self.list();
        }
        queue.more.push(args);
        let mut held = self.held.borrow_mut();
        match held.iter().position(|other| *other == key).filter(|_| completes) {
            Some(at) => {
                held.swap_remove(at);
                Joined::Completes(key)
            }
            None => Joined::Follows,
        }
    }

    /// The stripe of queue `key`, whose first write came in this `turn`, waits for other writes. True when nobody watches
    /// such stripes: the caller is to see to it that [`Waiting::due`] is called in every turn, until it says that there
    /// are none.
    #[inline(always)]
    pub(crate) fn batch(&self, key: Key, turn: u64) -> bool {
        let due = quiet_after(turn);
        self.next_due.set(self.next_due.get().min(due));
        self.batching.borrow_mut().push(Batching { key, due });
        !self.watched.replace(true)
    }

    /// Gives `lead` the stripes that are to be carried out in this `turn`: turns have passed without a new write,
    /// or all of the data is there. Stripes that need nothing read go ahead, for `threshold` turns. Stripes of a stream
    /// are held back until [`Waiting::ended`]. False when no stripe waits for turns to pass any more.
    pub(crate) fn due(&self, turn: u64, threshold: u32, lead: impl Fn(Key)) -> bool {
        let any_whole = self.whole.get() > 0;
        if turn < self.next_due.get() && !any_whole {
            return true;
        }
        let mut ready = self.due.take();
        let mut next_due = u64::MAX;
        let mut queues = self.queues.borrow_mut();
        let mut batching = self.batching.borrow_mut();
        batching.retain_mut(|stripe| {
            if stripe.due > turn && !any_whole {
                next_due = next_due.min(stripe.due);
                return true;
            }
            let Some(queue) = queues.get(stripe.key) else { return false };
            let (whole, due) = (queue.bytes >= queue.sizes.stripe, queue.due());
            if !whole && due > turn {
                stripe.due = due;
                next_due = next_due.min(due);
                return true;
            }
            let ends = whole || turn >= queue.since + TURNS_MAX;
            if !ends && any_whole && queue.passed < threshold {
                queue.passed += 1;
                next_due = turn;
                return true;
            }
            if !whole && queue.held < HELD_MAX && self.goes_on(queue.unit) {
                queue.held += 1;
                self.held.borrow_mut().push(stripe.key);
                return false;
            }
            ready.push(stripe.key);
            false
        });
        let more = !batching.is_empty();
        self.watched.set(more);
        self.next_due.set(next_due);
        drop((queues, batching));
        ready.drain(..).for_each(lead);
        self.due.set(ready);
        more
    }

    /// A stripe right before `unit` has come whole in several writes, and is being carried out.
    fn goes_on(&self, unit: u64) -> bool {
        let before = |other: &u64| *other < unit && unit - *other <= STREAM_MAX;
        self.under_way.borrow().iter().any(before)
    }

    /// What was [taken](Waiting::take) of stripe `unit` has been carried out: stripes that were held back wait for what
    /// that brings, as if they had come in this `turn`. True as of [`Waiting::batch`].
    pub(crate) fn ended(&self, unit: u64, turn: u64) -> bool {
        let mut under_way = self.under_way.borrow_mut();
        let Some(at) = under_way.iter().position(|other| *other == unit) else { return false };
        under_way.swap_remove(at);
        let mut held = self.held.borrow_mut();
        if held.is_empty() {
            return false;
        }
        let due = quiet_after(turn);
        let mut queues = self.queues.borrow_mut();
        for key in held.drain(..) {
            if let Some(queue) = queues.get(key) {
                (queue.since, queue.last) = (turn, turn);
            }
            self.batching.borrow_mut().push(Batching { key, due });
        }
        self.next_due.set(self.next_due.get().min(due));
        !self.watched.replace(true)
    }

    /// An empty list for writes, to be given back to [`Waiting::keep_list`].
    pub(crate) fn list(&self) -> Vec<WriteArgs> {
        self.lists.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(8))
    }

    /// Takes an empty list back that [`Waiting::list`] gave.
    pub(crate) fn keep_list(&self, list: Vec<WriteArgs>) {
        if list.capacity() > 0 {
            self.lists.borrow_mut().push(list);
        }
    }

    /// Lists for a plan, to be given back to [`Waiting::keep`].
    pub(crate) fn room(&self) -> Room {
        self.rooms.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes lists back that [`Waiting::room`] gave.
    pub(crate) fn keep(&self, room: Room) {
        self.rooms.borrow_mut().push(room);
    }

    /// The writes that wait in queue `key`; `None` when there are none.
    #[inline]
    pub(crate) fn leading(&self, key: Key) -> Option<Leading> {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.get(key)?;
        let first = queue.first.as_ref()?.extent;
        let chunk = queue.sizes.chunk;
        let lone = queue.more.is_empty();
        let rows = if lone {
            first.rows(chunk)
        } else {
            rows_of_all(queue.pieces().map(|piece| piece.extent), chunk)
        };
        Some(Leading { unit: queue.unit, sizes: queue.sizes, rows, lone })
    }

    /// Takes what waits in queue `key` when that is one write.
    #[inline]
    pub(crate) fn take_lone(&self, key: Key) -> Option<WriteArgs> {
        let mut queues = self.queues.borrow_mut();
        if !queues.get(key)?.more.is_empty() {
            return None;
        }
        queues.end(key)?.first.take()
    }

    /// Takes what waits in queue `key` when those are a few writes whose rows, which `rows_of` tells, are apart: no plan
    /// would have anything in common for two of them. False, and nothing is taken, for all others.
    pub(crate) fn take_apart(
        &self,
        key: Key,
        rows_of: impl Fn(&Extent) -> Range<u64>,
        into: &mut Vec<WriteArgs>,
    ) -> bool {
        let mut queues = self.queues.borrow_mut();
        let Some(queue) = queues.get(key) else { return false };
        if queue.more.len() >= APART_MAX || queue.bytes >= queue.sizes.stripe {
            return false;
        }
        let mut rows: SmallVec<[Range<u64>; APART_MAX]> =
            queue.pieces().map(|piece| rows_of(&piece.extent)).collect();
        rows.sort_unstable_by_key(|rows| rows.start);
        // Neighbours are written by one request where they are carried out together.
        if !rows.is_sorted_by(|a, b| a.end < b.start) {
            return false;
        }
        let Some(queue) = queues.end(key) else { return false };
        into.extend(queue.first.take());
        into.append(&mut queue.more);
        let more = std::mem::take(&mut queue.more);
        drop(queues);
        self.keep_list(more);
        true
    }

    /// Takes what waits in queue `key` and can be carried out at once, ascending and apart, in any order
    /// that keeps writes that overlap in the order of their arrival. Gives the rest, which waits no more. When what was
    /// taken has been carried out [`Waiting::ended`] is to be told.
    pub(crate) fn take(&self, key: Key, into: &mut Vec<WriteArgs>) -> Vec<WriteArgs> {
        let mut left: Vec<WriteArgs> = Vec::new();
        let mut queues = self.queues.borrow_mut();
        let Some(queue) = queues.end(key) else { return left };
        if queue.bytes >= queue.sizes.stripe {
            self.whole.set(self.whole.get() - 1);
            self.under_way.borrow_mut().push(queue.unit);
        }
        let (first, mut more) = (queue.first.take(), std::mem::take(&mut queue.more));
        drop(queues);
        for piece in first.into_iter().chain(more.drain(..)) {
            let at = into.partition_point(|other| other.extent.end <= piece.extent.start);
            let over = |other: Option<&WriteArgs>| {
                other.is_some_and(|other| other.extent.overlaps(&piece.extent))
            };
            if into.len() >= TOGETHER_MAX
                || over(into.get(at))
                || left.iter().any(|other| other.extent.overlaps(&piece.extent))
            {
                left.push(piece);
            } else {
                into.insert(at, piece);
            }
        }
        self.keep_list(more);
        left
    }
}
