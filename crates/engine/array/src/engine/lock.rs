//! Locks on byte ranges of units: a table of one shard, touched by its thread only.
//!
//! A range waits while an overlapping one is held or waits before it, so none is starved. An
//! operation holds one range at a time, so there is no deadlock.

use braid_shard::plant::planted;
use braid_shard::{Shard, TaskId};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

#[derive(Clone, Copy, PartialEq, Eq)]
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

#[derive(Default)]
struct Unit {
    held: SmallVec<[Range; 2]>,
    waiting: VecDeque<Waiter>,
}

#[derive(Default)]
struct Table {
    units: HashMap<u64, Unit>,
    next_ticket: u64,
}

/// The range locks of one array on one shard. Cheap to clone.
#[derive(Clone)]
pub struct RangeLocks {
    shard: Shard,
    table: Rc<RefCell<Table>>,
}

/// A held range; dropping it lets go.
pub struct Held {
    locks: RangeLocks,
    unit: u64,
    range: Range,
}

impl RangeLocks {
    /// An empty table for tasks of `shard`.
    pub fn new(shard: &Shard) -> RangeLocks {
        RangeLocks { shard: shard.clone(), table: Rc::new(RefCell::new(Table::default())) }
    }

    fn held(&self, unit: u64, range: Range) -> Held {
        Held { locks: self.clone(), unit, range }
    }

    /// Takes bytes `start..end` of `unit` at once, or not at all.
    pub fn try_lock(&self, unit: u64, start: u64, end: u64) -> Option<Held> {
        let range = Range { start, end };
        let mut table = self.table.borrow_mut();
        match table.units.entry(unit) {
            Entry::Vacant(place) => {
                place.insert(Unit { held: smallvec![range], waiting: VecDeque::new() });
            }
            Entry::Occupied(mut unit) => {
                let unit = unit.get_mut();
                let free = unit.held.iter().all(|held| !held.overlaps(range))
                    && unit.waiting.iter().all(|waiter| !waiter.range.overlaps(range));
                if !free {
                    return None;
                }
                unit.held.push(range);
            }
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
            let mut table = self.table.borrow_mut();
            let Some(mine) = ticket else {
                let new = table.next_ticket;
                table.next_ticket += 1;
                ticket = Some(new);
                let waiter = Waiter { range, task: self.shard.current_task(), ticket: new };
                table.units.entry(unit).or_default().waiting.push_back(waiter);
                return Poll::Pending;
            };
            // A waiter that was granted its range is not in the queue any more.
            let waits = table
                .units
                .get(&unit)
                .is_some_and(|entry| entry.waiting.iter().any(|waiter| waiter.ticket == mine));
            if waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        self.held(unit, range)
    }

    fn release(&self, unit: u64, range: Range) {
        let mut table = self.table.borrow_mut();
        let Entry::Occupied(mut found) = table.units.entry(unit) else { return };
        let entry = found.get_mut();
        if let Some(at) = entry.held.iter().position(|held| *held == range) {
            entry.held.swap_remove(at);
        }
        if entry.waiting.is_empty() {
            if entry.held.is_empty() {
                found.remove();
            }
            return;
        }
        let mut blocked: SmallVec<[Range; 8]> = entry.held.iter().copied().collect();
        let mut still = VecDeque::with_capacity(entry.waiting.len());
        for waiter in entry.waiting.drain(..) {
            if blocked.iter().any(|other| other.overlaps(waiter.range)) {
                blocked.push(waiter.range);
                still.push_back(waiter);
            } else {
                blocked.push(waiter.range);
                entry.held.push(waiter.range);
                if blocked.len() > 1 && planted("waiter-forgotten") {
                    continue;
                }
                self.shard.wake(waiter.task);
            }
        }
        entry.waiting = still;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.release(self.unit, self.range);
    }
}
