//! Resync, check, repair and rebuild of a window of mirrored units.
//!
//! The first readable copy, in the order of slots, is the one that counts (as in md); for a check or repair of three
//! or more copies that of the most (`vote`). A resync or repair also writes copies that are recorded as bad. A rebuild
//! reads write-mostly members last, as in md. Copies that could not be read are mended from one that could, logical
//! block by logical block where each has lost something. What a rebuild cannot have is recorded as bad on its target.

use crate::engine::Engine;
use crate::engine::window::{Window, WindowKind, WindowReport};
use crate::jobs::correct::{Fix, correct};
use crate::jobs::units::{differing_sectors, lock_units};
use crate::jobs::vote;
use crate::metadata::bitmap::ranges::runs;
use crate::redundancy::copies::{Places, alike, in_order, places};
use crate::redundancy::mend::{mend, piece_size, record_lost};
use crate::state::extent::pieces;
use crate::state::findings::{Finding, Findings, Verdict};
use crate::state::geometry::Geometry;
use crate::state::view::{SlotState, View};
use crate::write::write_errors::handle_job_write_errors;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Place, Slot};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Units of a window that are read and written at once: bounds memory.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// Carries out one window.
pub(crate) async fn window(
    engine: &Rc<Engine>,
    geometry: &Geometry,
    window: Window,
) -> WindowReport {
    let _held = lock_units(engine, &window).await;
    let unit_size = geometry.unit_size();
    let at_once = (BYTES_AT_ONCE / unit_size).max(1);
    let copies = places(&engine.view(), window.first, 0).len() as u64;
    let bytes = window.count.min(at_once) * unit_size * copies;
    let _scratch = engine.scratch.take(bytes).await;
    let (kind, slices) = (window.kind, window.slices);
    let findings = Findings::default();
    let mut scrub =
        Scrub { engine, geometry, kind, slices, mismatches: 0, findings, lost: Vec::new() };
    let mut first = window.first;
    let end = window.first + window.count;
    while first < end {
        let stop = end.min(first + at_once);
        if let Err(error) = scrub.units(first, stop).await {
            return WindowReport::new(Err(error), scrub.mismatches, scrub.findings);
        }
        first = stop;
    }
    let result = match kind {
        WindowKind::Rebuild { slot, .. } => record_lost(engine, slot, scrub.lost).await,
        _ => Ok(()),
    };
    WindowReport::new(result, scrub.mismatches, scrub.findings)
}

struct Scrub<'a> {
    engine: &'a Rc<Engine>,
    /// Of the window's units.
    geometry: &'a Geometry,
    kind: WindowKind,
    /// Which parts of each unit; see [`Window::slices`].
    slices: u64,
    mismatches: u64,
    findings: Findings,
    /// Component bytes of the target that a rebuild found no copy of.
    lost: Vec<Range<u64>>,
}

/// One unit, or part of one, under way.
struct Unit {
    /// Array byte.
    at: u64,
    places: Places,
    len: u64,
    /// By copy: what was read, or why not.
    found: SmallVec<[Option<Result<Buf, IoError>>; 4]>,
}

impl Unit {
    /// Smaller parts, where a copy could not be read that may be better in parts: pieces, and logical blocks of those.
    fn in_pieces(&self, piece: u64, block: u64) -> Vec<Unit> {
        let mut found = self.found.iter().flatten();
        let unreadable = found.any(|found| matches!(found, Err(error) if !error.means_gone()));
        let height = if self.len > piece { piece } else { block };
        if !unreadable || self.len <= height {
            return Vec::new();
        }
        let part = |piece: Range<u64>| Unit {
            at: self.at + piece.start,
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

    /// The first copy that was asked for could not be read, and is not gone.
    fn preferred_is_unreadable(&self) -> bool {
        let first = self.found.iter().flatten().next();
        matches!(first, Some(Err(error)) if !error.means_gone())
    }

    /// The copies that were read, with their numbers.
    fn copies(&self) -> Vec<(usize, Buf)> {
        let copy = |(nr, found): (usize, &Option<Result<Buf, IoError>>)| match found {
            Some(Ok(copy)) => Some((nr, copy.clone())),
            _ => None,
        };
        self.found.iter().enumerate().filter_map(copy).collect()
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
            WindowKind::Rebuild { slot, .. } if !self.engine.view().writable(slot) => {
                Err(IoError::new(IoErrorKind::Gone))
            }
            _ => Ok(()),
        }
    }

    async fn carry_out(&mut self, view: &Rc<View>, mut units: Vec<Unit>) -> Result<(), IoError> {
        self.read(view, &mut units).await;
        let block = u64::from(self.engine.info.logical_block);
        let mut set = self.engine.sets.start();
        let (mut smaller, mut found, mut fixes) = (Vec::new(), Vec::new(), Vec::new());
        for unit in &mut units {
            if self.kind == WindowKind::Resync && unit.preferred_is_unreadable() {
                // Clients are given what this copy has wherever it can be read, so the resync must not take more than
                // the lost pieces from another one: until it has come by, that one may hold something else.
                let parts = unit.in_pieces(piece_size(self.engine), piece_size(self.engine));
                if !parts.is_empty() {
                    smaller.extend(parts);
                    continue;
                }
            }
            self.take_from_others(view, unit).await?;
            let Some(good) = unit.found.iter().flatten().find_map(|found| found.as_ref().ok())
            else {
                // Each copy has lost something, perhaps not all of them the same.
                match unit.in_pieces(piece_size(self.engine), block) {
                    parts if parts.is_empty() => self.none_left(view, unit)?,
                    parts => smaller.extend(parts),
                }
                continue;
            };
            let mut good = good.clone();
            self.mend_unreadable(view, unit, &good).await;
            if matches!(self.kind, WindowKind::Check | WindowKind::Repair { .. }) {
                good = self.compare(view, unit, good, (&mut found, &mut fixes));
            }
            let replacements = self.replacements(view, unit);
            for place in self.targets(view, unit, &good).into_iter().chain(replacements) {
                if let Some((device, data_offset)) = view.member(place.slot) {
                    let offset = data_offset + place.offset;
                    let request = Request::write(offset, good.clone(), false);
                    set.submit(place.slot as u32, &**device, request);
                }
            }
        }
        handle_job_write_errors(self.engine, view, set.finish().await).await?;
        let mended = correct(self.engine, view, &fixes, found.len()).await?;
        let repairs = self.kind.repairs();
        for (finding, mended) in found.into_iter().zip(mended) {
            self.findings.add(Finding { mended: mended && repairs, ..finding }, repairs);
        }
        match smaller.is_empty() {
            true => Ok(()),
            false => Box::pin(self.carry_out(view, smaller)).await,
        }
    }

    /// Writes `good` over what copies could not give, and for a check or repair reads them again: what differs in the
    /// rest is theirs to find.
    async fn mend_unreadable(&mut self, view: &Rc<View>, unit: &mut Unit, good: &Buf) {
        let leave = matches!(self.kind, WindowKind::Check | WindowKind::Repair { .. });
        for copy in 0..unit.places.len() {
            let (Some(place), Some(Some(Err(error)))) =
                (unit.places.get(copy).copied(), unit.found.get(copy))
            else {
                continue;
            };
            if error.means_gone() {
                continue;
            }
            let mended = mend(self.engine, view, place, *error, good, leave).await;
            let whole = place.offset..place.offset + unit.len;
            let seen = if mended.all { mended.written } else { vec![whole] };
            for bytes in seen {
                let start = unit.at + (bytes.start - place.offset);
                let array = start..start + (bytes.end - bytes.start);
                let slots = [place.slot];
                self.note(view, (array, bytes), Verdict::Unreadable, &slots, mended.all);
            }
            if leave {
                let again = self.read_one(view, &place, unit.len).await;
                if let Some(found) = unit.found.get_mut(copy) {
                    *found = again;
                }
            }
        }
    }

    /// Notes where copies differ, and for a repair what is to be written. Gives what the bytes should be.
    fn compare(
        &mut self,
        view: &View,
        unit: &Unit,
        good: Buf,
        (found, fixes): (&mut Vec<Finding>, &mut Vec<Fix>),
    ) -> Buf {
        let copies = unit.copies();
        let block = self.engine.info.logical_block as usize;
        let ask = unit.at + unit.len <= view.resynced && self.kind.asks_who_is_wrong();
        let runs = vote::runs(&copies, block, ask);
        if runs.is_empty() {
            return good;
        }
        let sectors = copies.iter().map(|(_, copy)| differing_sectors(copy, &good));
        self.mismatches += sectors.max().unwrap_or(0);
        let mut right = self.engine.shard.pool().copy_of(&good);
        for run in runs {
            let Some((_, model)) = copies.iter().find(|(nr, _)| *nr == run.right) else { continue };
            let model = model.slice(run.rows.clone());
            right[run.rows.clone()].copy_from_slice(&model);
            let start = unit.at + run.rows.start as u64;
            let array = start..start + run.rows.len() as u64;
            let there = |copy: usize| {
                let place = unit.places.get(copy)?;
                let start = place.offset + run.rows.start as u64;
                Some((place.slot, start..start + run.rows.len() as u64))
            };
            if !run.known
                && let Some((_, component)) = there(run.right)
            {
                let (verdict, members) = (Verdict::Unknown, SmallVec::new());
                let array = array.clone();
                found.push(Finding { array, component, verdict, members, mended: false });
            }
            for (slot, component) in run.wrong.iter().filter_map(|copy| there(*copy)) {
                let at = component.start;
                if run.known {
                    let members = view.member_nr(slot).into_iter().collect();
                    let (array, verdict) = (array.clone(), Verdict::Wrong);
                    found.push(Finding { array, component, verdict, members, mended: false });
                }
                if self.kind.repairs() {
                    fixes.push(Fix { group: found.len() - 1, slot, at, right: model.clone() });
                }
            }
        }
        right.freeze()
    }

    /// No copy of a unit that cannot be cut further is left.
    ///
    /// # Errors
    /// [`IoErrorKind::Lost`] when a rebuild cannot record it on its target.
    fn none_left(&mut self, view: &View, unit: &Unit) -> Result<(), IoError> {
        if let WindowKind::Rebuild { slot, .. } = self.kind {
            let target = unit.places.iter().find(|place| place.slot == slot);
            if !view.has_log(slot) || self.engine.view().broken {
                return Err(IoError::new(IoErrorKind::Lost));
            }
            self.lost.extend(target.map(|place| place.offset..place.offset + unit.len));
            return Ok(());
        }
        let Some(first) = unit.places.first() else { return Ok(()) };
        let bytes = first.offset..first.offset + unit.len;
        let asked = unit.places.iter().zip(&unit.found);
        let silent =
            asked.filter(|(place, found)| found.is_some() || self.is_bad(view, place, unit.len));
        let slots: SmallVec<[Slot; 4]> = silent.map(|(place, _)| place.slot).collect();
        self.note(view, (unit.at..unit.at + unit.len, bytes), Verdict::Lost, &slots, false);
        Ok(())
    }

    fn note(
        &mut self,
        view: &View,
        (array, component): (Range<u64>, Range<u64>),
        verdict: Verdict,
        slots: &[Slot],
        mended: bool,
    ) {
        let members = slots.iter().filter_map(|slot| view.member_nr(*slot)).collect();
        let finding = Finding { array, component, verdict, members, mended };
        self.findings.add(finding, self.kind.repairs());
    }

    /// The units that the job touches, or the parts of them of which each copy is bad as a whole or not at
    /// all: for a rebuild those with a copy on its slot.
    fn wanted(&self, view: &View, first: u64, end: u64) -> Vec<Unit> {
        let unit_size = self.geometry.unit_size();
        let size = self.geometry.array_size();
        let block = u64::from(self.engine.info.logical_block);
        let parts = (first..end).flat_map(|unit| {
            let len = unit_size.min(size - unit * unit_size);
            let runs = runs(self.slices, unit_size, len, block);
            runs.into_iter().flat_map(move |run| self.alike(view, unit, run))
        });
        parts
            .map(|(unit, run)| {
                let len = run.end - run.start;
                let places = match self.kind {
                    WindowKind::Rebuild { .. } => in_order(view, (unit, run.start), len),
                    _ => places(view, unit, run.start),
                };
                Unit { at: unit * unit_size + run.start, places, len, found: SmallVec::new() }
            })
            .filter(|unit| match self.kind {
                WindowKind::Rebuild { slot, .. } => {
                    unit.places.iter().any(|place| place.slot == slot)
                }
                _ => true,
            })
            .collect()
    }

    fn alike(&self, view: &View, unit: u64, run: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let (mut at, mut parts) = (run.start, Vec::with_capacity(1));
        while at < run.end {
            let until = at + alike(view, (unit, at), run.end - at);
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
            WindowKind::Rebuild { slot, .. } => slot == place.slot,
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
                self.engine.home.fail_member(view.member_nr(place.slot), *error).await;
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

    /// Copies on replacements, which a resync writes all: after an unclean stop they may differ from the members that they
    /// are to replace. Other jobs write what they write to those too.
    fn replacements(&self, view: &View, unit: &Unit) -> Places {
        let places = unit.places.iter().filter(|_| self.kind == WindowKind::Resync);
        let copy = |place: &Place| Some(Place { slot: view.replacement_of(place.slot)?, ..*place });
        match view.any_replacement() && !planted("resync-leaves-replacement") {
            true => places.filter_map(copy).collect(),
            false => Places::new(),
        }
    }

    /// Copies that must be written as a whole: the slot being rebuilt; those that are recorded as bad when the job
    /// corrects; those that differ from the first when it is a resync, which also counts them.
    fn targets(&mut self, view: &View, unit: &Unit, good: &Buf) -> Places {
        let copies = unit.places.iter().copied().zip(&unit.found);
        match self.kind {
            WindowKind::Rebuild { slot, .. } => {
                unit.places.iter().copied().filter(|place| place.slot == slot).collect()
            }
            WindowKind::Check | WindowKind::Replace { .. } => Places::new(),
            WindowKind::Repair { .. } | WindowKind::Resync => {
                let mut differing = 0;
                let resync = self.kind == WindowKind::Resync;
                let wanted = copies.filter(|(place, found)| match found {
                    Some(Ok(copy)) if resync => {
                        let sectors = differing_sectors(copy, good);
                        differing = differing.max(sectors);
                        sectors > 0
                    }
                    None => self.is_bad(view, place, unit.len),
                    _ => false,
                });
                let wanted = wanted.map(|(place, _)| place).collect();
                self.mismatches += differing;
                wanted
            }
        }
    }
}
