//! The places of an array that may hold something wrong since it was started by force (the write hole).
//!
//! Invariant: the list holds the first [`PLACES_MAX`] places in the order in which they were added; the others are counted.

use crate::state::findings::PLACES_MAX;
use braid_layout::Slot;
use std::ops::Range;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The slot whose member held it.
    pub slot: Slot,
    /// Array bytes.
    pub array: Range<u64>,
    /// Component bytes of that member.
    pub component: Range<u64>,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// The slots without a member, whose data it is.
    pub slots: Vec<Slot>,
    /// Nothing says where: it may be any byte of those slots.
    pub anywhere: bool,
    /// The places.
    pub places: Vec<Place>,
    /// Places that are not listed.
    pub more: u64,
    /// Bytes of all places.
    pub bytes: u64,
}

impl InDoubt {
    /// Any byte of these slots.
    pub(crate) fn anywhere(slots: Vec<Slot>) -> InDoubt {
        InDoubt { anywhere: true, ..InDoubt::of_slots(slots) }
    }

    /// No place of these slots yet.
    pub(crate) fn of_slots(slots: Vec<Slot>) -> InDoubt {
        InDoubt { slots, anywhere: false, places: Vec::new(), more: 0, bytes: 0 }
    }

    /// Adds a place.
    pub(crate) fn add(&mut self, slot: Slot, array: Range<u64>, component: Range<u64>) {
        self.bytes += array.end - array.start;
        let goes_on = |last: &Place| {
            let ends = (last.slot, last.array.end, last.component.end);
            ends == (slot, array.start, component.start)
        };
        if let Some(last) = self.places.last_mut().filter(|last| self.more == 0 && goes_on(last)) {
            (last.array.end, last.component.end) = (array.end, component.end);
        } else if self.places.len() < PLACES_MAX {
            self.places.push(Place { slot, array, component });
        } else {
            self.more += 1;
        }
    }

    /// Adds `places` of `len` bytes that the list has no room for.
    pub(crate) fn count(&mut self, places: u64, len: u64) {
        self.more += places;
        self.bytes += places * len;
    }

    /// Nothing is in doubt.
    pub fn is_empty(&self) -> bool {
        !self.anywhere && self.bytes == 0
    }
}

impl std::fmt::Display for InDoubt {
    /// The rest of a sentence that begins with what is in doubt.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.anywhere {
            return f.write_str("no bitmap says which");
        }
        let Some(first) = self.places.first() else {
            return f.write_str("its bitmap says that there are none");
        };
        let count = self.places.len() as u64 + self.more;
        let (bytes, at) = (self.bytes, first.array.start);
        let places = if count == 1 { "place" } else { "places" };
        write!(f, "its bitmap names {count} {places}, {bytes} bytes of the array from byte {at} on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_place_and_what_is_not_listed_is_counted() {
        let mut all = InDoubt::of_slots(vec![1]);
        assert!(all.is_empty());
        all.add(1, 0..10, 0..10);
        all.add(1, 10..20, 10..20);
        assert_eq!(all.places, [Place { slot: 1, array: 0..20, component: 0..20 }]);
        for nr in 1..=PLACES_MAX as u64 + 1 {
            all.add(1, nr * 100..nr * 100 + 10, nr * 50..nr * 50 + 10);
        }
        assert_eq!((all.places.len(), all.more), (PLACES_MAX, 2));
        assert_eq!(all.bytes, 20 + 10 * (PLACES_MAX as u64 + 1));
        assert!(!all.is_empty() && InDoubt::anywhere(vec![0]).anywhere);
    }
}
