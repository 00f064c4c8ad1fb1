//! Writes that wait for their stripe: a queue for each stripe of which something waits.
//!
//! Knows no task: whoever joins as the first starts one that leads.

use crate::engine::work::WriteArgs;
use crate::state::extent::{Extent, rows_of_all};
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;

/// Writes carried out together, at most.
const TOGETHER_MAX: usize = 256;

/// The writes that wait for one stripe, in the order of arrival. Every queue has a leader.
struct Queue {
    pieces: VecDeque<WriteArgs>,
    /// Of all pieces; pieces that overlap count twice.
    bytes: u64,
}

/// The place of a write that has joined its stripe.
pub(crate) enum Joined {
    /// Another write leads, and takes it along.
    Follows,
    /// It is the first, and needs a leader.
    Leads,
    /// It is a write of all of the stripe, which waits for no others: it comes back.
    Whole(WriteArgs),
}

/// Writes that are carried out together, and where they lie: lists whose memory is kept for the next.
#[derive(Default)]
pub(crate) struct Room {
    /// Ascending, apart.
    pub(crate) pieces: Vec<WriteArgs>,
    pub(crate) extents: Vec<Extent>,
    /// Rows at which what is written changes.
    pub(crate) cuts: Vec<u64>,
}

/// The waiting writes of one array on one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    stripes: RefCell<HashMap<u64, Queue>>,
    /// Stripes that have all their data, about.
    whole: Cell<u32>,
    /// Memory that is kept for reuse.
    queues: RefCell<Vec<VecDeque<WriteArgs>>>,
    rooms: RefCell<Vec<Room>>,
}

impl Waiting {
    /// Has a write wait for its stripe, of which `stripe_size` bytes are data.
    pub(crate) fn join(&self, args: WriteArgs, stripe_size: u64) -> Joined {
        let unit = args.unit;
        let mut stripes = self.stripes.borrow_mut();
        let bytes = args.extent.end - args.extent.start;
        if let Some(queue) = stripes.get_mut(&unit) {
            let before = queue.bytes;
            queue.bytes += bytes;
            if before < stripe_size && queue.bytes >= stripe_size {
                self.whole.set(self.whole.get() + 1);
            }
            queue.pieces.push_back(args);
            return Joined::Follows;
        }
        if bytes == stripe_size {
            return Joined::Whole(args);
        }
        let mut pieces = self.queues.borrow_mut().pop().unwrap_or_default();
        pieces.push_back(args);
        stripes.insert(unit, Queue { pieces, bytes });
        Joined::Leads
    }

    /// Writes that wait for `unit`.
    pub(crate) fn len(&self, unit: u64) -> usize {
        self.stripes.borrow().get(&unit).map_or(0, |queue| queue.pieces.len())
    }

    /// Some stripe has all its data, about.
    pub(crate) fn any_whole(&self) -> bool {
        self.whole.get() > 0
    }

    /// Lists for writes that are carried out together, to be given back to [`Waiting::keep`].
    pub(crate) fn room(&self) -> Room {
        self.rooms.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes lists back that [`Waiting::room`] gave.
    pub(crate) fn keep(&self, room: Room) {
        self.rooms.borrow_mut().push(room);
    }

    /// As much waits for `unit` as its stripe has data, or more.
    pub(crate) fn is_whole(&self, unit: u64, stripe_size: u64) -> bool {
        self.stripes.borrow().get(&unit).is_some_and(|queue| queue.bytes >= stripe_size)
    }

    /// Rows that what waits for `unit` touches.
    pub(crate) fn rows(&self, unit: u64, chunk: u64) -> Range<u64> {
        let stripes = self.stripes.borrow();
        let pieces = stripes.get(&unit).map(|queue| &queue.pieces);
        rows_of_all(pieces.into_iter().flatten().map(|piece| piece.extent), chunk)
    }

    /// Takes what waits for `unit` and can be carried out at once, ascending and apart, in any order
    /// that keeps writes that overlap in the order of their arrival. Gives the rest, which waits no more.
    pub(crate) fn take(
        &self,
        unit: u64,
        stripe_size: u64,
        into: &mut Vec<WriteArgs>,
    ) -> VecDeque<WriteArgs> {
        let mut left: VecDeque<WriteArgs> = VecDeque::new();
        let Some(mut queue) = self.stripes.borrow_mut().remove(&unit) else { return left };
        if queue.bytes >= stripe_size {
            self.whole.set(self.whole.get() - 1);
        }
        while let Some(piece) = queue.pieces.pop_front() {
            let at = into.partition_point(|other| other.extent.end <= piece.extent.start);
            let over = |other: Option<&WriteArgs>| {
                other.is_some_and(|other| other.extent.overlaps(&piece.extent))
            };
            if into.len() >= TOGETHER_MAX
                || over(into.get(at))
                || left.iter().any(|other| other.extent.overlaps(&piece.extent))
            {
                left.push_back(piece);
            } else {
                into.insert(at, piece);
            }
        }
        self.queues.borrow_mut().push(queue.pieces);
        left
    }
}
