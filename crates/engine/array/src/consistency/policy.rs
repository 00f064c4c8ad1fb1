//! The policies, by the names that md gives them.

use crate::consistency::journal::Journal;
use crate::consistency::ppl::{BatchNr, Log};
use crate::metadata::bitmap::intent::Intent;
use crate::metadata::bitmap::{BitmapNr, Shape};
use crate::state::extent::Extent;
use crate::state::geometry::Geometry;
use braid_shard::Shard;
use std::ops::Range;
use std::rc::Rc;

/// The record on disk that says, after a crash, where redundancy may not hold.
pub(crate) enum Policy {
    /// "Active" in the superblocks, which is of the whole array: all of it is resynced.
    Resync,
    /// Bits as well: what is under them is resynced. This is the shard's part of them.
    Bitmap(Intent),
    /// A log of partial parity, from which parity is made anew: nothing is resynced. This is the shard's part of it.
    Ppl(Log),
    /// A journal of all that is written, with its parity, which is written again after a crash: nothing is resynced, also where
    /// members are missing. This is the shard's part of it.
    Journal(Journal),
}

/// Held while a write is under way, from before it waits for its rows to its end: what was recorded for it stays.
pub(crate) struct Entered {
    policy: Rc<Policy>,
    /// Empty without a bitmap.
    bits: Range<u32>,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Policy::Bitmap(intent) = &*self.policy {
            intent.leave(&self.bits);
        }
    }
}

/// A write that stands in the log.
pub(super) struct Logged {
    pub(super) policy: Rc<Policy>,
    pub(super) batch: BatchNr,
}

impl Drop for Logged {
    fn drop(&mut self) {
        match &*self.policy {
            Policy::Ppl(log) => log.leave(self.batch),
            Policy::Journal(journal) => journal.leave(self.batch),
            Policy::Resync | Policy::Bitmap(_) => {}
        }
    }
}

impl Policy {
    /// The policy of an array with redundancy that has no log: by this bitmap, or without one.
    pub(crate) fn of(shard: &Shard, bitmap: Option<(BitmapNr, Shape)>) -> Policy {
        match bitmap {
            Some((nr, shape)) => Policy::Bitmap(Intent::new(shard, nr, shape)),
            None => Policy::Resync,
        }
    }

    #[inline(always)]
    pub(super) fn try_enter(
        policy: &Rc<Policy>,
        geometry: &Geometry,
        unit: u64,
        extent: Extent,
    ) -> Option<Entered> {
        let bits = match &**policy {
            Policy::Resync | Policy::Ppl(_) | Policy::Journal(_) => 0..0,
            Policy::Bitmap(intent) => intent.try_enter(&geometry.intent_range(unit, extent))?,
        };
        Some(Entered { policy: Rc::clone(policy), bits })
    }

    /// Writes of this part of a unit may go on.
    pub(super) fn covers(&self, geometry: &Geometry, unit: u64, extent: Extent) -> bool {
        match self {
            Policy::Resync | Policy::Ppl(_) | Policy::Journal(_) => true,
            Policy::Bitmap(intent) => intent.covers(&geometry.intent_range(unit, extent)),
        }
    }
}
