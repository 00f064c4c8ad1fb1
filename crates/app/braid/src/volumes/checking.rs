//! The check of a mounted volume: started, steered, waited for, and what it found.

use super::hosted::Hosted;
use super::tell::Tell;
use crate::output;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::{CheckDetail, JobDeed};
use braid_volume::{CheckEnd, JobState, JobStatus, Volume};
use std::sync::mpsc;

impl Hosted {
    /// Starts a check.
    ///
    /// # Errors
    /// When one is under way, or nothing can be repaired.
    pub fn start_check(&self, repair: bool) -> Result<String> {
        let name = &self.name;
        let started = self.with(move |here| async move { here.volume.start_check(repair) })?;
        started.with_context(|| format!("volume {name}"))?;
        Ok(format!(
            "check of volume {name} started; `braid volume jobs {name} --wait` follows it, `braid volume check {name} \
             --last` shows what it found"
        ))
    }

    /// Starts a scrub.
    ///
    /// # Errors
    /// When a check is under way, or the volume has no checksums.
    pub fn start_scrub(&self) -> Result<String> {
        let name = &self.name;
        let started = self.with(move |here| async move { here.volume.start_scrub() })?;
        started.with_context(|| format!("volume {name}"))?;
        Ok(format!(
            "scrub of volume {name} started; `braid volume jobs {name} --wait` follows it, `braid volume scrub {name} \
             --last` shows what it found"
        ))
    }

    /// The check under way.
    pub(super) fn check_job(&self) -> Result<Option<JobStatus>> {
        self.with(|here| async move { here.volume.check_job() })
    }

    /// Does something about the check under way.
    ///
    /// # Errors
    /// When there is none. With [`JobDeed::Wait`], why it failed.
    pub(super) fn steer_check(&self, deed: JobDeed, tell: &mut Tell<'_>) -> Result<String> {
        if deed == JobDeed::Wait {
            return self.wait_check(tell);
        }
        let name = &self.name;
        let Some(job) = self.check_job()? else { bail!("volume {name} has no check under way") };
        let said = match deed {
            JobDeed::Pause => "paused; --resume goes on with it",
            JobDeed::Resume => "goes on",
            _ => "cancelled",
        };
        self.with(move |here| async move {
            match deed {
                JobDeed::Pause => here.volume.pause_check(),
                JobDeed::Resume => here.volume.resume_check(),
                _ => here.volume.cancel_check(),
            }
        })?;
        Ok(format!("{} of volume {name}: {said}", job.kind.name()))
    }

    fn wait_check(&self, tell: &mut Tell<'_>) -> Result<String> {
        let name = &self.name;
        if let Some(mut last) = self.check_job()? {
            let (send, ended) = mpsc::channel();
            self.with(move |here| async move {
                let shard = here.shard.clone();
                shard.spawn(async move {
                    here.volume.wait_check().await;
                    // The command that waits may have gone away.
                    let _ = send.send(());
                });
            })?;
            self.tell_until(&ended, Volume::check_job, &mut last, tell)?;
        }
        if let Some(job) = self.check_job()? {
            let kind = job.kind.name();
            return Ok(format!(
                "{kind} of volume {name} is paused; `braid volume jobs {name} --resume` goes on with it"
            ));
        }
        if self.with(|here| async move { here.volume.last_check().is_none() })? {
            return Ok(format!("volume {name} has no check under way"));
        }
        let report = self.last_check()?;
        if report.scrub {
            let mended = output::count(report.mended.len(), "file");
            let found = match report.rotten.len() {
                0 if !report.mended.is_empty() => {
                    format!("parts of {mended} were mended from other copies")
                }
                0 => "all data is as it was written".to_string(),
                files => format!("parts of {} are not as written", output::count(files, "file")),
            };
            return Ok(format!(
                "scrub of volume {name} has ended: {found}; `braid volume scrub {name} --last` shows the report"
            ));
        }
        let found = match report.found {
            0 => "no problems".to_string(),
            found => format!("{found} problems, {} corrected", report.repaired),
        };
        let found = match report.lost.len() {
            0 => found,
            files => format!("{found}, parts of {} are lost", output::count(files, "file")),
        };
        Ok(format!(
            "check of volume {name} has ended: {found}; `braid volume check {name} --last` shows the report"
        ))
    }

    /// What the last check found.
    ///
    /// # Errors
    /// When there was none since the mount, it is still under way, or did not come to its end.
    pub fn last_check(&self) -> Result<CheckDetail> {
        let name = &self.name;
        if let Some(job) = self.check_job()? {
            let (kind, paused) = (job.kind.name(), job.state == JobState::Paused);
            let how = if paused { "paused" } else { "under way" };
            bail!(
                "{kind} of volume {name} is {how}; `braid volume jobs {name} --check` with --wait, --resume or \
                 --cancel"
            );
        }
        match self.with(|here| async move { here.volume.last_check() })? {
            Some(CheckEnd::Done(report)) => Ok(self.check_detail((*report).clone())),
            Some(CheckEnd::Failed(errno)) => {
                bail!(
                    "checking volume {name}: its metadata cannot be read: {errno}; see the server's log"
                )
            }
            Some(CheckEnd::Cancelled) => bail!("the check of volume {name} was cancelled"),
            None => bail!(
                "volume {name} was not checked since it was mounted; `braid volume check {name}` does"
            ),
        }
    }
}
