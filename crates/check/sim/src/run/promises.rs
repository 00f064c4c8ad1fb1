//! What is promised of a single array, and what of that a run has given up: the write hole takes blocks with a member that
//! is lost, a forced start takes redundancy for right, and where more fails than the level survives errors are right.
//!
//! A stack keeps to less, so that all of this stays as it is at first: see `counting`.

use super::holes::Holes;
use crate::oracle::Oracle;
use braid_layout::{Layout, Slot};
use std::ops::Range;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Promises {
    /// Rows whose parity may not match.
    pub(super) holes: Holes,
    /// Errors are right: more has failed than the level survives.
    pub(super) excused: bool,
    /// It was started dirty and degraded; redundancy is to be repaired before it is trusted.
    pub(super) forced: bool,
    /// Redundancy has matched data everywhere at least once.
    pub(super) synced: bool,
    /// A member that lied about flushes was stale after a power cut, which made blocks too many that others cannot give.
    pub(super) lost_with_a_liar: bool,
    /// Without redundancy: a flush of a member was made to fail in this life, so that flushes of the array may fail and tell
    /// what is lost.
    pub(super) flushes_fail: bool,
    /// The device of the write journal has failed, or is about to: writes may be refused.
    pub(super) journal_fails: bool,
    /// It never comes back with what it held: what is only there at a crash is lost.
    pub(super) journal_is_lost: bool,
}

impl Promises {
    /// The member of `slot` is lost: its blocks of open rows may be anything.
    pub(super) fn lose(&self, layout: &Layout, slot: Slot, oracle: &mut Oracle) {
        self.holes.lose(layout, slot, oracle);
    }

    /// These component bytes of the member of `slot` cannot be read.
    pub(super) fn lose_parts(
        &self,
        layout: &Layout,
        slot: Slot,
        parts: impl IntoIterator<Item = Range<u64>>,
        oracle: &mut Oracle,
    ) {
        for part in parts {
            self.holes.lose_part(layout, slot, part, oracle);
        }
    }

    /// Redundancy matches data everywhere from now on.
    pub(super) fn redundancy_holds(&mut self, oracle: &mut Oracle) {
        self.synced = true;
        self.holes.close();
        oracle.settle();
        self.forced = false;
    }

    /// The array starts dirty and degraded.
    pub(super) fn force(&mut self, layout: &Layout, block_size: u64) {
        self.forced = true;
        if !self.synced {
            self.holes.open_all(layout, block_size);
        }
    }
}
