//! Where things go on the bricks of a new volume, and on a brick that is added.
//!
//! Decides; reads and writes no device.

use super::error::AssembleError;
use super::examine::fits;
use crate::create::{Format, NewBrick, first_records};
use braid_device::DeviceInfo;
use braid_filesystem::{Caller, Time};
use braid_format::brick::{
    Area, BLOCK, BrickIds, BrickState, BrickSuperblock, MetadataState, VolumeName, VolumeState,
    usable_size,
};
use braid_kv::{Change, REGION_MIN};
use braid_layout::buckets::MAX_BRICKS;
use braid_mirror::LEGS_MAX;
use std::collections::BTreeSet;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
/// Areas begin at multiples of this at least, in bytes.
const ALIGN: u64 = MIB;
/// A metadata region has this part of the volume's capacity, unless somebody chose: some 5000 bytes for each stripe of
/// 256 KiB, where the extent of a stripe takes some 20 and a small file with its name some 500.
const METADATA_PART: u64 = 50;
/// The least that is chosen, where a quarter of a brick allows it.
const METADATA_MIN: u64 = 32 * MIB;
/// Bricks that get a metadata region: three that hold the metadata, and one that it can move to. With one on each of many
/// bricks, the regions would take up a good part of the volume.
const METADATA_BRICKS: usize = LEGS_MAX + 1;
/// The weight of a brick that has what its size is due, in thousandths.
const WEIGHT_ONE: u64 = 1000;
/// The least data of a brick.
const DATA_MIN: u64 = 8 * MIB;

/// A volume that is to be made.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// The name that users know.
    pub name: String,
    /// Not all zeros.
    pub uuid: Uuid,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Blocks of files have checksums.
    pub checksums: bool,
    /// Copies of each stripe, unless a folder or a file says otherwise: 1 to 4.
    pub copies: u8,
    /// Bytes of a metadata region; chosen where `None`.
    pub metadata_size: Option<u64>,
    /// The owner of the root directory.
    pub owner: Caller,
    /// When it is made.
    pub now: Time,
}

/// A brick that is to be made.
#[derive(Clone, Debug)]
pub struct BrickPlan {
    /// Not all zeros, and no other brick's.
    pub uuid: Uuid,
    /// Its part in placement, in thousandths of what its size is due; 1000 where `None`.
    pub weight: Option<u64>,
    /// The label of its domain; empty: its own.
    pub domain: String,
    /// The description of the device.
    pub info: DeviceInfo,
}

/// A volume that can be made: see [`create`](super::create()).
#[derive(Clone, Debug)]
pub struct CreatePlan {
    /// Of each brick, in their order, which is that of their ids.
    pub superblocks: Vec<BrickSuperblock>,
    /// The initial records of the metadata store.
    pub records: Vec<Change>,
}

impl CreatePlan {
    /// The bricks that will hold the metadata.
    pub fn metadata(&self) -> impl Iterator<Item = usize> + '_ {
        let used = |at: &usize| {
            let superblock = self.superblocks.get(*at);
            superblock.is_some_and(|brick| brick.metadata_state == MetadataState::InSync)
        };
        (0..self.superblocks.len()).filter(used)
    }
}

/// Lays a new volume out.
///
/// # Errors
/// When the name, the stripe, a brick or a weight cannot be.
pub fn plan_create(new: &NewVolume, bricks: &[BrickPlan]) -> Result<CreatePlan, AssembleError> {
    let volume_name = VolumeName::new(&new.name)?;
    let stripe_size = u32::try_from(new.stripe).unwrap_or(u32::MAX);
    check_given(bricks)?;
    let data_min = DATA_MIN.max(new.stripe);
    let metadata_len = metadata_len(new.metadata_size, data_min, bricks)?;
    let brick_ids = BrickIds::new(0..bricks.len() as u16);
    let mut superblocks = Vec::new();
    for (brick_id, brick) in (0..).zip(bricks) {
        let with = superblocks.iter().filter(|other| has_region(other)).count();
        let len = if with < METADATA_BRICKS { metadata_len } else { 0 };
        let (metadata, data) = areas(brick, len, data_min)?;
        // The first three with room hold it.
        let used = metadata.len > 0 && with < LEGS_MAX;
        superblocks.push(BrickSuperblock {
            volume_uuid: new.uuid.into_bytes(),
            brick_uuid: brick.uuid.into_bytes(),
            volume_name: volume_name.clone(),
            brick_id,
            // At most 4096.
            brick_count: bricks.len() as u16,
            state: BrickState::Data,
            weight: weight_of(data.len / BLOCK, brick.weight.unwrap_or(WEIGHT_ONE)),
            generation: 1,
            brick_size: usable_size(brick.info.size),
            stripe_size,
            metadata_state: if used { MetadataState::InSync } else { MetadataState::Unused },
            metadata_generation: used.into(),
            metadata,
            metadata_grown: Vec::new(),
            data,
            created: nanos(new.now),
            updated: nanos(new.now),
            volume_state: VolumeState::Creating,
            brick_ids: brick_ids.clone(),
            away: Vec::new(),
            // Told when all have the first superblock.
            metadata_holders: Vec::new(),
        });
    }
    let placed: Vec<NewBrick> = superblocks
        .iter()
        .zip(bricks)
        .map(|(brick, plan)| NewBrick {
            uuid: Uuid::from_bytes(brick.brick_uuid),
            weight: brick.weight,
            blocks: brick.data.len / BLOCK,
            domain: plan.domain.clone(),
        })
        .collect();
    let NewVolume { stripe, checksums, copies, .. } = *new;
    let format = Format { stripe, checksums, copies };
    let records = first_records(new.uuid, format, &placed, new.owner, new.now)?;
    Ok(CreatePlan { superblocks, records })
}

/// Lays a brick out that is added to the volume of `like`, whose bricks have `regions` metadata regions of `metadata_len`
/// bytes.
pub(super) fn plan_add(
    like: &BrickSuperblock,
    brick: &BrickPlan,
    (regions, metadata_len): (usize, u64),
    brick_id: u16,
    now: Time,
) -> Result<BrickSuperblock, AssembleError> {
    check_given(std::slice::from_ref(brick))?;
    let data_min = DATA_MIN.max(like.stripe_size.into());
    let len = if regions < METADATA_BRICKS { metadata_len } else { 0 };
    let (metadata, data) = areas(brick, len, data_min)?;
    Ok(BrickSuperblock {
        brick_uuid: brick.uuid.into_bytes(),
        brick_id,
        state: BrickState::Data,
        weight: weight_of(data.len / BLOCK, brick.weight.unwrap_or(WEIGHT_ONE)),
        brick_size: usable_size(brick.info.size),
        metadata_state: MetadataState::Unused,
        metadata_generation: 0,
        metadata,
        metadata_grown: Vec::new(),
        data,
        created: nanos(now),
        updated: nanos(now),
        volume_state: VolumeState::Creating,
        // So much is needed for it to be a brick at all; what counts is what the others say.
        away: Vec::new(),
        metadata_holders: Vec::new(),
        ..like.clone()
    })
}

/// The part in placement of a brick with `blocks` blocks of data whose weight is so many thousandths: by themselves bricks
/// share in proportion to their sizes. At least 1.
pub fn weight_of(blocks: u64, thousandths: u64) -> u64 {
    let weight = u128::from(blocks) * u128::from(thousandths) / u128::from(WEIGHT_ONE);
    u64::try_from(weight).unwrap_or(u64::MAX).max(1)
}

/// It has a metadata region, used or not.
pub(super) fn has_region(superblock: &BrickSuperblock) -> bool {
    superblock.metadata.len > 0
}

/// Nanoseconds since 1970; 0 before.
pub(super) fn nanos(time: Time) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into())
}

/// Checks bricks before anything is laid out.
fn check_given(bricks: &[BrickPlan]) -> Result<(), AssembleError> {
    if bricks.is_empty() {
        return Err(AssembleError::NoBricks);
    }
    if bricks.len() > MAX_BRICKS {
        return Err(AssembleError::TooManyBricks { count: bricks.len() });
    }
    let mut seen = BTreeSet::new();
    for brick in bricks {
        let device = || brick.info.name.clone();
        fits(&brick.info.name, brick.info.logical_block)?;
        if brick.weight == Some(0) {
            return Err(AssembleError::WeightZero { device: device() });
        }
        if !seen.insert(brick.uuid) {
            return Err(AssembleError::NamedTwice { device: device() });
        }
    }
    Ok(())
}

/// Bytes of a metadata region.
fn metadata_len(
    asked: Option<u64>,
    data_min: u64,
    bricks: &[BrickPlan],
) -> Result<u64, AssembleError> {
    let mut sizes: Vec<(u64, &str)> =
        bricks.iter().map(|brick| (brick.info.size, brick.info.name.as_str())).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.0));
    let (largest, device) = sizes.first().copied().unwrap_or_default();
    let len = match asked {
        Some(bytes) if bytes < REGION_MIN => return Err(AssembleError::MetadataSize { bytes }),
        Some(bytes) => bytes.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX - BLOCK + 1),
        None => {
            let total = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(size.0));
            let wanted = (total / METADATA_PART).max(METADATA_MIN);
            // On three bricks, or two, if the smallest of them can hold a good part of what is wanted.
            let mut quarters = sizes.iter().take(LEGS_MAX).rev().map(|size| size.0 / 4);
            let good = |quarter: &u64| *quarter >= (wanted / 4).max(REGION_MIN);
            let quarter = quarters.find(good).unwrap_or(largest / 4);
            let len = wanted.min(quarter);
            len - len % ALIGN
        }
    };
    let room = largest.checked_sub(fixed(ALIGN)).and_then(|room| room.checked_sub(data_min));
    if len >= REGION_MIN && room.is_some_and(|room| room >= len) {
        return Ok(len);
    }
    let need = len.max(REGION_MIN);
    Err(AssembleError::NoRoomForMetadata {
        device: device.to_string(),
        have: largest,
        need,
        data: data_min,
    })
}

/// Bytes that neither area gets: up to the first, and the second superblock.
fn fixed(align: u64) -> u64 {
    align + BLOCK
}

/// Where the areas of a brick begin: with an array, at its full stripes.
fn align_of(info: &DeviceInfo) -> u64 {
    let optimal = u64::from(info.optimal_io);
    if optimal.is_multiple_of(BLOCK) && (1..=64 * MIB).contains(&optimal) {
        // At most 64 MiB more than a MiB.
        ALIGN.next_multiple_of(optimal)
    } else {
        ALIGN
    }
}

/// The metadata region, where there is room for one of `metadata_len` bytes, and the data of a brick.
fn areas(
    brick: &BrickPlan,
    metadata_len: u64,
    data_min: u64,
) -> Result<(Area, Area), AssembleError> {
    let size = usable_size(brick.info.size);
    let align = align_of(&brick.info);
    let end = size.saturating_sub(BLOCK);
    let data_from = |offset: Option<u64>| {
        let offset = offset?.checked_next_multiple_of(align)?;
        let len = end.checked_sub(offset)?;
        (len >= data_min).then_some(Area { offset, len: len - len % BLOCK })
    };
    let metadata = Area { offset: align, len: metadata_len };
    if metadata_len > 0
        && let Some(data) = data_from(align.checked_add(metadata_len))
    {
        return Ok((metadata, data));
    }
    if let Some(data) = data_from(Some(align)) {
        return Ok((Area::default(), data));
    }
    let stripes = data_min > DATA_MIN;
    Err(AssembleError::TooSmall {
        device: brick.info.name.clone(),
        have: brick.info.size,
        need: fixed(align) + data_min,
        hint: if stripes { ", or choose a smaller stripe" } else { "" },
    })
}
