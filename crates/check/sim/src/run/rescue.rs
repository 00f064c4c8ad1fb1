//! Arrays with parity that have lost one member more than they survive, all of them some time ago: without force they are
//! refused and nothing is written, by force the newest of those members are taken, with whoever is as new, and no older one.
//!
//! Last in a run, and on single arrays: what was written since is lost then, and nothing more is promised.

use super::Run;
use super::counting::in_sync_at_rest;
use crate::images;
use crate::member::Member;
use crate::waiting::Over;
use braid_array::error::AssembleError;
use braid_array::options::AssembleOptions;
use braid_array::status::MemberState;
use braid_format::superblock::{Role, Superblock};
use braid_layout::Layout;
use std::collections::BTreeSet;
use std::rc::Rc;

impl Run {
    /// See the module's documentation.
    pub(super) fn too_many_are_stale(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        let layout = self.layout(self.top());
        let Layout::Parity(parity) = &*layout else { return Ok(()) };
        if self.plan.scenario.lies || !self.is_whole()? {
            return Ok(());
        }
        let mut working = self.working();
        working.retain(|member| in_sync_at_rest(member).is_some());
        self.chances.rescue.rng.shuffle(&mut working);
        let mut old = Vec::new();
        for member in working.into_iter().take(parity.parity_count() + 1) {
            old.push((Rc::clone(&member), member.snapshot()));
            // Two of the same update now and then.
            if self.chances.rescue.rng.percent(75) {
                self.quiet_round()?;
                self.rest(self.chances.rescue.rng.log_range(1_000_000_000..4_000_000_000))?;
            }
        }
        self.quiet_round()?;
        self.stop()?;
        let members = self.world.members.borrow().clone();
        if members.iter().any(|m| m.is_gone() || m.damaged.get()) {
            return self.assemble();
        }
        old.iter().for_each(|(member, as_it_was)| member.restore(as_it_was));
        let events =
            |member: &Rc<Member>| images::superblock(&self.world, member).map(|sb| sb.events);
        let stale = |member: &Rc<Member>| old.iter().any(|(one, _)| Rc::ptr_eq(one, member));
        let freshest = members.iter().filter(|m| !stale(m)).filter_map(&events).max().unwrap_or(0);
        let newest = old.iter().filter_map(|(member, _)| events(member)).max().unwrap_or(0);
        let fresh = |m: &&Rc<Member>| in_sync_at_rest(m).is_some() && !stale(m);
        let fresh: Vec<&Rc<Member>> = members.iter().filter(fresh).collect();
        // One that the last update alone has missed counts as new; and where no slot has a newer member, of an array of two,
        // those are the newest.
        if newest + 1 >= freshest || fresh.is_empty() {
            return Err(Over);
        }
        let waits = |member: &Rc<Member>| {
            images::superblock(&self.world, member).is_some_and(|sb| sb.own_role() == Role::Spare)
        };
        let spares: Vec<_> =
            members.iter().filter(|m| waits(m)).map(|m| m.name().to_string()).collect();
        let expected = self.taken_by_force(&members, &fresh, parity.parity_count());
        self.world.trace(|| format!("{} members are of long ago", old.len()));
        let present = self.present(self.top());
        let machine = self.next_machine();
        let plain =
            AssembleOptions { force: true, ..self.plan.arrays[self.top()].assemble.clone() };
        let before: Vec<_> = present.iter().map(|member| member.snapshot()).collect();
        match self.try_assembly(&machine, &present, &plain)? {
            Err(AssembleError::NotEnough { by_force, .. }) if !by_force.is_empty() => {}
            Err(error) => return self.fail("rescue", format!("it says: {error}")),
            Ok(_) => {
                return self.fail("rescue", "an array starts with too few members".to_string());
            }
        }
        if present.iter().zip(&before).any(|(member, before)| member.snapshot() != *before) {
            return self.fail("rescue", "a refused assembly has written".to_string());
        }
        let insisting = AssembleOptions { take_stale: true, ..plain };
        let array = match self.try_assembly(&machine, &present, &insisting)? {
            Ok(array) => array,
            Err(error) => return self.fail("rescue", format!("by force: {error}")),
        };
        self.begin_life(machine, vec![Some(array)])?;
        let status = self.top_status()?;
        let held = status.members.iter().filter(|m| m.state == MemberState::InSync);
        // A spare may have been filled by now.
        let held = held.filter(|member| !spares.contains(&member.name));
        let held: BTreeSet<String> = held.map(|member| member.name.clone()).collect();
        if held != expected || status.taken_by_force.is_empty() {
            let text = format!("by force {held:?} are taken, and {expected:?} should be");
            return self.fail("rescue", text);
        }
        // Writes since then are lost.
        Err(Over)
    }

    /// The members of an array with parity that is started by force: those that are fresh, and of the others, also those that
    /// it had lost before, the newest that it needs, with all of the same update.
    fn taken_by_force(
        &self,
        members: &[Rc<Member>],
        fresh: &[&Rc<Member>],
        parity: usize,
    ) -> BTreeSet<String> {
        let superblock = |member: &Rc<Member>| images::superblock(&self.world, member);
        let freshest = members.iter().filter_map(superblock).max_by_key(|sb| sb.events);
        let shape = |sb: &Superblock| (sb.level, sb.layout, sb.chunk_sectors, sb.raid_disks);
        // The content of a member that was lost before a reshape lies where nobody looks for it any more.
        let now = freshest.as_ref().map(shape);
        let held = |member: &Rc<Member>| {
            let sb = superblock(member).filter(|sb| Some(shape(sb)) == now)?;
            let slot = sb.own_role().slot().filter(|_| sb.recovery_offset.is_none())?;
            Some((sb.events, slot, sb.raid_disks as usize))
        };
        let others = members.iter().filter(|m| !fresh.iter().any(|one| Rc::ptr_eq(one, m)));
        let mut others: Vec<_> = others.filter_map(|m| Some((held(m)?, m))).collect();
        others.sort_by_key(|((events, ..), _)| std::cmp::Reverse(*events));
        let mut taken: Vec<&Rc<Member>> = fresh.to_vec();
        let mut slots: BTreeSet<u16> =
            fresh.iter().filter_map(|m| held(m)).map(|(_, slot, _)| slot).collect();
        let mut vintage = None;
        for ((events, slot, raid_disks), member) in others {
            let enough = slots.len() + parity >= raid_disks;
            if (!enough || vintage == Some(events)) && slots.insert(slot) {
                vintage = Some(events);
                taken.push(member);
            }
        }
        taken.iter().map(|member| member.name().to_string()).collect()
    }
}
