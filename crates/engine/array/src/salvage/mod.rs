//! A read-only look at an array as its members hold it, also at one that the engine does not run: in the middle
//! of a reshape, with a journal, with a replacement half filled, with bad blocks recorded.
//!
//! `choose` decides which members take part, as for a running array. This file makes of that a plan: one or two
//! geometries, and for each slot the members that can give it and how far. `read` carries requests out by the plan.
//! Nothing is replayed: neither a journal nor a partial parity log.
//!
//! Invariant: no request but reads is ever sent to a member.

mod read;

use crate::assemble::choose::{Choice, choose, missing_text};
use crate::assemble::{examine_all, not_enough};
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::options::Context;
use crate::state::bad_blocks::BadBlocks;
use braid_device::{Device, DeviceInfo, OpenError, Opener, Target, TargetInfo};
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Role, Superblock};
use braid_layout::{Layout, Level, Slot, Spec, layout_name};
use braid_shard::Shard;
use read::{Plan, Side, Source};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SECTOR_BYTES: u64 = SECTOR as u64;

/// One member of a salvaged array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedMember {
    /// Its name, as it was opened.
    pub name: String,
    /// Its superblock.
    pub superblock: Superblock,
    /// Its slot; `None` for a spare.
    pub slot: Option<Slot>,
    /// All of it is valid; false where it is being filled.
    pub whole: bool,
}

/// An array that can be read and nothing else. It ends with [`Salvage::stop`], or when it is dropped and its last
/// client has gone.
pub struct Salvage {
    info: TargetInfo,
    plan: Arc<Plan>,
    openers: Vec<Arc<dyn Opener>>,
    members: Vec<SalvagedMember>,
    left_out: Vec<String>,
    warnings: Vec<String>,
    shared: Superblock,
    stopped: Arc<AtomicBool>,
}

/// Looks at the array whose members `openers` are, in any order; `uuid` says which one when there are several.
/// `name` is what it is served as.
///
/// # Errors
/// Members that do not open, do not belong together, or are too few: as for [`crate::assemble::assemble`]. Nothing is written.
pub async fn salvage(
    ctx: &Context,
    openers: Vec<Arc<dyn Opener>>,
    name: String,
    uuid: Option<[u8; 16]>,
) -> Result<Salvage, AssembleError> {
    let found = examine_all(ctx, openers).await?;
    let given: Vec<String> = found.iter().map(|found| found.name.clone()).collect();
    let mut choice = choose(found, uuid)?;
    choice.leave_stale_out();
    let level = crate::assemble::level(&choice)?;
    let mut warnings = Vec::new();
    let logs = bad_blocks(ctx, &choice, &mut warnings).await;
    let plan = plan(&choice, level, &logs)?;
    for side in plan.sides() {
        let empty: Vec<Slot> = side.empty_slots();
        if !side.layout.survives(|slot| !empty.contains(&slot)) {
            let mut error = not_enough(&choice, level, &given);
            if let AssembleError::NotEnough { have, missing, .. } = &mut error {
                *have = side.layout.slots() - empty.len();
                *missing = missing_text(&empty).into();
            }
            return Err(error);
        }
    }
    let info = TargetInfo {
        device: device_info(&choice, &name, &plan)?,
        name,
        description: description(&choice.shared, level),
        read_only: true,
    };
    let members = choice.members.iter().map(|chosen| SalvagedMember {
        name: chosen.found.name.clone(),
        superblock: chosen.found.superblock.clone(),
        slot: chosen.standing.slot_on_it(),
        whole: matches!(chosen.standing, Standing::InSync(_)),
    });
    Ok(Salvage {
        info,
        plan: Arc::new(plan),
        members: members.collect(),
        openers: choice.members.iter().map(|chosen| Arc::clone(&chosen.found.opener)).collect(),
        left_out: choice.left_out,
        warnings,
        shared: choice.shared,
        stopped: Arc::new(AtomicBool::new(false)),
    })
}

impl Salvage {
    /// The freshest superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.shared
    }

    /// The members that are read, and spares.
    pub fn members(&self) -> &[SalvagedMember] {
        &self.members
    }

    /// One line for each member that is not used, with the reason.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Findings about the members that may make the data read from them wrong. See also [`cautions`].
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Slots of the array that no member holds wholly.
    pub fn degraded(&self) -> usize {
        let whole = |slot: &Slot| self.members.iter().any(|m| m.whole && m.slot == Some(*slot));
        (0..self.shared.slots() as usize).filter(|slot| !whole(slot)).count()
    }

    /// Refuses all requests from now on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Target for Salvage {
    fn info(&self) -> TargetInfo {
        self.info.clone()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let devices: Result<Vec<_>, OpenError> =
            self.openers.iter().map(|opener| opener.open(shard)).collect();
        let (plan, stopped) = (Arc::clone(&self.plan), Arc::clone(&self.stopped));
        Ok(Rc::new(read::SalvageDevice::new(shard, &self.info.device, devices?, plan, stopped)))
    }
}

/// The cautions about an array that is read without replaying or finishing anything: a sentence each, none
/// for an array that was stopped in order. `freshest` is its freshest superblock; `degraded`: a slot has no member
/// that is wholly valid.
pub fn cautions(freshest: &Superblock, degraded: bool) -> Vec<String> {
    let mut said = Vec::new();
    let redundant = Level::from_md(freshest.level).is_some_and(Level::has_redundancy);
    let parity = matches!(freshest.level, 4..=6);
    let dirty = redundant && !freshest.is_clean();
    if dirty && degraded && parity {
        said.push(
            "it was not stopped cleanly and a member is missing: blocks of that member near the last writes \
             may come back wrong (the write hole)"
                .to_string(),
        );
    } else if dirty {
        said.push(
            "it was not stopped cleanly: what was being written at that moment may be old or new"
                .to_string(),
        );
    }
    if freshest.ppl.is_some() && dirty {
        said.push(
            "it has a partial parity log, which was not replayed: start the array, or a copy of its members, to have \
             that done"
                .to_string(),
        );
    }
    if freshest.journal {
        said.push(
            "it has a journal, which was not replayed: writes that are only there are missing in what is read; \
             assemble a copy of the members with md to have them"
                .to_string(),
        );
    }
    if let Some(reshape) = &freshest.reshape {
        said.extend(reshape_cautions(freshest, reshape));
    }
    if freshest.clustered {
        said.push("it belongs to a cluster: stop it everywhere before it is read".to_string());
    }
    said
}

fn reshape_cautions(freshest: &Superblock, reshape: &Reshape) -> Vec<String> {
    let place = reshape.position.saturating_mul(SECTOR_BYTES);
    let (new, old) = if reshape.backwards { ("from", "before") } else { ("before", "from") };
    let mut said = vec![format!(
        "it is in the middle of a reshape: bytes {new} {place} are read in the new shape, those {old} there in the old"
    )];
    if freshest.reshape_position_is_doubtful() {
        said.push(
            "that place is not to be trusted when Linux ran the reshape, since it keeps the number of slots and \
             moves the data: both sides may read wrong without an error; compare with what you know of the content"
                .to_string(),
        );
    } else if freshest.new_offset == 0 {
        said.push(
            "if the reshape was run with a backup file and was not stopped in order, that file holds what belongs \
             near this place: assemble a copy of the members with mdadm --backup-file to have it put back"
                .to_string(),
        );
    }
    said
}

/// The bad blocks of each chosen member, as member bytes.
async fn bad_blocks(
    ctx: &Context,
    choice: &Choice,
    warnings: &mut Vec<String>,
) -> Vec<Vec<std::ops::Range<u64>>> {
    let mut all = Vec::new();
    for chosen in &choice.members {
        let read = crate::assemble::bad_blocks::bad_blocks(&ctx.shard, &chosen.found).await;
        let list = read.unwrap_or_else(|why| {
            warnings.push(format!(
                "{}: its bad-block log could not be read ({why}): blocks recorded there may come back wrong",
                chosen.found.name
            ));
            BadBlocks::default()
        });
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        all.push(list.ranges().iter().map(|r| bytes(r.start)..bytes(r.end)).collect());
    }
    all
}

/// Which geometry of a reshape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The only one, or the old one.
    Old,
    New,
}

fn plan(
    choice: &Choice,
    level: Level,
    logs: &[Vec<std::ops::Range<u64>>],
) -> Result<Plan, AssembleError> {
    let shared = &choice.shared;
    let old = side(choice, level, Shape::Old, logs)?;
    let Some(reshape) = &shared.reshape else {
        return Ok(Plan {
            size: old.layout.array_size(),
            old,
            new: None,
            boundary: 0,
            backwards: false,
        });
    };
    let new_level = Level::from_md(reshape.new_level)
        .ok_or_else(|| AssembleError::Level { array: choice.title(), level: reshape.new_level })?;
    let new = side(choice, new_level, Shape::New, logs)?;
    Ok(Plan {
        // Until the end a growing array has its old size; one that shrinks was cut to its new size before.
        size: old.layout.array_size().min(new.layout.array_size()),
        old,
        new: Some(new),
        boundary: reshape.position.saturating_mul(SECTOR_BYTES),
        backwards: reshape.backwards,
    })
}

fn side(
    choice: &Choice,
    level: Level,
    shape: Shape,
    logs: &[Vec<std::ops::Range<u64>>],
) -> Result<Side, AssembleError> {
    let shared = &choice.shared;
    let new = shared.reshape.as_ref().filter(|_| shape == Shape::New);
    let disks = match (&shared.reshape, shape) {
        (Some(reshape), Shape::Old) => shared.raid_disks.saturating_sub_signed(reshape.delta_disks),
        _ => shared.raid_disks,
    } as usize;
    let number = new.map_or(shared.layout, |reshape| reshape.new_layout);
    let chunk = new.map_or(shared.chunk_sectors, |reshape| reshape.new_chunk_sectors);
    let size_of = |slot: Slot| {
        let chosen = choice.members.iter().find(|chosen| chosen.standing.slot() == Some(slot));
        chosen.map(|chosen| chosen.found.superblock.data_size.saturating_mul(SECTOR_BYTES))
    };
    let member_sizes: Vec<u64> =
        (0..disks.min(braid_layout::MAX_SLOTS)).map_while(size_of).collect();
    let spec = Spec {
        level,
        layout: if level == Level::Raid0 && !shared.raid0_layout { 0 } else { number },
        chunk_size: u64::from(chunk).saturating_mul(SECTOR_BYTES),
        raid_disks: disks,
        component_size: shared.size.saturating_mul(SECTOR_BYTES),
        member_sizes,
    };
    let layout = Layout::new(&spec)
        .map_err(|source| AssembleError::Layout { array: choice.title(), source })?;
    let mut slots: Vec<Vec<Source>> = vec![Vec::new(); layout.slots()];
    for ((member, chosen), bad) in choice.members.iter().enumerate().zip(logs) {
        let superblock = &chosen.found.superblock;
        let valid = valid(&chosen.standing, shared.reshape.as_ref(), shape);
        let data = match shape {
            Shape::Old => Some(superblock.data_offset),
            Shape::New => superblock.new_data_offset(),
        };
        let slot = chosen.standing.slot_on_it().and_then(|slot| slots.get_mut(slot));
        if let (Some(slot), Some(data), 1..) = (slot, data, valid) {
            let data_offset = data.saturating_mul(SECTOR_BYTES);
            slot.push(Source { member, data_offset, valid, bad: bad.clone() });
        }
    }
    for slot in &mut slots {
        // Prefer a complete member to the replacement that is being filled.
        slot.sort_by_key(|source| std::cmp::Reverse(source.valid));
    }
    Ok(Side { layout, slots })
}

/// Component bytes of a member that are valid in one of the shapes.
fn valid(standing: &Standing, reshape: Option<&Reshape>, shape: Shape) -> u64 {
    match (standing, reshape) {
        (Standing::InSync(_), _) => u64::MAX,
        (Standing::Rebuilding { recovered, .. } | Standing::Replacing { recovered, .. }, None) => {
            *recovered
        }
        // A member that was not whole when the reshape began is filled by it, in the new shape.
        (Standing::Rebuilding { recovered, .. }, Some(reshape))
            if shape == Shape::New && !reshape.backwards =>
        {
            *recovered
        }
        _ => 0,
    }
}

fn device_info(choice: &Choice, name: &str, plan: &Plan) -> Result<DeviceInfo, AssembleError> {
    let mut block = SECTOR as u32;
    for chosen in &choice.members {
        block = block.max(chosen.found.device.info().logical_block);
    }
    let wide = u64::from(block);
    for side in plan.sides() {
        let chunk = side.layout.chunk_size();
        let sources = side.slots.iter().flatten();
        let offsets = sources.map(|source| ("a data offset", source.data_offset, source.member));
        let mut all = offsets.chain([("a chunk", chunk, 0)]);
        if let Some((what, bytes, member)) = all.find(|(_, bytes, _)| !bytes.is_multiple_of(wide)) {
            let name = choice.members.get(member).map_or("", |chosen| &chosen.found.name);
            return Err(AssembleError::NotAligned {
                array: choice.title(),
                name: name.to_string(),
                block,
                what,
                bytes,
            });
        }
    }
    Ok(DeviceInfo {
        logical_block: block,
        physical_block: block.max(4096),
        discards: false,
        writes_zeroes: false,
        ..DeviceInfo::plain(name, plan.size / wide * wide)
    })
}

/// One line for people: `raid5 left-symmetric, 4 members, chunk 64K, reshaping`.
fn description(shared: &Superblock, level: Level) -> String {
    let mut line = level.to_string();
    if let Some(layout) = layout_name(level, shared.layout) {
        line.push(' ');
        line.push_str(&layout);
    }
    line.push_str(&format!(", {} members", shared.raid_disks));
    if shared.chunk_sectors > 0 {
        let chunk = u64::from(shared.chunk_sectors) * SECTOR_BYTES;
        line.push_str(&format!(", chunk {}", braid_device::spec::show_size(chunk)));
    }
    if shared.reshape.is_some() {
        line.push_str(", reshaping");
    }
    line
}

/// The freshest of the superblocks of one array: the most events among members with a slot or the journal's
/// role; any, when there is none such.
pub fn freshest(superblocks: &[Superblock]) -> Option<&Superblock> {
    let holds =
        |superblock: &Superblock| matches!(superblock.own_role(), Role::Slot(_) | Role::Journal);
    superblocks.iter().max_by_key(|superblock| (holds(superblock), superblock.events))
}

#[cfg(test)]
mod tests;
