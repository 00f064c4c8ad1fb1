//! Stripes that only snapshots have: jobs move them like others, after those that files have.

use super::part::Mover;
use super::run::{AT_ONCE, Move};
use super::running::{Running, Stop};
use crate::files::Lacking;
use crate::pace::STEP_NANOS;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::stripe_of;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::keys;
use braid_format::volume::snapshot::in_snapshot;
use braid_shard::plant::planted;
use std::rc::Rc;

/// A group of extents of a file as it was saved for a snapshot.
type Version = (Ino, u64, u32);

/// The key before all saved groups of extents.
pub(super) fn first_version() -> Vec<u8> {
    keys::SAVED_EXTENTS.to_vec()
}

impl Mover {
    /// Saved groups of extents from `from` on that a job is about, and where to go on.
    pub(super) async fn some_versions(
        &self,
        job: &JobRecord,
        from: &[u8],
    ) -> Result<(Vec<Version>, Option<Vec<u8>>), Errno> {
        let is_about = match job.kind {
            JobKind::Balance | JobKind::Flush | JobKind::Remove => true,
            JobKind::Copies => self.record.has_copies(),
            _ => false,
        };
        if !self.snapshots.any() || !is_about {
            return Ok((Vec::new(), None));
        }
        let (pairs, next) =
            self.transactions.scanned(from, &keys::after(keys::SAVED_EXTENTS), AT_ONCE).await?;
        let versions = pairs.iter().filter_map(|(key, _)| keys::saved_extents_of(key));
        Ok((versions.collect(), next))
    }

    /// The moves that a saved group needs, of what no later version has; where copies are missing, of all versions.
    pub(super) async fn moves_of_version(
        &self,
        job: &JobRecord,
        ino: Ino,
        group: u64,
        id: u32,
    ) -> Result<Vec<Move>, Errno> {
        if job.kind == JobKind::Copies {
            return self.copies_missing_seen(ino, group, id).await;
        }
        let mut moves = Vec::new();
        let own = self.extents.own_of(ino, group, id).await?;
        if own.is_empty() {
            return Ok(moves);
        }
        let inode = match self.inodes.get(in_snapshot(ino, id)).await {
            // The snapshot was removed meanwhile.
            Err(Errno::Stale) => return Ok(moves),
            other => other?,
        };
        for (stripe, extent) in own {
            if self.is_led_elsewhere(job, (ino, stripe), extent).await? {
                continue;
            }
            let all = self.files.stripe(&inode, stripe_of(stripe)).await?;
            if let Some(to) = self.wanted(job, &inode, (stripe, extent), &all) {
                moves.push(self.a_move(&inode, stripe, extent, to));
            }
        }
        Ok(moves)
    }

    /// The stripes of a group of which snapshots see copies that miss something, where the first that is saved of it stands.
    async fn copies_missing_seen(&self, ino: Ino, group: u64, id: u32) -> Result<Vec<Move>, Errno> {
        if planted("seen-copies-left-out") || !self.extents.is_first_saved(ino, group, id).await? {
            return Ok(Vec::new());
        }
        let lacking = self.files.lacking_in_snapshots(ino, group).await?;
        let moves = lacking.into_iter().map(|Lacking { inode, stripe, brick, bytes }| Move {
            inode,
            stripe,
            from: brick,
            to: brick,
            bytes,
        });
        Ok(moves.collect())
    }

    /// Bytes that `job` would move of what only snapshots have.
    pub(super) async fn bytes_of_versions(&self, job: &JobRecord) -> Result<u64, Errno> {
        let mut total = 0;
        let mut cursor = Some(first_version());
        while let Some(from) = cursor.take() {
            let (versions, next) = self.some_versions(job, &from).await?;
            for (ino, group, id) in versions {
                let moves = self.moves_of_version(job, ino, group, id).await?;
                total += moves.iter().map(|one| one.bytes).sum::<u64>();
                self.shard.yield_now().await;
            }
            cursor = next;
        }
        Ok(total)
    }

    /// One walk over all that only snapshots have.
    pub(super) async fn walk_versions(self: &Rc<Self>, running: &Rc<Running>) -> Result<(), Stop> {
        let job = running.record.get();
        if job.kind == JobKind::Copies && self.snapshots.any() && self.record.has_copies() {
            // Files may have been given other extents just now: those that snapshots see are saved then.
            self.commits.sync_all().await.map_err(Stop::errno)?;
        }
        let mut cursor = Some(first_version());
        while let Some(from) = cursor.take() {
            // The blocks of a removed one are freed soon, and cannot be moved.
            while self.snapshots.any_going() {
                running.check()?;
                self.shard.sleep(STEP_NANOS).await;
            }
            let (versions, next) = self.some_versions(&job, &from).await.map_err(Stop::errno)?;
            for (ino, group, id) in versions {
                let moves = self.moves_of_version(&job, ino, group, id).await;
                for one in moves.map_err(Stop::errno)? {
                    self.start_move(running, one).await?;
                }
            }
            cursor = next;
        }
        Ok(())
    }
}
