//! Request statistics of an array and its members: plain data, added up over shards.
//!
//! Superblocks, bitmaps and bad-block logs are written by control, which has handles of its own: they are not in it.

use crate::state::view::MemberNr;
use braid_device::counts::Counts;
use braid_device::meter::Figures;

/// Request statistics of one member.
#[derive(Clone, Debug, Default)]
pub struct MemberFigures {
    /// Requests of the array to it, before plugs merge them.
    pub requested: Counts,
    /// I/Os that it got.
    pub io: Figures,
}

/// Request statistics of an array and its members.
#[derive(Clone, Debug, Default)]
pub struct ArrayFigures {
    /// Requests that came to the array. Latencies are taken unless all members are in memory.
    pub requests: Figures,
    /// Members by their number; those that lend their memory are not there: what is done in place, nobody counts.
    pub members: Vec<(MemberNr, MemberFigures)>,
}

impl ArrayFigures {
    /// Request statistics of member `nr`.
    pub fn member(&self, nr: MemberNr) -> Option<&MemberFigures> {
        self.members.iter().find(|(known, _)| *known == nr).map(|(_, figures)| figures)
    }

    pub(crate) fn add(&mut self, nr: MemberNr, more: &MemberFigures) {
        match self.members.iter_mut().find(|(known, _)| *known == nr) {
            Some((_, sum)) => {
                sum.requested.join(&more.requested);
                sum.io.join(&more.io);
            }
            None => self.members.push((nr, more.clone())),
        }
    }
}
