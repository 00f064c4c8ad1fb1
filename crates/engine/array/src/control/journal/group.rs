//! What goes to the ring by one request: meta blocks, each followed by the blocks that it names.

use crate::consistency::journal::{BatchNr, LoggedRow};
use crate::metadata::journal::Begun;
use crate::metadata::journal::ring::Ring;
use braid_format::journal::{BLOCK, Meta, Payload, Seed};
use braid_shard::{Buf, Pool};

/// Bytes of a meta block that payloads have.
const ROOM: usize = BLOCK - 32;

/// A batch of a shard: the shard, its number there.
pub(super) type BatchId = (u16, BatchNr);

/// A group of the log.
pub(super) struct Group {
    /// Counted from the start of the array.
    pub(super) nr: u64,
    /// Ring sector of its first meta block.
    pub(super) at: u64,
    /// Number of its blocks.
    pub(super) blocks: u64,
    /// Batches of it that have not ended.
    pub(super) open: Vec<BatchId>,
}

/// Bytes that the payload takes of its meta block.
fn size(payload: &Payload) -> usize {
    match payload {
        Payload::Data { .. } | Payload::Parity { q: None, .. } => 20,
        Payload::Parity { q: Some(_), .. } => 24,
        Payload::Flush { rows } => 8 + 8 * rows.len(),
    }
}

/// Blocks that these rows take of the ring.
pub(super) fn blocks_of(rows: &[LoggedRow]) -> u64 {
    let blocks =
        |rows: &[LoggedRow]| rows.iter().map(|row| row.blocks.len() / BLOCK).sum::<usize>();
    metas(rows).map(|rows| 1 + blocks(rows) as u64).sum()
}

/// The rows of each meta block. What is logged of a row is in one of them, so that all or nothing of it is written again.
fn metas(mut rows: &[LoggedRow]) -> impl Iterator<Item = &[LoggedRow]> {
    std::iter::from_fn(move || {
        let mut used = 0;
        let fit = rows.iter().take_while(|row| {
            used += row.payloads.iter().map(size).sum::<usize>();
            used <= ROOM
        });
        // A row of as many members as an array with a journal may have fits.
        let count = fit.count().max(1).min(rows.len());
        let (first, rest) = rows.split_at(count);
        rows = rest;
        (!first.is_empty()).then_some(first)
    })
}

/// The bytes of a group of these rows that begins at `head`, and where the log goes on behind it. `None`: a row has too
/// many blocks.
pub(super) fn encode(
    pool: &Pool,
    (ring, seed): (&Ring, Seed),
    head: Begun,
    rows: &[LoggedRow],
) -> Option<(Buf, Begun)> {
    let mut next = head;
    let mut bytes = Vec::with_capacity(blocks_of(rows) as usize * BLOCK);
    for rows in metas(rows) {
        let payloads = rows.iter().flat_map(|row| row.payloads.iter().cloned()).collect();
        let meta = Meta { seq: next.seq, position: next.position, payloads };
        let before = bytes.len();
        bytes.extend_from_slice(&meta.to_bytes(seed)?);
        rows.iter().for_each(|row| bytes.extend_from_slice(&row.blocks));
        let count = ((bytes.len() - before) / BLOCK) as u64;
        let position = ring.after(next.position, count);
        next = Begun { position, seq: next.seq.wrapping_add(1) };
    }
    Some((pool.copy_of(&bytes).freeze(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(blocks: usize) -> LoggedRow {
        let mut payloads: smallvec::SmallVec<[Payload; 4]> =
            (1..blocks).map(|nr| Payload::Data { location: nr as u64 * 8, checksum: 1 }).collect();
        payloads.push(Payload::Parity { location: 0, p: 2, q: None });
        LoggedRow { payloads, blocks: vec![0; blocks * BLOCK] }
    }

    #[test]
    fn the_payloads_of_a_row_are_in_one_meta_block() {
        // 203 payloads of 20 bytes fit into a meta block: 40 rows of 5.
        let rows: Vec<LoggedRow> = (0..90).map(|_| row(5)).collect();
        let counts: Vec<usize> = metas(&rows).map(<[LoggedRow]>::len).collect();
        assert_eq!(counts, [40, 40, 10]);
        assert_eq!(blocks_of(&rows), 90 * 5 + 3);
        assert_eq!((blocks_of(&[]), blocks_of(&rows[..1])), (0, 6));
    }
}
