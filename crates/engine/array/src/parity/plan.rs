//! How parity of a segment is brought up to date: the plan that reads the fewest bytes among
//! those that the members' states allow.

use braid_layout::{Slot, StripeMap};
use smallvec::SmallVec;
use std::ops::Range;

/// What to read before parity can be computed. All blocks are as high as the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// No parity member can be written: the data alone.
    DataOnly,
    /// Every data chunk is written: parity from the payload.
    Full,
    /// Read-modify-write: old data of the written chunks and old parity.
    Rmw,
    /// Reconstruct-write: the data chunks that are not written.
    Reconstruct,
    /// Everything that can be read; missing data that is not written is recovered first.
    Recover,
}

/// What the plan depends on.
pub struct Situation<'a> {
    /// Where the stripe's chunks are.
    pub map: &'a StripeMap,
    /// Data chunks that are written.
    pub written: Range<usize>,
    /// The block of this slot can be read and is valid.
    pub readable: &'a dyn Fn(Slot) -> bool,
    /// The slot has a member.
    pub writable: &'a dyn Fn(Slot) -> bool,
    /// Parity is known to match data.
    pub in_sync: bool,
}

/// Too many blocks of the stripe are missing for the write to keep its redundancy rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyMissing;

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
        let data = self.map.data_chunks();
        if self.written.len() == data {
            return Ok(Plan::Full);
        }
        let rmw_possible = self.written.clone().all(|k| (self.readable)(self.map.data_slot(k)))
            && to_write.clone().all(|slot| (self.readable)(*slot));
        let untouched_readable = self.untouched().all(|k| (self.readable)(self.map.data_slot(k)));
        let rmw_blocks = self.written.len() + to_write.count();
        let reconstruct_blocks = data - self.written.len();
        // Read-modify-write would carry a parity that is wrong over into the new one; where parity
        // may be wrong (before a resync has come by) reconstructing mends it as well.
        let prefer_rmw = self.in_sync && rmw_blocks < reconstruct_blocks;
        match (rmw_possible, untouched_readable) {
            (true, true) if prefer_rmw => Ok(Plan::Rmw),
            (_, true) => Ok(Plan::Reconstruct),
            // Where parity may be wrong, what is missing is what parity makes of it; written anew from
            // that, P and Q agree again, so that a further member may be lost.
            (true, false) if !self.in_sync => self.recover(&parity).or(Ok(Plan::Rmw)),
            (true, false) => Ok(Plan::Rmw),
            (false, false) => self.recover(&parity),
        }
    }

    fn recover(&self, parity: &[Slot]) -> Result<Plan, TooManyMissing> {
        let missing =
            (0..self.map.data_chunks()).filter(|k| !(self.readable)(self.map.data_slot(*k)));
        let helpers = parity.iter().filter(|slot| (self.readable)(**slot)).count();
        if missing.count() <= helpers { Ok(Plan::Recover) } else { Err(TooManyMissing) }
    }

    fn untouched(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.map.data_chunks()).filter(|k| !self.written.contains(k))
    }
}
