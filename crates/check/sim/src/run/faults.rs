//! What happens to arrays while they run: members fail, blocks become unreadable, arrays are lost to those above them.
//! Nothing that those who promise the data do not survive, unless the scenario goes beyond it: see `counting`.

use super::Run;
use super::standing::{Held, member_name};
use crate::member::Member;
use crate::waiting::Over;
use std::rc::Rc;

impl Run {
    /// Members that hold a slot and work, as far as anybody knows.
    pub(super) fn working(&self) -> Vec<Rc<Member>> {
        let works = |m: &&Rc<Member>| m.slot.get().is_some() && !m.out.get() && !m.is_weak();
        self.world.members.borrow().iter().filter(works).cloned().collect()
    }

    /// One of them.
    pub(super) fn some_working(&self) -> Option<Rc<Member>> {
        let working = self.working();
        (!working.is_empty()).then(|| Rc::clone(self.rng.pick(&working)))
    }

    pub(super) fn a_member_fails(&mut self) -> Result<(), Over> {
        let asked = self.ask_first()?;
        let Some(member) = self.some_working() else { return Ok(()) };
        if !self.may_lose_leaf(&member, &asked)? {
            if !self.plan.scenario.beyond {
                return Ok(());
            }
            self.world.trace(|| "beyond what the level survives".to_string());
            self.promises.excused = true;
            // A member that hangs is waited for as long as the data depends on it: it answers in the end.
            self.world.wake_hung();
        }
        self.did.faults += 1;
        let plan = &self.plan.arrays[member.kind.array];
        let (has_log, has_bitmap) = (plan.create.bad_block_log, plan.has_bitmap());
        let slot = member.slot.get().unwrap_or(0);
        let name = member.name();
        match self.rng.range(0..10) {
            0..3 => {
                self.world.trace(|| format!("{name} is gone"));
                member.set_gone(true);
                if has_bitmap && self.rng.percent(50) {
                    // What it had not made durable is lost, though the others go on.
                    member.power_cut(&self.world.rng, Vec::new());
                }
                member.out.set(true);
                self.lose(slot);
            }
            3..6 if has_log && self.rng.percent(60) => self.blocks_go_bad(&member),
            3..6 => {
                let writes = self.rng.log_range(1..40) as u32;
                self.world.trace(|| format!("{name} will fail a write in {writes}"));
                member.fail_write_in(Some(writes));
                self.lose(slot);
            }
            6..8 => {
                let (first, count) = (self.some_block(&member, 70), self.rng.log_range(1..17));
                self.world.trace(|| format!("{name} cannot read {count} blocks at {first}"));
                member.make_unreadable(first, count);
                self.lose_parts(slot, member.unreadable());
            }
            _ => self.fail_leaf(&member)?,
        }
        Ok(())
    }

    /// A component byte, in so many of 100 cases where most requests go.
    fn some_block(&self, member: &Member, hot_percent: u64) -> u64 {
        let data = member.data.borrow().clone();
        let blocks = ((data.end - data.start) / member.kind.tear).max(1);
        let hot = (self.plan.scenario.hot / member.kind.tear).clamp(1, blocks);
        let room = if self.rng.percent(hot_percent) { hot } else { blocks };
        self.rng.range(0..room) * member.kind.tear
    }

    /// Blocks of a member take no write any more.
    fn blocks_go_bad(&mut self, member: &Member) {
        let hot = self.plan.odds.defects_are_hot;
        let unreadable = self.rng.percent(40);
        for _ in 0..self.rng.log_range(1..8) {
            let (first, count) = (self.some_block(member, hot), self.rng.log_range(1..40));
            let name = member.name();
            self.world.trace(|| format!("{name} takes no write of {count} blocks at {first}"));
            member.make_defective(first, count, unreadable);
        }
        if let Some(slot) = member.slot.get() {
            self.lose_parts(slot, member.unreadable());
        }
    }

    /// An array is failed in the one above it, or stopped under it.
    pub(super) fn an_array_fails(&mut self) -> Result<(), Over> {
        let nr = self.some_array(&self.rng);
        let Some(above) = self.plan.arrays[nr].above.filter(|above| self.redundant(*above)) else {
            return Ok(());
        };
        if !self.may_lose(Held::Array(nr))? {
            return Ok(());
        }
        self.did.faults += 1;
        if self.rng.percent(50) {
            self.world.trace(|| format!("fail array:a{nr}"));
            self.fail_member(above, member_name(nr))?;
            return Ok(());
        }
        self.world.trace(|| format!("stop a{nr} below a{above}"));
        self.stop_one(nr)?;
        self.life()?.arrays[nr] = None;
        Ok(())
    }

    pub(super) fn a_spare_fails(&mut self) -> Result<(), Over> {
        let asked = self.ask_first()?;
        let members = self.world.members.borrow().clone();
        let spares: Vec<_> =
            members.iter().filter(|m| !m.in_sync.get() && !m.out.get() && !m.is_gone()).collect();
        if spares.is_empty() || self.rng.percent(50) {
            return Ok(());
        }
        self.did.faults += 1;
        let spare = *self.rng.pick(&spares);
        let has_log =
            self.plan.arrays[spare.kind.array].create.bad_block_log && spare.has_log.get();
        let defects = self.plan.odds.spare_has_defects;
        if has_log && defects > 0 && self.rng.percent(defects) {
            // One that replaces a member may have its slot before it is written to there.
            if self.may_lose_leaf(spare, &asked)? {
                self.blocks_go_bad(spare);
            }
            return Ok(());
        }
        self.world.trace(|| format!("{} is gone, a spare or being rebuilt", spare.name()));
        spare.set_gone(true);
        spare.out.set(true);
        Ok(())
    }
}
