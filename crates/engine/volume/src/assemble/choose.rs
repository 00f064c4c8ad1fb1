//! Which of the bricks that were found make up a volume, and whether it can be used.
//!
//! Decides from superblocks; reads and writes no device. What generations say stands in docs/volume-on-disk.md.

use super::error::{AssembleError, BrickOf, are, names};
use super::examine::FoundBrick;
use braid_format::brick::{
    Away, BrickState, BrickSuperblock, MAX_AWAY, MetadataState, VolumeState,
};
use braid_mirror::LEGS_MAX;
use braid_shard::plant::planted;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The irregularities to accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssembleOptions {
    /// Go on without bricks that are missing, stale or were away.
    pub degraded: bool,
    /// Use bricks again that were away while the volume was changed, if they are as they were when they went.
    pub take_back: bool,
    /// Write nothing to the bricks: what would be is kept in memory until the end of the mount.
    pub read_only: bool,
    /// Go on with less than half of the bricks that hold the metadata: the others may have newer metadata.
    pub minority: bool,
}

/// Bricks that make up a volume.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// The volume's name.
    pub name: String,
    /// And uuid.
    pub uuid: Uuid,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Those that are there, by id.
    pub bricks: BTreeMap<u16, FoundBrick>,
    /// Those that hold the current metadata; the one that is known to have it for longest first.
    pub metadata: Vec<u16>,
    /// Those whose metadata regions missed commits and must be filled again.
    pub metadata_behind: Vec<u16>,
    /// The three bricks with the metadata of which most have to take a change of the superblocks, as long as there are three.
    pub(super) holders: Vec<u16>,
    /// Those that are not there.
    pub missing: Vec<u16>,
    /// It was not unmounted in order.
    pub unclean: bool,
    /// Nothing is written to the bricks.
    pub read_only: bool,
    /// Notes for the user: one sentence each.
    pub notes: Vec<String>,
    /// Of the newest superblock.
    pub(super) generation: u64,
    /// The missing bricks, as the others describe them.
    pub(super) away: Vec<Away>,
    /// The bricks that were away and are re-attached, as the others describe them.
    pub(super) returning: Vec<Away>,
    /// Bricks of the volume no more, whose superblocks are left over.
    pub(super) left_over: Vec<FoundBrick>,
}

/// Puts the bricks of one volume together. What else is among them is refused, or left out with a note where that is
/// certain to be right.
///
/// # Errors
/// When they are not of one volume, one is there twice, some are missing, stale or were away and that was not accepted, or no
/// current metadata is there.
pub fn assemble(
    found: Vec<FoundBrick>,
    options: AssembleOptions,
) -> Result<Assembly, AssembleError> {
    one_volume(&found)?;
    let newest = newest(&found)?;
    let volume = newest.volume_name.as_str().to_string();
    let mut assembly = Assembly {
        name: volume.clone(),
        uuid: Uuid::from_bytes(newest.volume_uuid),
        stripe: newest.stripe_size.into(),
        bricks: BTreeMap::new(),
        metadata: Vec::new(),
        metadata_behind: Vec::new(),
        holders: Vec::new(),
        missing: Vec::new(),
        unclean: false,
        read_only: options.read_only,
        notes: Vec::new(),
        generation: newest.generation,
        away: Vec::new(),
        returning: Vec::new(),
        left_over: Vec::new(),
    };
    // Bricks that are of an earlier state of the volume, if that is accepted: as good as missing.
    let mut back = Vec::new();
    let ran_on = ran_on_without_metadata(&found, &newest);
    let apart = used_apart(&found, &newest);
    for brick in found {
        let (id, name) = (brick.superblock.brick_id, brick.name().to_string());
        let generation = brick.superblock.generation;
        let behind = || (name.clone(), volume.clone());
        match standing(&brick.superblock, &newest, &ran_on, &apart) {
            Standing::Member => {}
            Standing::NotYet => {
                assembly.notes.push(format!(
                    "{name}: adding it to volume {volume:?} was interrupted: it holds nothing and is left out; add it again"
                ));
                assembly.left_over.push(brick);
                continue;
            }
            Standing::NoMore => {
                assembly.notes.push(format!(
                    "{name}: it was brick {id} of volume {volume:?} and has been removed; it is left out"
                ));
                // An emptied brick holds nothing. From others somebody may want to save something. Taking it out was
                // one change, of two generations.
                if brick.superblock.state == BrickState::Removing
                    && generation.saturating_add(2) >= newest.generation
                {
                    assembly.left_over.push(brick);
                }
                continue;
            }
            Standing::Back if options.take_back => {
                assembly.notes.push(format!(
                    "{name}: brick {id} was away while volume {volume:?} was in use, and is taken back; what was under way when it \
                     went may be missing on it: run: braid volume check"
                ));
                // Interrupted, it is still as it is now.
                assembly.returning.push(Away { brick_id: id, generation });
                back.push(id);
            }
            Standing::Back | Standing::Stale if options.degraded => {
                assembly.notes.push(format!(
                    "{name}: brick {id} of volume {volume:?} is of generation {generation}, and the others of {}: it is left out",
                    newest.generation
                ));
                continue;
            }
            Standing::Back => {
                let (device, volume) = behind();
                let newest = newest.generation;
                return Err(AssembleError::WasAway { device, id, volume, generation, newest });
            }
            Standing::Stale => {
                let (device, volume) = behind();
                let newest = newest.generation;
                return Err(AssembleError::Stale { device, id, volume, generation, newest });
            }
        }
        if brick.superblock.stripe_size != newest.stripe_size {
            let why = format!("{name} has stripes of {} bytes", brick.superblock.stripe_size);
            return Err(AssembleError::Disagree { volume, why });
        }
        assembly.notes.extend(brick.notes.iter().cloned());
        assembly.unclean |= brick.superblock.volume_state == VolumeState::Mounted;
        if let Some(other) = assembly.bricks.get(&id) {
            let one = other.name().to_string();
            return Err(AssembleError::SameId { one, two: name, id, volume });
        }
        assembly.bricks.insert(id, brick);
    }
    find_missing(&mut assembly, &newest, options)?;
    find_metadata(&mut assembly, &back, &newest)?;
    ask_majority(&mut assembly, &newest, options)?;
    Ok(assembly)
}

/// No two are of different volumes, and none is there twice.
fn one_volume(found: &[FoundBrick]) -> Result<(), AssembleError> {
    let first = found.first().ok_or(AssembleError::NoBricks)?;
    let of = |brick: &FoundBrick| {
        Box::new(BrickOf {
            device: brick.name().to_string(),
            volume: brick.superblock.volume_name.as_str().to_string(),
            uuid: Uuid::from_bytes(brick.superblock.volume_uuid),
        })
    };
    let mut seen: BTreeMap<[u8; 16], &FoundBrick> = BTreeMap::new();
    for brick in found {
        if brick.superblock.volume_uuid != first.superblock.volume_uuid {
            return Err(AssembleError::OtherVolume { one: of(first), two: of(brick) });
        }
        if let Some(other) = seen.insert(brick.superblock.brick_uuid, brick) {
            return Err(AssembleError::Twice {
                one: other.name().to_string(),
                two: brick.name().to_string(),
                brick: Uuid::from_bytes(brick.superblock.brick_uuid),
            });
        }
    }
    Ok(())
}

/// The superblock that says how the volume is.
fn newest(found: &[FoundBrick]) -> Result<BrickSuperblock, AssembleError> {
    let made = found.iter().filter(|brick| brick.superblock.volume_state != VolumeState::Creating);
    let newest = made.max_by_key(|brick| (brick.superblock.generation, brick.superblock.updated));
    match (newest, found.first()) {
        (Some(brick), _) => Ok(brick.superblock.clone()),
        (None, Some(brick)) => {
            let volume = brick.superblock.volume_name.as_str().to_string();
            Err(AssembleError::Unfinished { volume })
        }
        (None, None) => Err(AssembleError::NoBricks),
    }
}

/// The relation of a brick to the volume.
enum Standing {
    /// It took part in everything.
    Member,
    /// It was to be added.
    NotYet,
    /// It was removed.
    NoMore,
    /// It was away, and is as it went.
    Back,
    /// It missed something, and is not known.
    Stale,
}

/// `ran_on`: see [`ran_on_without_metadata`]; `apart`: see [`used_apart`].
fn standing(
    brick: &BrickSuperblock,
    newest: &BrickSuperblock,
    ran_on: &BTreeSet<[u8; 16]>,
    apart: &BTreeSet<[u8; 16]>,
) -> Standing {
    let (id, generation) = (brick.brick_id, brick.generation);
    let current = generation.saturating_add(1) >= newest.generation;
    let creating = brick.volume_state == VolumeState::Creating;
    if newest.brick_ids.are_told() && !newest.brick_ids.contains(id) {
        return if creating { Standing::NotYet } else { Standing::NoMore };
    }
    if let Some(away) = newest.away.iter().find(|away| away.brick_id == id) {
        // It may have been given the last generation it was to get, or not. One that was missing at a mount may also have
        // got the first of two that an interruption kept from the others: without the second nothing was finished.
        let as_it_went = generation.abs_diff(away.generation) <= 1;
        // One that is called away and is as new as the others was being taken back when that was interrupted, unless it was used
        // apart from them as often as they were.
        let taken_back = current && !apart.contains(&brick.brick_uuid);
        let back = as_it_went || taken_back || ran_on.contains(&brick.brick_uuid);
        return if back { Standing::Back } else { Standing::Stale };
    }
    match (current, creating) {
        (true, _) => Standing::Member,
        (false, true) => Standing::NotYet,
        (false, false) => Standing::Stale,
    }
}

/// The bricks that were used without those that the newest superblock is of: each calls the other away. Bricks that are taken back
/// together call each other away, too, until that is done; but never one that was there before, and that takes them back, which
/// both know to be there.
fn used_apart(found: &[FoundBrick], newest: &BrickSuperblock) -> BTreeSet<[u8; 16]> {
    let calls_away =
        |brick: &BrickSuperblock, id: u16| brick.away.iter().any(|away| away.brick_id == id);
    let is_current =
        |brick: &BrickSuperblock| brick.generation.saturating_add(1) >= newest.generation;
    let superblocks = || found.iter().map(|brick| &brick.superblock);
    let of = |brick: &&BrickSuperblock| {
        let is_mutual = calls_away(brick, newest.brick_id) && calls_away(newest, brick.brick_id);
        let knows_both = |other: &BrickSuperblock| {
            let id = other.brick_id;
            is_current(other) && !calls_away(newest, id) && !calls_away(brick, id)
        };
        is_mutual && !superblocks().any(knows_both)
    };
    superblocks().filter(of).map(|brick| brick.brick_uuid).collect()
}

/// The bricks that went on without the others, and yet took part in no commit that those do not know: none of them has
/// metadata, and whoever else they know of went, by their superblocks, no later than the others went on without them. Where one
/// of them had had metadata on the way, it could have let it go only to another of them. Earlier versions wrote superblocks
/// so; see [`last_holder`].
fn ran_on_without_metadata(found: &[FoundBrick], newest: &BrickSuperblock) -> BTreeSet<[u8; 16]> {
    let known = |id: u16| newest.away.iter().find(|away| away.brick_id == id);
    let mut some: BTreeMap<u16, &BrickSuperblock> = BTreeMap::new();
    for brick in found.iter().map(|brick| &brick.superblock) {
        let without = brick.metadata_state == MetadataState::Unused && brick.brick_ids.are_told();
        if without && known(brick.brick_id).is_some() {
            some.insert(brick.brick_id, brick);
        }
    }
    loop {
        let others_are_known = |brick: &BrickSuperblock| {
            let last = known(brick.brick_id).map_or(0, |away| away.generation.saturating_add(1));
            let went = |id: u16| {
                brick.away.iter().any(|away| away.brick_id == id && away.generation <= last)
            };
            brick.brick_ids.iter().all(|id| some.contains_key(&id) || went(id))
        };
        let kept: BTreeMap<u16, &BrickSuperblock> = some
            .iter()
            .filter(|(_, brick)| others_are_known(brick))
            .map(|(id, brick)| (*id, *brick))
            .collect();
        if kept.len() == some.len() {
            return kept.values().map(|brick| brick.brick_uuid).collect();
        }
        some = kept;
    }
}

/// Notes which bricks are missing, unless there must be none.
fn find_missing(
    assembly: &mut Assembly,
    newest: &BrickSuperblock,
    options: AssembleOptions,
) -> Result<(), AssembleError> {
    let count = usize::from(newest.brick_count);
    let here = |id: &u16| assembly.bricks.contains_key(id);
    let missing: Vec<u16> = newest.brick_ids.iter().filter(|id| !here(id)).collect();
    let number = count.saturating_sub(assembly.bricks.len()).max(missing.len());
    if number == 0 {
        return Ok(());
    }
    let volume = assembly.name.clone();
    if missing.len() < number || missing.len() > MAX_AWAY {
        // Without the ids it cannot be noted who was away.
        return Err(AssembleError::TooManyAway { volume, missing: number });
    }
    if !options.degraded {
        // Notes may say why.
        let bricks = are(&missing);
        return Err(AssembleError::Missing { volume, bricks, count });
    }
    let mut away: BTreeMap<u16, u64> =
        newest.away.iter().map(|away| (away.brick_id, away.generation)).collect();
    away.retain(|id, _| missing.contains(id));
    for id in &missing {
        // Whoever is not known to have been away took part in what was finished.
        away.entry(*id).or_insert(newest.generation);
    }
    assembly.away =
        away.into_iter().map(|(brick_id, generation)| Away { brick_id, generation }).collect();
    assembly.notes.push(format!(
        "volume {volume:?} is used without {}: what lies only there cannot be read",
        names(&missing)
    ));
    assembly.missing = missing;
    Ok(())
}

/// Finds the current metadata.
fn find_metadata(
    assembly: &mut Assembly,
    back: &[u16],
    newest: &BrickSuperblock,
) -> Result<(), AssembleError> {
    let mut current = Vec::new();
    for (id, brick) in &assembly.bricks {
        let superblock = &brick.superblock;
        match superblock.metadata_state {
            MetadataState::InSync if !back.contains(id) => {
                current.push((superblock.metadata_generation, *id));
            }
            MetadataState::Unused => {}
            MetadataState::InSync | MetadataState::OutOfSync => assembly.metadata_behind.push(*id),
        }
    }
    if current.is_empty()
        && let Some(id) = last_holder(assembly, back, newest)
    {
        let brick = assembly.bricks.get(&id);
        assembly.notes.push(format!(
            "{}: all bricks with the metadata were called away. Brick {id} was the last of them, and without metadata nothing \
             can have been committed since, so its metadata is taken for the current one",
            brick.map_or("", |brick| brick.name())
        ));
        assembly.metadata_behind.retain(|behind| *behind != id);
        current.push((0, id));
    }
    if current.is_empty() {
        let missing = are(&assembly.missing);
        let missing = if assembly.missing.is_empty() {
            "none is missing".to_string()
        } else {
            format!("{missing} missing")
        };
        return Err(AssembleError::NoMetadata { volume: assembly.name.clone(), missing });
    }
    current.sort_by_key(|(generation, id)| (std::cmp::Reverse(*generation), *id));
    assembly.metadata = current.into_iter().map(|(_, id)| id).collect();
    let more = assembly.metadata.split_off(assembly.metadata.len().min(LEGS_MAX));
    assembly.metadata_behind.extend(more);
    Ok(())
}

/// Where the newest superblock tells three bricks with the metadata, two of them that are there and current know of whatever was
/// committed; or all three, whatever they hold, since a change needs two. One alone does not: the others may have gone on without it.
fn ask_majority(
    assembly: &mut Assembly,
    newest: &BrickSuperblock,
    options: AssembleOptions,
) -> Result<(), AssembleError> {
    let holders = &newest.metadata_holders;
    let current = holders.iter().filter(|id| assembly.metadata.contains(id)).count();
    let all_are_here = holders.iter().all(|id| assembly.bricks.contains_key(id));
    if current * 2 > holders.len() || all_are_here || planted("minority-is-believed") {
        assembly.holders.clone_from(holders);
        return Ok(());
    }
    let volume = assembly.name.clone();
    let without: Vec<u16> =
        holders.iter().filter(|id| !assembly.metadata.contains(id)).copied().collect();
    let (here, others) = (are(&assembly.metadata), names(&without));
    if !options.minority {
        return Err(AssembleError::Minority { volume, here, others });
    }
    assembly.notes.push(format!(
        "of the three bricks with the metadata of volume {volume:?} only {here} current and there: what {others} may have taken \
         without it is lost"
    ));
    Ok(())
}

/// The brick that held the metadata last, where the superblocks call all holders away. Earlier versions wrote them so when
/// the last holder could not be written to. A commit is answered only while a holder is there, so what the last one
/// has is the newest that there can be; unless a brick that is not here was there after it.
fn last_holder(assembly: &Assembly, back: &[u16], newest: &BrickSuperblock) -> Option<u16> {
    let went = |id: u16| {
        let away = newest.away.iter().find(|away| away.brick_id == id);
        away.map(|away| away.generation)
    };
    let held = back.iter().filter_map(|id| {
        let superblock = &assembly.bricks.get(id)?.superblock;
        let held = superblock.metadata_state == MetadataState::InSync;
        held.then_some((went(*id)?, superblock.metadata_generation, std::cmp::Reverse(*id)))
    });
    let (last, _, std::cmp::Reverse(id)) = held.max()?;
    let before = |missing: &u16| went(*missing).is_some_and(|generation| generation <= last);
    assembly.missing.iter().all(before).then_some(id)
}
