//! What people ask of arrays while requests are under way: to fail a member, to change bitmaps and settings, to check and
//! to repair. Members that come are in `mending`.

use super::Run;
use crate::member::Member;
use crate::settings;
use crate::waiting::Over;
use braid_array::error::ControlError;
use braid_array::options::{MemberSelector, Scrub};
use braid_array::status::{ArrayStatus, JobOutcome, MemberState};
use std::rc::Rc;

/// A check or repair that is interrupted is begun so often.
const SCRUB_TRIES: u32 = 5;

impl Run {
    /// A leaf is failed, where its array has redundancy.
    pub(super) fn fail_leaf(&mut self, leaf: &Rc<Member>) -> Result<(), Over> {
        let nr = leaf.kind.array;
        if !self.redundant(nr) {
            return Ok(());
        }
        let name = leaf.name().to_string();
        self.world.trace(|| format!("fail {name}"));
        self.lose(leaf.slot.get().unwrap_or(0));
        if self.fail_member(nr, name)? {
            leaf.out.set(true);
        }
        Ok(())
    }

    /// A member of array `nr` is failed, a leaf or an array. False when it was not, or the array does not run.
    pub(super) fn fail_member(&mut self, nr: usize, name: String) -> Result<bool, Over> {
        let Some(control) = self.control(nr)? else { return Ok(false) };
        let selector = MemberSelector::Name(name.clone());
        let later =
            self.life()?.machine.begin(async move { control.membership().fail(&selector).await });
        match self.wait("the command to fail a member", &later)? {
            Err(ControlError::NotRecorded { .. }) => {
                // The array has given it up, and does not go back on that.
                let members = self.world.members.borrow().clone();
                members.iter().filter(|m| m.name() == name).for_each(|m| m.out.set(true));
                self.wait_until_recorded(nr, &name, Some(MemberState::Faulty))?;
                Ok(true)
            }
            failed => Ok(failed.is_ok()),
        }
    }

    /// Some array is given a bitmap, or loses the one that it has; a crash may come before that is done.
    pub(super) fn change_a_bitmap(&mut self) -> Result<(), Over> {
        let nr = self.some_array(&self.rng);
        let Some(status) = self.status(nr)?.filter(|_| self.redundant(nr)) else { return Ok(()) };
        let Some(control) = self.control(nr)? else { return Ok(()) };
        let (adds, chunk) = (status.bitmap.is_none(), *self.rng.pick(self.plan.odds.bitmap_chunks));
        let a = self.a(nr);
        self.world.trace(|| format!("{a}{} a bitmap", if adds { "add" } else { "remove" }));
        let later = self.life()?.machine.begin(async move {
            match adds {
                true => control.bitmap().add(Some(chunk)).await.map(drop),
                false => control.bitmap().remove().await,
            }
        });
        if self.rng.percent(40) {
            return Ok(());
        }
        match self.wait("the command to change a bitmap", &later)? {
            Ok(()) => self.did.bitmap_changes += 1,
            // No room, a resync that goes on, a member that is about to fail.
            Err(ControlError::Bitmap { .. } | ControlError::Io { .. }) => {}
            Err(error) => self.is_excused(nr, error)?,
        }
        Ok(())
    }

    /// The array is given a partial parity log, or loses the one that it has; a crash may come before that is done.
    pub(super) fn change_the_log(&mut self) -> Result<(), Over> {
        let Some(control) = self.control(self.top())? else { return Ok(()) };
        let adds = !control.ppl().is_there();
        self.world
            .trace(|| format!("{} a partial parity log", if adds { "add" } else { "remove" }));
        let later = self.life()?.machine.begin(async move {
            match adds {
                true => control.ppl().add().await,
                false => control.ppl().remove().await,
            }
        });
        if self.rng.percent(40) {
            return Ok(());
        }
        match self.wait("the command to change the consistency policy", &later)? {
            Ok(()) | Err(ControlError::ConsistencyPolicy { .. } | ControlError::Io { .. }) => {
                Ok(())
            }
            Err(error) => self.is_excused(self.top(), error),
        }
    }

    /// An error of a command is right where an array has lost too much: a single one beyond what its level survives, one of
    /// a stack within what the one above it survives.
    pub(super) fn is_excused(&mut self, nr: usize, error: ControlError) -> Result<(), Over> {
        let excused =
            if self.plan.is_alone() { self.promises.excused } else { !self.counts_now(nr)? };
        if excused { Ok(()) } else { self.fail("requests_succeed", error.to_string()) }
    }

    /// Draws other settings for some array, and sets them.
    pub(super) fn settings_change(&mut self) -> Result<(), Over> {
        let nr = self.some_array(&self.settings_rng);
        let Some(control) = self.control(nr)? else { return Ok(()) };
        let (array, scenario) = (&self.plan.arrays[nr], &self.plan.scenario);
        let (chunk, level) = (array.create.chunk_size.unwrap_or(0), array.create.level);
        let (rng, before) = (&self.settings_rng, array.assemble.settings);
        let settings = settings::draw(rng, level, chunk, scenario.block, scenario.shards);
        let a = self.a(nr);
        self.world.trace(|| format!("{a}set {settings:?}"));
        // Units change hands somewhere within the command.
        self.world.moving.set(true);
        let later = self.life()?.machine.begin(async move {
            let result = control.set(settings).await;
            (result, control.settings())
        });
        let (result, now) = self.wait("the command to change settings", &later)?;
        self.world.moving.set(false);
        self.world.owners.borrow_mut().clear();
        self.plan.arrays[nr].assemble.settings = now;
        match result {
            Ok(()) if now == settings => Ok(()),
            Err(ControlError::SettingDuring { .. } | ControlError::Stopping { .. })
                if now == before =>
            {
                Ok(())
            }
            other => self.fail(
                "settings_are_taken_or_refused",
                format!("{a}{settings:?} were set over {before:?}: {other:?}, and are now {now:?}"),
            ),
        }
    }

    pub(super) fn start_a_scrub(&mut self) -> Result<(), Over> {
        let (nr, repair) = (self.some_array(&self.rng), self.rng.percent(50));
        if let Some(control) = self.control(nr)? {
            let a = self.a(nr);
            self.world.trace(|| format!("{a}{}", if repair { "repair" } else { "check" }));
            // Refused while another job runs, or without redundancy.
            let _ =
                if repair { control.jobs().start_repair() } else { control.jobs().start_check() };
        }
        Ok(())
    }

    /// A check of array `nr`, or a repair, from start to end; `None` when the array does not run.
    pub(super) fn scrub_once(
        &mut self,
        nr: usize,
        repair: bool,
    ) -> Result<Option<ArrayStatus>, Over> {
        let Some(control) = self.control(nr)? else { return Ok(None) };
        // A recovery or a replacement that is due ends it, and it is for whoever asked to ask again.
        for _ in 0..SCRUB_TRIES {
            let number = match control.jobs().start_scrub(Scrub { repair, ..Scrub::default() }) {
                Ok(number) => number,
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            };
            self.wait_for_jobs()?;
            let status = self.status(nr)?;
            let scrubbed = status.as_ref().and_then(|status| status.scrubbed.as_ref());
            match scrubbed.map(|scrubbed| (scrubbed.nr, &scrubbed.outcome)) {
                Some((ended, Some(JobOutcome::Done))) if ended == number => return Ok(status),
                Some((ended, Some(JobOutcome::Interrupted))) if ended == number => {}
                other => {
                    let text = format!("{}check or repair {number} ended: {other:?}", self.a(nr));
                    return self.fail("requests_succeed", text);
                }
            }
        }
        self.fail("requests_succeed", format!("{}checks never come to their end", self.a(nr)))
    }

    /// [`Run::scrub_once`] of the top.
    pub(super) fn scrub_top(&mut self, repair: bool) -> Result<ArrayStatus, Over> {
        self.scrub_once(self.top(), repair)?.ok_or(Over)
    }
}
