//! Metadata is walked and held against itself, in both directions: names against files, places against free space.
//!
//! | file | subject |
//! |---|---|
//! | `places` | every recorded place, and which blocks they take |
//! | `tree` | every name and every file |
//! | `paths` | what a file is called |
//!
//! Changes wait while it runs; reading goes on. What can be repaired without guessing is: blocks that nobody names are freed,
//! blocks that are named are marked, counts are corrected, files without a name go to `/lost+found`.

mod paths;
mod places;
mod tree;

use crate::error::VolumeError;
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino};
use std::rc::Rc;

/// Problems that are told one by one; further ones are only counted.
const TOLD_MAX: usize = 1000;

/// A range of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub ino: Ino,
    /// A name of it, from the root.
    pub path: String,
    /// Ranges in bytes, first and after the last.
    pub ranges: Vec<(u64, u64)>,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files of all kinds.
    pub files: u64,
    /// Of them directories.
    pub directories: u64,
    /// Stripes that have a place.
    pub stripes: u64,
    /// Bytes that their places take.
    pub bytes: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// How many problems there are, also those that are not told.
    pub found: u64,
    /// How many of them were repaired.
    pub repaired: u64,
    /// Blocks in use that nobody names.
    pub leaked_blocks: u64,
    /// What lies on bricks that are not there.
    pub lost: Vec<Lost>,
}

impl CheckReport {
    fn problem(&mut self, repaired: bool, text: String) {
        self.found += 1;
        self.repaired += u64::from(repaired);
        if self.problems.len() < TOLD_MAX {
            self.problems.push(text);
        }
    }

    /// Nothing is wrong that was not repaired, and nothing is lost.
    pub fn is_clean(&self) -> bool {
        self.found == self.repaired && self.lost.is_empty()
    }
}

impl Volume {
    /// Checks all metadata; with `repair` puts right what can be.
    ///
    /// # Errors
    /// When metadata cannot be read at all.
    pub async fn check(self: &Rc<Self>, repair: bool) -> Result<CheckReport, VolumeError> {
        let failed = |errno| VolumeError::File { doing: "checking the volume", errno };
        let repair = repair && self.writable().is_ok();
        // Files that are being removed would look like leaks.
        while self.orphans.is_busy() {
            self.shard.sleep(1_000_000).await;
        }
        let shut = self.gate.shut().await;
        self.sync_all().await.map_err(failed)?;
        let mut report = CheckReport::default();
        let files = self.check_tree(repair, &mut report).await.map_err(failed)?;
        self.check_places(repair, &files, &mut report).await.map_err(failed)?;
        if repair {
            self.sync_all().await.map_err(failed)?;
        }
        drop(shut);
        self.name_lost(&mut report).await.map_err(failed)?;
        Ok(report)
    }

    /// Calls `see` with each pair under `prefix`.
    async fn each_pair(
        &self,
        prefix: &[u8],
        mut see: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Errno> {
        let end = braid_format::volume::keys::after(prefix);
        let mut from = Some(prefix.to_vec());
        while let Some(start) = from.take() {
            let scanned = self.transactions.scan(&start, &end, 1024).await;
            let (pairs, next) = scanned.map_err(|error| self.store_failed(&error))?;
            for (key, value) in &pairs {
                see(key, value);
            }
            from = next;
        }
        Ok(())
    }
}
