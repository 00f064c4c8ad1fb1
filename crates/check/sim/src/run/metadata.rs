//! Metadata of members that is damaged when the array is to start: superblocks and bad-block logs that cannot be read, or
//! have rotted, and bitmaps that cannot be read.
//!
//! The engine is held to this: a member whose superblock is lost keeps an assembly from starting that is given it, by
//! name, and nothing is written. People leave it out. A member whose list of bad blocks is lost is left out by the assembly,
//! which names it and goes on without it. Either counts as absent then, and no byte of it changes until it is added again.
//! A bitmap that is lost costs a longer resync and no data.
//!
//! Does not go beyond what the level survives: who is hit counts as lost as a whole, as in `faults`. Choices come from a
//! stream of their own; plain runs have none of it.

use super::Run;
use super::chances::LeftOut;
use super::counting::in_sync_at_rest;
use crate::device::SimOpener;
use crate::images;
use crate::machine::Machine;
use crate::member::Member;
use crate::waiting::{Over, wait};
use braid_array::error::{AssembleError, ExamineError};
use braid_array::metadata::superblock::examine;
use braid_format::superblock::{READ_LEN, Superblock};
use std::rc::Rc;

const SECTOR: u64 = 512;

impl Run {
    /// Nothing runs: now and then some metadata is damaged.
    pub(super) fn metadata_is_damaged(&mut self) {
        if self.promises.excused {
            return;
        }
        if !self.damage.any.chance(30) {
            // Few members have a list, so chance alone hits hardly any.
            if self.damage.lists.chance(60) {
                self.one_loses_its_list();
            }
            return;
        }
        match self.damage.any.rng.range(0..10) {
            0..3 if self.plan.arrays[self.top()].has_bitmap() => self.bitmaps_are_unreadable(),
            _ => self.one_loses_its_metadata(),
        }
    }

    /// What could not be read can be read again, now and then: the cable was it.
    pub(super) fn metadata_is_there_again(&self) {
        for member in self.world.members.borrow().iter().filter(|member| member.damaged.get()) {
            if self.damage.any.chance(40) && member.heal_metadata() {
                self.world.trace(|| format!("all metadata of {} can be read", member.name()));
            }
        }
    }

    /// Members of which the level can do without each.
    fn may_be_hit(&self) -> Vec<Rc<Member>> {
        let members = self.world.members.borrow();
        let may_be_hit = |member: &&Rc<Member>| {
            let there = !member.out.get() && !member.is_gone();
            let spared =
                in_sync_at_rest(member).is_none() || self.survives(member, in_sync_at_rest);
            there && spared && images::superblock(&self.world, member).is_some()
        };
        members.iter().filter(may_be_hit).cloned().collect()
    }

    /// The first of these whose list of bad blocks is not empty.
    fn with_a_list<'a>(&self, members: &'a [Rc<Member>]) -> Option<&'a Rc<Member>> {
        members
            .iter()
            .find(|member| images::superblock(&self.world, member).is_some_and(|sb| sb.bad_blocks))
    }

    fn one_loses_its_metadata(&mut self) {
        let hit = self.may_be_hit();
        let (lists, any) = (self.with_a_list(&hit), self.damage.any.rng.below(hit.len()));
        let Some(member) = lists.or(hit.get(any)) else { return };
        let Some(sb) = images::superblock(&self.world, member) else { return };
        self.did.faults += 1;
        member.damaged.set(true);
        if lists.is_some() && self.damage.any.rng.percent(70) {
            self.list_is_lost(member, &sb);
        } else {
            self.superblock_is_lost(member, &sb);
        }
        self.unknown_is_out(member);
    }

    fn one_loses_its_list(&mut self) {
        let hit = self.may_be_hit();
        let Some(member) = self.with_a_list(&hit) else { return };
        let Some(sb) = images::superblock(&self.world, member) else { return };
        self.did.faults += 1;
        member.damaged.set(true);
        self.list_is_lost(member, &sb);
        self.unknown_is_out(member);
    }

    /// A member of which nobody knows what is on it is out.
    fn unknown_is_out(&self, member: &Member) {
        if images::superblock(&self.world, member).is_none() {
            member.out.set(true);
        }
    }

    fn superblock_is_lost(&self, member: &Member, sb: &Superblock) {
        let Some(place) = images::superblock_place(&self.world, member) else { return };
        let name = member.name();
        match self.damage.any.rng.range(0..4) {
            0 | 1 => {
                let all = self.damage.any.rng.percent(50);
                // The first sectors are all that it needs, unless it has a large table.
                let sectors = if all { READ_LEN as u64 / SECTOR } else { 1 };
                let first = if all { 0 } else { self.damage.any.rng.range(0..3) };
                let start = place.start + first * SECTOR;
                self.world.trace(|| {
                    format!("{name} cannot read {sectors} sectors at {start}: its superblock")
                });
                member.make_unreadable_at(start..(start + sectors * SECTOR).min(place.end));
            }
            2 => {
                self.world.trace(|| format!("the superblock of {name} is zeroed"));
                member.rot(place.start, &[0; SECTOR as usize]);
            }
            _ => {
                // Event count, role table, checksum and name are all below the checksum.
                let at = *self.damage.any.rng.pick(&[32_u64, 92, 200, 216, 260]);
                let old = member.image(place.start + at..place.start + at + 1);
                let wrong: Vec<u8> = old.iter().map(|byte| byte ^ 0x10).collect();
                self.world.trace(|| {
                    format!("byte {at} of the superblock of {name} rots (events {})", sb.events)
                });
                member.rot(place.start + at, &wrong);
            }
        }
    }

    fn list_is_lost(&self, member: &Member, sb: &Superblock) {
        let Some(at) = sb.bblog_sector().map(|sector| sector * SECTOR) else { return };
        let name = member.name();
        if self.damage.any.rng.percent(60) {
            self.world.trace(|| format!("{name} cannot read its list of bad blocks"));
            member.make_unreadable_at(at..at + SECTOR);
        } else {
            self.world.trace(|| format!("the list of bad blocks of {name} is zeroed"));
            member.rot(at, &[0; SECTOR as usize]);
        }
    }

    /// The bitmap of one member, or of all, cannot be read: its superblock, or some of its bits.
    fn bitmaps_are_unreadable(&self) {
        let (all, bits) = (self.damage.any.rng.percent(60), self.damage.any.rng.percent(40));
        for member in self.world.members.borrow().iter() {
            let place = images::superblock(&self.world, member).and_then(|sb| sb.bitmap_sector());
            let Some(at) = place.map(|sector| sector * SECTOR) else { continue };
            let at = if bits { at + SECTOR } else { at };
            self.world.trace(|| format!("{} cannot read its bitmap at {at}", member.name()));
            member.damaged.set(true);
            member.make_unreadable_at(at..at + SECTOR);
            if !all {
                return;
            }
        }
    }

    /// Members that are there and of which nobody knows what they are, or what is bad on them.
    fn unknown(&self) -> Vec<Rc<Member>> {
        let members = self.world.members.borrow();
        members.iter().filter(|member| self.is_unknown(member)).cloned().collect()
    }

    pub(super) fn is_unknown(&self, member: &Member) -> bool {
        let there = member.damaged.get() && !member.is_gone();
        there && images::superblock(&self.world, member).is_none()
    }

    fn cannot_read_superblock(&self, member: &Member) -> bool {
        let place = images::superblock_place(&self.world, member);
        place.is_some_and(|place| member.cannot_read(&place))
    }

    /// An assembly that is given a member whose superblock is lost beside `present` is refused and writes nothing; people
    /// leave the member out. Those whose list of bad blocks is lost come among `present`: it is the assembly that has to
    /// leave them out.
    pub(super) fn damaged_are_given(
        &mut self,
        machine: &Machine,
        present: &mut Vec<Rc<Member>>,
    ) -> Result<(), Over> {
        for member in self.unknown() {
            let name = member.name().to_string();
            let writes = member.writes_so_far();
            if images::superblock_alone(&self.world, &member).is_some() {
                if images::takes_part(&self.world, present, &member) {
                    let at = self.damage.any.rng.below(present.len() + 1);
                    present.insert(at, Rc::clone(&member));
                    self.damage.left_out.push(LeftOut { member, writes });
                }
                continue;
            }
            let opener = SimOpener::of(&self.world, member.kind.index);
            let shard = machine.home().clone();
            let later = machine.begin(async move { examine(&shard, &*opener).await });
            match wait(machine, "an examination", &later)?.map(|found| found.superblock) {
                Ok(Some(sb)) => {
                    let text = format!(
                        "the superblock of {name} is lost, and one with {} updates is found",
                        sb.events
                    );
                    return self.fail("damage_is_seen", text);
                }
                // Whoever is told so may make another array of it.
                Ok(None) if self.cannot_read_superblock(&member) => {
                    let text = format!(
                        "the superblock of {name} cannot be read, and what is said is that it has none"
                    );
                    return self.fail("damage_is_seen", text);
                }
                _ => {}
            }
            let mut given = present.clone();
            given.insert(self.damage.any.rng.below(present.len() + 1), Rc::clone(&member));
            let written = self.writes_taken();
            let options = self.plan.arrays[self.top()].assemble.clone();
            let error = match self.try_assembly(machine, &given, &options)? {
                Ok(_) => {
                    let text = format!("an array starts with {name}, whose metadata is lost");
                    return self.fail("damage_is_seen", text);
                }
                Err(error) => error,
            };
            self.world.trace(|| format!("{name} is left out: {error}"));
            let named = match &error {
                AssembleError::Examine(
                    ExamineError::Read { name, .. } | ExamineError::Superblock { name, .. },
                )
                | AssembleError::NoSuperblock { name } => Some(name),
                _ => None,
            };
            if named != Some(&name) {
                let text = format!("the metadata of {name} is lost, and what is said is: {error}");
                return self.fail("damage_is_seen", text);
            }
            if self.writes_taken() != written {
                let text = format!("an assembly with {name}, which was refused, has written");
                return self.fail("damage_is_seen", text);
            }
            self.damage.left_out.push(LeftOut { member, writes });
        }
        Ok(())
    }

    /// The array runs that was given `given`: those among them whose list of bad blocks is lost are none of its members, and it
    /// says so, or what else keeps them out.
    pub(super) fn lost_lists_are_named(&mut self, given: &[Rc<Member>]) -> Result<(), Over> {
        let lost = |member: &&Rc<Member>| self.is_unknown(member);
        let lost: Vec<&Rc<Member>> = given.iter().filter(lost).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let status = self.top_status()?;
        for name in lost.iter().map(|member| member.name()) {
            let said = format!("{name}: ");
            let line = status.left_out.iter().find(|line| line.starts_with(&said));
            let taken = status.members.iter().any(|known| known.name == name);
            let Some(line) = line.filter(|_| !taken) else {
                let text = format!(
                    "an array takes {name}, whose list of bad blocks is lost, or leaves it out and does not say so: {:?}",
                    status.left_out
                );
                return self.fail("damage_is_seen", text);
            };
            self.world
                .trace(|| format!("its list of bad blocks is lost, and it is left out: {line}"));
        }
        Ok(())
    }

    fn writes_taken(&self) -> u64 {
        self.world.members.borrow().iter().map(|member| u64::from(member.writes_so_far())).sum()
    }

    /// Somebody adds this member: it may be written to from now on.
    pub(super) fn left_out_no_more(&mut self, member: &Rc<Member>) {
        self.damage.left_out.retain(|left| !Rc::ptr_eq(&left.member, member));
    }

    /// A life is over: who was left out has not been written to.
    pub(super) fn left_out_are_untouched(&mut self) {
        for left in self.damage.left_out.drain(..) {
            if left.member.writes_so_far() != left.writes {
                let text =
                    format!("{} was left out of the array, and was written to", left.member.name());
                self.world.fail("left_out_is_untouched", text);
            }
        }
    }
}
