//! Resync, check, repair and rebuild of a window of mirrored units.
//!
//! The first readable copy, in the order of slots, is the one that counts (as in md). A resync or repair
//! also writes copies that are recorded as bad. A rebuild reads write-mostly members last, as in md. Copies
//! that could not be read are mended from the one that could. What a rebuild cannot have is recorded as bad on its target.

use super::{Places, alike, in_order, places};
use crate::bitmap::ranges::runs;
use crate::engine::Engine;
use crate::jobs::window::{Window, WindowKind, WindowReport, differing_sectors, lock_units};
use crate::settle::pieces;
use crate::view::{SlotState, View};
use braid_device::{IoError, IoErrorKind, Op, Outcome, Request};
use braid_layout::{Place, Slot};
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Units of a window that are read and written at once: bounds memory.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// Carries out one window.
pub(crate) async fn window(engine: &Rc<Engine>, window: Window) -> WindowReport {
    let _held = lock_units(engine, &window).await;
    let unit_size = engine.geometry.unit_size();
    let at_once = (BYTES_AT_ONCE / unit_size).max(1);
    let copies = places(engine, window.first, 0).len() as u64;
    let bytes = window.count.min(at_once) * unit_size * copies;
    let _scratch = engine.scratch.take(bytes).await;
    let (kind, slices) = (window.kind, window.slices);
    let mut scrub = Scrub { engine, kind, slices, mismatches: 0, lost: Vec::new() };
    let mut first = window.first;
    let end = window.first + window.count;
    while first < end {
        let stop = end.min(first + at_once);
        if let Err(error) = scrub.units(first, stop).await {
            return WindowReport { result: Err(error), mismatches: scrub.mismatches };
        }
        first = stop;
    }
    let result = match kind {
        WindowKind::Rebuild { slot } => engine.record_lost(slot, scrub.lost).await,
        _ => Ok(()),
    };
    WindowReport { result, mismatches: scrub.mismatches }
}

struct Scrub<'a> {
    engine: &'a Rc<Engine>,
    kind: WindowKind,
    /// Which parts of each unit; see [`Window::slices`].
    slices: u64,
    mismatches: u64,
    /// Component bytes of the target that a rebuild found no copy of.
    lost: Vec<Range<u64>>,
}

/// One unit, or part of one, under way.
struct Unit {
    places: Places,
    len: u64,
    /// By copy: what was read, or why not.
    found: SmallVec<[Option<Result<Buf, IoError>>; 4]>,
}

impl Unit {
    /// Parts of `height` bytes at most, where a copy could not be read that may be better in parts.
    fn in_pieces(&self, height: u64) -> Vec<Unit> {
        let mut found = self.found.iter().flatten();
        let unreadable = found.any(|found| matches!(found, Err(error) if !error.means_gone()));
        if !unreadable || self.len <= height {
            return Vec::new();
        }
        let part = |piece: Range<u64>| Unit {
            places: self
                .places
                .iter()
                .map(|place| Place { offset: place.offset + piece.start, ..*place })
                .collect(),
            len: piece.end - piece.start,
            found: SmallVec::new(),
        };
        pieces(&(0..self.len), height).into_iter().map(part).collect()
    }
}

impl Scrub<'_> {
    async fn units(&mut self, first: u64, end: u64) -> Result<(), IoError> {
        let view = self.engine.view();
        if view.broken || view.read_only {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        let units = self.wanted(&view, first, end);
        self.carry_out(&view, units).await?;
        match self.kind {
            WindowKind::Rebuild { slot } if !self.engine.view().writable(slot) => {
                Err(IoError::new(IoErrorKind::Gone))
            }
            _ => Ok(()),
        }
    }

    async fn carry_out(&mut self, view: &Rc<View>, mut units: Vec<Unit>) -> Result<(), IoError> {
        self.read(view, &mut units).await;
        let mut set = self.engine.sets.start();
        let mut smaller = Vec::new();
        for unit in &mut units {
            self.take_from_others(view, unit).await?;
            let Some(good) = unit.found.iter().flatten().find_map(|found| found.as_ref().ok())
            else {
                match self.kind {
                    WindowKind::Rebuild { slot } => {
                        self.rebuild_in_pieces(view, unit, slot).await?;
                    }
                    // Each copy has lost something, perhaps not all of them the same.
                    _ => smaller.extend(unit.in_pieces(self.engine.piece())),
                }
                continue;
            };
            let good = good.clone();
            for (place, found) in unit.places.iter().zip(&mut unit.found) {
                if let Some(Err(error)) = found
                    && !error.means_gone()
                {
                    // A check corrects nothing but what cannot be read, and counts what differs in the rest.
                    let leave = self.kind == WindowKind::Check;
                    self.engine.mend(view, *place, *error, &good, leave).await;
                    if leave {
                        *found = self.read_one(view, place, unit.len).await;
                    }
                }
            }
            for place in self.targets(view, unit, &good) {
                if let Some((device, data_offset)) = view.member(place.slot) {
                    let offset = data_offset + place.offset;
                    let request = Request::write(offset, good.clone(), false);
                    set.submit(place.slot as u32, &**device, request);
                }
            }
        }
        self.engine.settle_job_writes(view, set.finish().await).await?;
        match smaller.is_empty() {
            true => Ok(()),
            false => Box::pin(self.carry_out(view, smaller)).await,
        }
    }

    /// No copy can be read as a whole: the blocks that can are copied, one by one, and the others noted.
    ///
    /// # Errors
    /// [`IoErrorKind::Lost`] when the target could not record them.
    async fn rebuild_in_pieces(
        &mut self,
        view: &Rc<View>,
        unit: &Unit,
        slot: Slot,
    ) -> Result<(), IoError> {
        if !view.has_log(slot) {
            return Err(IoError::new(IoErrorKind::Lost));
        }
        let Some(target) = unit.places.iter().find(|place| place.slot == slot) else {
            return Ok(());
        };
        let (device, data_offset) = view.member(slot).ok_or(IoError::new(IoErrorKind::Gone))?;
        let bytes = target.offset..target.offset + unit.len;
        for piece in pieces(&bytes, self.engine.piece()) {
            let (within, len) = (piece.start - target.offset, piece.end - piece.start);
            let mut good = None;
            for place in &unit.places {
                let from = Place { offset: place.offset + within, ..*place };
                let Some((device, data_offset)) = view.member(place.slot) else { continue };
                if good.is_some() || !self.is_source(view, &from, len) {
                    continue;
                }
                let buf = self.engine.shard.pool().get(len as usize);
                let request = Request::read(data_offset + from.offset, buf);
                good = match self.engine.sets.one(&**device, request).await {
                    Outcome { result: Ok(()), op: Op::Read(mut bufs) } => bufs.pop(),
                    _ => None,
                };
            }
            let Some(good) = good else {
                self.lost.push(piece);
                continue;
            };
            let mut set = self.engine.sets.start();
            let request = Request::write(data_offset + piece.start, good.freeze(), false);
            set.submit(slot as u32, &**device, request);
            self.engine.settle_job_writes(view, set.finish().await).await?;
        }
        Ok(())
    }

    /// The units that the job touches, or the parts of them of which each copy is bad as a whole or not at
    /// all: for a rebuild those with a copy on its slot.
    fn wanted(&self, view: &View, first: u64, end: u64) -> Vec<Unit> {
        let unit_size = self.engine.geometry.unit_size();
        let size = self.engine.geometry.array_size();
        let block = u64::from(self.engine.geometry.logical_block);
        let parts = (first..end).flat_map(|unit| {
            let len = unit_size.min(size - unit * unit_size);
            let runs = runs(self.slices, unit_size, len, block);
            runs.into_iter().flat_map(move |run| self.alike(view, unit, run))
        });
        parts
            .map(|(unit, run)| {
                let len = run.end - run.start;
                let places = match self.kind {
                    WindowKind::Rebuild { .. } => {
                        in_order(self.engine, view, (unit, run.start), len)
                    }
                    _ => places(self.engine, unit, run.start),
                };
                Unit { places, len, found: SmallVec::new() }
            })
            .filter(|unit| match self.kind {
                WindowKind::Rebuild { slot } => unit.places.iter().any(|place| place.slot == slot),
                _ => true,
            })
            .collect()
    }

    fn alike(&self, view: &View, unit: u64, run: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let (mut at, mut parts) = (run.start, Vec::with_capacity(1));
        while at < run.end {
            let until = at + alike(self.engine, view, (unit, at), run.end - at);
            parts.push((unit, at..until));
            at = until;
        }
        parts
    }

    /// Reads all copies, or for a rebuild the first that can be read.
    async fn read(&self, view: &View, units: &mut [Unit]) {
        let mut set = self.engine.sets.start();
        for (nr, unit) in units.iter_mut().enumerate() {
            unit.found.resize_with(unit.places.len(), || None);
            for (copy, place) in unit.places.iter().enumerate() {
                if !self.is_source(view, place, unit.len) {
                    continue;
                }
                if let Some((device, data_offset)) = view.member(place.slot) {
                    let buf = self.engine.shard.pool().get(unit.len as usize);
                    let tag = (nr as u32) << 16 | copy as u32;
                    let request = Request::read(data_offset + place.offset, buf);
                    set.submit(tag, &**device, request);
                }
                if matches!(self.kind, WindowKind::Rebuild { .. }) {
                    break;
                }
            }
        }
        for (tag, outcome) in set.finish().await {
            let (nr, copy) = ((tag >> 16) as usize, (tag & 0xffff) as usize);
            let found = match (outcome.result, outcome.op) {
                (Ok(()), Op::Read(mut bufs)) => bufs.pop().map(BufMut::freeze).map(Ok),
                (result, _) => result.err().map(Err),
            };
            if let Some(place) = units.get_mut(nr).and_then(|unit| unit.found.get_mut(copy)) {
                *place = found;
            }
        }
    }

    fn is_source(&self, view: &View, place: &Place, len: u64) -> bool {
        let target = match self.kind {
            WindowKind::Rebuild { slot } => slot == place.slot,
            _ => false,
        };
        !target && view.readable(place.slot, &(place.offset..place.offset + len))
    }

    /// When the copies that were asked for could not be read: asks the others, one by one; fails
    /// members that are gone.
    async fn take_from_others(&self, view: &Rc<View>, unit: &mut Unit) -> Result<(), IoError> {
        for (copy, place) in unit.places.clone().iter().enumerate() {
            if let Some(Some(Err(error))) = unit.found.get(copy)
                && error.means_gone()
            {
                self.engine.fail_member(place.slot, view, *error).await;
            }
        }
        for (copy, place) in unit.places.clone().iter().enumerate() {
            if unit.found.iter().flatten().any(|found| found.is_ok()) {
                return Ok(());
            }
            if unit.found[copy].is_some() || !self.is_source(view, place, unit.len) {
                continue;
            }
            unit.found[copy] = self.read_one(view, place, unit.len).await;
        }
        Ok(())
    }

    /// One copy; `None` when it has no member.
    async fn read_one(&self, view: &View, place: &Place, len: u64) -> Option<Result<Buf, IoError>> {
        let (device, data_offset) = view.member(place.slot)?;
        let buf = self.engine.shard.pool().get(len as usize);
        let request = Request::read(data_offset + place.offset, buf);
        let outcome = self.engine.sets.one(&**device, request).await;
        match (outcome.result, outcome.op) {
            (Ok(()), Op::Read(mut bufs)) => bufs.pop().map(BufMut::freeze).map(Ok),
            (result, _) => result.err().map(Err),
        }
    }

    fn is_bad(&self, view: &View, place: &Place, len: u64) -> bool {
        let bytes = place.offset..place.offset + len;
        view.state(place.slot) == SlotState::InSync && view.is_bad(place.slot, &bytes)
    }

    /// Copies that must be written: the slot being rebuilt; copies that differ, or are recorded as bad, when
    /// the job corrects. Counts what differs.
    fn targets(&mut self, view: &View, unit: &Unit, good: &Buf) -> Places {
        if let WindowKind::Rebuild { slot } = self.kind {
            return unit.places.iter().copied().filter(|place| place.slot == slot).collect();
        }
        let correct = self.kind != WindowKind::Check;
        let mut targets = Places::new();
        let mut differing = 0;
        for (place, found) in unit.places.iter().zip(&unit.found) {
            match found {
                Some(Ok(copy)) => {
                    let sectors = differing_sectors(copy, good);
                    differing = differing.max(sectors);
                    if sectors > 0 && correct {
                        targets.push(*place);
                    }
                }
                None if correct && self.is_bad(view, place, unit.len) => targets.push(*place),
                _ => {}
            }
        }
        self.mismatches += differing;
        targets
    }
}
