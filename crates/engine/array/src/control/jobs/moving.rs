//! One window of a reshape: moved part by part, and recorded.

use crate::control::jobs::Jobs;
use crate::control::jobs::way::Way;
use crate::jobs::{Step, relocate};
use crate::state::geometries::Geometries;
use braid_device::{IoError, IoErrorKind};
use braid_format::SECTOR;
use braid_shard::plant::planted;
use std::ops::Range;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// Bytes of each member that a window has, at most.
const WINDOW: u64 = 512 << 20;
/// Bytes of each member that a part has, at most, unless a chunk is larger.
const PART: u64 = 4 << 20;
/// The same of members whose heads move to the place that is read, and to the place that is written, for each part.
const PART_WITH_HEADS: u64 = 64 << 20;
/// A part is one of so many of each member, at most.
const PARTS: u64 = 64;
/// The same of members with heads.
const PARTS_WITH_HEADS: u64 = 32;
/// Stripes of a part, at most: the blocks of one request to a member.
const STRIPES_MAX: u64 = 1000;
/// Bytes of all members that a part has, at most, unless a stripe is larger; and so much of what caches may take.
const MEMORY: u64 = 384 << 20;
const OF_CACHES: u64 = 4;

/// See the module's documentation.
pub(super) struct Moving<'a> {
    jobs: &'a Jobs,
    geometries: &'a Geometries,
    way: &'a Way,
    /// Units of a part, at most.
    part: u64,
}

impl<'a> Moving<'a> {
    pub(super) fn new(jobs: &'a Jobs, geometries: &'a Geometries, way: &'a Way) -> Moving<'a> {
        let new = way.new_shape();
        let (part, parts) = match jobs.record.engine.view().rotational() {
            true => (PART_WITH_HEADS, PARTS_WITH_HEADS),
            false => (PART, PARTS),
        };
        let memory = MEMORY.min(jobs.memory_max / OF_CACHES) / new.slots() as u64;
        let rows = part.min(memory).min(new.used_size(0) / parts);
        let stripes = (rows / new.chunk_size()).clamp(1, STRIPES_MAX);
        let units = way.units_in(stripes * new.chunk_size());
        let group = way.group();
        Moving { jobs, geometries, way, part: (units / group).max(1) * group }
    }

    /// Moves the next window when so many units have been: one part of it, and others as long as there may be `more`.
    ///
    /// # Errors
    /// Those of [`relocate::window`]; too many members have failed. The border is where it was then.
    pub(super) async fn window(&self, done: u64, more: impl Fn() -> bool) -> Result<Step, IoError> {
        let units = self.way.window(done, self.way.units_in(WINDOW).max(self.part));
        if units.is_empty() {
            // Assembly has seen to it that there is room.
            return Err(IoError::new(IoErrorKind::Invalid));
        }
        let mut step = Step { done, began: 0 };
        let moved = loop {
            step.began = self.jobs.record.shard.now();
            let part = self.part_of(&units, step.done - done);
            let count = part.end - part.start;
            if let Err(error) = self.part(done, part).await {
                break Err(error);
            }
            step.done += count;
            if step.done - done == units.end - units.start || !more() {
                break self.record_position(self.way.border(step.done)).await;
            }
        };
        let engines = &self.jobs.record.engines;
        engines.hold_requests().await;
        if moved.is_ok() && !planted("border-stays") {
            // Under the turn, so that it does not tell of a failure that is being recorded.
            let turn = self.jobs.record.turn().await;
            let border = self.way.border(step.done);
            self.jobs.record.send_geometries(&self.geometries.with_border(border)).await;
            drop(turn);
        }
        engines.ask(|engine| engine.splits.hold.set_window(None)).await;
        engines.end_hold().await;
        moved.map(|()| step)
    }

    /// The part of these units after so many of them.
    fn part_of(&self, units: &Range<u64>, moved: u64) -> Range<u64> {
        if self.way.backwards() {
            let end = units.end - moved;
            return end.saturating_sub(self.part).max(units.start)..end;
        }
        let start = units.start + moved;
        start..start.saturating_add(self.part).min(units.end)
    }

    /// Moves one part of the window that begins when `done` units have been moved.
    async fn part(&self, done: u64, units: Range<u64>) -> Result<(), IoError> {
        let unit = self.way.unit();
        // Whatever of the window has been moved is not where the border says, until that is behind it.
        let window = match self.way.backwards() {
            _ if planted("moved-parts-unlocked") => units.clone(),
            true => units.start..self.way.units() - done,
            false => done..units.end,
        };
        let engines = &self.jobs.record.engines;
        engines.hold_requests().await;
        if !planted("window-not-locked") {
            let bytes = window.start * unit..window.end * unit;
            engines.ask(move |engine| engine.splits.hold.set_window(Some(bytes.clone()))).await;
        }
        engines.end_hold().await;
        if planted("position-before-data") {
            let after = done + (window.end - window.start);
            self.record_position(self.way.border(after)).await?;
        }
        let (new, bytes) = (self.way.new_shape(), units.start * unit..units.end * unit);
        let old_size = self.geometries.before().array_size();
        relocate::window(&self.jobs.record.engine, new, bytes, old_size).await
    }

    async fn record_position(&self, border: u64) -> Result<(), IoError> {
        let lost = IoError::new(IoErrorKind::Lost);
        let record = &self.jobs.record;
        let turn = record.turn().await;
        if !planted("moved-unflushed") {
            record.flush_members(&turn, |_| true).await;
        }
        {
            let mut roster = record.roster.borrow_mut();
            if roster.broken {
                return Err(lost);
            }
            if let Some(reshape) = &mut roster.shared.reshape {
                reshape.position = border / SECTOR_BYTES;
            }
        }
        record.write_superblocks(&turn).await;
        if record.roster.borrow().broken { Err(lost) } else { Ok(()) }
    }
}
