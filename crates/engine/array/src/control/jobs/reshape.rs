//! A reshape: window after window from the old geometry to the new one, the border behind it.
//!
//! ```text
//!  for each part: requests to the window up to its end wait ─► it is read under the old geometry, written under the new one
//!    ─► members flushed ─► position in the superblocks ─► engines have the border behind the window ─► requests go on
//! ```
//!
//! A window never writes over more than the data that a *recorded* position has left behind (`way`). So whatever the moment
//! of a crash, the geometry that the superblocks name for a byte is the one that holds it. While nobody else uses the array a
//! window has many parts, since to record a position costs as much as to move some MiB. With the first request that is seen
//! it ends at the part that is under way.
//!
//! As in md no other job runs meanwhile, and what an unclean stop left to be resynced is resynced afterwards; what the
//! reshape moves gets new parity anyway. Members that lose their slots are spares from its end on.

use crate::control::jobs::Jobs;
use crate::control::jobs::moving::Moving;
use crate::control::jobs::stuck::MayStick;
use crate::control::jobs::way::Way;
use crate::control::record::members::Standing;
use crate::engine::Engine;
use crate::jobs::{JobEnd, Plan};
use crate::state::geometries::Geometries;
use crate::status::JobKind;
use braid_device::{IoError, IoErrorKind};
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_shard::plant::planted;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// What the superblocks said before the last update of a reshape.
struct Before {
    shared: Superblock,
    members: Vec<(Superblock, Standing)>,
}

impl Jobs {
    /// Goes on with the reshape that the superblocks say is under way.
    pub(crate) async fn reshape(self: &Rc<Self>) {
        let geometries = self.record.engine.view().geometries().clone();
        let Some(reshape) = self.record.roster.borrow().shared.reshape else { return };
        let Some(way) = Way::of(&geometries, reshape.backwards) else { return };
        let border = reshape.position.saturating_mul(SECTOR_BYTES);
        let Some(done) = way.done_at(border) else { return };
        let new = way.new_shape();
        let plan = Plan {
            job: JobKind::Reshape,
            window: None,
            member: None,
            first: done,
            end: way.units(),
            only: None,
            units_per_window: 1,
            bytes_per_unit: way.rows_of_unit(),
            total_bytes: new.used_size(0),
            mismatches: 0,
        };
        let job = self.new_job(plan);
        tracing::info!(
            "array {}: reshape from {} members to {}, from array byte {border} {}",
            self.record.name,
            geometries.before().slots(),
            new.slots(),
            if reshape.backwards { "down" } else { "on" }
        );
        let busy = self.is_busy();
        let moving = Moving::new(self, &geometries, &way);
        let step = async |done| moving.window(done, || job.may_take_more(&busy)).await;
        let end = job.run_steps(&busy, step).await;
        let end = match end {
            JobEnd::Done => self.finish_reshape(&geometries).await,
            end => end,
        };
        let failed = matches!(end, JobEnd::Failed(_));
        self.end_job_or_wait(&job, end, (MayStick::Reshape, failed));
    }

    /// All has been moved: the superblocks name the new shape alone, and users see all of it.
    async fn finish_reshape(&self, geometries: &Geometries) -> JobEnd {
        self.record.engines.hold_requests().await;
        let end = self.end_reshape(geometries).await;
        self.record.engines.end_hold().await;
        self.record.members_changed();
        end
    }

    /// The superblocks are those of the new shape; gives what they were.
    fn take_new_shape(&self, slots: usize) -> Before {
        let mut roster = self.record.roster.borrow_mut();
        let members = roster.members.iter();
        let members = members.map(|m| (m.superblock.clone(), m.standing.clone())).collect();
        let before = Before { shared: roster.shared.clone(), members };
        if let Some(reshape) = roster.shared.reshape.take() {
            roster.shared.layout = reshape.new_layout;
            if !planted("new-chunk-unrecorded") {
                roster.shared.chunk_sectors = reshape.new_chunk_sectors;
            }
        }
        roster.shared.new_offset = 0;
        if roster.resynced != u64::MAX {
            // Where it was counted from has another place now.
            (roster.resynced, roster.resync_checkpoint) = (0, 0);
        }
        for member in &mut roster.members {
            member.superblock.take_new_data_offset();
            if member.standing.slot().is_some_and(|slot| slot >= slots) {
                member.standing = Standing::Spare;
            }
        }
        before
    }

    /// The last update could not be written: what is on disk is what counts.
    fn has_not_ended(&self, before: Before) {
        let mut roster = self.record.roster.borrow_mut();
        roster.shared = before.shared;
        for (member, (superblock, standing)) in roster.members.iter_mut().zip(before.members) {
            member.superblock = superblock;
            if !member.is_faulty() {
                member.standing = standing;
            }
        }
    }

    async fn end_reshape(&self, geometries: &Geometries) -> JobEnd {
        let turn = self.record.turn().await;
        if self.record.roster.borrow().broken {
            return JobEnd::TOO_FEW;
        }
        let whole = geometries.whole();
        // Its component starts where the data of the members does.
        let Ok(layout) = whole.layout.clone().starting_at(0) else {
            return JobEnd::Failed(IoError::new(IoErrorKind::Invalid));
        };
        let before = self.take_new_shape(whole.slots());
        self.record.write_superblocks(&turn).await;
        if self.record.roster.borrow().broken {
            self.has_not_ended(before);
            return JobEnd::TOO_FEW;
        }
        let whole = Geometries::one(Arc::new(whole.over(layout)));
        self.record.send_geometries(&whole).await;
        self.record.engines.ask(Engine::has_other_shape).await;
        self.record.show_all();
        tracing::info!("array {}: reshaped to {} members", self.record.name, whole.whole().slots());
        JobEnd::Done
    }
}
