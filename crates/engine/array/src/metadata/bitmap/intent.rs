//! One shard's part of the bitmap: the bits that it may write under, and the writes under each.
//!
//! A bit is *armed* here when the home shard has said that it is durable. A write under armed bits
//! costs one look-up and one count for each. What is not armed is asked for; all that the tasks of a
//! turn need goes in one question.
//!
//! Invariant: a bit with writes under it stays armed.

use crate::metadata::bitmap::{BitmapNr, NO_BITMAP, Shape};
use crate::state::extent::Extent;
use crate::state::geometry::Geometry;
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

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
    /// Has no bit when there is no bitmap.
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

/// Held while a write is in flight, with a bitmap or without.
pub(crate) struct Entered {
    intent: Rc<Intent>,
    bits: Range<u32>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.intent.leave(&self.bits);
    }
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

    /// For an array without a bitmap: writes wait for nothing.
    pub(crate) fn none(shard: &Shard) -> Intent {
        Intent::new(shard, NO_BITMAP, Shape::new(1, 0))
    }

    /// The bytes that a write touches, as the bitmap counts them.
    #[inline]
    pub(crate) fn range(&self, geometry: &Geometry, unit: u64, extent: Extent) -> Range<u64> {
        if self.nr == NO_BITMAP { 0..0 } else { geometry.intent_range(unit, extent) }
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

    fn leave(&self, bits: &Range<u32>) {
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

    /// Holds `bits`, which [`Intent::try_enter`] gave.
    #[inline]
    pub(crate) fn entered(self: &Rc<Intent>, bits: Range<u32>) -> Entered {
        Entered { intent: Rc::clone(self), bits }
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
    use braid_shard::{Nanos, Reactor};

    /// A clock that stands still.
    struct Still;

    impl Reactor for Still {
        fn now(&self) -> Nanos {
            0
        }

        fn poll(&self) -> bool {
            false
        }

        fn park(&self, _: Option<Nanos>, _: &dyn Fn() -> bool) {}
    }

    fn intent() -> Intent {
        Intent::new(&Shard::with_reactor(0, Rc::new(Still)), 1, Shape::new(4096, 8))
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
        assert!(intent.give_up(true).is_empty());
        intent.leave(&bits);
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
    fn without_a_bitmap_nothing_is_waited_for() {
        let intent = Intent::none(&Shard::with_reactor(0, Rc::new(Still)));
        assert_eq!(intent.try_enter(&(0..0)), Some(0..0));
        intent.leave(&(0..0));
        assert!(intent.give_up(true).is_empty());
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
