//! Arrays in the middle of a reshape: whether braid can go on with it, and where its border stands.
//!
//! The first and the last update of a reshape may have reached some members only: the freshest superblock says what holds,
//! and what a member that missed it has to say is brought in line. Before anything has moved, a reshape whose new members
//! did not all hear of it is taken back where it would leave too few.
//!
//! Writes nothing.

use super::choose::Choice;
use crate::control::jobs::way::Way;
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Superblock};
use braid_layout::{Layout, Level, Slot, Spec};
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// Brings members that missed the first or the last update of a reshape in line with the freshest superblock.
pub(super) fn settle(choice: &mut Choice) {
    take_back(choice);
    let shared = &choice.shared;
    for chosen in &mut choice.members {
        let own = &mut chosen.found.superblock;
        match (shared.reshape, own.reshape) {
            (Some(reshape), None) => {
                own.reshape = Some(reshape);
                own.new_offset = shared.new_offset;
            }
            (None, Some(begun)) if is_taken_back(shared, own, &begun) => {
                (own.reshape, own.new_offset) = (None, 0);
            }
            (None, Some(_)) => own.take_new_data_offset(),
            _ => own.reshape = shared.reshape,
        }
        own.level = shared.level;
        own.layout = shared.layout;
        own.chunk_sectors = shared.chunk_sectors;
        own.raid_disks = shared.raid_disks;
    }
}

/// The reshape that `own` tells of had not moved anything, and `shared` has as many members as before it.
fn is_taken_back(shared: &Superblock, own: &Superblock, begun: &Reshape) -> bool {
    let before = own.raid_disks.checked_sub_signed(begun.delta_disks);
    begun.delta_disks > 0 && begun.position == 0 && before == Some(shared.raid_disks)
}

/// Takes a reshape back that has not moved anything, and of which too few of the new members know.
fn take_back(choice: &mut Choice) {
    let Some(reshape) = choice.shared.reshape else { return };
    let added = u32::try_from(reshape.delta_disks).unwrap_or(0);
    let tolerance = Level::from_md(choice.shared.level).map_or(0, Level::parity_count);
    let missing = choice.slots_not_in_sync().len();
    if reshape.position != 0 || reshape.backwards || added == 0 || missing <= tolerance {
        return;
    }
    let old = choice.shared.raid_disks.saturating_sub(added);
    choice.begun = Some(Box::new(choice.shared.clone()));
    choice.shared.raid_disks = old;
    choice.shared.reshape = None;
    choice.shared.new_offset = 0;
    for chosen in &mut choice.members {
        let own = &mut chosen.found.superblock;
        (own.reshape, own.new_offset) = (None, 0);
        if chosen.standing.slot().is_some_and(|slot| slot >= old as usize) {
            chosen.standing = Standing::Spare;
        }
    }
    tracing::warn!(
        "array {}: a reshape to more members had just begun and not all of them know of it: it is taken back",
        choice.title()
    );
}

/// The reason why braid cannot go on with the reshape that the array is in the middle of; continues "the array is in the
/// middle of a reshape". `None`: it can, or there is none. `force`: its place is to be trusted.
pub(super) fn in_the_way(choice: &Choice, force: bool) -> Option<String> {
    let shared = &choice.shared;
    let reshape = shared.reshape?;
    let here = |why: &str| Some(why.to_string());
    if !matches!(shared.level, 4..=6 | 10) {
        return here("of a level without parity or copies, which braid does not go on with");
    }
    if reshape.new_level != shared.level {
        return here("to another level, which braid does not go on with");
    }
    if shared.level == 10 && shared.bitmap_offset != 0 {
        return here(
            "with a write-intent bitmap, which counts array bytes, and which braid does not go on with at level 10",
        );
    }
    if shared.ppl.is_some() {
        return here("with a partial parity log, which braid does not go on with");
    }
    if choice.members.iter().any(|chosen| chosen.standing.is_filled()) {
        return here("with a member that is not whole, which braid does not go on with");
    }
    let holders = choice.members.iter().filter(|chosen| chosen.standing.slot().is_some());
    if holders.into_iter().any(|chosen| chosen.found.superblock.new_offset != shared.new_offset) {
        return here(
            "that moves the data of its members by different distances, which braid does not go on with",
        );
    }
    if shared.reshape_position_is_doubtful() && !force {
        return here(
            "whose place Linux may not have recorded: where the number of members stays it does so only after the array was \
             assembled once more. If the array was stopped or lost power since mdadm --grow began this, data on either \
             side of that place may be wrong: look at it first with braid examine --assemble, which writes nothing; --force \
             goes on from the place that is recorded",
        );
    }
    let Some(way) = way(shared, &reshape) else {
        return here("whose numbers do not go together");
    };
    let border = reshape.position.saturating_mul(SECTOR_BYTES);
    match way.done_at(border) {
        None => {
            here("whose place is not where a stripe of both shapes, or a piece of copies, ends")
        }
        Some(done) if !way.leads_to_the_end(done) => here(
            "that needs its backup file to go on, which braid does not read: mdadm --assemble --backup-file does",
        ),
        Some(_) => None,
    }
}

/// The new shape and the old one, by a superblock; rows of both are counted from the same byte.
fn way(shared: &Superblock, reshape: &Reshape) -> Option<Way> {
    let shape = |layout: u32, chunk_sectors: u32, raid_disks: u32| {
        let spec = Spec {
            level: Level::from_md(shared.level)?,
            layout,
            chunk_size: u64::from(chunk_sectors) * SECTOR_BYTES,
            raid_disks: raid_disks as usize,
            component_size: shared.size.saturating_mul(SECTOR_BYTES),
            member_sizes: Vec::new(),
        };
        Layout::new(&spec).ok()
    };
    let old_disks = shared.raid_disks.checked_sub_signed(reshape.delta_disks)?;
    let new = shape(reshape.new_layout, reshape.new_chunk_sectors, shared.raid_disks)?;
    let old = shape(shared.layout, shared.chunk_sectors, old_disks)?;
    let moves_by = i64::from(shared.new_offset) * SECTOR_BYTES as i64;
    Way::new(new, old, moves_by, reshape.backwards)
}

/// The part that the border has not come to yet is there, too, with exactly the slots for which `working` is true.
pub(super) fn old_shape_survives(choice: &Choice, working: impl Fn(Slot) -> bool) -> bool {
    let way = choice.shared.reshape.and_then(|reshape| way(&choice.shared, &reshape));
    way.is_none_or(|way| way.old_shape().survives(working))
}

/// The geometries of an array whose final one is `whole`, with the border where the reshape has come to.
///
/// # Errors
/// Numbers that do not go together.
pub(super) fn geometries(
    choice: &Choice,
    whole: &Arc<Geometry>,
) -> Result<Geometries, AssembleError> {
    let shared = &choice.shared;
    let Some(reshape) = shared.reshape else {
        return Ok(Geometries::one(Arc::clone(whole)));
    };
    let level = Level::from_md(shared.level);
    let (Some(way), Some(level)) = (way(shared, &reshape), level) else {
        let what = "is in the middle of a reshape whose numbers do not go together".to_string();
        return Err(AssembleError::Unsupported { array: choice.title(), what });
    };
    let border = reshape.position.saturating_mul(SECTOR_BYTES);
    Ok(way.geometries(whole, (level, shared.layout), border))
}
