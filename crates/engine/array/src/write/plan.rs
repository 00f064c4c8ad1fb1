//! The choice of how to update the parity of a segment: the plan that reads the fewest bytes among
//! those that the members' states allow.

use crate::redundancy::blocks::TooManyMissing;
use crate::settings::RmwLevel;
use crate::write::segment::Segment;
use braid_layout::{Slot, StripeMap};
use smallvec::SmallVec;

/// The blocks to read before parity can be computed, each as high as the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// No parity member can be written: the data alone.
    DataOnly,
    /// Every data chunk is written: parity from the payload.
    Full,
    /// Read-modify-write: old data of the chunks that are written, and old parity.
    Rmw,
    /// Reconstruct-write: the data chunks that are not written, or not all over.
    Reconstruct,
    /// Everything that can be read; missing data that is not written is recovered first.
    Recover,
}

/// The inputs of the choice of a plan.
pub struct Situation<'a> {
    /// Where the stripe's chunks are.
    pub map: &'a StripeMap,
    /// The rows, and the data chunks that are written there.
    pub segment: &'a Segment,
    /// The block of this slot can be read and is valid.
    pub readable: &'a dyn Fn(Slot) -> bool,
    /// The block of this slot is in the stripe cache: nothing has to be read for it.
    pub cached: &'a dyn Fn(Slot) -> bool,
    /// The slot has a member.
    pub writable: &'a dyn Fn(Slot) -> bool,
    /// Parity is known to match data.
    pub in_sync: bool,
    /// The preferred way of updating parity.
    pub rmw_level: RmwLevel,
}

/// Slots of a stripe.
pub type Slots = SmallVec<[Slot; 12]>;

/// Parity slots of a stripe, P first.
pub fn parity_slots(map: &StripeMap) -> SmallVec<[Slot; 2]> {
    std::iter::once(map.p_slot()).chain(map.q_slot()).collect()
}

impl Situation<'_> {
    /// The cheapest plan that is possible.
    ///
    /// # Errors
    /// [`TooManyMissing`] when the data to be kept cannot be had.
    pub fn plan(&self) -> Result<Plan, TooManyMissing> {
        let parity = parity_slots(self.map);
        let mut to_write = parity.iter().filter(|slot| (self.writable)(**slot)).peekable();
        if to_write.peek().is_none() {
            return Ok(Plan::DataOnly);
        }
        if self.segment.full.len() == self.map.data_chunks() {
            return Ok(Plan::Full);
        }
        let to_write: SmallVec<[Slot; 2]> = to_write.copied().collect();
        let rmw: Slots = self.read_by_rmw(&to_write).collect();
        let reconstruct: Slots = self.read_by_reconstruct().collect();
        let rmw_possible = rmw.iter().all(|slot| (self.readable)(*slot));
        let rest_readable = reconstruct.iter().all(|slot| (self.readable)(*slot));
        let cost = |slots: &Slots| slots.iter().filter(|slot| !(self.cached)(**slot)).count();
        let (rmw_blocks, reconstruct_blocks) = (cost(&rmw), cost(&reconstruct));
        let cheaper = self.rmw_level.prefers_rmw(rmw_blocks, reconstruct_blocks);
        // Read-modify-write would carry a parity that is wrong over into the new one; where parity
        // may be wrong (before a resync has come by) reconstructing mends it as well.
        let prefer_rmw = self.in_sync && cheaper;
        match (rmw_possible, rest_readable) {
            (true, true) if prefer_rmw => Ok(Plan::Rmw),
            (_, true) => Ok(Plan::Reconstruct),
            // Parity may be stale here, but a missing chunk can only be reconstructed from it. P and Q are then computed
            // anew from all data chunks, so that they agree again and a further member may be lost.
            (true, false) if !self.in_sync => self.recover(&parity).or(Ok(Plan::Rmw)),
            (true, false) => Ok(Plan::Rmw),
            (false, false) => self.recover(&parity),
        }
    }

    /// The slots that `plan` reads.
    pub fn to_read(&self, plan: Plan) -> Slots {
        let parity = parity_slots(self.map);
        match plan {
            Plan::DataOnly | Plan::Full => SmallVec::new(),
            Plan::Rmw => {
                let to_write: SmallVec<[Slot; 2]> =
                    parity.into_iter().filter(|slot| (self.writable)(*slot)).collect();
                self.read_by_rmw(&to_write).collect()
            }
            Plan::Reconstruct => self.read_by_reconstruct().collect(),
            Plan::Recover => {
                let data = (0..self.map.data_chunks()).map(|k| self.map.data_slot(k));
                data.chain(parity).filter(|slot| (self.readable)(*slot)).collect()
            }
        }
    }

    fn read_by_rmw<'b>(&'b self, parity: &'b [Slot]) -> impl Iterator<Item = Slot> + 'b {
        let data = self.segment.touched.iter().map(|k| self.map.data_slot(usize::from(*k)));
        data.chain(parity.iter().copied())
    }

    fn read_by_reconstruct(&self) -> impl Iterator<Item = Slot> + '_ {
        let kept = |k: &usize| !self.segment.full.contains(&(*k as u16));
        (0..self.map.data_chunks()).filter(kept).map(|k| self.map.data_slot(k))
    }

    fn recover(&self, parity: &[Slot]) -> Result<Plan, TooManyMissing> {
        let missing =
            (0..self.map.data_chunks()).filter(|k| !(self.readable)(self.map.data_slot(*k)));
        let helpers = parity.iter().filter(|slot| (self.readable)(**slot)).count();
        if missing.count() <= helpers { Ok(Plan::Recover) } else { Err(TooManyMissing) }
    }
}
