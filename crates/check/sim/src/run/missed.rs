//! Members of a single array that did not get an acknowledged write: they are stale from the acknowledgement on.

use super::Run;
use crate::client::Acknowledged;
use crate::content::{Found, ZERO, recognise};
use crate::images;
use crate::member::Member;

impl Run {
    /// These writes were acknowledged.
    pub(super) fn note_missed(&mut self, acknowledged: &[Acknowledged]) {
        let missed = self.world.missed.borrow().clone();
        let members = self.world.members.borrow().clone();
        for write in acknowledged {
            for missed in missed.iter().filter(|m| m.versions.contains(&write.version)) {
                let member = &members[missed.member];
                // Perhaps it was written again, in smaller pieces.
                if self.lacks(member, write) {
                    self.missed_one(member, "gave an error");
                }
            }
            for member in members.iter().filter(|m| m.dropped.get() && m.in_sync.get()) {
                if self.lacks(member, write) {
                    self.missed_one(member, "was out of the array");
                }
            }
        }
        if self.life.as_ref().is_none_or(|life| life.client.waiting() == 0) {
            self.world.missed.borrow_mut().clear();
        }
    }

    /// What was written to a member up to the instant at which it fails is lost with it where parity
    /// does not match.
    pub(super) fn note_lost(&mut self) {
        if self.promises.holes.is_empty() {
            return;
        }
        let members = self.world.members.borrow().clone();
        for member in members.iter().filter(|member| member.out.get() || member.dropped.get()) {
            if let Some(slot) = member.slot.get() {
                self.lose(slot);
            }
        }
    }

    /// The member holds a copy of some block that is older than this write, and does not say that it is bad: until the engines
    /// hear that it has been replaced they still read what it has.
    fn lacks(&self, member: &Member, write: &Acknowledged) -> bool {
        let (size, start) = (self.plan.scenario.block, member.data.borrow().start);
        let layout = self.layout(self.top());
        let bad = images::recorded_bad(&self.world, member);
        let is_bad = |at: u64| bad.iter().any(|bad| bad.start < at + size && at < bad.end);
        let older = |block: u64| {
            let places = images::places(&layout, block * size);
            let own = places.iter().filter(|place| Some(place.slot) == member.slot.get());
            own.filter(|place| !is_bad(place.offset)).any(|place| {
                let at = start + place.offset;
                match recognise(self.world.seed, &member.image(at..at + size)) {
                    // Perhaps of a later write.
                    Found::Zeroes => false,
                    // Of two that are under way at once either may come last.
                    Found::Block { version, .. } => {
                        version < write.version & !ZERO && !self.oracle.may_be(block, version)
                    }
                    _ => true,
                }
            })
        };
        write.blocks.clone().any(older)
    }

    fn missed_one(&self, member: &Member, why: &str) {
        if member.in_sync.get() && (member.out.get() || member.dropped.get()) {
            self.world
                .trace(|| format!("{} missed an acknowledged write: it {why}", member.name()));
            member.in_sync.set(false);
            member.mark_stale();
        }
    }
}
