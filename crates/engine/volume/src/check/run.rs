//! The passes of a check, one after the other.

use super::one::{Check, Halt};
use super::report::CheckReport;
use super::scrub::Scrub;
use super::walk::Walk;
use crate::files::Files;
use crate::parts::Parts;
use crate::watch::Watch;
use braid_format::volume::job::JobKind;
use braid_format::volume::keys;
use std::rc::Rc;

/// Names and files are about so much work as against one pass over the extents.
const FILES_WORTH: f64 = 2.0;

impl Walk {
    /// Carries a check out.
    ///
    /// # Errors
    /// When metadata cannot be read at all, or the check was ended.
    pub(super) async fn run(
        on: Rc<Parts>,
        files: &Rc<Files>,
        check: &Rc<Check>,
    ) -> Result<CheckReport, Halt> {
        let watch = Rc::new(Watch::default());
        let _watching = on.watches.begin(&watch);
        let walk = Rc::new(Walk::new(on, &watch, check));
        match check.kind() {
            JobKind::Scrub => Scrub::run(&walk, files).await?,
            _ => walk.all_passes(files).await?,
        }
        Ok(walk.report.take())
    }

    async fn all_passes(&self, files: &Rc<Files>) -> Result<(), Halt> {
        self.rest().await?;
        // A file made from here on may have no record in the store while names are counted.
        self.limit.set(self.on.record.next_ino());
        self.on.commits.sync_all().await?;
        self.check_numbers().await?;
        let windows = self.block_windows();
        self.expect(FILES_WORTH + windows.len() as f64);
        self.begin(FILES_WORTH);
        self.check_files().await?;
        self.check_attributes().await?;
        self.check_sums().await?;
        for (number, window) in windows.into_iter().enumerate() {
            self.begin(1.0);
            self.check_extents(window, number == 0).await?;
        }
        self.check_projects().await?;
        self.count_lacking_seen(files).await?;
        if self.repair {
            self.on.commits.sync_all().await?;
        }
        self.name_lost().await
    }

    /// A new file must not take the number of another.
    async fn check_numbers(&self) -> Result<(), Halt> {
        let mut last = None;
        let next = self.on.record.next_ino();
        // A file made meanwhile has a record only later, and another number if this one is wrong.
        let range = (keys::inode(next), keys::after(b"I"));
        let walked = self.each_pair(range, |key, _| last = keys::ino_of(key).or(last));
        walked.await?;
        let next = self.on.record.next_ino();
        if let Some(last) = last.filter(|last| *last >= next) {
            self.problem(true, "a new file would take the number of another".into());
            let limit = last.saturating_add(1);
            self.limit.set(limit);
            if self.repair {
                self.on.record.skip_inos(limit);
            }
        }
        Ok(())
    }
}
