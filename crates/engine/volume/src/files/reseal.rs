//! After a crash: checksums of regions that were being written over may be of before. What the bricks have is taken as it is,
//! and gets its checksums again.

use super::part::Files;
use super::verify::{Source, sums_of};
use crate::namespace::Inode;
use braid_filesystem::{Errno, Ino, Kind};
use braid_format::volume::BLOCK;
use braid_format::volume::sums::{PER_WINDOW, UNKNOWN, sum_of};
use std::ops::Range;
use std::rc::Rc;

impl Files {
    /// Starts to put right the checksums that are in doubt.
    pub fn start_resealing(self: &Rc<Self>) {
        let own = Rc::clone(self);
        self.shard.spawn(async move {
            for (ino, region) in own.sums.doubtful() {
                match own.reseal(ino, region).await {
                    Ok(true) => own.sums.settled((ino, region)),
                    // The next mount goes on.
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!(ino, "checksums of a file that was written to when the volume was stopped cannot be made anew: {error}; the next mount tries again");
                    }
                }
            }
        });
    }

    /// Puts right the checksums of a region. False: the volume is being unmounted.
    async fn reseal(&self, ino: Ino, region: u64) -> Result<bool, Errno> {
        let inode = match self.inodes.get(ino).await {
            Err(Errno::Stale) => return Ok(true),
            other => other?,
        };
        if inode.kind() != Kind::File {
            return Ok(true);
        }
        let bytes = PER_WINDOW * BLOCK;
        for window in self.sums.recorded(ino, region).await? {
            // One beyond the largest file is damage, and of nothing.
            let Some(end) = (window + 1).checked_mul(bytes) else { continue };
            if self.sums.is_closing() || self.transactions.is_ended() {
                return Ok(false);
            }
            self.shard.next_turn().await;
            self.shard.sleep(self.pace.rest(self.shard.now(), || self.bricks.has_heads())).await;
            let _gate = self.gate.enter().await;
            self.transactions.room().await;
            self.reseal_window(&inode, end - bytes..end).await?;
        }
        Ok(true)
    }

    async fn reseal_window(&self, inode: &Rc<Inode>, range: Range<u64>) -> Result<(), Errno> {
        // Nobody writes to it meanwhile.
        let _held = inode.locks.exclusive(range.clone()).await;
        let first = range.start / BLOCK;
        let blocks = first..range.end / BLOCK;
        let windows = self.sums.load(sums_of(inode), blocks.clone()).await?;
        // Blocks that were cut off or punched just before the crash have none.
        let mut sums = vec![UNKNOWN; (blocks.end - first) as usize];
        for piece in self.geometry.pieces(range) {
            let (_, extent) = self.extents.get(&inode.extents, piece.stripe).await?;
            for (run, is_written) in self.geometry.runs(extent, piece.from, piece.to) {
                if !is_written {
                    continue;
                }
                let brick = self.bricks.get(extent.brick).ok_or(Errno::Io)?;
                let source = Source::new(self.geometry, brick, extent.start, piece.stripe, &run);
                let bytes = self.read_raw(&source).await?;
                let found = bytes.chunks_exact(BLOCK as usize);
                for (block, bytes) in source.blocks.clone().zip(found) {
                    if windows.get(block) != UNKNOWN {
                        sums[(block - first) as usize] = sum_of(bytes);
                    }
                }
            }
        }
        self.sums.put(&windows, first, sums);
        Ok(())
    }
}
