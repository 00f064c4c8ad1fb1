//! A window of a member that is being replaced: what it holds is copied to its replacement.
//!
//! The member itself is read. What it cannot give is had from the others, piece by piece, and what nobody can give is
//! recorded as bad on the replacement. The member that is replaced is left as it is.
//!
//! Writes of clients go to both from before the first window on, so a window that holds its units copies what stays.
//!
//! Invariant: a window that ends well has put on the replacement all that the slot holds in its units, or recorded there
//! what is lost.

use crate::engine::Engine;
use crate::engine::window::{Window, WindowReport};
use crate::jobs::units::lock_units;
use crate::metadata::bitmap::ranges::runs;
use crate::redundancy::blocks::Blocks;
use crate::redundancy::copies::{in_order, places};
use crate::redundancy::mend::{piece_size, record_bad};
use crate::state::extent::pieces;
use crate::state::findings::Findings;
use crate::state::geometry::{Geometry, REGION};
use crate::state::view::View;
use crate::write::write_errors::handle_job_write_errors;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Layout, Parity, Slot};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut};
use std::ops::Range;
use std::rc::Rc;

/// Bytes that are read and written at once: bounds memory.
const BYTES_AT_ONCE: u64 = 1 << 20;

/// Carries out one window for the member of `slot`.
pub(crate) async fn window(
    engine: &Rc<Engine>,
    geometry: &Geometry,
    window: Window,
    slot: Slot,
) -> WindowReport {
    let _held = lock_units(engine, &window).await;
    let _scratch = engine.scratch.take(BYTES_AT_ONCE).await;
    let mut copying = Copying { engine, geometry, slot, lost: Vec::new() };
    let mut result = Ok(());
    for bytes in copying.ranges(&window) {
        if result.is_ok() {
            result = copying.copy(bytes).await;
        }
    }
    if result.is_ok() {
        result = copying.record_lost().await;
    }
    WindowReport::new(result, 0, Findings::default())
}

struct Copying<'a> {
    engine: &'a Rc<Engine>,
    /// Of the window's units.
    geometry: &'a Geometry,
    slot: Slot,
    /// Component bytes that nobody could give.
    lost: Vec<Range<u64>>,
}

impl Copying<'_> {
    /// Component bytes of the slot that belong to the window's units, in runs of bounded length.
    fn ranges(&self, window: &Window) -> Vec<Range<u64>> {
        let view = self.engine.view();
        let block = u64::from(self.engine.info.logical_block);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut add = |range: Range<u64>| match ranges.last_mut() {
            Some(last) if last.end == range.start && range.end - last.start <= BYTES_AT_ONCE => {
                last.end = range.end;
            }
            _ => ranges.extend(pieces(&range, BYTES_AT_ONCE)),
        };
        for unit in window.first..window.first + window.count {
            if let Layout::Parity(parity) = &self.geometry.layout {
                let (chunk, base) = (parity.chunk_size(), parity.member_offset(unit));
                for run in runs(window.slices, chunk, chunk, block) {
                    add(base + run.start..base + run.end);
                }
                continue;
            }
            let unit_size = self.geometry.unit_size();
            let len = unit_size.min(self.geometry.array_size() - unit * unit_size);
            for run in runs(window.slices, unit_size, len, block) {
                let copies = places(&view, unit, run.start);
                for place in copies.iter().filter(|place| place.slot == self.slot) {
                    add(place.offset..place.offset + (run.end - run.start));
                }
            }
        }
        ranges
    }

    async fn copy(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        let view = self.engine.view();
        if view.broken || view.read_only || self.engine.is_stopping() {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        if view.replacement_of(self.slot).is_none() {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        if let Some(block) = self.read_old(&view, &bytes).await? {
            return self.write(&view, bytes.start, block).await;
        }
        for piece in pieces(&bytes, piece_size(self.engine)) {
            let mut block = self.read_old(&view, &piece).await?;
            if block.is_none() && !planted("replacement-skips-unreadable") {
                block = match &self.geometry.layout {
                    Layout::Parity(parity) => self.compute(&view, parity, &piece).await,
                    _ => self.read_copy(&view, &piece).await,
                };
            }
            match block {
                Some(block) => self.write(&view, piece.start, block).await?,
                None if planted("replacement-skips-unreadable") => {}
                None => self.lost.push(piece),
            }
        }
        Ok(())
    }

    /// The bytes that the member gives; `None` when it cannot read them.
    ///
    /// # Errors
    /// That of a member which is gone, and has failed for it.
    async fn read_old(&self, view: &View, bytes: &Range<u64>) -> Result<Option<Buf>, IoError> {
        if !view.readable(self.slot, bytes) {
            return Ok(None);
        }
        match self.read(view, self.slot, bytes).await {
            Err(error) if error.means_gone() => {
                self.engine.home.fail_member(view.member_nr(self.slot), error).await;
                Err(error)
            }
            read => Ok(read.ok()),
        }
    }

    async fn read(&self, view: &View, slot: Slot, bytes: &Range<u64>) -> Result<Buf, IoError> {
        let gone = IoError::new(IoErrorKind::Gone);
        let (device, data_offset) = view.member(slot).ok_or(gone)?;
        let buf = self.engine.shard.pool().get((bytes.end - bytes.start) as usize);
        let request = Request::read(data_offset + bytes.start, buf);
        let outcome = self.engine.sets.one(&**device, request).await;
        outcome.result?;
        match outcome.op {
            Op::Read(mut bufs) => bufs.pop().map(BufMut::freeze).ok_or(gone),
            _ => Err(gone),
        }
    }

    /// The same bytes as they follow from the other members' rows.
    async fn compute(&self, view: &View, parity: &Parity, bytes: &Range<u64>) -> Option<Buf> {
        let stripe = bytes.start / parity.chunk_size();
        let mut blocks = Blocks::new(parity.map_stripe(stripe), parity.q_width());
        for slot in (0..view.slots()).filter(|slot| *slot != self.slot) {
            if view.readable(slot, bytes)
                && let Ok(block) = self.read(view, slot, bytes).await
            {
                blocks.set(slot, block);
            }
        }
        let pool = self.engine.shard.pool();
        let mut block = pool.get((bytes.end - bytes.start) as usize);
        blocks.recover_slot(pool, self.slot, &mut block).ok()?;
        Some(block.freeze())
    }

    /// The same bytes from another copy.
    async fn read_copy(&self, view: &View, bytes: &Range<u64>) -> Option<Buf> {
        let (unit, within) = match &self.geometry.layout {
            Layout::Raid10(raid10) => raid10.locate(raid10.logical(self.slot, bytes.start)?),
            _ => (bytes.start / REGION, bytes.start % REGION),
        };
        let len = bytes.end - bytes.start;
        for place in in_order(view, (unit, within), len) {
            let other = place.offset..place.offset + len;
            if place.slot != self.slot
                && view.readable(place.slot, &other)
                && let Ok(block) = self.read(view, place.slot, &other).await
            {
                return Some(block);
            }
        }
        None
    }

    async fn write(&self, view: &Rc<View>, at: u64, block: Buf) -> Result<(), IoError> {
        let gone = IoError::new(IoErrorKind::Gone);
        let slot = view.replacement_of(self.slot).ok_or(gone)?;
        let (device, data_offset) = view.member(slot).ok_or(gone)?;
        let mut set = self.engine.sets.start();
        set.submit(slot as u32, &**device, Request::write(data_offset + at, block, false));
        handle_job_write_errors(self.engine, view, set.finish().await).await?;
        // It may have failed, or taken the slot because the member has.
        match self.engine.view().replacement_of(self.slot) {
            Some(_) => Ok(()),
            None => Err(gone),
        }
    }

    /// # Errors
    /// [`IoErrorKind::Lost`] when the replacement cannot record it: one that has not all of it must not count as whole.
    async fn record_lost(&mut self) -> Result<(), IoError> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let (view, error) = (self.engine.view(), IoError::new(IoErrorKind::Lost));
        let slot = view.replacement_of(self.slot).ok_or(IoError::new(IoErrorKind::Gone))?;
        let lost = std::mem::take(&mut self.lost);
        let recorded = record_bad(self.engine, slot, &view, lost, error, false).await;
        if recorded { Ok(()) } else { Err(error) }
    }
}
