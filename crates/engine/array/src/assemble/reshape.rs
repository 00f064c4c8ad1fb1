//! Arrays in the middle of a reshape onto more members: whether braid can go on with it, and where its border stands.
//!
//! The first and the last update of a reshape may have reached some members only: the freshest superblock says what holds,
//! and what a member that missed it has to say is brought in line. Before anything has moved, a reshape whose new members
//! did not all hear of it is taken back where it would leave too few.
//!
//! Writes nothing.

use super::choose::Choice;
use crate::control::jobs::reshape::fillable;
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Superblock};
use braid_layout::{Layout, Level, Parity, Spec};
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
            (None, Some(_)) => own.take_new_data_offset(),
            _ => own.reshape = shared.reshape,
        }
        own.raid_disks = shared.raid_disks;
    }
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
/// middle of a reshape". `None`: it can, or there is none.
pub(super) fn in_the_way(choice: &Choice) -> Option<String> {
    let shared = &choice.shared;
    let reshape = shared.reshape?;
    let here = |why: &str| Some(why.to_string());
    if !matches!(shared.level, 4..=6) {
        return here("of a level without parity, which braid does not go on with");
    }
    let same = reshape.new_level == shared.level
        && reshape.new_layout == shared.layout
        && reshape.new_chunk_sectors == shared.chunk_sectors;
    if !same || reshape.delta_disks <= 0 || reshape.backwards {
        return here("that does more than add members, which braid does not go on with");
    }
    if shared.ppl.is_some() {
        return here("with a partial parity log, which braid does not go on with");
    }
    let rebuilding = |standing: &Standing| matches!(standing, Standing::Rebuilding { .. });
    if choice.members.iter().any(|chosen| rebuilding(&chosen.standing)) {
        return here("with a member that is not whole, which braid does not go on with");
    }
    let holders = choice.members.iter().filter(|chosen| chosen.standing.slot().is_some());
    if holders.into_iter().any(|chosen| chosen.found.superblock.new_offset != shared.new_offset) {
        return here(
            "that moves the data of its members by different distances, which braid does not go on with",
        );
    }
    match shapes(shared, &reshape) {
        None => here("whose numbers do not go together"),
        Some((new, old)) => {
            let border = reshape.position.saturating_mul(SECTOR_BYTES);
            if !border.is_multiple_of(new.stripe_size()) {
                return here("whose place is not the end of a stripe");
            }
            let done = border / new.stripe_size();
            if done > new.stripes() {
                return here("whose place lies behind the end of the array");
            }
            if done < new.stripes() && fillable(&new, &old, border) <= done {
                return here(
                    "that needs its backup file to go on, which braid does not read: mdadm --assemble --backup-file does",
                );
            }
            None
        }
    }
}

/// The new shape and the old one, by a superblock; rows of both are counted from the same byte.
fn shapes(shared: &Superblock, reshape: &Reshape) -> Option<(Parity, Parity)> {
    let spec = |raid_disks: u32| {
        Some(Spec {
            level: Level::from_md(shared.level)?,
            layout: shared.layout,
            chunk_size: u64::from(shared.chunk_sectors) * SECTOR_BYTES,
            raid_disks: raid_disks as usize,
            component_size: shared.size.saturating_mul(SECTOR_BYTES),
            member_sizes: Vec::new(),
        })
    };
    let parity = |raid_disks: u32| match Layout::new(&spec(raid_disks)?) {
        Ok(Layout::Parity(parity)) => Some(parity),
        _ => None,
    };
    let moves_by = u64::try_from(-i64::from(shared.new_offset)).ok()? * SECTOR_BYTES;
    let old = parity(shared.raid_disks.checked_sub_signed(reshape.delta_disks)?)?;
    Some((parity(shared.raid_disks)?, old.starting_at(moves_by).ok()?))
}

/// The geometries of an array whose final one is `whole`, with the border where the reshape has come to.
///
/// # Errors
/// Numbers that do not go together.
pub(super) fn geometries(
    choice: &Choice,
    whole: &Arc<Geometry>,
) -> Result<Geometries, AssembleError> {
    let Some(reshape) = choice.shared.reshape else {
        return Ok(Geometries::one(Arc::clone(whole)));
    };
    let Some((_, old)) = shapes(&choice.shared, &reshape) else {
        let what = "is in the middle of a reshape whose numbers do not go together".to_string();
        return Err(AssembleError::Unsupported { array: choice.title(), what });
    };
    let before = Arc::new(whole.over(Layout::Parity(old)));
    let border = reshape.position.saturating_mul(SECTOR_BYTES);
    Ok(Geometries::two(Arc::clone(whole), before, border))
}
