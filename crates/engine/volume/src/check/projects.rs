//! What projects are recorded to take, against what their files take.

use super::one::Halt;
use super::walk::Walk;
use crate::watch::{Share, Shares};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_shard::plant::planted;
use std::collections::BTreeSet;

impl Walk {
    /// Adds the files of each project up.
    pub(super) async fn check_projects(&self) -> Result<(), Halt> {
        let limit = self.on.record.next_ino();
        // Files that are made from here on are counted as they come; those before have records when all is durable.
        *self.watch.shares.borrow_mut() = Some(Shares::new(limit));
        self.on.commits.sync_all().await?;
        let mut cursor = Some(keys::inode(0));
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::inode(limit)).await?;
            if let Some(shares) = &mut *self.watch.shares.borrow_mut() {
                for (key, value) in pairs {
                    let Some(ino) = keys::ino_of(&key) else { continue };
                    let share = match self.on.inodes.known(ino) {
                        Some(known) => Some(known.with(Share::of)),
                        // One that cannot be read was reported with the files.
                        None => {
                            InodeRecord::parse(ino, &value).ok().map(|record| Share::of(&record))
                        }
                    };
                    shares.count(share, true);
                }
                // The next key follows that of the last file that was seen.
                let last = next.as_deref().and_then(keys::ino_of);
                shares.reached(last.map_or(limit, |last| last.saturating_add(1)));
            }
            cursor = next;
        }
        let Some(shares) = self.watch.shares.take() else { return Ok(()) };
        let known = self.on.projects.all().into_iter().map(|(id, _)| id);
        let ids: BTreeSet<u32> = known.chain(shares.found().keys().copied()).collect();
        for id in ids {
            let (files, blocks) = shares.found().get(&id).copied().unwrap_or_default();
            let record = self.on.projects.get(id);
            if (record.files, record.blocks) == (files, blocks)
                || planted("check-blind-to-projects")
            {
                continue;
            }
            let text = format!(
                "project {id} is recorded with {} files and {} blocks, it has {files} and {blocks}",
                record.files, record.blocks
            );
            self.problem(true, text);
            if self.repair {
                self.on.projects.edit(id, |record| (record.files, record.blocks) = (files, blocks));
            }
        }
        Ok(())
    }
}
