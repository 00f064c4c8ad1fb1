//! Locks on ranges of one object (bytes of a file, blocks of a device), shared or exclusive, granted in the order in which
//! they were asked for.
//!
//! One thread owns the table; a lock is an entry in a short list.

use crate::shard::Shard;
use crate::sync::Notify;
use crate::version::Version;
use smallvec::{SmallVec, smallvec};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The whole, whatever its size.
pub const WHOLE: Range<u64> = 0..u64::MAX;

/// Mostly one.
type Ranges = SmallVec<[Range<u64>; 1]>;

struct Entry {
    ticket: u64,
    ranges: Ranges,
    exclusive: bool,
}

impl Entry {
    fn meets(&self, other: &Entry) -> bool {
        let one_meets = |one: &Range<u64>| {
            other.ranges.iter().any(|range| one.start < range.end && range.start < one.end)
        };
        self.ranges.iter().any(one_meets)
    }
}

/// The locks of one object.
pub struct RangeLocks {
    /// In the order of asking; an entry is granted when no earlier one is in its way.
    entries: RefCell<Vec<Entry>>,
    next: Cell<u64>,
    released: Notify,
    /// Changes with each exclusive lock that is granted, before its holder has it.
    pub version: Version,
}

/// A granted lock, given back when it is dropped.
pub struct Held {
    locks: Rc<RangeLocks>,
    ticket: u64,
}

impl RangeLocks {
    /// Nothing is locked.
    pub fn new(shard: &Shard) -> Rc<RangeLocks> {
        Rc::new(RangeLocks {
            entries: RefCell::new(Vec::new()),
            next: Cell::new(0),
            released: Notify::new(shard),
            version: Version::default(),
        })
    }

    /// Waits until `range` may be read.
    pub async fn shared(self: &Rc<Self>, range: Range<u64>) -> Held {
        self.lock(smallvec![range], false).await
    }

    /// Waits until nobody else uses `range`.
    pub async fn exclusive(self: &Rc<Self>, range: Range<u64>) -> Held {
        self.lock(smallvec![range], true).await
    }

    /// Waits until nobody else uses any of `ranges`, which may overlap. Whoever needs several asks for them at once: one that
    /// holds a range and waits for another would wait for ever for somebody who came between and wants both.
    pub async fn exclusive_all(
        self: &Rc<Self>,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Held {
        self.lock(ranges.into_iter().collect(), true).await
    }

    /// Nobody holds or waits for anything.
    pub fn is_free(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    async fn lock(self: &Rc<Self>, ranges: Ranges, exclusive: bool) -> Held {
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        self.entries.borrow_mut().push(Entry { ticket, ranges, exclusive });
        // From here on the entry is taken out again, also when the waiting task is dropped.
        let held = Held { locks: Rc::clone(self), ticket };
        if !self.is_granted(ticket) {
            self.released.wait_for(|| self.is_granted(ticket).then_some(())).await;
        }
        if exclusive {
            self.version.changes();
        }
        held
    }

    fn is_granted(&self, ticket: u64) -> bool {
        let entries = self.entries.borrow();
        let Some(at) = entries.iter().position(|entry| entry.ticket == ticket) else {
            return true;
        };
        let own = &entries[at];
        let is_in_the_way =
            |earlier: &Entry| (own.exclusive || earlier.exclusive) && earlier.meets(own);
        !entries[..at].iter().any(is_in_the_way)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.entries.borrow_mut().retain(|entry| entry.ticket != self.ticket);
        self.locks.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{settle, shard};

    /// Keeps a lock that was asked for until this is emptied.
    type Place = Rc<Cell<Option<Held>>>;

    fn ask(shard: &Shard, lock: impl Future<Output = Held> + 'static) -> Place {
        let place = Place::default();
        let own = Rc::clone(&place);
        shard.spawn(async move { own.set(Some(lock.await)) });
        place
    }

    fn has(place: &Place) -> bool {
        let held = place.take();
        let has = held.is_some();
        place.set(held);
        has
    }

    #[test]
    fn several_ranges_are_granted_together_and_in_order() {
        let shard = shard();
        let locks = RangeLocks::new(&shard);
        let exclusive = |ranges: Vec<Range<u64>>| {
            let locks = Rc::clone(&locks);
            ask(&shard, async move { locks.exclusive_all(ranges).await })
        };
        let first = exclusive(vec![0..1, 5..6]);
        // It wants what lies between, too, and holds nothing while it waits.
        let between = exclusive(vec![3..6, 6..8]);
        let apart = exclusive(vec![1..3, 8..9, 2..3]);
        let own = Rc::clone(&locks);
        let last = ask(&shard, async move { own.shared(3..4).await });
        settle(&shard);
        assert_eq!([&first, &between, &apart, &last].map(has), [true, false, true, false]);
        first.take();
        settle(&shard);
        assert_eq!([&between, &last].map(has), [true, false]);
        between.take();
        settle(&shard);
        assert!(has(&last) && !locks.is_free());
        last.take();
        apart.take();
        assert!(locks.is_free());
    }
}
