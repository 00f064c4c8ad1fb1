//! The partial parity log of an array that was not stopped cleanly, from its members to redundancy that holds.

use crate::assemble::choose::{Choice, Chosen};
use crate::consistency::journal::JournalShape;
use crate::control::record::members::{Roster, Standing};
use crate::engine::recorded::Recorded;
use crate::error::AssembleError;
use crate::metadata::bitmap::FIRST_BITMAP;
use crate::metadata::bitmap::keeper::Keeper;
use crate::metadata::holder::Holder;
use crate::metadata::journal::ring::Ring;
use crate::metadata::ppl::area::Area;
use crate::metadata::ppl::replay::{Judged, Logs, Refused};
use crate::options::{AssembleOptions, Context};
use crate::state::geometry::Geometry;
use braid_device::{IoError, IoErrorKind};
use braid_format::journal::Seed;
use braid_layout::Layout;
use std::rc::Rc;

/// The logs, when the array has some and needs them.
pub(super) async fn read(
    ctx: &Context,
    choice: &Choice,
    options: &AssembleOptions,
) -> Option<Logs> {
    let shared = &choice.shared;
    if shared.ppl.is_none() || shared.is_clean() {
        return None;
    }
    if options.read_only {
        tracing::warn!(
            "array {}: it was not stopped cleanly, and a read-only assembly does not replay its partial parity log",
            choice.title()
        );
        return None;
    }
    let sources = choice.members.iter().filter_map(holder).collect();
    Some(Logs::read(&ctx.shard, sources).await)
}

/// The member as one that a log is replayed to, when it holds a slot.
pub(super) fn holder(chosen: &Chosen) -> Option<Holder> {
    let (slot, valid_below) = match chosen.standing {
        Standing::InSync(slot) => (slot, u64::MAX),
        Standing::Rebuilding { slot, checkpoint, .. } => (slot, checkpoint),
        _ => return None,
    };
    Some(Holder {
        slot,
        name: chosen.found.name.clone(),
        device: Rc::clone(&chosen.found.device),
        superblock: chosen.found.superblock.clone(),
        valid_below,
        bad: chosen.found.bad.clone(),
    })
}

/// What they say.
pub(super) fn judge<'a>(logs: &'a Logs, choice: &Choice, layout: &Layout) -> Judged<'a> {
    let Layout::Parity(parity) = layout else { return Judged::nothing() };
    logs.judge(parity, &choice.shared.set_uuid, choice.shared.size)
}

/// Carries out what they ask for. Gives the places whose parity was not taken.
pub(super) async fn replay(
    ctx: &Context,
    title: &str,
    geometry: &Geometry,
    logs: &Logs,
    judged: &Judged<'_>,
) -> Result<Vec<Refused>, AssembleError> {
    for complaint in &judged.complaints {
        tracing::warn!("array {title}: {complaint}");
    }
    let Some(parity) = geometry.parity() else { return Ok(Vec::new()) };
    logs.replay(&ctx.shard, parity, judged).await.map_err(|stopped| AssembleError::Replay {
        array: title.to_string(),
        log: "partial parity log",
        doing: stopped.doing,
        name: stopped.name,
        error: stopped.error,
    })
}

/// Sees to it that nobody believes parity that was not taken: it is recorded as bad, or its member is faulty.
///
/// # Errors
/// Neither can be done to this member.
pub(super) fn disown(
    roster: &mut Roster,
    geometry: &Geometry,
    title: &str,
    refused: Vec<Refused>,
) -> Result<(), AssembleError> {
    for (slot, rows) in refused {
        let holder = roster.members.iter().find(|member| member.standing.slot() == Some(slot));
        let Some((nr, name)) = holder.map(|member| (member.nr, member.name.clone())) else {
            continue;
        };
        if roster.record_bad_at_start(nr, rows) {
            continue;
        }
        let in_sync = |other| {
            let standing = Standing::InSync(other);
            roster.members.iter().any(|member| member.standing == standing)
        };
        if !geometry.survives(|other| other != slot && in_sync(other)) {
            return Err(AssembleError::Replay {
                array: title.to_string(),
                log: "partial parity log",
                doing: "writing parity of",
                name,
                error: IoError::new(IoErrorKind::Medium),
            });
        }
        tracing::warn!(
            "array {title}: {name} is faulty: it does not take its parity, and has no room to record where"
        );
        if let Some(member) = roster.member_mut(nr) {
            let why = "it did not take parity that its log asked for".to_string();
            member.standing = Standing::Faulty(why);
        }
    }
    Ok(())
}

/// The consistency policy that the engines start with.
pub(super) fn policy(roster: &Roster, keeper: Option<&Keeper>, read_only: bool) -> Recorded {
    if let Some(member) = roster.journal().filter(|_| !read_only)
        && let Some(ring) = Ring::of(&member.name, &member.device.as_device(), &member.superblock)
    {
        let seed = Seed::of(&roster.shared.set_uuid);
        let slots = roster.shared.raid_disks as usize;
        return Recorded::Journal(JournalShape::of(seed, ring.blocks(), slots));
    }
    if let Some(keeper) = keeper {
        return Recorded::Bitmap(FIRST_BITMAP, keeper.shape());
    }
    if roster.shared.ppl.is_none() || read_only {
        return Recorded::Resync;
    }
    let areas = roster.members.iter().filter_map(|member| Area::of(&member.superblock));
    Recorded::Ppl(areas.map(|area| area.partial_max()).min().unwrap_or(0))
}
