//! The bytes of a member that are what the array means them to be.

use super::{Member, SECTOR};
use std::ops::Range;

impl Member {
    /// The first component byte that `used` says is in use and that does not hold, durably, what the
    /// array means it to hold: it missed a write, or was a spare, and has not been rebuilt there.
    pub fn first_not_rebuilt(&self, used: impl Fn(u64) -> bool) -> Option<u64> {
        let state = self.state.borrow();
        let fresh = state.fresh.as_ref()?;
        let data = self.data.borrow();
        let sectors = data.start / SECTOR..data.end / SECTOR;
        // A liar makes nothing durable by a flush, and as long as it keeps power nobody can tell.
        let held = if self.kind.lies { &fresh.live } else { &fresh.durable };
        sectors
            .filter(|sector| !held[*sector as usize])
            .map(|sector| sector * SECTOR - data.start)
            .find(|at| used(*at))
    }

    /// The first byte of `range` within the data area that the array has not put there since the
    /// member was stale.
    pub fn first_stale(&self, range: Range<u64>) -> Option<u64> {
        let state = self.state.borrow();
        let fresh = state.fresh.as_ref()?;
        let data = self.data.borrow();
        let (start, end) = (range.start.max(data.start), range.end.min(data.end));
        (start / SECTOR..end.max(start).div_ceil(SECTOR))
            .find(|sector| !fresh.live[*sector as usize])
            .map(|sector| sector * SECTOR)
    }
}
