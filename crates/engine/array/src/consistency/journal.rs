//! One shard's part of the write journal: the rows of blocks that are to be logged for a write, and the writes that wait for
//! it.
//!
//! A row is one block of 4 KiB of each member, at the same place in all components. All of it that is written is logged,
//! zeroes too, and with it the row's parity. Parity for a slot without a member is not computed for a write: zeroes stand in
//! its place, and nobody gets them, since the log is empty before a member in that slot counts for anything (`control/journal`).
//!
//! Writes that come to the gate in one turn are a *batch*: they are logged together, by the home shard, which is told when
//! all of them have ended.

use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::state::geometry::Geometry;
use braid_format::SECTOR;
use braid_format::journal::{BLOCK, Payload, Seed};
use braid_shard::Shard;
use braid_shard::plant::planted;
use braid_shard::sync::Notify;
use slab::Slab;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

const SECTOR_BYTES: u64 = SECTOR as u64;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// Blocks that a write may have logged at once, where the ring is large.
const PART_MAX: u64 = 1024;

/// The batch of a shard that is under way; the numbers of ended batches are used again.
pub(crate) type BatchNr = usize;

/// What shards must know of an array's journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalShape {
    /// The seed of its checksums.
    pub(crate) seed: Seed,
    /// Blocks of data and parity that a write may have logged at once; at least one row.
    pub(crate) blocks_max: u64,
}

impl JournalShape {
    /// That of a ring of so many blocks, of an array with so many slots.
    pub(crate) fn of(seed: Seed, ring: u64, slots: usize) -> JournalShape {
        let blocks_max = (ring.saturating_sub(2) / 4).min(PART_MAX).max(slots as u64);
        JournalShape { seed, blocks_max }
    }
}

/// A batch, as the home shard gets it.
#[derive(Debug)]
pub(crate) struct JournalBatch {
    /// The owner of the batch.
    pub(crate) shard: u16,
    pub(crate) nr: BatchNr,
    pub(crate) rows: Vec<LoggedRow>,
}

/// What is written of a row, with its parity: payloads, and their blocks one after the other.
#[derive(Debug)]
pub(crate) struct LoggedRow {
    pub(crate) payloads: SmallVec<[Payload; 4]>,
    pub(crate) blocks: Vec<u8>,
}

/// See the module's documentation.
pub(crate) struct Journal {
    shape: JournalShape,
    batches: RefCell<Slab<Batch>>,
    answered: Notify,
    /// Has the home shard know that all writes of a batch have ended.
    ended: Box<dyn Fn(BatchNr)>,
}

struct Batch {
    /// Until it is sent.
    gathering: bool,
    rows: Vec<LoggedRow>,
    /// Writes of it that have not ended.
    writes: u32,
    /// The home shard has it, and it is durable; no: nothing may be written.
    answer: Option<bool>,
}

impl Batch {
    fn blocks(&self) -> u64 {
        self.rows.iter().map(|row| row.blocks.len() as u64 / BLOCK_BYTES).sum()
    }
}

impl Journal {
    pub(crate) fn new(shard: &Shard, shape: JournalShape, ended: Box<dyn Fn(BatchNr)>) -> Journal {
        let (batches, answered) = (RefCell::default(), Notify::new(shard));
        Journal { shape, batches, answered, ended }
    }

    /// The rows of a write, in component bytes, that are to be logged and written at a time: mostly all of them.
    pub(super) fn parts(
        &self,
        geometry: &Geometry,
        write: &impl Outgoing,
    ) -> SmallVec<[Range<u64>; 1]> {
        let mut rows: Option<Range<u64>> = None;
        for block in write.blocks() {
            let end = block.at + block.content.len();
            let above = rows.unwrap_or(block.at..end);
            rows = Some(above.start.min(block.at)..above.end.max(end));
        }
        let Some(rows) = rows else { return SmallVec::new() };
        // At most a row is of one block of each member.
        let high = (self.shape.blocks_max / geometry.slots().max(1) as u64).max(1) * BLOCK_BYTES;
        crate::state::extent::pieces(&rows, high).into_iter().collect()
    }

    /// What is to be logged of a write, whose blocks are whole blocks of the journal.
    pub(crate) fn rows(&self, geometry: &Geometry, write: &impl Outgoing) -> Vec<LoggedRow> {
        let Some(parity) = geometry.parity() else { return Vec::new() };
        // The planted bug logs nothing where no member has parity that could be wrong.
        if planted("degraded-not-journaled") && write.blocks().all(|b| b.role == Role::Data) {
            return Vec::new();
        }
        let stripe = write.unit();
        let (map, base) = (parity.map_stripe(stripe), parity.member_offset(stripe));
        let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
        for block in write.blocks().filter(|block| block.role == Role::Data) {
            let Some(k) = (0..map.data_chunks()).find(|k| map.data_slot(*k) == block.slot) else {
                continue;
            };
            for piece in pieces_of(&block) {
                let location = parity.array_offset(stripe, k, piece.row - base) / SECTOR_BYTES;
                let row = rows.entry(piece.row).or_default();
                if row.data.last().is_none_or(|(known, _)| *known != location) {
                    row.data.push((location, zeroes()));
                }
                if let Some((_, bytes)) = row.data.last_mut() {
                    piece.put(bytes);
                }
            }
        }
        for block in write.blocks().filter(|block| block.role == Role::Parity) {
            for piece in pieces_of(&block) {
                // A line of fixed height has rows that nothing is written in.
                let Some(row) = rows.get_mut(&piece.row) else { continue };
                // Parts of a row may come each by itself, where members cannot give the same.
                let bytes = match block.slot == map.p_slot() {
                    true => row.p.get_or_insert_with(zeroes),
                    false => row.q.get_or_insert_with(zeroes),
                };
                piece.put(bytes);
            }
        }
        let seed = self.shape.seed;
        let has_q = map.q_slot().is_some();
        rows.into_iter().map(|(at, row)| row.logged(seed, at / SECTOR_BYTES, has_q)).collect()
    }

    /// Adds a write to the batch that is being gathered. True: the caller is to send it.
    pub(crate) fn join(&self, rows: Vec<LoggedRow>) -> (BatchNr, bool) {
        let mut batches = self.batches.borrow_mut();
        let more = Batch { gathering: true, rows, writes: 1, answer: None };
        let open = batches.iter_mut().find(|(_, batch)| batch.gathering);
        if let Some((nr, batch)) = open
            && batch.blocks() + more.blocks() <= self.shape.blocks_max
        {
            batch.rows.extend(more.rows);
            batch.writes += 1;
            return (nr, false);
        }
        (batches.insert(more), true)
    }

    /// Takes what is to be logged of a batch; nobody joins it any more.
    pub(crate) fn take(&self, nr: BatchNr) -> Option<Vec<LoggedRow>> {
        let mut batches = self.batches.borrow_mut();
        let batch = batches.get_mut(nr)?;
        batch.gathering = false;
        Some(std::mem::take(&mut batch.rows))
    }

    /// The home shard says whether the batch is durable.
    pub(crate) fn answer(&self, nr: BatchNr, yes: bool) {
        if let Some(batch) = self.batches.borrow_mut().get_mut(nr) {
            batch.answer = Some(yes);
        }
        self.answered.notify_all();
    }

    /// Waits for that.
    pub(crate) async fn until_answered(&self, nr: BatchNr) -> bool {
        let answer = || match self.batches.borrow().get(nr) {
            Some(batch) => batch.answer,
            None => Some(false),
        };
        self.answered.wait_for(answer).await
    }

    /// A write of the batch has ended.
    pub(crate) fn leave(&self, nr: BatchNr) {
        let mut batches = self.batches.borrow_mut();
        let Some(batch) = batches.get_mut(nr) else { return };
        batch.writes -= 1;
        if batch.writes > 0 {
            return;
        }
        let ended = batches.remove(nr);
        drop(batches);
        if ended.answer != Some(false) {
            (self.ended)(nr);
        }
    }
}

/// The blocks of a row that are written.
#[derive(Default)]
struct Row {
    /// Array sectors, and what goes there.
    data: SmallVec<[(u64, Vec<u8>); 4]>,
    p: Option<Vec<u8>>,
    q: Option<Vec<u8>>,
}

impl Row {
    fn logged(self, seed: Seed, sector: u64, has_q: bool) -> LoggedRow {
        let mut row = LoggedRow { payloads: SmallVec::new(), blocks: Vec::new() };
        let mut add = |block: Vec<u8>| {
            row.blocks.extend_from_slice(&block);
            seed.checksum(&block)
        };
        for (location, block) in self.data {
            let checksum = add(block);
            row.payloads.push(Payload::Data { location, checksum });
        }
        let p = add(self.p.unwrap_or_else(zeroes));
        let q = has_q.then(|| add(self.q.unwrap_or_else(zeroes)));
        row.payloads.push(Payload::Parity { location: sector, p, q });
        row
    }
}

fn zeroes() -> Vec<u8> {
    vec![0; BLOCK]
}

/// A part of a block of a write that lies in one row.
struct Piece<'a> {
    /// Component byte of the row.
    row: u64,
    /// Bytes of the row's block.
    within: Range<usize>,
    /// `None`: zeroes.
    bytes: Option<&'a [u8]>,
}

impl Piece<'_> {
    fn put(&self, block: &mut [u8]) {
        let Some(place) = block.get_mut(self.within.clone()) else { return };
        match self.bytes {
            Some(bytes) => place.copy_from_slice(bytes),
            None => place.fill(0),
        }
    }
}

fn pieces_of(block: &Block) -> impl Iterator<Item = Piece<'_>> {
    let all = block.at..block.at + block.content.len();
    crate::state::extent::pieces(&all, BLOCK_BYTES).into_iter().map(move |piece| {
        let row = piece.start / BLOCK_BYTES * BLOCK_BYTES;
        let (start, len) = ((piece.start - block.at) as usize, (piece.end - piece.start) as usize);
        let bytes = match &block.content {
            Content::Bytes(buf) => buf.get(start..start + len),
            Content::Zeroes { .. } => None,
        };
        let within = (piece.start - row) as usize;
        Piece { row, within: within..within + len, bytes }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::extent::Extent;
    use crate::testing;
    use braid_layout::{Layout, Level, Spec};

    /// A write of one block of the first chunk of stripe 0, whose parity comes in two parts, since a member could not give
    /// some of the row.
    struct InParts(Shard);

    impl InParts {
        fn block(&self, slot: usize, role: Role, at: u64, bytes: &[u8]) -> Block {
            let content = Content::Bytes(self.0.pool().copy_of(bytes).freeze());
            Block { slot, at, role, content }
        }
    }

    impl Outgoing for InParts {
        fn unit(&self) -> u64 {
            0
        }

        fn extents(&self) -> impl Iterator<Item = Extent> {
            std::iter::once(Extent { start: 8192, end: 12288 })
        }

        fn blocks(&self) -> impl Iterator<Item = Block> {
            [
                self.block(0, Role::Data, 8192, &[1; BLOCK]),
                self.block(2, Role::Parity, 8192, &[2; 512]),
                self.block(2, Role::Parity, 8704, &[3; BLOCK - 512]),
            ]
            .into_iter()
        }

        fn fua(&self) -> bool {
            false
        }
    }

    #[test]
    fn parity_that_comes_in_parts_of_a_block_is_logged_as_one() {
        let spec = Spec {
            level: Level::Raid5,
            layout: 2,
            chunk_size: 64 << 10,
            raid_disks: 3,
            component_size: 8 << 20,
            member_sizes: Vec::new(),
        };
        let geometry = Geometry::new(Level::Raid5, 2, Layout::new(&spec).unwrap(), 512, 8 << 20, 1);
        let (shard, seed) = (testing::shard(), Seed::of(&[7; 16]));
        let shape = JournalShape::of(seed, 1000, 3);
        let journal = Journal::new(&shard, shape, Box::new(|_| {}));
        let rows = journal.rows(&geometry, &InParts(shard.clone()));
        let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
        let parity = [vec![2; 512], vec![3; BLOCK - 512]].concat();
        assert_eq!(row.blocks, [vec![1; BLOCK], parity.clone()].concat());
        let p = seed.checksum(&parity);
        let data = Payload::Data { location: 16, checksum: seed.checksum(&[1; BLOCK]) };
        let expected = [data, Payload::Parity { location: 16, p, q: None }];
        assert_eq!(row.payloads.as_slice(), expected);
    }
}
