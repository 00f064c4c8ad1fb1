//! Leases: what another shard needs to read a window of a file by itself. See [`leases`](crate::leases).

use super::choose::From;
use super::part::Files;
use super::verify::sums_of;
use crate::leases::{LEASED, LeasedBrick, Part, WindowLease};
use crate::stripes::up;
use braid_filesystem::Ino;
use braid_format::volume::BLOCK;
use braid_format::volume::snapshot::snapshot_of;

impl Files {
    /// The lease of the window that `offset` lies in; `None`: something there is not simple now.
    pub async fn lease(&self, ino: Ino, offset: u64) -> Option<WindowLease> {
        // Blocks of a snapshot may be let go without a change of anything here.
        if snapshot_of(ino) != 0 {
            return None;
        }
        let inode = self.inodes.file(ino).await.ok()?;
        let window = offset / LEASED;
        let start = window * LEASED;
        let _held = inode.locks.shared(start..start.saturating_add(LEASED)).await;
        let versions = [
            inode.locks.version.seen(),
            self.bricks.version.seen(),
            self.gate.version.seen(),
            self.pace.version.seen(),
        ];
        let size = inode.size();
        let end = up(size, BLOCK).clamp(start, start.saturating_add(LEASED));
        let mut parts: Vec<Part> = Vec::new();
        let mut bricks: Vec<(u16, LeasedBrick)> = Vec::new();
        for piece in self.geometry.pieces(start..end) {
            let stripe = self.stripe(&inode, piece.stripe).await.ok()?;
            if stripe.rows() != 1 {
                return None;
            }
            let first = piece.stripe * self.geometry.stripe;
            for (run, from) in self.runs_of(&inode, &stripe, piece.from, piece.to) {
                let place = match from {
                    From::Zero => None,
                    From::Lost => return None,
                    From::Extent(extent) => {
                        let source = self.source(&stripe, extent, &run).ok()?;
                        let known = bricks.iter().position(|(id, _)| *id == extent.brick);
                        let at = known.unwrap_or_else(|| {
                            let (uuid, taken) = (source.brick.uuid, source.brick.elsewhere());
                            bricks.push((extent.brick, LeasedBrick { uuid, taken }));
                            bricks.len() - 1
                        });
                        Some((u16::try_from(at).ok()?, source.offset))
                    }
                };
                parts.push(Part { bytes: first + run.start..first + run.end, place });
            }
        }
        let blocks = start / BLOCK..end / BLOCK;
        let windows = self.sums.load(sums_of(&inode), blocks.clone()).await.ok()?;
        let sums = match self.sums.is_on() {
            true => blocks.clone().map(|block| windows.get(block)).collect(),
            false => Vec::new(),
        };
        // From here to the end is one moment.
        let is_doubtful = |block: u64| self.sums.is_doubtful(ino, block);
        let holds_back = |part: &Part| {
            let Some((at, offset)) = part.place else { return false };
            let (id, _) = &bricks[usize::from(at)];
            let bytes = offset..offset + (part.bytes.end - part.bytes.start);
            self.bricks.get(*id).is_none_or(|brick| !brick.is_there() || brick.holds_back(&bytes))
        };
        let is_simple = !self.gate.is_closed()
            && self.pace.is_quiet(self.shard.now())
            && versions.iter().all(|version| version.is_current())
            && !blocks.step_by(PER_LOOK).any(is_doubtful)
            && !parts.iter().any(holds_back);
        let bricks = bricks.into_iter().map(|(_, brick)| brick).collect();
        let of_bricks = self.bricks.version.seen().number();
        let lease = WindowLease { ino, window, size, parts, sums, bricks, of_bricks, versions };
        is_simple.then_some(lease)
    }
}

/// Blocks from one look whether any is in doubt to the next: regions and windows of checksums are no smaller.
const PER_LOOK: usize = braid_format::volume::sums::PER_WINDOW as usize;
