//! One shard's part of the partial parity log: what is to be logged for a write, and the writes that wait for it.
//!
//! The partial parity of a row is the XOR of its data blocks that a write leaves alone. With it, and with whatever a crash
//! has left of the others, parity can be made anew: what nobody was writing comes out of it as it was. P of the new data
//! with the new data taken out again is just that, so nothing is read for it.
//!
//! Writes that come to the gate in one turn, of stripes whose parity one member holds, are a *batch*: they are logged
//! together, by the home shard, which is told when all of them have ended.

use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::state::geometry::Geometry;
use crate::state::view::View;
use braid_format::SECTOR;
use braid_format::ppl::{self, ENTRIES_MAX};
use braid_layout::{Slot, StripeMap};
use braid_shard::Shard;
use braid_shard::plant::planted;
use braid_shard::sync::Notify;
use slab::Slab;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// Rows of a write that are logged, and written, at a time where the log does not take all: of so many bytes no more entries
/// can come than a header has, since an entry has a block at least.
const ROWS_MAX: u64 = 64 << 10;

/// The batch of a shard that is under way; the numbers of ended batches are used again.
pub(crate) type BatchNr = usize;

/// A batch, as the home shard gets it.
#[derive(Debug)]
pub(crate) struct LogBatch {
    /// The slot whose member holds the parity, and the log.
    pub(crate) slot: Slot,
    /// The owner of the batch.
    pub(crate) shard: u16,
    pub(crate) nr: BatchNr,
    pub(crate) entries: Vec<LogEntry>,
}

/// An entry of the log with its partial parity.
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) entry: ppl::Entry,
    pub(crate) partial: Vec<u8>,
    /// Slots that may have what it covers in a volatile cache when the write has ended.
    pub(crate) unflushed: SmallVec<[Slot; 4]>,
}

/// See the module's documentation.
pub(crate) struct Log {
    /// Bytes of partial parity that the smallest area of a member has room for at once.
    partial_max: u64,
    batches: RefCell<Slab<Batch>>,
    answered: Notify,
    /// Has the home shard know that all writes of a batch have ended.
    ended: Box<dyn Fn(Slot, BatchNr)>,
}

struct Batch {
    slot: Slot,
    /// Until it is sent.
    gathering: bool,
    entries: Vec<LogEntry>,
    /// Writes of it that have not ended.
    writes: u32,
    /// The home shard has it, and it is durable; no: nothing may be written.
    answer: Option<bool>,
}

impl Log {
    pub(crate) fn new(shard: &Shard, partial_max: u64, ended: Box<dyn Fn(Slot, BatchNr)>) -> Log {
        let (batches, answered) = (RefCell::default(), Notify::new(shard));
        Log { partial_max, batches, answered, ended }
    }

    /// The rows of a write, in component bytes, that are to be logged and written at a time: mostly all of them.
    pub(super) fn parts(&self, write: &impl Outgoing) -> SmallVec<[Range<u64>; 1]> {
        let mut rows: Option<Range<u64>> = None;
        let (mut partial, mut blocks) = (0, 0);
        for Block { at, role, content, .. } in write.blocks() {
            let end = at + content.len();
            rows = Some(rows.map_or(at..end, |rows| rows.start.min(at)..rows.end.max(end)));
            partial += if role == Role::Parity { content.len() } else { 0 };
            blocks += 1;
        }
        let Some(rows) = rows else { return SmallVec::new() };
        // Each block begins and ends one range of rows at most.
        if partial <= self.partial_max && 2 * blocks <= ENTRIES_MAX {
            return SmallVec::from_elem(rows, 1);
        }
        let height = ROWS_MAX.min(self.partial_max);
        crate::state::extent::pieces(&rows, height).into_iter().collect()
    }

    /// Adds a write to the batch that is being gathered for `slot`. True: the caller is to send it.
    pub(crate) fn join(&self, slot: Slot, entries: Vec<LogEntry>) -> (BatchNr, bool) {
        let mut batches = self.batches.borrow_mut();
        let open = batches.iter_mut().find(|(_, batch)| batch.gathering && batch.slot == slot);
        if let Some((nr, batch)) = open
            && batch.takes(&entries, self.partial_max)
        {
            batch.entries.extend(entries);
            batch.writes += 1;
            return (nr, false);
        }
        let batch = Batch { slot, gathering: true, entries, writes: 1, answer: None };
        (batches.insert(batch), true)
    }

    /// Takes what is to be logged of a batch; nobody joins it any more.
    pub(crate) fn take(&self, nr: BatchNr) -> Option<(Slot, Vec<LogEntry>)> {
        let mut batches = self.batches.borrow_mut();
        let batch = batches.get_mut(nr)?;
        batch.gathering = false;
        Some((batch.slot, std::mem::take(&mut batch.entries)))
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
        // The planted bug writes data while it is being logged.
        if planted("logged-after-data") {
            return true;
        }
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
            (self.ended)(ended.slot, nr);
        }
    }
}

impl Batch {
    fn takes(&self, more: &[LogEntry], partial_max: u64) -> bool {
        let entries = self.entries.iter().chain(more);
        let partial: usize = entries.map(|entry| entry.partial.len()).sum();
        self.entries.len() + more.len() <= ENTRIES_MAX && partial as u64 <= partial_max
    }
}

/// A block of a write, by rows of its stripe.
struct Rows {
    /// The data chunk; `None`: parity.
    k: Option<usize>,
    rows: Range<u64>,
    content: Content,
}

impl Rows {
    /// The bytes of these rows; `None`: they are zeroes.
    fn bytes(&self, rows: &Range<u64>) -> Option<&[u8]> {
        let Content::Bytes(buf) = &self.content else { return None };
        let start = (rows.start - self.rows.start) as usize;
        buf.get(start..start + (rows.end - rows.start) as usize)
    }

    fn covers(&self, rows: &Range<u64>) -> bool {
        self.rows.start <= rows.start && rows.end <= self.rows.end
    }
}

/// What is to be logged for a write of a stripe, and the slot that has the log; `None` when nothing is: without parity
/// there is nothing that could not match.
pub(crate) fn entries(
    geometry: &Geometry,
    view: &View,
    write: &impl Outgoing,
) -> Option<(Slot, Vec<LogEntry>)> {
    let parity = geometry.parity()?;
    let stripe = write.unit();
    let (map, base, chunk) =
        (parity.map_stripe(stripe), parity.member_offset(stripe), parity.chunk_size());
    view.member(map.p_slot())?;
    let by_rows = |block: Block| Rows {
        k: match block.role {
            Role::Data => (0..map.data_chunks()).find(|k| map.data_slot(*k) == block.slot),
            Role::Parity => None,
        },
        rows: block.at - base..block.at - base + block.content.len(),
        content: block.content,
    };
    let blocks: SmallVec<[Rows; 8]> = write.blocks().map(by_rows).collect();
    let mut cuts: SmallVec<[u64; 16]> =
        blocks.iter().flat_map(|block| [block.rows.start, block.rows.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut found: Vec<(Range<usize>, Range<u64>, LogEntry)> = Vec::new();
    for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
        let rows = *start..*end;
        let Some((chunks, partial)) = of_rows(view, &map, &blocks, &rows) else { continue };
        let len = (rows.end - rows.start) * chunks.len() as u64;
        if let Some((known, above, last)) = found.last_mut()
            && *known == chunks
            && above.end == rows.start
        {
            above.end = rows.end;
            last.entry.data_size += len as u32;
            last.partial.extend(partial);
            continue;
        }
        let written = blocks.iter().filter(|block| block.covers(&rows));
        let slots = written.map(|block| block.k.map_or(map.p_slot(), |k| map.data_slot(k)));
        let unflushed = if write.fua() { SmallVec::new() } else { slots.collect() };
        let entry = ppl::Entry {
            data_sector: parity.array_offset(stripe, chunks.start, rows.start) / SECTOR_BYTES,
            // At most a stripe of data, in chunks of at most 4 GiB.
            data_size: len as u32,
            parity_disk: map.p_slot() as u32,
            ..ppl::Entry::default()
        };
        found.push((chunks, rows, LogEntry { entry, partial, unflushed }));
    }
    debug_assert!(found.iter().all(|(_, rows, _)| rows.end <= chunk), "rows beyond the chunk");
    let finish = |(_, _, mut logged): (_, _, LogEntry)| {
        logged.entry.pp_size = logged.partial.len() as u32;
        logged.entry.checksum = ppl::entry_checksum(&logged.partial);
        logged
    };
    let entries: Vec<LogEntry> = found.into_iter().map(finish).collect();
    (!entries.is_empty()).then_some((map.p_slot(), entries))
}

/// The chunks that an entry for these rows names, and the partial parity: empty where all chunks are written.
fn of_rows(
    view: &View,
    map: &StripeMap,
    blocks: &[Rows],
    rows: &Range<u64>,
) -> Option<(Range<usize>, Vec<u8>)> {
    let parity = blocks.iter().find(|block| block.k.is_none() && block.covers(rows))?;
    let written = || blocks.iter().filter(|block| block.covers(rows)).filter_map(|block| block.k);
    if written().count() == map.data_chunks() {
        return Some((0..map.data_chunks(), Vec::new()));
    }
    let range = |ks: SmallVec<[usize; 8]>| {
        let chunks = *ks.iter().min()?..*ks.iter().max()? + 1;
        (chunks.len() == ks.len()).then_some(chunks)
    };
    // Of a chunk without a member nothing can be left of an earlier state: its new content stands in the log like that of
    // chunks that are left alone. But an entry has to name some chunk.
    let there = written().filter(|k| view.writable(map.data_slot(*k))).collect();
    let chunks = range(there).or_else(|| range(written().collect()))?;
    let len = (rows.end - rows.start) as usize;
    let mut partial = parity.bytes(rows).map_or_else(|| vec![0; len], <[u8]>::to_vec);
    for block in blocks.iter().filter(|block| block.covers(rows)) {
        if block.k.is_some_and(|k| chunks.contains(&k))
            && let Some(new) = block.bytes(rows)
        {
            braid_parity::xor_into(&mut partial, &[new]);
        }
    }
    Some((chunks, partial))
}
