//! Which members take part in an assembly, and as what: decided from their superblocks alone.
//!
//! The rules are md's (`md.c`, `mdadm:Assemble.c`): the freshest superblock is that with the most
//! events among members that hold a slot; its role table says what everybody is; a member that is
//! more than one event behind is stale. Beyond md's rules, halves that ran apart (`apart`) are refused.
//!
//! Invariant: no member that is left out becomes a source of data.

use super::renumbered::renumber;
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::metadata::component::used_size;
use crate::metadata::ppl::area::Area;
use crate::state::apart;
use crate::state::bad_blocks::BadBlocks;
use braid_device::{Device, Opener};
use braid_format::SECTOR;
use braid_format::heartbeat::Heartbeat;
use braid_format::superblock::{Role, Superblock};
use braid_format::uuid_text;
use braid_layout::{Level, Slot};
use braid_shard::plant::planted;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of the largest blocks that a member may have.
const BLOCK_MAX: u64 = 4096;

/// A device with a superblock.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) device: Rc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// The heartbeat that stands on it.
    pub(crate) beat: Option<Heartbeat>,
    /// Sectors that its log lists; empty until the log has been read.
    pub(crate) bad: BadBlocks,
}

impl Found {
    fn named(&self) -> apart::Named<'_> {
        apart::Named { name: &self.name, superblock: &self.superblock }
    }
}

/// A member that takes part.
pub(crate) struct Chosen {
    pub(crate) found: Found,
    pub(crate) standing: Standing,
}

/// A member that is left out as stale, and that could hold its slot all the same.
pub(crate) struct Stale {
    pub(crate) found: Found,
    /// The slot that it held.
    pub(crate) slot: Slot,
    /// Its name, and why it is left out.
    pub(crate) line: String,
}

/// The outcome.
pub(crate) struct Choice {
    /// The freshest superblock.
    pub(crate) shared: Superblock,
    /// The freshest superblock as it was, where `shared` is no longer that: a reshape had just begun, and is taken back.
    pub(crate) begun: Option<Box<Superblock>>,
    pub(crate) members: Vec<Chosen>,
    /// Members that are left out unless they are [taken by force](crate::assemble::rescue).
    pub(crate) stale: Vec<Stale>,
    /// One line for each other member that is not used.
    pub(crate) left_out: Vec<String>,
}

impl Choice {
    /// Nobody is taken by force any more: the stale members are left out for good.
    pub(crate) fn leave_stale_out(&mut self) {
        self.left_out.extend(self.stale.drain(..).map(|stale| stale.line));
    }

    /// A line for each member that is not used, stale or otherwise.
    pub(crate) fn all_left_out(&self) -> Vec<String> {
        self.left_out.iter().chain(self.stale.iter().map(|stale| &stale.line)).cloned().collect()
    }

    /// The array's name for messages.
    pub(crate) fn title(&self) -> String {
        title(&self.shared)
    }

    /// All members but the journal.
    pub(crate) fn data_members(&self) -> impl Iterator<Item = &Chosen> {
        self.members.iter().filter(|chosen| chosen.standing != Standing::Journal)
    }

    fn slots(&self) -> std::ops::Range<Slot> {
        0..self.shared.slots() as usize
    }

    /// Slots whose member is not wholly in sync, or not there.
    pub(crate) fn slots_not_in_sync(&self) -> Vec<Slot> {
        let in_sync = |slot: &Slot| {
            self.members.iter().any(|chosen| chosen.standing == Standing::InSync(*slot))
        };
        self.slots().filter(|slot| !in_sync(slot)).collect()
    }

    /// Slots whose member holds nothing that counts, or is not there. One that is being rebuilt is there below its
    /// checkpoint.
    pub(crate) fn slots_without_data(&self) -> Vec<Slot> {
        let has_data = |slot: &Slot| {
            self.members.iter().any(|chosen| match chosen.standing {
                Standing::InSync(held) => held == *slot,
                Standing::Rebuilding { slot: held, checkpoint, .. } => {
                    held == *slot && checkpoint > 0
                }
                _ => false,
            })
        };
        self.slots().filter(|slot| !has_data(slot)).collect()
    }

    /// Slots without any member.
    pub(crate) fn empty_slots(&self) -> Vec<Slot> {
        let held =
            |slot: &Slot| self.members.iter().any(|chosen| chosen.standing.slot() == Some(*slot));
        self.slots().filter(|slot| !held(slot)).collect()
    }
}

pub(crate) fn title(superblock: &Superblock) -> String {
    let uuid = uuid_text::format(&superblock.set_uuid);
    match superblock.set_name.escaped() {
        name if name.is_empty() => uuid,
        name => format!("{name} ({uuid})"),
    }
}

/// The slot that a member held which the array went on without, if it could stand there as it is.
fn stale_slot(shared: &Superblock, reference: &str, found: &Found) -> Option<Slot> {
    let own = &found.superblock;
    let slot = own.own_role().slot()?;
    let elsewhere = shared.role_of(own.dev_number).slot().is_some_and(|now| now != slot);
    // One that was removed says that the bitmap knows what it lacks: it holds all that it held then.
    let lacks_bits_only = own.recovery_offset == Some(0) && own.recovery_by_bitmap;
    let whole = (own.recovery_offset.is_none() || lacks_bits_only) && !own.replacement;
    let same_shape = own.reshape.is_none() && own.raid_disks == shared.raid_disks;
    let knows_freshest =
        own.role_of(shared.dev_number) != Role::Faulty && own.roles.contains(&shared.own_role());
    let fits = u32::from(slot) < shared.raid_disks && agrees(shared, reference, found).is_ok();
    (whole && same_shape && knows_freshest && fits && !elsewhere).then(|| slot.into())
}

/// Chooses among devices that all have a superblock; `uuid` says which array when there are several.
pub(crate) fn choose(found: Vec<Found>, uuid: Option<[u8; 16]>) -> Result<Choice, AssembleError> {
    let (mut found, left_out) = one_array(found, uuid)?;
    no_twins(&found)?;
    if let Some(superblock) = freshest(&found).map(|freshest| freshest.superblock.clone()) {
        renumber(found.iter_mut().map(|found| &mut found.superblock), &superblock);
    }
    let Some(freshest) = freshest(&found) else {
        return Err(no_holder(&found, left_out));
    };
    let named: Vec<apart::Named<'_>> = found.iter().map(Found::named).collect();
    if let Some(sides) = apart::sides(&named, &freshest.superblock) {
        return Err(AssembleError::RanApart { array: title(&freshest.superblock), sides });
    }
    let shared = freshest.superblock.clone();
    let reference = freshest.name.clone();
    let mut choice =
        Choice { shared, begun: None, members: Vec::new(), stale: Vec::new(), left_out };
    for found in found {
        match standing(&choice.shared, &reference, &found)? {
            Ok(standing) => choice.members.push(Chosen { found, standing }),
            Err(why) => {
                let line = format!("{}: {why}", found.name);
                match stale_slot(&choice.shared, &reference, &found) {
                    Some(slot) => choice.stale.push(Stale { found, slot, line }),
                    None => choice.left_out.push(line),
                }
            }
        }
    }
    no_number_twice(&mut choice);
    replacements(&mut choice);
    no_slot_twice(&choice.members)?;
    half_changed_log(&mut choice);
    Ok(choice)
}

/// The last update gave the array its partial parity log, or took it away, and has not come to all members. Nothing was entered
/// before the first had, so there is no log either way: a resync does what it would have spared. Members that were told of that
/// in a start since are as fresh as those that were not.
fn half_changed_log(choice: &mut Choice) {
    let lacks =
        |chosen: &Chosen| chosen.standing.slot().is_some() && chosen.found.superblock.ppl.is_none();
    if choice.shared.ppl.is_none() || choice.members.iter().any(lacks) {
        choice.shared.ppl = None;
        for chosen in &mut choice.members {
            chosen.found.superblock.ppl = None;
        }
    }
}

/// Leaves out a spare whose place in the role table was given to another member while it was away.
fn no_number_twice(choice: &mut Choice) {
    let numbers: Vec<(u32, u64, bool)> = choice
        .members
        .iter()
        .map(|chosen| {
            let superblock = &chosen.found.superblock;
            (superblock.dev_number, superblock.events, chosen.standing == Standing::Spare)
        })
        .collect();
    let members = std::mem::take(&mut choice.members);
    for (at, chosen) in members.into_iter().enumerate() {
        let (number, events, spare) = numbers[at];
        let replaced = numbers.iter().enumerate().any(|(other, (same, newer, waits))| {
            let first = !waits || other < at;
            other != at && *same == number && (*newer > events || (*newer == events && first))
        });
        if spare && replaced {
            choice.left_out.push(format!(
                "{}: its number {number} belongs to another member by now; add it again as a spare",
                chosen.found.name
            ));
        } else {
            choice.members.push(chosen);
        }
    }
}

/// A line per array: its title and its members.
fn arrays(found: &[Found]) -> Vec<String> {
    let mut groups: Vec<([u8; 16], String, Vec<&str>)> = Vec::new();
    for member in found {
        let uuid = member.superblock.set_uuid;
        match groups.iter_mut().find(|(known, _, _)| *known == uuid) {
            Some((_, _, names)) => names.push(&member.name),
            None => groups.push((uuid, title(&member.superblock), vec![&member.name])),
        }
    }
    groups.iter().map(|(_, title, names)| format!("  {title}: {}", names.join(", "))).collect()
}

fn one_array(
    found: Vec<Found>,
    uuid: Option<[u8; 16]>,
) -> Result<(Vec<Found>, Vec<String>), AssembleError> {
    let lines = arrays(&found);
    let Some(uuid) = uuid else {
        if lines.len() > 1 {
            return Err(AssembleError::SeveralArrays { found: lines.join("\n") });
        }
        return Ok((found, Vec::new()));
    };
    let (ours, others): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|member| member.superblock.set_uuid == uuid);
    if ours.is_empty() {
        let uuid = uuid_text::format(&uuid);
        return Err(AssembleError::NotThatArray { uuid, found: lines.join("; ") });
    }
    let left_out = others.iter().map(|other| {
        format!("{}: it is a member of array {}", other.name, title(&other.superblock))
    });
    let left_out = left_out.collect();
    Ok((ours, left_out))
}

fn no_twins(found: &[Found]) -> Result<(), AssembleError> {
    for (at, first) in found.iter().enumerate() {
        let uuid = first.superblock.device_uuid;
        let mut others = found.iter().skip(at + 1);
        let twin = others.find(|other| first.superblock.is_twin_of(&other.superblock));
        if let Some(second) = twin {
            return Err(AssembleError::SameMember {
                first: first.name.clone(),
                second: second.name.clone(),
                what: format!("device uuid {}", uuid_text::format(&uuid)),
            });
        }
    }
    Ok(())
}

fn freshest(found: &[Found]) -> Option<&Found> {
    let holders = found
        .iter()
        .filter(|member| matches!(member.superblock.own_role(), Role::Slot(_) | Role::Journal));
    // The first of those with the most events.
    holders.reduce(
        |best, next| {
            if next.superblock.events > best.superblock.events { next } else { best }
        },
    )
}

/// "1 update older", "2 updates older".
pub(super) fn older_by(updates: u64) -> String {
    let plural = if updates == 1 { "" } else { "s" };
    format!("{updates} update{plural} older")
}

/// "slot 2 is missing", "slots 1, 2 are missing".
pub(crate) fn missing_text(slots: &[Slot]) -> String {
    let names: Vec<String> = slots.iter().map(Slot::to_string).collect();
    match names.as_slice() {
        [only] => format!("slot {only} is missing"),
        _ => format!("slots {} are missing", names.join(", ")),
    }
}

/// Only spares and faulty members were given.
fn no_holder(found: &[Found], mut left_out: Vec<String>) -> AssembleError {
    let Some(first) = found.first() else { return AssembleError::NoMember };
    let raid_disks = first.superblock.raid_disks as usize;
    let all: Vec<Slot> = (0..raid_disks).collect();
    for member in found {
        left_out.push(format!("{}: it holds no slot (a spare, or failed earlier)", member.name));
    }
    AssembleError::NotEnough {
        array: title(&first.superblock),
        have: 0,
        raid_disks,
        level: braid_layout::Level::from_md(first.superblock.level)
            .unwrap_or(braid_layout::Level::Linear),
        missing: missing_text(&all).into(),
        left_out,
        by_force: Box::default(),
        given: found.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(" ").into(),
    }
}

/// The member's standing by the freshest superblock, or the reason why it is left out.
fn standing(
    shared: &Superblock,
    reference: &str,
    found: &Found,
) -> Result<Result<Standing, String>, AssembleError> {
    let own = &found.superblock;
    let behind = shared.events.saturating_sub(own.events);
    let again = if shared.bitmap_offset == 0 {
        "add it again as a spare"
    } else {
        "re-add it, which copies what it lacks when the bitmap knows, or add it as a spare"
    };
    let stale = format!(
        "its superblock is {} than that of {reference}: it was away while the array was \
         written; {again}",
        older_by(behind)
    );
    let apart = format!(
        "it ran apart from {reference}, which it takes for lost: both may hold writes that the other lacks; \
         add it again as a spare, which gives up its own"
    );
    if own.role_of(shared.dev_number) == Role::Faulty {
        return Ok(Err(apart));
    }
    // Not by itself a reason: it may have missed the one update that gave the freshest its slot.
    let misses_freshest =
        matches!(own.own_role(), Role::Slot(_)) && !own.roles.contains(&shared.own_role());
    match (shared.role_of(own.dev_number), own.own_role()) {
        (Role::Faulty, _) => {
            Ok(Err(format!("it failed while the array ran; check it, then {again}")))
        }
        (_, Role::Journal) if !shared.journal => {
            Ok(Err("it is a journal, and the array has none any more".to_string()))
        }
        (Role::Journal, Role::Journal) if behind <= 1 => Ok(Ok(Standing::Journal)),
        (Role::Journal, Role::Journal) => Ok(Err(format!(
            "its superblock is {} than that of {reference}: the array was written without this \
             journal meanwhile, and what is in it is older than what the members hold",
            older_by(behind)
        ))),
        (Role::Journal, _) | (_, Role::Journal) => Ok(Err(stale)),
        // A spare holds nothing, so its age does not matter; one that was promoted in an update
        // that it did not see starts as a spare again.
        (_, Role::Spare) => Ok(match lacks_room(shared, own) {
            Some(what) => Err(format!(
                "it is a spare, and by its superblock it has {what}: it was away when the array changed; add it again"
            )),
            None => Ok(Standing::Spare),
        }),
        (Role::Spare, _) if misses_freshest => Ok(Err(apart)),
        (Role::Spare, _) | (_, Role::Faulty) => Ok(Err(stale)),
        (Role::Slot(_), Role::Slot(_)) if behind > if planted("two-behind") { 2 } else { 1 } => {
            Ok(Err(stale))
        }
        (Role::Slot(slot), Role::Slot(held)) if slot != held => Ok(Err(stale)),
        (Role::Slot(slot), Role::Slot(_)) => {
            agrees(shared, reference, found)?;
            Ok(Ok(holder(own, slot.into())))
        }
    }
}

/// The room that a spare lacks and all members have by now.
fn lacks_room(shared: &Superblock, own: &Superblock) -> Option<String> {
    if own.data_size < shared.size {
        let (have, need) = (own.data_size, shared.size);
        return Some(format!("{have} sectors for data where {need} are needed"));
    }
    let lacks_log = shared.ppl.is_some() && Area::of(own).is_none();
    lacks_log.then(|| "no place for the array's partial parity log".to_string())
}

/// A replacement whose member is there goes on as one; where that is gone, or failed, it takes the slot as it is. As in md
/// the first of several counts; the others have nothing that is of use.
pub(crate) fn replacements(choice: &mut Choice) {
    let mut served: Vec<Slot> = Vec::new();
    for at in 0..choice.members.len() {
        let Some(Standing::Replacing { slot, recovered, checkpoint }) =
            choice.members.get(at).map(|chosen| chosen.standing.clone())
        else {
            continue;
        };
        let mut others = choice.members.iter().map(|chosen| &chosen.standing);
        let in_sync = others.clone().any(|other| *other == Standing::InSync(slot));
        let held = others.any(|other| other.slot() == Some(slot));
        let standing = match (served.contains(&slot), in_sync, held) {
            (true, ..) | (_, false, true) => Standing::Spare,
            (_, true, _) => Standing::Replacing { slot, recovered, checkpoint },
            _ if checkpoint == u64::MAX => Standing::InSync(slot),
            _ => Standing::Rebuilding { slot, recovered, checkpoint, by_bitmap: false },
        };
        served.push(slot);
        if let Some(chosen) = choice.members.get_mut(at) {
            chosen.found.superblock.replacement = matches!(standing, Standing::Replacing { .. });
            chosen.standing = standing;
        }
    }
}

fn holder(own: &Superblock, slot: Slot) -> Standing {
    match own.recovery_offset {
        None if own.replacement => {
            Standing::Replacing { slot, recovered: u64::MAX - 1, checkpoint: u64::MAX }
        }
        None => Standing::InSync(slot),
        Some(sectors) => {
            let recovered = sectors.saturating_mul(SECTOR as u64).min(u64::MAX - 1);
            // Requests are cut there, and must stay whole blocks of whatever size.
            let recovered = recovered - recovered % BLOCK_MAX;
            if own.replacement {
                return Standing::Replacing { slot, recovered, checkpoint: recovered };
            }
            let by_bitmap = own.recovery_by_bitmap && own.bitmap_offset != 0;
            Standing::Rebuilding { slot, recovered, checkpoint: recovered, by_bitmap }
        }
    }
}

fn agrees(shared: &Superblock, reference: &str, found: &Found) -> Result<(), AssembleError> {
    let own = &found.superblock;
    // The last update may be the one that changed the size, or the shape, and may not have come this far.
    let missed_one = own.events < shared.events;
    let differing = [
        ("level", missed_one || own.level == shared.level),
        ("layout", missed_one || own.layout == shared.layout),
        ("chunk size", missed_one || own.chunk_sectors == shared.chunk_sectors),
        ("number of slots", missed_one || own.raid_disks == shared.raid_disks),
        ("component size", missed_one || used_size(own) == used_size(shared)),
        ("metadata version", own.version == shared.version),
    ];
    match differing.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((what, _)) => Err(AssembleError::Disagree {
            name: found.name.clone(),
            other: reference.to_string(),
            what,
        }),
    }
}

fn no_slot_twice(members: &[Chosen]) -> Result<(), AssembleError> {
    for (at, first) in members.iter().enumerate() {
        let Some(slot) = first.standing.slot() else { continue };
        let others = members.iter().skip(at + 1);
        if let Some(second) = others.into_iter().find(|o| o.standing.slot() == Some(slot)) {
            return Err(AssembleError::SameMember {
                first: first.found.name.clone(),
                second: second.found.name.clone(),
                what: format!("slot {slot}"),
            });
        }
    }
    Ok(())
}

/// Refuses what cannot be run without damage. `in_the_way`: the reason why a reshape cannot go on.
pub(crate) fn check_supported(
    choice: &Choice,
    read_only: bool,
    in_the_way: Option<String>,
) -> Result<(), AssembleError> {
    let shared = &choice.shared;
    let what = if shared.reshape.is_some() && read_only {
        "is in the middle of a reshape".to_string()
    } else if let Some(why) = in_the_way {
        format!("is in the middle of a reshape {why}")
    } else if shared.journal && !Level::from_md(shared.level).is_some_and(|level| level.is_parity())
    {
        format!("has a journal device at level {}, where it has no meaning", shared.level)
    } else if shared.journal && (shared.bitmap_offset != 0 || shared.reshape.is_some()) {
        "has a journal device besides a bitmap or in the middle of a reshape, which md never leaves"
            .to_string()
    } else if shared.clustered {
        "belongs to a cluster".to_string()
    } else if let (Some(why), false) = (unusable_log(choice), read_only) {
        format!("has a partial parity log {why} (a read-only assembly works)")
    } else {
        return Ok(());
    };
    Err(AssembleError::Unsupported { array: choice.title(), what })
}

/// Why writes could not be entered in the array's partial parity log, if it has one.
fn unusable_log(choice: &Choice) -> Option<String> {
    choice.shared.ppl?;
    if choice.shared.level != Level::Raid5.md_number() {
        return Some(format!("at level {}, where it has no meaning", choice.shared.level));
    }
    let without = choice.members.iter().find(|chosen| Area::of(&chosen.found.superblock).is_none());
    without.map(|chosen| format!("for which {} has no room", chosen.found.name))
}
