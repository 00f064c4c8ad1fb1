//! Limits of what projects may have, set at random while files change: no project grows beyond its own, and who is refused
//! has reached one. What each takes is summed up by `ledger`, too.

use super::run::VolumeRun;
use crate::waiting::{Over, wait};
use braid_volume::{Limits, ProjectStatus};
use std::rc::Rc;

/// Before how many of 1000 requests a limit is set.
const OFTEN: u64 = 12;

impl VolumeRun {
    /// Now and then a project gets a limit, another one, or none.
    pub(super) fn limit_a_project(&mut self) -> Result<(), Over> {
        if !self.plan.limits || self.limits_rng.range(0..1000) >= OFTEN {
            return Ok(());
        }
        // Nothing is under way that may have met the old one.
        self.drain()?;
        self.limits_hold()?;
        let rng = &self.limits_rng;
        let id = *rng.pick(&[1, 2]);
        let space = self.plan.space();
        let limits = Limits {
            bytes: rng.percent(60).then(|| rng.log_range(4096..space.max(8192))),
            files: rng.percent(60).then(|| rng.range(0..20)),
        };
        let life = self.life()?;
        life.client.history.note(&[], format!("project {id} gets {limits:?}"));
        if let Err(error) = life.volume.limit_project(id, limits) {
            // A volume that has failed changes nothing any more.
            return match life.client.may_fail {
                Some(_) => Ok(()),
                None => self.fail("errors_are_right", format!("a limit: {error}")),
            };
        }
        let model = self.model.as_mut().ok_or(Over)?;
        model.limits.insert(id, limits);
        self.look_at_limits()
    }

    /// The limits that are recorded are those that there are from now on: what was set last before a crash may be lost.
    pub(super) fn look_at_limits(&mut self) -> Result<(), Over> {
        let projects = self.projects()?;
        let most = |limit: Option<u64>, used| limit.map_or(u64::MAX, |limit| limit.max(used));
        self.most = projects
            .iter()
            .map(|one| {
                let bytes = one.limits.bytes.map(|bytes| bytes.next_multiple_of(4096));
                (one.id, (most(bytes, one.bytes), most(one.limits.files, one.files)))
            })
            .collect();
        let model = self.model.as_mut().ok_or(Over)?;
        model.limits = projects.iter().map(|one| (one.id, one.limits)).collect();
        Ok(())
    }

    /// No project has more than it may, or had when it got the limit.
    pub(super) fn limits_hold(&mut self) -> Result<(), Over> {
        // Where a brick is lost, what is written anew may take a little more.
        if !self.plan.limits || self.plan.faults > 0 {
            return Ok(());
        }
        for one in self.projects()? {
            let (bytes, files) = self.most.get(&one.id).copied().unwrap_or((u64::MAX, u64::MAX));
            if one.bytes > bytes || one.files > files {
                let text = format!("a project may have {bytes} bytes and {files} files: {one:?}");
                let history = &self.life()?.client.history;
                let text = format!("{text}{}", history.tell(&[]));
                return self.fail("limits_hold", text);
            }
        }
        self.look_at_limits()
    }

    fn projects(&mut self) -> Result<Vec<ProjectStatus>, Over> {
        let life = self.life()?;
        let volume = Rc::clone(&life.volume);
        let later = life.machine.begin(async move { volume.projects().await });
        wait(&life.machine, "the projects", &later)
    }
}
