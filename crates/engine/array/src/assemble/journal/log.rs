//! The log of a journal device, read from its tail to its end.

use crate::metadata::journal::ring::Ring;
use braid_format::journal::{BLOCK, Found, Recovery, Seed, StripeWrite, Walk, ring_sectors};
use braid_shard::Shard;
use std::collections::BTreeMap;

/// See the module's documentation.
pub(crate) struct Log {
    pub(super) ring: Ring,
    pub(super) set_uuid: [u8; 16],
    /// Rows with all that changed of them, and their parity: the newest of each block.
    pub(super) complete: Vec<StripeWrite>,
    /// Rows of which data alone was logged after that.
    pub(super) data_only: Vec<StripeWrite>,
    /// Ring sector behind the log.
    pub(super) end: u64,
    /// The sequence number that would follow; `None`: there is no log.
    pub(super) seq: Option<u64>,
    /// Blocks of the ring that the log does not take.
    pub(super) free: u64,
    /// Payloads that name places outside of the array, and meta blocks that were not written whole.
    pub(super) refused: u64,
    pub(super) cut_short: u64,
}

impl Log {
    /// Walks over the log of the array `set_uuid` from `tail` on. `size` is the number of sectors that are used of each
    /// component, `row` finds the row of an array sector.
    ///
    /// # Errors
    /// The journal cannot be used; why.
    pub(super) async fn read(
        shard: &Shard,
        ring: Ring,
        (set_uuid, tail): (&[u8; 16], u64),
        size: u64,
        row: impl Fn(u64) -> Option<u64>,
    ) -> Result<Log, String> {
        let sectors = ring_sectors(ring.blocks() * (BLOCK as u64 / 512));
        let mut walk = Walk::new(set_uuid, sectors, tail).map_err(|error| error.to_string())?;
        let mut recovery = Recovery::new(size, row);
        let (mut taken, mut cut_short) = (0, 0);
        loop {
            let unreadable = |error| format!("its log cannot be read: {error}");
            let block = ring.read(shard, walk.position(), 1).await.map_err(unreadable)?;
            let Ok(found) = walk.step(&block) else { break };
            let count = found.blocks.len() as u64;
            taken += 1 + count;
            if whole(shard, &ring, walk.seed(), &found).await.map_err(unreadable)? {
                recovery.take(&found);
            } else {
                cut_short += 1;
            }
        }
        let refused = recovery.refused();
        let (complete, data_only) = recovery.finish();
        Ok(Log {
            end: if walk.seq().is_some() { walk.position() } else { 0 },
            seq: walk.seq(),
            free: ring.blocks() - taken,
            ring,
            set_uuid: *set_uuid,
            complete: newest(complete),
            data_only,
            refused,
            cut_short,
        })
    }

    /// It asks for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.complete.is_empty() && self.data_only.is_empty()
    }
}

/// All blocks of a meta block have the right checksum: it was written whole.
async fn whole(
    shard: &Shard,
    ring: &Ring,
    seed: Seed,
    found: &Found,
) -> Result<bool, braid_device::IoError> {
    let Some(first) = found.blocks.first() else { return Ok(true) };
    let blocks = ring.read(shard, *first, found.blocks.len() as u64).await?;
    Ok(blocks
        .chunks_exact(BLOCK)
        .zip(found.meta.checksums())
        .all(|(b, sum)| seed.checksum(b) == sum))
}

/// One write for each row: of each block the newest.
fn newest(writes: Vec<StripeWrite>) -> Vec<StripeWrite> {
    let mut rows: BTreeMap<u64, StripeWrite> = BTreeMap::new();
    for write in writes {
        let Some(row) = rows.get_mut(&write.row) else {
            rows.insert(write.row, write);
            continue;
        };
        let mut data: BTreeMap<u64, u64> = row.data.drain(..).collect();
        data.extend(write.data);
        row.data = data.into_iter().collect();
        (row.p, row.q) = (write.p, write.q);
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_rounds_of_a_row_the_newest_block_of_each_place_counts() {
        let round = |data: &[(u64, u64)], p: u64| StripeWrite {
            row: 8,
            data: data.to_vec(),
            p: Some(p),
            q: None,
        };
        let other = StripeWrite { row: 0, ..round(&[(0, 1)], 2) };
        let merged = newest(vec![
            round(&[(16, 10), (24, 11)], 12),
            other.clone(),
            round(&[(24, 20), (32, 21)], 22),
        ]);
        assert_eq!(merged, [other, round(&[(16, 10), (24, 20), (32, 21)], 22)]);
    }
}
