//! One shard's part of the bitmap: the bits that it may write under, and the writes under each.
//!
//! A bit is *armed* here when the home shard has said that it is durable. A write under armed bits
//! costs one look-up and one count for each. What is not armed is asked for; all that the tasks of a
//! turn need goes in one question.
//!
//! Invariant: a bit with writes under it stays armed.

use crate::metadata::bitmap::{BitmapNr, Shape};
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The home shard has said that the bit is durable.
const ARMED: u32 = 1 << 31;
/// Written under since the last round of giving up.
const TOUCHED: u32 = 1 << 30;
/// Asked for, and not answered.
const ASKED: u32 = 1 << 29;
/// The other bits of an entry count writes in flight.
const ONE: u32 = 1;
const COUNT: u32 = ASKED - 1;

/// See the module's documentation.
pub(crate) struct Intent {
    /// Which bitmap it is a part of.
    pub(crate) nr: BitmapNr,
    shape: Shape,
    table: RefCell<Vec<u32>>,
    armed: RefCell<Vec<u32>>,
    wanted: RefCell<Vec<u32>>,
    /// A task is under way that will send `wanted`.
    asking: Cell<bool>,
    /// Answers that said no.
    refusals: Cell<u64>,
    answered: Notify,
}

impl Intent {
    pub(crate) fn new(shard: &Shard, nr: BitmapNr, shape: Shape) -> Intent {
        Intent {
            nr,
            shape,
            table: RefCell::new(vec![0; shape.bits() as usize]),
            armed: RefCell::default(),
            wanted: RefCell::default(),
            asking: Cell::new(false),
            refusals: Cell::new(0),
            answered: Notify::new(shard),
        }
    }

    /// Counts a write of bytes `range` when all bits over them are armed.
    #[inline]
    pub(crate) fn try_enter(&self, range: &Range<u64>) -> Option<Range<u32>> {
        let bits = self.shape.over(range);
        let mut table = self.table.borrow_mut();
        let entries = table.get_mut(bits.start as usize..bits.end as usize)?;
        if entries.iter().any(|entry| entry & ARMED == 0) {
            return None;
        }
        for entry in entries {
            *entry = (*entry + ONE) | TOUCHED;
        }
        Some(bits)
    }

    /// A write that [`Intent::try_enter`] counted under `bits` has ended.
    pub(crate) fn leave(&self, bits: &Range<u32>) {
        let mut table = self.table.borrow_mut();
        if let Some(entries) = table.get_mut(bits.start as usize..bits.end as usize) {
            for entry in entries {
                *entry -= ONE;
            }
        }
    }

    /// Notes what is not armed over `range`. True when the caller is to send it.
    pub(crate) fn want(&self, range: &Range<u64>) -> bool {
        let mut table = self.table.borrow_mut();
        let mut wanted = self.wanted.borrow_mut();
        for bit in self.shape.over(range) {
            if let Some(entry) = table.get_mut(bit as usize)
                && *entry & (ARMED | ASKED) == 0
            {
                *entry |= ASKED;
                wanted.push(bit);
            }
        }
        !wanted.is_empty() && !self.asking.replace(true)
    }

    /// All bits over `range` are armed, and counted for some write.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let bits = self.shape.over(range);
        let table = self.table.borrow();
        let entries = table.get(bits.start as usize..bits.end as usize).unwrap_or_default();
        entries.iter().all(|entry| entry & ARMED != 0 && entry & COUNT > 0)
    }

    /// Answers that said no, so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.get()
    }

    /// Waits until no bit over `range` waits for an answer.
    pub(crate) async fn until_decided(&self, range: &Range<u64>) {
        self.answered.wait_for(|| self.decided(range).then_some(())).await;
    }

    /// No bit over `range` waits for an answer.
    fn decided(&self, range: &Range<u64>) -> bool {
        let bits = self.shape.over(range);
        let table = self.table.borrow();
        let entries = table.get(bits.start as usize..bits.end as usize).unwrap_or_default();
        entries.iter().all(|entry| entry & ASKED == 0)
    }

    /// Takes the bits that are to be asked for, of all writes that wait.
    pub(crate) fn take_wanted(&self) -> Vec<u32> {
        self.asking.set(false);
        self.wanted.take()
    }

    /// The home shard has said whether `bits` are durable.
    pub(crate) fn answer(&self, bits: &[u32], yes: bool) {
        let mut table = self.table.borrow_mut();
        for bit in bits {
            if let Some(entry) = table.get_mut(*bit as usize) {
                *entry &= !ASKED;
                if yes {
                    *entry |= ARMED | TOUCHED;
                    self.armed.borrow_mut().push(*bit);
                }
            }
        }
        drop(table);
        if !yes {
            self.refusals.set(self.refusals.get() + 1);
        }
        self.answered.notify_all();
    }

    /// Gives up armed bits without a write in flight: those without one since the last call, or with
    /// `all` every one. From here on a write under them has to ask again.
    pub(crate) fn give_up(&self, all: bool) -> Vec<u32> {
        let mut table = self.table.borrow_mut();
        let mut given = Vec::new();
        self.armed.borrow_mut().retain(|bit| {
            let Some(entry) = table.get_mut(*bit as usize) else { return false };
            let busy = *entry & COUNT > 0 || (*entry & TOUCHED != 0 && !all);
            *entry &= !TOUCHED;
            if !busy {
                *entry &= !ARMED;
                given.push(*bit);
            }
            busy
        });
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn intent() -> Intent {
        Intent::new(&testing::shard(), 1, Shape::new(4096, 8))
    }

    #[test]
    fn a_write_waits_for_all_its_bits_and_keeps_them() {
        let intent = intent();
        let range = 4000..8200;
        assert_eq!(intent.try_enter(&range), None);
        assert!(intent.want(&range) && !intent.decided(&range));
        assert!(!intent.want(&range), "one task asks for all");
        assert_eq!(intent.take_wanted(), [0, 1, 2]);
        intent.answer(&[0, 1, 2], true);
        assert!(intent.decided(&range));
        let bits = intent.try_enter(&range).unwrap();
        assert_eq!(bits, 0..3);
        assert!(intent.covers(&range) && !intent.covers(&(4000..12289)));
        assert!(intent.give_up(true).is_empty());
        intent.leave(&bits);
        assert!(!intent.covers(&range), "nobody writes under them");
        assert_eq!(intent.give_up(true), [0, 1, 2]);
        assert_eq!(intent.try_enter(&range), None);
    }

    #[test]
    fn a_bit_is_given_up_in_the_second_round_without_a_write() {
        let intent = intent();
        intent.want(&(0..4096));
        intent.answer(&intent.take_wanted(), true);
        assert!(intent.give_up(false).is_empty());
        let bits = intent.try_enter(&(0..512)).unwrap();
        intent.leave(&bits);
        assert!(intent.give_up(false).is_empty());
        assert_eq!(intent.give_up(false), [0]);
    }

    #[test]
    fn what_was_refused_can_be_asked_for_again() {
        let intent = intent();
        intent.want(&(0..1));
        intent.answer(&intent.take_wanted(), false);
        assert_eq!(intent.try_enter(&(0..1)), None);
        assert_eq!(intent.refusals.get(), 1);
        assert!(intent.want(&(0..1)));
    }
}
