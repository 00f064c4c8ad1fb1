//! Another host, or a server in another container of this one where members are not locked, takes an array that has a
//! heartbeat, while it is used: it writes no more. When the process has ended and that other is said to use the array, a start
//! waits for as long as its next beats could take, and then goes on.
//!
//! Late in a run, and on single arrays; the other host is a block on one member.

use super::Run;
use super::counting::in_sync_at_rest;
use crate::images;
use crate::machine::{NAMESPACE, Step};
use crate::member::Member;
use crate::waiting::{Over, PATIENCE};
use braid_array::status::{MemberState, MemberStatus};
use braid_format::heartbeat::{Found, Heartbeat, LEN, Process};
use std::rc::Rc;

const MILLISECOND: u64 = 1_000_000;

impl Run {
    /// See the module's documentation.
    pub(super) fn another_host_takes_it(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        let interval = self.plan.scenario.assemble.heartbeat_ms;
        let Some(interval) = interval.map(|millis| u64::from(millis) * MILLISECOND) else {
            return Ok(());
        };
        if self.plan.scenario.lies || !self.is_whole()? {
            return Ok(());
        }
        self.rest(2 * interval)?;
        if !self.is_at_rest()? {
            return Ok(());
        }
        let members = self.working();
        let Some((member, own)) = members.iter().find_map(|m| Some((m, beat_on(m)?))) else {
            return self.fail("heartbeat", "an array has one, and no member has it".to_string());
        };
        let host = &self.plan.scenario.assemble.host;
        let boot = if host.locks { [0xee; 16] } else { host.boot };
        let process = Some(Process { namespace: NAMESPACE + 1, id: 1 });
        let other = Heartbeat { owner: [0xee; 16], boot, sequence: 1, process, ..own };
        self.world.trace(|| format!("another host beats on {}", member.name()));
        member.settle();
        member.rot(0, &other.to_bytes());
        self.rest(3 * interval)?;
        // A look may take seconds.
        if !self.is_at_rest()? {
            return Ok(());
        }
        let lost = self.top_status()?.heartbeat.and_then(|beats| beats.lost);
        if lost.is_none() {
            return self.fail("heartbeat", "an array goes on that another host has".to_string());
        }
        let world = Rc::clone(&self.world);
        let events = |member: &Rc<Member>| images::superblock(&world, member).map(|sb| sb.events);
        let before: Vec<_> = members.iter().map(events).collect();
        self.rest(interval)?;
        if members.iter().map(events).ne(before) {
            let text = "superblocks are written of an array that another host has".to_string();
            return self.fail("heartbeat", text);
        }
        self.crash()?;
        if in_sync_at_rest(member).is_none() || beat_on(member) != Some(other) {
            return self.assemble();
        }
        let since = self.world.now();
        self.assemble()?;
        let waited = self.world.now() - since;
        // Mishaps may keep the member from the start.
        let member =
            |one: &MemberStatus| one.name == member.name() && one.state == MemberState::InSync;
        let took_part = self.top_status()?.members.iter().any(member);
        if took_part && waited < 2 * interval {
            let text = "a start does not wait for another host's beat".to_string();
            return self.fail("heartbeat", text);
        }
        self.goes_on()
    }

    /// Goes on until no member is asked anything. A beat that has looked already would be written over what another host
    /// writes then: that one sees so at its next, and it is not the one that has the array. False: members do not answer.
    fn is_at_rest(&mut self) -> Result<bool, Over> {
        let until = self.world.now() + PATIENCE;
        let mut step = self.step()?;
        while step == Step::Ran || self.world.under_way() > 0 {
            if step == Step::Stuck || self.world.now() > until {
                return Ok(false);
            }
            step = self.step()?;
        }
        Ok(true)
    }
}

/// The beat that stands on a member.
fn beat_on(member: &Rc<Member>) -> Option<Heartbeat> {
    match Found::parse(&member.image(0..LEN as u64)) {
        Found::Beat(beat) if beat.beating => Some(beat),
        _ => None,
    }
}
