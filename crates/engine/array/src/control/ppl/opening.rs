//! When the log is in use, and what its areas hold before that.
//!
//! While redundancy does not hold everywhere (a new array, or one whose logs did not say what was being written) no log can
//! make up for a resync, and an unclean stop must lead to another one: the areas are empty and say that they are not in
//! use, and writes go on unlogged. When the resync has ended, writes that come are held back until those have ended and are
//! durable; then the areas say that the log is in use.

use crate::control::ppl::PartialParity;
use crate::control::ppl::in_use::Use;
use crate::metadata::ppl::area::Area;
use crate::state::view::MemberNr;
use braid_device::{Device, IoError, IoErrorKind};
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

impl PartialParity {
    /// The array has a log; writes may not be entered in it yet.
    pub fn is_there(&self) -> bool {
        self.in_use.get() != Use::Absent
    }

    /// Every write is logged, and the areas say so: an unclean stop costs no resync.
    pub fn is_in_use(&self) -> bool {
        // From the first superblock on that does not have it any more it is of no use.
        self.in_use.get() == Use::All && self.record.roster.borrow().shared.ppl.is_some()
    }

    /// Before the first superblocks: whether areas are rings is said there, as md does.
    pub(crate) fn note_rings(&self) {
        if !self.is_there() {
            return;
        }
        let mut roster = self.record.roster.borrow_mut();
        let note = |superblock: &mut Superblock| {
            let ring = Area::of(superblock).is_some_and(|area| area.is_ring());
            if let Some(ppl) = &mut superblock.ppl {
                ppl.multiple = ring;
            }
        };
        note(&mut roster.shared);
        roster.members.iter_mut().for_each(|member| note(&mut member.superblock));
    }

    /// After the superblocks of the start, which say "clean" where the logs were replayed: what they held is not needed any
    /// more. The caller holds the turn.
    pub(crate) async fn clear_areas(&self, turn: &Share) {
        if self.is_there() {
            self.to_areas(turn, true, 0).await;
        }
    }

    /// Logs writes from now on, if redundancy holds everywhere.
    pub(crate) async fn open(self: &Rc<Self>) {
        let holds = || self.record.roster.borrow().resynced == u64::MAX;
        if self.in_use.get() != Use::Not || !(holds() || planted("log-in-use-too-early")) {
            return;
        }
        self.in_use.set(Use::Opening);
        // Not under the turn: a write that finds a failed member ends only when that is recorded.
        self.changed.wait_for(|| self.unlogged.borrow().is_empty().then_some(())).await;
        let turn = self.record.turn().await;
        if self.in_use.get() == Use::Opening {
            self.record.flush_members(&turn, |_| true).await;
            self.generation.set(self.generation.get() + 1);
            self.to_areas(&turn, false, self.generation.get()).await;
            // Units follow the first header, also where there was a log before.
            self.logs.borrow_mut().iter_mut().for_each(|log| log.next.clear());
            self.in_use.set(Use::All);
        }
        drop(turn);
        let slots = self.logs.borrow().len();
        (0..slots).for_each(|slot| self.start(slot));
    }

    /// The member's superblock leaves room for the log, beside its data.
    pub(crate) fn has_room(&self, device: &dyn Device, superblock: &Superblock) -> bool {
        let Some(area) = Area::of(superblock) else { return false };
        let data = superblock.data_offset.saturating_mul(SECTOR as u64);
        let data_end = data.saturating_add(superblock.size.saturating_mul(SECTOR as u64));
        let end = area.at.saturating_add(area.len());
        (end <= data || area.at >= data_end) && end <= device.info().size
    }

    /// Prepares the area of a member that is about to get a slot.
    pub(crate) async fn give_area(
        &self,
        device: &Rc<dyn Device>,
        superblock: &Superblock,
    ) -> Result<(), IoError> {
        if !self.is_there() || planted("log-of-new-member-kept") {
            return Ok(());
        }
        let area = Area::of(superblock).ok_or(IoError::new(IoErrorKind::Invalid))?;
        let set_uuid = self.record.roster.borrow().shared.set_uuid;
        for request in area.empty(&self.record.shard, &set_uuid, self.first_generation()) {
            request.check(device.info())?;
            self.record.engine.sets.one(&**device, request).await.result?;
        }
        Ok(())
    }

    /// Writes the first header of every area, and with `empty` zeroes to all of it before that. A member that does not take
    /// them has failed. The caller holds the turn.
    async fn to_areas(&self, turn: &Share, empty: bool, generation: u64) {
        let shard = &self.record.shard;
        let set_uuid = self.record.roster.borrow().shared.set_uuid;
        let mut failures: Vec<(MemberNr, IoError)> = Vec::new();
        for headers in if empty { &[false, true][..] } else { &[true] } {
            let mut set = self.record.engine.sets.start();
            for member in self.record.roster.borrow().members.iter().filter(|m| m.holds_data()) {
                let Some(area) = Area::of(&member.superblock) else { continue };
                let [zeroes, header] = area.empty(shard, &set_uuid, generation);
                let request = if *headers { header } else { zeroes };
                set.submit(member.nr, &*member.device, request);
            }
            for (nr, outcome) in set.finish().await {
                failures.extend(outcome.result.err().map(|error| (nr, error)));
            }
        }
        for (nr, error) in &failures {
            let why = format!("its partial parity log could not be written: {error}");
            self.record.drop_member(*nr, &why);
        }
        if !failures.is_empty() {
            self.record.record_dropped(turn).await;
        }
    }

    /// The content of an area without units.
    fn first_generation(&self) -> u64 {
        if self.in_use.get() == Use::All { self.generation.get() } else { 0 }
    }
}
