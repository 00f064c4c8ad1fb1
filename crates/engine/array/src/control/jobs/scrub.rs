//! Checks and repairs: asked for, gone on with where an earlier one had come to, and reported.
//!
//! One goes through [`SyncRange`], md's `sync_min` to `sync_max`, units that the ends lie in included. As in md it is
//! interrupted by a recovery, by a stop and by whoever asks; unlike in md the position and the findings up to it are told
//! together, so that whoever keeps both can go on from there and finds everything once.

use crate::control::commands;
use crate::control::jobs::schedule::Wanted;
use crate::control::jobs::{Jobs, outcome, plan};
use crate::engine::window::WindowKind;
use crate::error::ControlError;
use crate::jobs::{Job, JobEnd, Plan};
use crate::options::{Scrub, SyncRange};
use crate::status::{JobKind, JobOutcome, Scrubbed};
use braid_shard::plant::planted;
use std::rc::Rc;

impl Scrub {
    fn window(&self) -> WindowKind {
        match self.repair {
            true => WindowKind::Repair { parity_only: self.parity_only },
            false => WindowKind::Check,
        }
    }
}

impl Jobs {
    /// Starts a comparison of redundancy with data. The mismatch count in the status is its result.
    ///
    /// # Errors
    /// As [`Jobs::start_scrub`].
    pub fn start_check(&self) -> Result<(), ControlError> {
        self.start_scrub(Scrub::default()).map(drop)
    }

    /// Like [`start_check`](Jobs::start_check), and corrects what differs.
    ///
    /// # Errors
    /// As [`Jobs::start_scrub`].
    pub fn start_repair(&self) -> Result<(), ControlError> {
        self.start_scrub(Scrub { repair: true, ..Scrub::default() }).map(drop)
    }

    /// Starts a check or repair, or goes on with one. Gives the number that [`Jobs::scrub_now`] has for it.
    ///
    /// # Errors
    /// No redundancy to check, read-only, failed, stopping, another job is running, or nothing lies between where it
    /// would begin and end.
    pub fn start_scrub(&self, scrub: Scrub) -> Result<u64, ControlError> {
        self.may_scrub(&scrub)?;
        let mut work = self.schedule.work.borrow_mut();
        work.scrubs += 1;
        let nr = work.scrubs;
        work.wanted = Some(Wanted { nr, scrub });
        drop(work);
        self.record.changed.notify_all();
        Ok(nr)
    }

    /// Starts nothing.
    ///
    /// # Errors
    /// Those of [`Jobs::start_scrub`].
    pub fn may_scrub(&self, scrub: &Scrub) -> Result<(), ControlError> {
        let doing = match scrub.kind() {
            JobKind::Repair => "starting a repair",
            _ => "starting a check",
        };
        commands::needs_redundancy(&self.record, doing)?;
        commands::needs_working(&self.record, doing)?;
        let (array, asked) = (self.record.name.clone(), scrub.kind());
        if let Some(running) = self.job_kind_now() {
            return Err(ControlError::Busy { array, asked, running });
        }
        let plan = self.scrub_plan(scrub);
        if plan.first >= plan.end {
            let (min, max) = (plan.first * plan.bytes_per_unit, plan.total_bytes);
            return Err(ControlError::NothingToScrub { array, asked, min, max });
        }
        Ok(())
    }

    /// Ends a check or repair that runs or was asked for; no other job. Windows in flight are completed. Gives the number of
    /// one that had not begun, of which nothing will be heard.
    pub fn cancel_scrub(&self) -> Option<u64> {
        let wanted = self.schedule.work.borrow_mut().wanted.take();
        if self.schedule.work.borrow().scrub.is_some() {
            self.schedule.cancel();
        }
        wanted.map(|wanted| wanted.nr)
    }

    /// Sets the part of the array that checks and repairs go through, from the next one on.
    ///
    /// # Errors
    /// An end that is not behind the beginning.
    pub fn set_sync_range(&self, range: SyncRange) -> Result<(), ControlError> {
        if range.max <= range.min {
            let SyncRange { min, max } = range;
            return Err(ControlError::SyncRange { array: self.record.name.clone(), min, max });
        }
        self.schedule.range.set(range);
        Ok(())
    }

    /// The check or repair that runs, else the one that ended last.
    pub fn scrub_now(&self) -> Option<Scrubbed> {
        let work = self.schedule.work.borrow();
        match (work.scrub, &work.job) {
            (Some(nr), Some(job)) => Some(report(nr, job, None)),
            _ => work.scrubbed.clone(),
        }
    }

    fn scrub_plan(&self, scrub: &Scrub) -> Plan {
        let SyncRange { min, max } = self.schedule.range.get();
        let from = scrub.position.max(min);
        let whole = plan(&self.record.geometry(), scrub.kind(), scrub.window(), None, from);
        let end = whole.end.min(max.div_ceil(whole.bytes_per_unit));
        let total_bytes = whole.total_bytes.min(end.saturating_mul(whole.bytes_per_unit));
        Plan { end, total_bytes, mismatches: scrub.mismatches, ..whole }
    }

    pub(super) async fn scrub(self: &Rc<Self>, wanted: Wanted) {
        let Wanted { nr, scrub } = wanted;
        let job = self.new_job(self.scrub_plan(&scrub));
        {
            let mut work = self.schedule.work.borrow_mut();
            work.wanted = None;
            work.scrub = Some(nr);
        }
        let end = job.run(&self.record.engine, self.is_busy(), |_| {}, async |_| {}).await;
        if scrub.repair {
            self.journal.drain().await;
            // No resync comes by after a crash: what is told to be mended stays so. As md, which writes the superblocks then,
            // each with a flush before it.
            let turn = self.record.turn().await;
            self.record.flush_members(&turn, |_| true).await;
        }
        self.keep_scrubbed(nr, &job, end);
        self.end_job(&job, end);
    }

    /// Keeps the findings until the next, and counts the members that they name.
    fn keep_scrubbed(&self, nr: u64, job: &Job, end: JobEnd) {
        let scrubbed = report(nr, job, Some(outcome(job, end)));
        self.log_findings(job.kind(), &scrubbed.findings);
        let mut roster = self.record.roster.borrow_mut();
        for (nr, bytes) in &scrubbed.findings.wrong {
            if let Some(member) = roster.member_mut(*nr) {
                member.wrong = member.wrong.saturating_add(*bytes);
            }
        }
        drop(roster);
        let mut work = self.schedule.work.borrow_mut();
        work.mismatch_cnt = scrubbed.mismatches;
        work.scrub = None;
        work.scrubbed = Some(scrubbed);
    }
}

fn report(nr: u64, job: &Job, outcome: Option<JobOutcome>) -> Scrubbed {
    let range = job.range();
    let position = if planted("scrub-forgets-flight") {
        job.bytes(job.started())
    } else {
        job.bytes(job.done())
    };
    Scrubbed {
        nr,
        kind: job.kind(),
        range,
        position,
        mismatches: job.mismatches(),
        findings: job.findings(),
        outcome,
    }
}
