//! The bytes that a job will move, counted before it begins.
//!
//! All records of extents are read once, in the order of their keys, and extents of files without copies are not brought to
//! memory: a volume may have 10^8 of them. What changes meanwhile is counted as it was.

use super::part::Mover;
use super::run::{first_key, groups_end};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::groups_of_copy;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::keys;

/// Records of extents that are read together.
const AT_ONCE: usize = 64;
/// Records of extents that are looked at before others have a turn.
const TURN: usize = 8;

impl Mover {
    /// Bytes that `job` would move now, in all.
    pub(super) async fn bytes_to_move(&self, job: &JobRecord) -> Result<u64, Errno> {
        let (mut total, end) = (0, groups_end(job));
        let mut cursor = Some(first_key(job, (0, 0)));
        while let Some(from) = cursor.take() {
            let (pairs, next) = self.transactions.scanned(&from, &end, AT_ONCE).await?;
            for some in pairs.chunks(TURN) {
                for (key, value) in some {
                    if let Some((ino, group)) = keys::ino_of(key).zip(keys::second_of(key)) {
                        total += self.bytes_of_group(job, (ino, group), value).await?;
                    }
                }
                self.shard.yield_now().await;
            }
            cursor = next;
        }
        Ok(total + self.bytes_of_versions(job).await?)
    }

    /// The same of one group of extents, of which `value` was read just now.
    async fn bytes_of_group(
        &self,
        job: &JobRecord,
        (ino, group): (Ino, u64),
        value: &[u8],
    ) -> Result<u64, Errno> {
        // Those of other copies are looked at with those of copy 0.
        if group >= groups_of_copy(1) {
            return Ok(0);
        }
        let inode = match self.inodes.get(ino).await {
            // It was removed meanwhile.
            Err(Errno::Stale) => return Ok(0),
            other => other?,
        };
        let is_by_stripe = !matches!(job.kind, JobKind::Copies | JobKind::Defrag);
        if !is_by_stripe || inode.with(|record| record.held) > 1 {
            let moves = self.moves_of(job, ino, group).await?;
            return Ok(moves.iter().map(|one| one.bytes).sum());
        }
        let placed = self.extents.recorded(ino, group, value)?;
        let moved = placed.filter(|(stripe, extent)| {
            self.wanted_alone(job, &inode, (*stripe, *extent)).is_some()
        });
        let mut total = 0;
        for (stripe, extent) in moved {
            if !extent.common || !self.is_led_elsewhere(job, (ino, stripe), extent).await? {
                total += self.geometry.written_bytes(extent);
            }
        }
        Ok(total)
    }
}
