//! A partial parity log added to the running array, or taken away: `mdadm --grow --consistency-policy`.
//!
//! ```text
//!  add:     empty areas ─► superblocks that have the log ─► engines log ─► earlier writes end ─► in use
//!  remove:  superblocks without it, on every member ─► engines log no more
//! ```
//!
//! Whatever the moment of a crash, the freshest superblock has a log that is in use and has every write, one that is not in
//! use, or none; the last two mean a resync.

use crate::control::commands;
use crate::control::ppl::PartialParity;
use crate::control::ppl::in_use::Use;
use crate::engine::Engine;
use crate::engine::recorded::Recorded;
use crate::error::ControlError;
use crate::metadata::ppl::area::Area;
use crate::state::view::MemberNr;
use braid_format::placement::place_added_ppl;
use braid_format::superblock::Ppl;
use braid_layout::Level;
use std::rc::Rc;

/// Interval at which engines are asked whether earlier writes have ended, in nanoseconds.
const ASK_EVERY: u64 = 1_000_000;

impl PartialParity {
    /// Adds a log where mdadm would. From the moment that this comes back an unclean stop costs no resync, also while a
    /// member is missing.
    ///
    /// # Errors
    /// Another level than 5, an array that has a bitmap or a log, or is not in a state for it; a member without room.
    /// Nothing has changed then.
    pub async fn add(self: &Rc<Self>) -> Result<(), ControlError> {
        let doing = "adding a partial parity log";
        let turn = self.record.turn().await;
        self.needs_settled(doing)?;
        let refuse = |why: &str| Err(self.no_change(doing, why.to_string()));
        let level = self.record.geometry().level;
        if level != Level::Raid5 {
            return refuse(&format!("level {level} keeps none; only level 5 does"));
        }
        if self.is_there() {
            return refuse("it has one");
        }
        if self.record.roster.borrow().shared.journal {
            return refuse("it has a write journal, which does what the log would");
        }
        if self.record.bitmap().is_some() {
            return refuse(
                "it has a bitmap, and the log takes its place; remove it first: --bitmap none",
            );
        }
        let places = self.places(doing)?;
        {
            let mut roster = self.record.roster.borrow_mut();
            for (nr, ppl) in &places {
                if let Some(member) = roster.member_mut(*nr) {
                    member.superblock.ppl = Some(*ppl);
                }
            }
            roster.shared.ppl = places.first().map(|(_, ppl)| *ppl);
        }
        self.in_use.set(Use::Not);
        self.note_rings();
        self.clear_areas(&turn).await;
        self.record.write_superblocks(&turn).await;
        let recorded = self.recorded();
        self.record.engines.ask(move |engine: &Engine| engine.record_by(recorded)).await;
        drop(turn);
        // Writes that entered before have not been logged.
        loop {
            let earlier = |engine: &Engine| engine.consistency.any_earlier();
            if !self.record.engines.ask(earlier).await.contains(&Some(true)) {
                break;
            }
            self.record.shard.sleep(ASK_EVERY).await;
        }
        self.open().await;
        self.record.changed.notify_all();
        tracing::info!("array {}: has a partial parity log now", self.record.name);
        Ok(())
    }

    /// Takes the log away. From then on an unclean stop costs a whole resync.
    ///
    /// # Errors
    /// The array has none, or is not in a state for it, or failed on the way.
    pub async fn remove(self: &Rc<Self>) -> Result<(), ControlError> {
        let doing = "removing the partial parity log";
        let turn = self.record.turn().await;
        self.needs_settled(doing)?;
        if !self.is_there() {
            return Err(self.no_change(doing, "it has none".to_string()));
        }
        let before: Vec<(MemberNr, Option<Ppl>)> = {
            let roster = self.record.roster.borrow();
            roster.members.iter().map(|member| (member.nr, member.superblock.ppl)).collect()
        };
        let shared = self.record.roster.borrow_mut().shared.ppl.take();
        self.record.roster.borrow_mut().members.iter_mut().for_each(|m| m.superblock.ppl = None);
        self.record.write_superblocks(&turn).await;
        if self.record.roster.borrow().broken {
            // Superblocks with the log may be the freshest.
            let mut roster = self.record.roster.borrow_mut();
            roster.shared.ppl = shared;
            for (nr, ppl) in before {
                if let Some(member) = roster.member_mut(nr) {
                    member.superblock.ppl = ppl;
                }
            }
            return Err(ControlError::Failed { doing, array: self.record.name.clone() });
        }
        self.record.engines.ask(|engine: &Engine| engine.record_by(Recorded::Resync)).await;
        self.in_use.set(Use::Absent);
        drop(turn);
        let slots = self.logs.borrow().len();
        (0..slots).for_each(|slot| self.start(slot));
        self.record.changed.notify_all();
        tracing::info!("array {}: has no partial parity log any more", self.record.name);
        Ok(())
    }

    /// The policy of the engines: what the smallest area has room for.
    fn recorded(&self) -> Recorded {
        let roster = self.record.roster.borrow();
        let areas = roster.members.iter().filter_map(|member| Area::of(&member.superblock));
        Recorded::Ppl(areas.map(|area| area.partial_max()).min().unwrap_or(0))
    }

    fn no_change(&self, doing: &'static str, why: String) -> ControlError {
        ControlError::ConsistencyPolicy { doing, array: self.record.name.clone(), why }
    }

    /// As in md no resync, recovery or reshape goes on meanwhile.
    fn needs_settled(&self, doing: &'static str) -> Result<(), ControlError> {
        commands::needs_redundancy(&self.record, doing)?;
        commands::needs_working(&self.record, doing)?;
        let opening = || {
            let opens = self.in_use.get() == Use::Opening;
            opens.then(|| commands::not_done_yet(&self.record, "another change of its log"))
        };
        match commands::unsettled(&self.record).or_else(opening) {
            Some(why) => Err(self.no_change(doing, why)),
            None => Ok(()),
        }
    }

    /// The place of the log on every member that is not faulty.
    fn places(&self, doing: &'static str) -> Result<Vec<(MemberNr, Ppl)>, ControlError> {
        let roster = self.record.roster.borrow();
        let members = roster.members.iter().filter(|member| !member.is_faulty());
        let place = |member: &crate::control::record::members::Member| {
            let ppl = place_added_ppl(&member.superblock)
                .map_err(|error| self.no_change(doing, format!("{}: {error}", member.name)))?;
            Ok((member.nr, ppl))
        };
        members.map(place).collect()
    }
}
