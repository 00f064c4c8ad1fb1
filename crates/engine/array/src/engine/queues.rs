//! Writes that wait for their stripe: a queue for each stripe of which something waits. A queue is looked up by its stripe
//! when a write comes; whoever leads has its key, which is good until the queue is taken.
//!
//! Knows no task: whoever joins as the first sees to it that somebody leads.

use crate::engine::work::WriteArgs;
use crate::state::extent::{Extent, rows_of_all};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Writes carried out together, at most.
const TOGETHER_MAX: usize = 256;
/// Turns without another write of the stripe after which none is expected. A request that lies in a
/// socket takes two: its header, and what it carries.
const TURNS_WITHOUT: u64 = 2;
/// Turns after which a stripe is carried out although writes keep coming.
const TURNS_MAX: u64 = 64;

/// The writes that wait for one stripe, in the order of arrival.
struct Queue {
    unit: u64,
    /// Mostly the only one: no list is needed then.
    first: WriteArgs,
    more: Vec<WriteArgs>,
    /// Of all pieces; pieces that overlap count twice.
    bytes: u64,
    /// Bytes of data in the stripe.
    stripe_size: u64,
    /// The turns in which the first has come, and the last.
    since: u64,
    last: u64,
    /// Turns for which whole stripes went ahead.
    passed: u32,
    /// Nobody else can join: it is one write of all of the stripe.
    closed: bool,
}

/// The key of a queue.
#[derive(Clone, Copy)]
pub(crate) struct Key(u32);

impl Queue {
    fn pieces(&self) -> impl Iterator<Item = &WriteArgs> {
        std::iter::once(&self.first).chain(&self.more)
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
struct Gathering {
    key: Key,
    /// The turn in which it is looked at.
    due: u64,
}

#[derive(Default)]
struct Queues {
    all: Slab<Queue>,
    /// By unit, those that can be joined.
    open: HashMap<u64, Key>,
}

impl Queues {
    fn get(&self, key: Key) -> Option<&Queue> {
        self.all.get(key.0 as usize)
    }

    fn take(&mut self, key: Key) -> Option<Queue> {
        let queue = self.all.try_remove(key.0 as usize)?;
        if !queue.closed {
            self.open.remove(&queue.unit);
        }
        Some(queue)
    }
}

/// The waiting writes of one array on one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    queues: RefCell<Queues>,
    /// In the order in which their first writes came. The other stripes wait for their rows.
    gathering: RefCell<Vec<Gathering>>,
    watched: Cell<bool>,
    /// Stripes that have all their data, about.
    whole: Cell<u32>,
    /// Memory that is kept for reuse.
    due: Cell<Vec<Key>>,
    lists: RefCell<Vec<Vec<WriteArgs>>>,
    rooms: RefCell<Vec<Room>>,
}

impl Waiting {
    /// Has a write that came in this `turn` wait for its stripe, of which `stripe_size` bytes are data.
    #[inline]
    pub(crate) fn join(&self, args: WriteArgs, stripe_size: u64, turn: u64) -> Joined {
        let unit = args.unit;
        let bytes = args.extent.end - args.extent.start;
        let mut queues = self.queues.borrow_mut();
        let Queues { all, open } = &mut *queues;
        let place = match open.entry(unit) {
            Entry::Occupied(there) => {
                if let Some(queue) = all.get_mut(there.get().0 as usize) {
                    self.follow(queue, args, turn);
                }
                return Joined::Follows;
            }
            Entry::Vacant(place) => place,
        };
        let vacant = all.vacant_entry();
        let key = Key(vacant.key() as u32);
        let closed = bytes == stripe_size;
        if !closed {
            place.insert(key);
        }
        vacant.insert(Queue {
            unit,
            first: args,
            more: Vec::new(),
            bytes,
            stripe_size,
            since: turn,
            last: turn,
            passed: 0,
            closed,
        });
        if closed { Joined::Whole(key) } else { Joined::Leads(key) }
    }

    #[inline(never)]
    fn follow(&self, queue: &mut Queue, args: WriteArgs, turn: u64) {
        let before = queue.bytes;
        queue.bytes += args.extent.end - args.extent.start;
        if before < queue.stripe_size && queue.bytes >= queue.stripe_size {
            self.whole.set(self.whole.get() + 1);
        }
        queue.last = turn;
        if queue.more.capacity() == 0 {
            queue.more = self.list();
        }
        queue.more.push(args);
    }

    /// The stripe of queue `key`, whose first write came in this `turn`, waits for other writes. True when nobody watches
    /// such stripes: the caller is to see to it that [`Waiting::due`] is called in every turn, until it says that there
    /// are none.
    pub(crate) fn gather(&self, key: Key, turn: u64) -> bool {
        let due = quiet_after(turn);
        self.gathering.borrow_mut().push(Gathering { key, due });
        !self.watched.replace(true)
    }

    /// Gives `lead` the stripes that are to be carried out in this `turn`: turns have passed without a new write,
    /// or all of the data is there. Stripes that need nothing read go ahead, for `threshold` turns. False when no
    /// stripe waits for other writes any more.
    pub(crate) fn due(&self, turn: u64, threshold: u32, lead: impl Fn(Key)) -> bool {
        let mut ready = self.due.take();
        let any_whole = self.whole.get() > 0;
        let mut queues = self.queues.borrow_mut();
        let mut gathering = self.gathering.borrow_mut();
        gathering.retain_mut(|stripe| {
            if stripe.due > turn && !any_whole {
                return true;
            }
            let Some(queue) = queues.all.get_mut(stripe.key.0 as usize) else { return false };
            let (whole, due) = (queue.bytes >= queue.stripe_size, queue.due());
            if !whole && due > turn {
                stripe.due = due;
                return true;
            }
            let ends = whole || turn >= queue.since + TURNS_MAX;
            if !ends && any_whole && queue.passed < threshold {
                queue.passed += 1;
                return true;
            }
            ready.push(stripe.key);
            false
        });
        let more = !gathering.is_empty();
        self.watched.set(more);
        drop((queues, gathering));
        ready.drain(..).for_each(lead);
        self.due.set(ready);
        more
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

    /// The unit of a queue.
    pub(crate) fn unit(&self, key: Key) -> Option<u64> {
        self.queues.borrow().get(key).map(|queue| queue.unit)
    }

    /// Rows that what waits in queue `key` touches.
    pub(crate) fn rows(&self, key: Key, chunk: u64) -> Range<u64> {
        match self.queues.borrow().get(key) {
            Some(queue) if queue.more.is_empty() => queue.first.extent.rows(chunk),
            Some(queue) => rows_of_all(queue.pieces().map(|piece| piece.extent), chunk),
            None => 0..chunk,
        }
    }

    /// Takes what waits in queue `key` when that is one write.
    #[inline]
    pub(crate) fn take_lone(&self, key: Key) -> Option<WriteArgs> {
        let mut queues = self.queues.borrow_mut();
        if !queues.get(key)?.more.is_empty() {
            return None;
        }
        queues.take(key).map(|queue| queue.first)
    }

    /// Takes what waits in queue `key` and can be carried out at once, ascending and apart, in any order
    /// that keeps writes that overlap in the order of their arrival. Gives the rest, which waits no more.
    pub(crate) fn take(&self, key: Key, into: &mut Vec<WriteArgs>) -> Vec<WriteArgs> {
        let mut left: Vec<WriteArgs> = Vec::new();
        let Some(queue) = self.queues.borrow_mut().take(key) else { return left };
        if queue.bytes >= queue.stripe_size {
            self.whole.set(self.whole.get() - 1);
        }
        let Queue { first, mut more, .. } = queue;
        for piece in std::iter::once(first).chain(more.drain(..)) {
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
