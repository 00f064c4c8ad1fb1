//! How full a volume may be, at most, counted without asking it: so that it does not say that it is full with room left.
//!
//! Counts what the records named when the life began, and every stripe that was written or reserved since. A stripe that
//! moves or grows is there twice until a commit, so all of it counts twice.

use super::call::{Call, What};
use super::meta::Id;
use braid_filesystem::Allocate;
use std::collections::BTreeSet;

/// Stripes of one request that are counted one by one; more than fit on any simulated brick.
const STRIPES_MAX: u64 = 1 << 16;

/// See the module's documentation.
pub struct Room {
    /// Bytes of all bricks that take files.
    capacity: u64,
    /// Bytes in use when the life began.
    used: u64,
    /// Bytes of a stripe.
    stripe: u64,
    touched: BTreeSet<(Id, u64)>,
}

impl Room {
    /// Of a volume with `capacity` bytes, of which `used` are in use, and such stripes.
    pub fn new(capacity: u64, used: u64, stripe: u64) -> Room {
        Room { capacity, used, stripe, touched: BTreeSet::new() }
    }

    /// A request is made that may take space.
    pub fn note(&mut self, call: &Call) {
        let (offset, len) = match call.what {
            What::Write(offset, len, _) => (offset, len as u64),
            What::Copy(ref range, _) => (range.start, range.end - range.start),
            What::Allocate(how, offset, len) if how != Allocate::PunchHole => (offset, len),
            _ => return,
        };
        let first = offset / self.stripe;
        let end = offset.saturating_add(len).div_ceil(self.stripe).min(first + STRIPES_MAX);
        self.touched.extend((first..end).map(|stripe| (call.on, stripe)));
    }

    /// The volume may say that it is full: what is left of it may be in pieces when half of it is in use.
    pub fn may_be_full(&self) -> bool {
        let touched = self.touched.len() as u64 * self.stripe;
        (self.used + touched) * 2 > self.capacity / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_may_be_full_when_what_was_written_twice_takes_half_of_it() {
        let mut room = Room::new(1 << 20, 64 << 10, 64 << 10);
        let write = |offset| Call { on: 5, other: 5, what: What::Write(offset, 100, 1) };
        for _ in 0..100 {
            room.note(&write(0));
            room.note(&write(65_500));
        }
        assert!(!room.may_be_full());
        room.note(&write(1 << 20));
        assert!(!room.may_be_full());
        room.note(&write(2 << 20));
        assert!(room.may_be_full());
    }
}
