//! Locks on byte ranges of units: a table of one shard, touched by its thread only.
//!
//! A range waits while an overlapping one is held or waits before it, so none is starved. An
//! operation holds one range at a time, so there is no deadlock.

use super::by_unit::ByUnit;
use braid_shard::plant::planted;
use braid_shard::{Shard, TaskId};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

struct Waiter {
    range: Range,
    task: TaskId,
    ticket: u64,
}

/// A unit of which something is locked.
enum Unit {
    /// By one holder, and nobody waits: mostly so, hence small.
    One(Range),
    Several(Box<Several>),
}

impl Default for Unit {
    fn default() -> Unit {
        Unit::One(Range::default())
    }
}

#[derive(Default)]
struct Several {
    held: SmallVec<[Range; 2]>,
    waiting: VecDeque<Waiter>,
}

#[derive(Default)]
struct Table {
    units: ByUnit<Unit>,
    next_ticket: u64,
    /// Empty ones, kept for reuse; boxed as in the table.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Several>>,
}

impl Table {
    /// Holds a range of a unit of which something is held already, where it is free.
    #[inline(never)]
    fn add(&mut self, unit: u64, range: Range) -> bool {
        let is_free = match self.units.get_mut(unit) {
            None => true,
            Some(Unit::One(held)) => !held.overlaps(range),
            Some(Unit::Several(several)) => several.is_free(range),
        };
        if is_free {
            self.several(unit).held.push(range);
        }
        is_free
    }

    /// The holders of a unit and those who wait, whoever they are.
    fn several(&mut self, unit: u64) -> &mut Several {
        let several = match self.units.remove(unit) {
            Some(Unit::Several(several)) => several,
            one => {
                let mut several = self.spare.pop().unwrap_or_default();
                if let Some(Unit::One(range)) = one {
                    several.held.push(range);
                }
                several
            }
        };
        self.units.insert(unit, Unit::Several(several));
        match self.units.get_mut(unit) {
            Some(Unit::Several(several)) => several,
            _ => unreachable!("the lines above made it several"),
        }
    }
}

struct Inner {
    shard: Shard,
    table: RefCell<Table>,
}

/// The range locks of one array on one shard. Cheap to clone.
#[derive(Clone)]
pub struct RangeLocks(Rc<Inner>);

/// A held range; dropping it releases it.
pub struct Held {
    locks: RangeLocks,
    unit: u64,
    range: Range,
}

impl RangeLocks {
    /// An empty table for tasks of `shard`.
    pub fn new(shard: &Shard) -> RangeLocks {
        RangeLocks(Rc::new(Inner { shard: shard.clone(), table: RefCell::default() }))
    }

    fn held(&self, unit: u64, range: Range) -> Held {
        Held { locks: self.clone(), unit, range }
    }

    /// Takes bytes `start..end` of `unit` at once, or not at all.
    #[inline(always)]
    pub fn try_lock(&self, unit: u64, start: u64, end: u64) -> Option<Held> {
        let range = Range { start, end };
        let mut table = self.0.table.borrow_mut();
        if table.units.get_mut(unit).is_none() {
            table.units.insert(unit, Unit::One(range));
        } else if !table.add(unit, range) {
            return None;
        }
        drop(table);
        Some(self.held(unit, range))
    }

    /// Waits for bytes `start..end` of `unit`. Must be awaited to its end.
    pub async fn lock(&self, unit: u64, start: u64, end: u64) -> Held {
        if let Some(held) = self.try_lock(unit, start, end) {
            return held;
        }
        let range = Range { start, end };
        let mut ticket = None;
        poll_fn(|_| {
            let mut table = self.0.table.borrow_mut();
            let Some(mine) = ticket else {
                let new = table.next_ticket;
                table.next_ticket += 1;
                ticket = Some(new);
                let waiter = Waiter { range, task: self.0.shard.current_task(), ticket: new };
                table.several(unit).waiting.push_back(waiter);
                return Poll::Pending;
            };
            // A waiter that was granted its range is not in the queue any more.
            let waits = matches!(table.units.get_mut(unit), Some(Unit::Several(several))
                if several.waiting.iter().any(|waiter| waiter.ticket == mine));
            if waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        self.held(unit, range)
    }

    #[inline(always)]
    fn release(&self, unit: u64, range: Range) {
        let mut table = self.0.table.borrow_mut();
        if !table.units.remove_if(unit, |held| matches!(held, Unit::One(_))) {
            self.release_of_several(&mut table, unit, range);
        }
    }

    #[inline(never)]
    fn release_of_several(&self, table: &mut Table, unit: u64, range: Range) {
        let several = table.several(unit);
        if let Some(at) = several.held.iter().position(|held| *held == range) {
            several.held.swap_remove(at);
        }
        if several.waiting.is_empty() {
            if several.held.is_empty()
                && let Some(Unit::Several(empty)) = table.units.remove(unit)
            {
                table.spare.push(empty);
            }
            return;
        }
        several.grant(&self.0.shard);
    }
}

impl Several {
    fn is_free(&self, range: Range) -> bool {
        self.held.iter().all(|held| !held.overlaps(range))
            && self.waiting.iter().all(|waiter| !waiter.range.overlaps(range))
    }

    /// Gives those who wait what is free now, and wakes them.
    fn grant(&mut self, shard: &Shard) {
        let mut blocked: SmallVec<[Range; 8]> = self.held.iter().copied().collect();
        let mut still = VecDeque::with_capacity(self.waiting.len());
        for waiter in self.waiting.drain(..) {
            if blocked.iter().any(|other| other.overlaps(waiter.range)) {
                blocked.push(waiter.range);
                still.push_back(waiter);
            } else {
                blocked.push(waiter.range);
                self.held.push(waiter.range);
                if blocked.len() > 1 && planted("waiter-forgotten") {
                    continue;
                }
                shard.wake(waiter.task);
            }
        }
        self.waiting = still;
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        self.locks.release(self.unit, self.range);
    }
}
