//! The members by slots, and the spares: as they are, or as they will be when a change of the array's shape has been made.
//!
//! Does not know what a change is, nor whether it can be made.

use crate::control::record::members::{Roster, Standing};
use crate::state::view::MemberNr;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    slots: Vec<Option<MemberNr>>,
    /// In the order in which they get slots.
    spares: Vec<MemberNr>,
}

impl Holders {
    /// Those of an array of so many slots. A member that is being filled holds its slot; members in slots behind these are
    /// spares.
    pub(crate) fn now(roster: &Roster, slots: usize) -> Holders {
        let mut holders = Holders { slots: vec![None; slots], spares: Vec::new() };
        let mut spares = Vec::new();
        for member in roster.members.iter().filter(|member| member.given_up.is_none()) {
            match member.standing {
                Standing::Spare => spares.push(member.nr),
                Standing::InSync(slot) | Standing::Rebuilding { slot, .. } => {
                    match holders.slots.get_mut(slot) {
                        Some(holder) => *holder = Some(member.nr),
                        None => holders.spares.push(member.nr),
                    }
                }
                _ => {}
            }
        }
        holders.spares.extend(spares);
        holders
    }

    /// Spares.
    pub(crate) fn spares(&self) -> &[MemberNr] {
        &self.spares
    }

    /// There are no spares any more; gives those that were.
    pub(crate) fn without_spares(&mut self) -> Vec<MemberNr> {
        std::mem::take(&mut self.spares)
    }

    /// Slots that nobody holds.
    pub(crate) fn empty(&self) -> usize {
        self.slots.iter().filter(|holder| holder.is_none()).count()
    }

    /// There are `slots` of them: who holds one behind them is a spare, which is given back; the others keep theirs.
    pub(crate) fn have_slots(&mut self, slots: usize) -> Vec<MemberNr> {
        let gone = self.slots.drain(slots.min(self.slots.len())..);
        let freed: Vec<MemberNr> = gone.flatten().collect();
        self.slots.resize(slots, None);
        self.spares.extend(&freed);
        freed
    }

    /// Spares get the slots that nobody holds, as far as there are any; gives those that do.
    pub(crate) fn fill(&mut self) -> Vec<MemberNr> {
        let empty = self.slots.iter_mut().filter(|holder| holder.is_none());
        let filled = self.spares.len().min(empty.count());
        let filled: Vec<MemberNr> = self.spares.drain(..filled).collect();
        let empty = self.slots.iter_mut().filter(|holder| holder.is_none());
        empty.zip(&filled).for_each(|(holder, nr)| *holder = Some(*nr));
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_fill_what_is_new_and_who_loses_a_slot_is_the_last_spare() {
        let mut holders = Holders { slots: vec![Some(0), Some(1), Some(2)], spares: vec![7, 8] };
        assert_eq!(holders.have_slots(4), []);
        assert_eq!((holders.empty(), holders.fill()), (1, vec![7]));
        assert_eq!(holders.have_slots(3), [7]);
        assert_eq!(holders.spares(), [8, 7]);
        assert_eq!(holders.have_slots(6), []);
        assert_eq!(holders.fill(), [8, 7]);
        assert_eq!((holders.empty(), holders.spares().len()), (1, 0));
        assert_eq!(holders.slots, [Some(0), Some(1), Some(2), Some(8), Some(7), None]);
    }
}
