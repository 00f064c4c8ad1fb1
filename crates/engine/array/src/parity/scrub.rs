//! Resync, check, repair and rebuild of a window of stripes.
//!
//! The window is read in one piece per member, computed stripe by stripe, and what differs is
//! written. A block that cannot be read is computed from the rest and written back where it was; so is, by a
//! resync or repair, one that is recorded as bad. What a rebuild cannot have is recorded as bad on its target.

use super::blocks::Blocks;
use crate::bitmap::ranges::{runs, slice_bytes};
use crate::engine::Engine;
use crate::jobs::window::{Window, WindowKind, WindowReport, differing_sectors, lock_units};
use crate::settle::pieces;
use crate::view::{SlotState, View};
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Parity, Slot, StripeMap};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// A member that fails while the window is read makes it start again without that member.
const ATTEMPTS_MAX: usize = 8;

/// By slot: what the member gave for some range of the component.
type Columns = SmallVec<[Option<Buf>; 12]>;

/// Carries out one window.
pub(crate) async fn window(engine: &Rc<Engine>, parity: &Parity, window: Window) -> WindowReport {
    let _held = lock_units(engine, &window).await;
    let keeps = planted("repair-keeps-cache") && window.kind == WindowKind::Repair;
    if window.kind != WindowKind::Check && !keeps {
        // What is written now is written past the stripe cache.
        for stripe in window.first..window.first + window.count {
            engine.cache_forget(stripe, 0..parity.chunk_size());
        }
    }
    let rows = match window.slices {
        u64::MAX => window.count * parity.chunk_size(),
        // Its runs are read one after another.
        slices => slice_bytes(parity.chunk_size(), 1) * u64::from(slices.count_ones()),
    };
    let bytes = rows * parity.slots() as u64;
    let _scratch = engine.scratch.take(bytes).await;
    let mut scrub = Scrub { engine, parity, kind: window.kind, mismatches: 0, lost: Vec::new() };
    let mut result =
        if window.slices == u64::MAX { scrub.run(window).await } else { scrub.parts(window).await };
    if let (Ok(()), WindowKind::Rebuild { slot }) = (result, window.kind) {
        result = engine.record_lost(slot, std::mem::take(&mut scrub.lost)).await;
    }
    WindowReport { result, mismatches: scrub.mismatches }
}

struct Scrub<'a> {
    engine: &'a Rc<Engine>,
    parity: &'a Parity,
    kind: WindowKind,
    mismatches: u64,
    /// Component bytes that a rebuild found no way to have.
    lost: Vec<Range<u64>>,
}

/// Some rows of a stripe.
#[derive(Clone, Copy)]
struct Rows {
    stripe: u64,
    /// Component byte of the first.
    at: u64,
    /// Bytes of each block.
    len: u64,
}

/// What a read of columns met.
enum Columnar {
    /// All there.
    All(Columns),
    /// A member is gone: plan again.
    Again,
    /// These slots could not be read somewhere in the range.
    Holes(Columns, SmallVec<[Slot; 4]>),
}

impl Scrub<'_> {
    async fn run(&mut self, window: Window) -> Result<(), IoError> {
        let chunk = self.parity.chunk_size();
        let start = self.parity.member_offset(window.first);
        let bytes = start..start + window.count * chunk;
        for _ in 0..ATTEMPTS_MAX {
            let view = self.engine.view();
            if view.broken || view.read_only {
                return Err(IoError::new(IoErrorKind::Refused));
            }
            if view.any_bad() && view.same_until(&bytes) < bytes.end {
                return self.one_by_one(window).await;
            }
            match self.read(&view, &bytes).await {
                Columnar::Again => continue,
                Columnar::All(columns) => {
                    for nr in 0..window.count {
                        let at = (nr * chunk) as usize..((nr + 1) * chunk) as usize;
                        let stripe: Columns = columns
                            .iter()
                            .map(|column| column.as_ref().map(|buf| buf.slice(at.clone())))
                            .collect();
                        match self.rows(&view, self.whole(window.first + nr), stripe, &[]).await {
                            Err(error) if error.kind == IoErrorKind::Lost => {
                                self.alone(self.whole(window.first + nr)).await?;
                            }
                            other => other?,
                        }
                    }
                    return Ok(());
                }
                Columnar::Holes(..) => return self.one_by_one(window).await,
            }
        }
        Err(IoError::new(IoErrorKind::Medium))
    }

    /// Some block of the window cannot be read, or is recorded as bad: find out which stripe it is in.
    async fn one_by_one(&mut self, window: Window) -> Result<(), IoError> {
        for stripe in window.first..window.first + window.count {
            self.alone(self.whole(stripe)).await?;
        }
        Ok(())
    }

    /// Only some rows of a stripe are wanted.
    async fn parts(&mut self, window: Window) -> Result<(), IoError> {
        let chunk = self.parity.chunk_size();
        let base = self.parity.member_offset(window.first);
        let block = u64::from(self.engine.geometry.logical_block);
        for run in runs(window.slices, chunk, chunk, block) {
            let rows =
                Rows { stripe: window.first, at: base + run.start, len: run.end - run.start };
            self.alone(rows).await?;
        }
        Ok(())
    }

    fn whole(&self, stripe: u64) -> Rows {
        let (at, len) = (self.parity.member_offset(stripe), self.parity.chunk_size());
        Rows { stripe, at, len }
    }

    /// Rows of one stripe, in parts that each have their own sources. What a rebuild cannot have of them is
    /// noted block by block, where the target can record it.
    async fn alone(&mut self, rows: Rows) -> Result<(), IoError> {
        let (mut at, end) = (rows.at, rows.at + rows.len);
        while at < end {
            let view = self.engine.view();
            let until = view.same_until(&(at..end));
            let part = Rows { at, len: until - at, ..rows };
            match (self.part(part).await, self.kind) {
                (Err(error), WindowKind::Rebuild { slot })
                    if error.kind == IoErrorKind::Lost && view.has_log(slot) =>
                {
                    for piece in pieces(&(at..until), self.engine.piece()) {
                        let len = piece.end - piece.start;
                        match self.part(Rows { at: piece.start, len, ..rows }).await {
                            Err(error) if error.kind == IoErrorKind::Lost => self.lost.push(piece),
                            other => other?,
                        }
                    }
                }
                (result, _) => result?,
            }
            at = until;
        }
        Ok(())
    }

    async fn part(&mut self, rows: Rows) -> Result<(), IoError> {
        for _ in 0..ATTEMPTS_MAX {
            let view = self.engine.view();
            if view.broken || view.read_only {
                return Err(IoError::new(IoErrorKind::Refused));
            }
            match self.read(&view, &(rows.at..rows.at + rows.len)).await {
                Columnar::All(columns) => return self.rows(&view, rows, columns, &[]).await,
                Columnar::Holes(columns, holes) => {
                    return self.rows(&view, rows, columns, &holes).await;
                }
                Columnar::Again => {}
            }
        }
        Err(IoError::new(IoErrorKind::Medium))
    }

    /// Reads component bytes of every member that is a source.
    async fn read(&self, view: &View, bytes: &Range<u64>) -> Columnar {
        let (start, len) = (bytes.start, bytes.end - bytes.start);
        let mut set = self.engine.sets.start();
        for slot in 0..view.slots() {
            let wanted = match self.kind {
                WindowKind::Rebuild { slot: target } => slot != target,
                _ => true,
            };
            if !wanted || !view.readable(slot, bytes) {
                continue;
            }
            if let Some((device, data_offset)) = view.member(slot) {
                let buf = self.engine.shard.pool().get(len as usize);
                set.submit(slot as u32, &**device, Request::read(data_offset + start, buf));
            }
        }
        let mut columns: Columns = SmallVec::new();
        columns.resize_with(view.slots(), || None);
        let mut holes = SmallVec::new();
        for (slot, outcome) in set.finish().await {
            let slot = slot as usize;
            match (outcome.result, outcome.op) {
                (Ok(()), Op::Read(mut bufs)) => {
                    columns[slot] = bufs.pop().map(|buf| buf.freeze());
                }
                (Err(error), _) if error.means_gone() => {
                    self.engine.fail_member(slot, view, error).await;
                    return Columnar::Again;
                }
                _ => holes.push(slot),
            }
        }
        if holes.is_empty() { Columnar::All(columns) } else { Columnar::Holes(columns, holes) }
    }

    async fn rows(
        &mut self,
        view: &Rc<View>,
        rows: Rows,
        columns: Columns,
        holes: &[Slot],
    ) -> Result<(), IoError> {
        let map = self.parity.map_stripe(rows.stripe);
        let mut blocks = Blocks::new(map, self.parity.q_width());
        for (slot, column) in columns.into_iter().enumerate() {
            if let Some(block) = column {
                blocks.set(slot, block);
            }
        }
        for hole in holes {
            self.mend(view, rows, &mut blocks, *hole).await?;
        }
        if view.any_bad() && matches!(self.kind, WindowKind::Resync | WindowKind::Repair) {
            self.write_over_bad(view, rows, &mut blocks).await?;
        }
        match self.kind {
            WindowKind::Rebuild { slot } => self.rebuild(view, rows, &mut blocks, slot).await,
            WindowKind::Check => self.compare(view, rows, &map, &mut blocks, false).await,
            WindowKind::Resync | WindowKind::Repair => {
                self.compare(view, rows, &map, &mut blocks, true).await
            }
        }
    }

    /// Computes what cannot be read of a chunk and writes that back. What can be read stays: parity
    /// may be wrong where a resync has not come by yet.
    async fn mend(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: &mut Blocks,
        slot: Slot,
    ) -> Result<(), IoError> {
        let pool = self.engine.shard.pool();
        let mut computed = pool.get(rows.len as usize);
        if blocks.recover_slot(pool, slot, &mut computed).is_err() {
            // Only a rebuild depends on every block: the others leave what cannot be had alone.
            return match self.kind {
                WindowKind::Rebuild { .. } => Err(IoError::new(IoErrorKind::Lost)),
                _ => Ok(()),
            };
        }
        let unreadable = self.read_around(view, rows, slot, &mut computed).await;
        let block = computed.freeze();
        blocks.set(slot, block.clone());
        let pieces = unreadable.into_iter().map(|part| {
            let offset = rows.at + part.start as u64;
            (slot, offset, block.slice(part))
        });
        self.write_rows(view, pieces).await?;
        self.engine.count(|counters| counters.corrected_reads += 1);
        Ok(())
    }

    /// Writes over blocks that are recorded as bad what they should hold, as md does: where that succeeds they
    /// are good again.
    async fn write_over_bad(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: &mut Blocks,
    ) -> Result<(), IoError> {
        let bytes = rows.at..rows.at + rows.len;
        let is_bad =
            |slot: &Slot| view.state(*slot) == SlotState::InSync && view.is_bad(*slot, &bytes);
        let pool = self.engine.shard.pool();
        let mut computed: SmallVec<[(Slot, Buf); 2]> = SmallVec::new();
        for slot in (0..view.slots()).filter(is_bad) {
            let mut block = pool.get(rows.len as usize);
            if blocks.recover_slot(pool, slot, &mut block).is_ok() {
                computed.push((slot, block.freeze()));
            }
        }
        for (slot, block) in &computed {
            blocks.set(*slot, block.clone());
        }
        self.write(view, rows, computed).await
    }

    /// Reads a chunk block by block into `chunk`. Gives the rows that cannot be read; there `chunk`
    /// is left as it was.
    async fn read_around(
        &self,
        view: &View,
        rows: Rows,
        slot: Slot,
        chunk: &mut BufMut,
    ) -> Vec<Range<usize>> {
        let block = self.engine.geometry.logical_block as usize;
        let at = rows.at;
        let Some((device, data_offset)) = view.member(slot) else { return Vec::new() };
        let mut set = self.engine.sets.start();
        for nr in 0..chunk.len() / block {
            let buf = self.engine.shard.pool().get(block);
            let offset = data_offset + at + (nr * block) as u64;
            set.submit(nr as u32, &**device, Request::read(offset, buf));
        }
        let mut unreadable = Vec::new();
        for (nr, outcome) in set.finish().await {
            let rows = nr as usize * block..(nr as usize + 1) * block;
            match (outcome.result, outcome.op) {
                (Ok(()), Op::Read(bufs)) if !planted("mended-with-its-neighbours") => {
                    if let Some(buf) = bufs.first() {
                        chunk[rows].copy_from_slice(buf);
                    }
                }
                _ => unreadable.push(rows),
            }
        }
        unreadable
    }

    async fn rebuild(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: &mut Blocks,
        slot: Slot,
    ) -> Result<(), IoError> {
        let pool = self.engine.shard.pool();
        let mut block = pool.get(rows.len as usize);
        blocks.recover_slot(pool, slot, &mut block).map_err(|_| IoError::new(IoErrorKind::Lost))?;
        self.write(view, rows, [(slot, block.freeze())]).await
    }

    /// Computes parity from data and compares; writes what differs when `correct`.
    async fn compare(
        &mut self,
        view: &Rc<View>,
        rows: Rows,
        map: &StripeMap,
        blocks: &mut Blocks,
        correct: bool,
    ) -> Result<(), IoError> {
        let pool = self.engine.shard.pool();
        let len = rows.len as usize;
        if blocks.one_data_block_missing() {
            // It counts as what P says; then Q can be held against it.
            let _ = blocks.complete_data(pool, len);
        }
        let at_hand = |slot: &Slot| blocks.get(*slot).is_some();
        let mut p = Some(map.p_slot()).filter(at_hand).map(|slot| (slot, pool.get(len)));
        let mut q = map.q_slot().filter(at_hand).map(|slot| (slot, pool.get(len)));
        let computed = blocks
            .parity(p.as_mut().map(|(_, buf)| &mut **buf), q.as_mut().map(|(_, buf)| &mut **buf));
        if computed.is_err() {
            // More data is missing than one parity can stand for: nothing to compare with.
            return Ok(());
        }
        let mut wrong: SmallVec<[(Slot, Buf); 2]> = SmallVec::new();
        let mut differing = 0;
        for (slot, right) in p.into_iter().chain(q) {
            let sectors = blocks.get(slot).map_or(0, |found| differing_sectors(found, &right));
            if !planted("check-blind-to-q") || Some(slot) != map.q_slot() {
                differing = differing.max(sectors);
            }
            if sectors > 0 {
                wrong.push((slot, right.freeze()));
            }
        }
        self.mismatches += differing;
        if correct { self.write(view, rows, wrong).await } else { Ok(()) }
    }

    async fn write(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: impl IntoIterator<Item = (Slot, Buf)>,
    ) -> Result<(), IoError> {
        let blocks = blocks.into_iter().map(|(slot, block)| (slot, rows.at, block));
        self.write_rows(view, blocks).await
    }

    /// Writes blocks at component bytes.
    async fn write_rows(
        &self,
        view: &Rc<View>,
        blocks: impl IntoIterator<Item = (Slot, u64, Buf)>,
    ) -> Result<(), IoError> {
        let mut set = self.engine.sets.start();
        for (slot, at, block) in blocks {
            if let Some((device, data_offset)) = view.member(slot) {
                let request = Request::write(data_offset + at, block, false);
                set.submit(slot as u32, &**device, request);
            }
        }
        self.engine.settle_job_writes(view, set.finish().await).await?;
        match self.kind {
            WindowKind::Rebuild { slot } if !self.engine.view().writable(slot) => {
                Err(IoError::new(IoErrorKind::Gone))
            }
            _ => Ok(()),
        }
    }
}
