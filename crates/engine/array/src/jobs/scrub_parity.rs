//! Resync, check, repair and rebuild of a window of stripes.
//!
//! The window is gone through in groups of a few stripes at once: each is read in one piece per member, computed stripe by
//! stripe, and what differs is written (`compare`). A logical block that cannot be read is computed from the rest of its rows and written back
//! where it was, whatever cannot be read in other rows of the stripe; so is, by a resync or repair, one that is
//! recorded as bad. What a rebuild cannot have is recorded as bad on its target.

use crate::engine::Engine;
use crate::engine::window::{Window, WindowKind, WindowReport};
use crate::jobs::at_once;
use crate::jobs::units::lock_units;
use crate::metadata::bitmap::ranges::{runs, slice_bytes};
use crate::redundancy::blocks::Blocks;
use crate::redundancy::holes::{Hole, parts, read_around};
use crate::redundancy::mend::{mend, piece_size, record_lost};
use crate::state::extent::pieces;
use crate::state::findings::{Findings, Verdict};
use crate::state::view::{SlotState, View};
use crate::write::write_errors::handle_job_write_errors;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Parity, Place, Slot};
use braid_shard::Buf;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// A member that fails while the window is read makes it start again without that member.
const ATTEMPTS_MAX: usize = 8;

/// Bytes of a member that are read in one piece: those of all members together fit a processor's second-level cache, and
/// are computed from while they are there. Plugs merge neighbours for members that like larger requests.
const GROUP: u64 = 64 << 10;

/// By slot: what the member gave for some range of the component.
type Columns = SmallVec<[Option<Buf>; 12]>;

/// Carries out one window.
pub(crate) async fn window(engine: &Rc<Engine>, parity: &Parity, window: Window) -> WindowReport {
    let _held = lock_units(engine, &window).await;
    let keeps = planted("repair-keeps-cache") && window.kind.repairs();
    if window.kind != WindowKind::Check && !keeps {
        // These writes bypass the stripe cache, so it must forget the rows.
        for stripe in window.first..window.first + window.count {
            engine.cache.forget(stripe, 0..parity.chunk_size());
        }
    }
    let rows = match window.slices {
        u64::MAX => window.count * parity.chunk_size(),
        // Its runs are read one after another.
        slices => slice_bytes(parity.chunk_size(), 1) * u64::from(slices.count_ones()),
    };
    let bytes = rows * parity.slots() as u64;
    let _scratch = engine.scratch.take(bytes).await;
    let mut scrub = Scrub::new(engine, parity, window.kind);
    let mut result =
        if window.slices == u64::MAX { scrub.run(window).await } else { scrub.parts(window).await };
    if let (Ok(()), WindowKind::Rebuild { slot, with }) = (result, window.kind) {
        let lost = std::mem::take(&mut scrub.lost);
        let with = with.filter(|slot| !lost.is_empty() && engine.view().writable(*slot));
        if let Some(slot) = with {
            result = record_lost(engine, slot, lost.clone()).await;
        }
        if result.is_ok() {
            result = record_lost(engine, slot, lost).await;
        }
    }
    WindowReport::new(result, scrub.mismatches, scrub.findings)
}

pub(crate) struct Scrub<'a> {
    pub(crate) engine: &'a Rc<Engine>,
    pub(crate) parity: &'a Parity,
    pub(crate) kind: WindowKind,
    pub(crate) mismatches: u64,
    pub(crate) findings: Findings,
    /// Component bytes that a rebuild found no way to have.
    lost: Vec<Range<u64>>,
}

/// Some rows of a stripe.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) stripe: u64,
    /// Component byte of the first.
    pub(crate) at: u64,
    /// Bytes of each block.
    pub(crate) len: u64,
}

/// The outcome of a read of columns.
enum Columnar {
    /// All there.
    All(Columns),
    /// A member is gone: plan again.
    Again,
    /// These slots could not be read somewhere in the range.
    Holes(Columns, SmallVec<[Slot; 4]>),
}

impl<'a> Scrub<'a> {
    /// Nothing has been gone through yet.
    fn new(engine: &'a Rc<Engine>, parity: &'a Parity, kind: WindowKind) -> Scrub<'a> {
        let (findings, lost) = (Findings::default(), Vec::new());
        Scrub { engine, parity, kind, mismatches: 0, findings, lost }
    }

    async fn run(&mut self, window: Window) -> Result<(), IoError> {
        let stripes = (GROUP / self.parity.chunk_size()).max(1);
        let end = window.first + window.count;
        if window.count <= stripes {
            return self.group(window).await;
        }
        let groups = (window.first..end).step_by(stripes as usize).map(|first| {
            let group = Window { first, count: stripes.min(end - first), ..window };
            let mut scrub = Scrub::new(self.engine, self.parity, self.kind);
            async move { (scrub.group(group).await, scrub) }
        });
        let mut result = Ok(());
        for (ended, scrub) in at_once::all(groups).await {
            result = result.and(ended);
            self.mismatches += scrub.mismatches;
            self.findings.take(scrub.findings);
            self.lost.extend(scrub.lost);
        }
        result
    }

    /// Goes through stripes that are read in one piece per member.
    async fn group(&mut self, window: Window) -> Result<(), IoError> {
        let chunk = self.parity.chunk_size();
        let start = self.parity.member_offset(window.first);
        let bytes = start..start + window.count * chunk;
        for _ in 0..ATTEMPTS_MAX {
            let view = self.engine.view();
            if view.broken || view.read_only {
                return Err(IoError::new(IoErrorKind::Refused));
            }
            if view.uneven() && view.same_until(&bytes) < bytes.end {
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

    /// Some block of the group cannot be read, or is recorded as bad: find out which stripe it is in.
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
        let block = u64::from(self.engine.info.logical_block);
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
                (Err(error), WindowKind::Rebuild { slot, with })
                    if error.kind == IoErrorKind::Lost
                        && view.has_log(slot)
                        && with.is_none_or(|slot| view.has_log(slot)) =>
                {
                    for piece in pieces(&(at..until), piece_size(self.engine)) {
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
                Columnar::Holes(columns, unreadable) => {
                    if self.around(&view, rows, columns, &unreadable).await?.is_some() {
                        return Ok(());
                    }
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
                WindowKind::Rebuild { slot: target, with } => slot != target && Some(slot) != with,
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
                    self.engine.home.fail_member(view.member_nr(slot), error).await;
                    return Columnar::Again;
                }
                _ => holes.push(slot),
            }
        }
        if holes.is_empty() { Columnar::All(columns) } else { Columnar::Holes(columns, holes) }
    }

    /// Rows that some members cannot give: what they can of them is read block by block, and parts over each of
    /// which the same members are missing are carried out one by one. `None`: a member is gone.
    async fn around(
        &mut self,
        view: &Rc<View>,
        rows: Rows,
        mut columns: Columns,
        unreadable: &[Slot],
    ) -> Result<Option<()>, IoError> {
        let mut holes: Vec<Hole> = Vec::with_capacity(unreadable.len());
        for slot in unreadable {
            let mut block = self.engine.shard.pool().get(rows.len as usize);
            match read_around(self.engine, view, *slot, rows.at, &mut block).await {
                Ok(missing) => {
                    columns[*slot] = Some(block.freeze());
                    holes.push((*slot, missing));
                }
                Err(error) => {
                    self.engine.home.fail_member(view.member_nr(*slot), error).await;
                    return Ok(None);
                }
            }
        }
        for (range, missing) in parts(rows.len as usize, &holes) {
            let (at, len) = (rows.at + range.start as u64, range.len() as u64);
            let columns = columns.iter().enumerate().map(|(slot, column)| {
                let there = column.as_ref().filter(|_| !missing.contains(&slot));
                there.map(|buf| buf.slice(range.clone()))
            });
            let columns = columns.collect();
            self.rows(view, Rows { at, len, ..rows }, columns, &missing).await?;
        }
        Ok(Some(()))
    }

    /// Rows of which each member gave all or nothing; `missing` did not.
    async fn rows(
        &mut self,
        view: &Rc<View>,
        rows: Rows,
        columns: Columns,
        missing: &[Slot],
    ) -> Result<(), IoError> {
        let map = self.parity.map_stripe(rows.stripe);
        let whole = columns.iter().all(Option::is_some);
        let mut blocks = Blocks::new(map, self.parity.q_width());
        for (slot, column) in columns.into_iter().enumerate() {
            if let Some(block) = column {
                blocks.set(slot, block);
            }
        }
        for slot in missing {
            self.mend(view, rows, &mut blocks, *slot).await?;
        }
        if view.any_bad() && matches!(self.kind, WindowKind::Resync | WindowKind::Repair { .. }) {
            self.write_over_bad(view, rows, &mut blocks).await?;
        }
        if view.any_replacement() && self.kind == WindowKind::Resync {
            self.write_replacements(view, rows, &blocks).await?;
        }
        if let WindowKind::Rebuild { slot, with } = self.kind {
            return self.rebuild(view, rows, &mut blocks, (slot, with)).await;
        }
        let lost = blocks.lost_data();
        if lost.is_empty() {
            return self.compare(view, rows, &map, &mut blocks, whole).await;
        }
        let bytes = rows.at..rows.at + rows.len;
        for k in lost {
            let slot = map.data_slot(k);
            self.note(view, rows.stripe, bytes.clone(), Verdict::Lost, &[slot], false);
        }
        Ok(())
    }

    /// Computes rows that a member cannot give, and writes them back there. What can be read stays: parity
    /// may be wrong where a resync has not come by yet.
    ///
    /// # Errors
    /// [`IoErrorKind::Lost`] when too much is missing and this is a rebuild, which depends on every block; the
    /// others leave what cannot be had alone.
    async fn mend(
        &mut self,
        view: &Rc<View>,
        rows: Rows,
        blocks: &mut Blocks,
        slot: Slot,
    ) -> Result<(), IoError> {
        let pool = self.engine.shard.pool();
        let mut computed = pool.get(rows.len as usize);
        if blocks.recover_slot(pool, slot, &mut computed).is_err() {
            return match self.kind {
                WindowKind::Rebuild { .. } => Err(IoError::new(IoErrorKind::Lost)),
                _ => Ok(()),
            };
        }
        let block = computed.freeze();
        blocks.set(slot, block.clone());
        self.forget(rows);
        let place = Place { slot, offset: rows.at };
        let error = IoError::new(IoErrorKind::Medium);
        let mended = mend(self.engine, view, place, error, &block, false).await.all;
        let bytes = rows.at..rows.at + rows.len;
        self.note(view, rows.stripe, bytes, Verdict::Unreadable, &[slot], mended);
        Ok(())
    }

    /// The stripe cache may hold what these rows were before.
    pub(crate) fn forget(&self, rows: Rows) {
        if planted("repair-keeps-cache") && self.kind.repairs() {
            return;
        }
        let start = rows.at - self.parity.member_offset(rows.stripe);
        self.engine.cache.forget(rows.stripe, start..start + rows.len);
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

    /// Gives replacements what their members hold: after an unclean stop they may differ.
    async fn write_replacements(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: &Blocks,
    ) -> Result<(), IoError> {
        if planted("resync-leaves-replacement") {
            return Ok(());
        }
        let copy = |slot: Slot| Some((view.replacement_of(slot)?, blocks.get(slot)?.clone()));
        self.write(view, rows, (0..view.slots()).filter_map(copy)).await
    }

    async fn rebuild(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: &mut Blocks,
        (slot, with): (Slot, Option<Slot>),
    ) -> Result<(), IoError> {
        let pool = self.engine.shard.pool();
        let mut rebuilt: SmallVec<[(Slot, Buf); 2]> = SmallVec::new();
        for slot in [Some(slot), with.filter(|slot| view.writable(*slot))].into_iter().flatten() {
            // Computed on the way to the first, perhaps.
            let block = match blocks.get(slot) {
                Some(block) => block.clone(),
                None => {
                    let mut block = pool.get(rows.len as usize);
                    let computed = blocks.recover_slot(pool, slot, &mut block);
                    computed.map_err(|_| IoError::new(IoErrorKind::Lost))?;
                    block.freeze()
                }
            };
            blocks.set(slot, block.clone());
            rebuilt.push((slot, block));
        }
        if planted("second-rebuilt-as-first")
            && let [(_, first), (_, second)] = &mut rebuilt[..]
        {
            *second = first.clone();
        }
        self.write(view, rows, rebuilt).await
    }

    pub(crate) async fn write(
        &self,
        view: &Rc<View>,
        rows: Rows,
        blocks: impl IntoIterator<Item = (Slot, Buf)>,
    ) -> Result<(), IoError> {
        let blocks = blocks.into_iter().map(|(slot, block)| (slot, rows.at, block));
        self.write_rows(view, blocks).await
    }

    /// Writes blocks at component bytes.
    pub(crate) async fn write_rows(
        &self,
        view: &Rc<View>,
        blocks: impl IntoIterator<Item = (Slot, u64, Buf)>,
    ) -> Result<(), IoError> {
        let mut set = self.engine.sets.start();
        for (slot, at, block) in blocks {
            for slot in view.written_with(slot) {
                if let Some((device, data_offset)) = view.member(slot) {
                    let request = Request::write(data_offset + at, block.clone(), false);
                    set.submit(slot as u32, &**device, request);
                }
            }
        }
        handle_job_write_errors(self.engine, view, set.finish().await).await?;
        match self.kind {
            // The other one is left out from here on if it has failed.
            WindowKind::Rebuild { slot, .. } if !self.engine.view().writable(slot) => {
                Err(IoError::new(IoErrorKind::Gone))
            }
            _ => Ok(()),
        }
    }
}
