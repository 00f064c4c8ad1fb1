//! A reshape onto more members: window after window from the old geometry to the new one, the border behind it.
//!
//! ```text
//!  requests to the window wait ─► its bytes are read under the old geometry and written under the new one
//!    ─► members flushed ─► position in the superblocks ─► engines have the border behind the window ─► requests go on
//! ```
//!
//! A window never writes over more than the data that a *recorded* position has left behind: the new data starts
//! before the old one, as far as the data offset moves, and gains on it with each stripe. So whatever the moment of a
//! crash, the geometry that the superblocks name for a byte is the one that holds it.
//!
//! As in md no other job runs meanwhile, and what an unclean stop left to be resynced is resynced afterwards; what the
//! reshape moves gets new parity anyway.

use crate::control::jobs::Jobs;
use crate::control::jobs::recovery::TOO_FEW;
use crate::engine::Engine;
use crate::jobs::{JobEnd, Plan, relocate};
use crate::state::geometries::Geometries;
use crate::status::JobKind;
use braid_device::{IoError, IoErrorKind};
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_layout::Parity;
use braid_shard::plant::planted;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// Bytes of each member that a window has, at most, unless a chunk is larger, and stripes.
const WINDOW: u64 = 4 << 20;
const STRIPES_MAX: u64 = 256;
/// Bytes of all members that a window has, at most, unless a stripe is larger.
const MEMORY: u64 = 64 << 20;

/// The stripe of `new` behind the last one that may be filled while the superblocks say that the border stands at array
/// byte `border`: nothing of `old` that is read from there on may be overwritten. Rows of both are counted from the same
/// component byte.
pub(crate) fn fillable(new: &Parity, old: &Parity, border: u64) -> u64 {
    let (stripe, _, _) = old.locate(border);
    let first_needed = old.start() + stripe * old.chunk_size();
    match border >= old.array_size() {
        true => new.stripes(),
        false => (first_needed / new.chunk_size()).min(new.stripes()),
    }
}

impl Jobs {
    /// Goes on with the reshape that the superblocks say is under way.
    pub(crate) async fn reshape(self: &Rc<Self>) {
        let geometries = self.record.engine.view().geometries().clone();
        let (whole, before) = (Arc::clone(geometries.whole()), Arc::clone(geometries.before()));
        let (Some(new), Some(old)) = (whole.parity(), before.parity()) else { return };
        let Some(border) = self.border() else { return };
        let plan = Plan {
            job: JobKind::Reshape,
            window: None,
            member: None,
            first: border / new.stripe_size(),
            end: new.stripes(),
            only: None,
            units_per_window: 1,
            bytes_per_unit: new.chunk_size(),
            total_bytes: new.used_component_size(),
            mismatches: 0,
        };
        let job = self.new_job(plan);
        tracing::info!(
            "array {}: reshape from {} members to {}, from array byte {border}",
            self.record.name,
            old.slots(),
            new.slots()
        );
        let step = async |first| {
            let end = fillable(new, old, first * new.stripe_size());
            let rows = WINDOW.min(MEMORY / new.slots() as u64);
            let most = (rows / new.chunk_size()).clamp(1, STRIPES_MAX);
            let stripes = first..end.min(first + most).max(first);
            if stripes.is_empty() {
                // Assembly has seen to it that there is room.
                return Err(IoError::new(IoErrorKind::Invalid));
            }
            self.move_window(&geometries, stripes.clone()).await?;
            Ok(stripes.end)
        };
        let end = job.run_steps(self.is_busy(), step).await;
        let end = match end {
            JobEnd::Done => self.finish_reshape(&geometries).await,
            end => end,
        };
        if matches!(end, JobEnd::Failed(_)) {
            self.schedule.work.borrow_mut().reshape_stuck = true;
        }
        self.end_job(&job, end);
    }

    /// The array byte up to which the superblocks say that it has been reshaped; `None`: it is not being reshaped.
    fn border(&self) -> Option<u64> {
        let reshape = self.record.roster.borrow().shared.reshape?;
        Some(reshape.position.saturating_mul(SECTOR_BYTES))
    }

    async fn move_window(
        &self,
        geometries: &Geometries,
        stripes: Range<u64>,
    ) -> Result<(), IoError> {
        let unit = geometries.whole().unit_size();
        let bytes = stripes.start * unit..stripes.end * unit;
        let engines = &self.record.engines;
        engines.hold_requests().await;
        if !planted("window-not-locked") {
            let window = bytes.clone();
            engines.ask(move |engine| engine.splits.hold.set_window(Some(window.clone()))).await;
        }
        engines.end_hold().await;
        let moved = self.move_locked(geometries, stripes, bytes.end).await;
        engines.hold_requests().await;
        if moved.is_ok() {
            let next = geometries.with_border(bytes.end);
            let passed = geometries.with_border(bytes.start).first_above()..next.first_above();
            let rows = 0..geometries.before().layout.chunk_size();
            if !planted("border-stays") {
                // Under the turn, so that it does not tell of a failure that is being recorded.
                let turn = self.record.turn().await;
                self.record.send_geometries(&next).await;
                drop(turn);
            }
            let forget = move |engine: &Engine| {
                passed.clone().for_each(|unit| engine.cache.forget(unit, rows.clone()));
            };
            engines.ask(forget).await;
        }
        engines.ask(|engine| engine.splits.hold.set_window(None)).await;
        engines.end_hold().await;
        moved
    }

    /// Fills a window, and records that it has been moved.
    async fn move_locked(
        &self,
        geometries: &Geometries,
        stripes: Range<u64>,
        border: u64,
    ) -> Result<(), IoError> {
        let lost = IoError::new(IoErrorKind::Lost);
        let Some(new) = geometries.whole().parity() else { return Err(lost) };
        if planted("position-before-data") {
            self.record_position(border).await?;
        }
        let old_size = geometries.before().array_size();
        relocate::window(&self.record.engine, new, stripes, old_size).await?;
        self.record_position(border).await
    }

    async fn record_position(&self, border: u64) -> Result<(), IoError> {
        let lost = IoError::new(IoErrorKind::Lost);
        let turn = self.record.turn().await;
        if !planted("moved-unflushed") {
            self.record.flush_members(&turn, |_| true).await;
        }
        {
            let mut roster = self.record.roster.borrow_mut();
            if roster.broken {
                return Err(lost);
            }
            if let Some(reshape) = &mut roster.shared.reshape {
                reshape.position = border / SECTOR_BYTES;
            }
        }
        self.record.write_superblocks(&turn).await;
        if self.record.roster.borrow().broken { Err(lost) } else { Ok(()) }
    }

    /// All has been moved: the superblocks name the new shape alone, and users see all of it.
    async fn finish_reshape(&self, geometries: &Geometries) -> JobEnd {
        self.record.engines.hold_requests().await;
        let end = self.end_reshape(geometries).await;
        self.record.engines.end_hold().await;
        end
    }

    /// The last update could not be written: what is on disk is what counts.
    fn has_not_ended(&self, before: Vec<Superblock>) {
        let mut roster = self.record.roster.borrow_mut();
        roster.shared.reshape = before.first().and_then(|superblock| superblock.reshape);
        for (member, superblock) in roster.members.iter_mut().zip(before) {
            member.superblock = superblock;
        }
    }

    async fn end_reshape(&self, geometries: &Geometries) -> JobEnd {
        let turn = self.record.turn().await;
        if self.record.roster.borrow().broken {
            return TOO_FEW;
        }
        let before: Vec<_> = {
            let mut roster = self.record.roster.borrow_mut();
            let before = roster.members.iter().map(|member| member.superblock.clone()).collect();
            roster.shared.reshape = None;
            roster.shared.new_offset = 0;
            if roster.resynced != u64::MAX {
                // Where it was counted from has another place now.
                (roster.resynced, roster.resync_checkpoint) = (0, 0);
            }
            for member in &mut roster.members {
                member.superblock.take_new_data_offset();
            }
            before
        };
        self.record.write_superblocks(&turn).await;
        if self.record.roster.borrow().broken {
            self.has_not_ended(before);
            return TOO_FEW;
        }
        let whole = Geometries::one(Arc::clone(geometries.whole()));
        self.record.send_geometries(&whole).await;
        self.record.show_all();
        tracing::info!(
            "array {}: reshaped to {} members",
            self.record.name,
            geometries.whole().slots()
        );
        JobEnd::Done
    }
}
