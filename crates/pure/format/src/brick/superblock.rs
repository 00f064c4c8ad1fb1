//! A brick's superblock: its fields, the reading and writing of one copy, and the checks of its values.

use super::areas::{self, Area, BLOCK, MAX_GROWN};
use super::error::BrickError;
use super::members::{self, Away, BrickIds};
use super::name::VolumeName;
use super::raw::{self, MAGIC, MAX_AWAY, MAX_HOLDERS, Raw, SUPERBLOCK_LEN, VERSION};
use super::states::{BrickState, MetadataState, VolumeState};
use zerocopy::{FromBytes, IntoBytes};

/// The smallest stripe, in bytes.
pub const MIN_STRIPE: u32 = 16 << 10;
/// The largest stripe, in bytes.
pub const MAX_STRIPE: u32 = 64 << 20;

/// The highest generation. No volume ever reaches it, and incrementing it cannot overflow.
pub const MAX_GENERATION: u64 = u64::MAX >> 1;

/// Incompatible feature: the metadata region has grown by areas of its own.
const FEATURE_GROWN: u64 = 1;

/// Compatible feature: the bricks that hold the metadata are told.
const FEATURE_HOLDERS: u64 = 1;

/// One brick's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickSuperblock {
    /// The volume's uuid, the same on all its bricks; not all zeros.
    pub volume_uuid: [u8; 16],
    /// This brick's uuid; not all zeros.
    pub brick_uuid: [u8; 16],
    /// The volume's name.
    pub volume_name: VolumeName,
    /// The brick's id in its volume, by which stripes are recorded. Never given to another brick.
    pub brick_id: u16,
    /// Bricks of the volume when this was written; at least 1.
    pub brick_count: u16,
    /// The use of the brick.
    pub state: BrickState,
    /// Its weight in the placement; at least 1 where the state is [`BrickState::Data`].
    pub weight: u64,
    /// Incremented by every change of the volume's bricks; at least 1. Of two copies the one with the higher generation is
    /// current, and a brick with a lower one than the others was missing when they changed.
    pub generation: u64,
    /// Bytes of the device that the brick uses, a multiple of [`BLOCK`]. The second copy ends here.
    pub brick_size: u64,
    /// Bytes of a stripe: a power of two, [`MIN_STRIPE`] to [`MAX_STRIPE`]; the same on all bricks.
    pub stripe_size: u32,
    /// The state in which the volume was left.
    pub volume_state: VolumeState,
    /// The state of the metadata region; [`MetadataState::Unused`] where there is none.
    pub metadata_state: MetadataState,
    /// The last generation in which the metadata region is known to have taken part; 0 if the region is not used.
    pub metadata_generation: u64,
    /// The metadata region, or its first area; empty where there is none.
    pub metadata: Area,
    /// The areas that were added to the region, in its order; at most [`MAX_GROWN`].
    pub metadata_grown: Vec<Area>,
    /// The data area, which holds the stripes. At least one stripe long, or empty if the state is
    /// [`BrickState::MetadataOnly`].
    pub data: Area,
    /// When the brick was made: nanoseconds since 1970.
    pub created: u64,
    /// When this was written: nanoseconds since 1970.
    pub updated: u64,
    /// The ids of the volume's `brick_count` bricks.
    pub brick_ids: BrickIds,
    /// The bricks among them that were missing when this was written, sorted by id; at most [`MAX_AWAY`].
    pub away: Vec<Away>,
    /// The [`MAX_HOLDERS`] bricks that hold the metadata, of which more than half decide which state is the newest;
    /// ascending. Empty where fewer hold it.
    pub metadata_holders: Vec<u16>,
}

impl BrickSuperblock {
    /// The bytes of either copy, with their checksum. They can be read back if the superblock passes
    /// [`BrickSuperblock::check`].
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_LEN] {
        let (brick_ids, runs) = self.brick_ids.to_raw();
        let (away, aways) = members::away_to_raw(&self.away);
        let (metadata_grown, growths) = raw::grown_to_raw(&self.metadata_grown);
        let features = if growths > 0 { FEATURE_GROWN } else { 0 };
        let (holder_ids, holders) = raw::holders_to_raw(&self.metadata_holders);
        let compatible = if holders > 0 { FEATURE_HOLDERS } else { 0 };
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            features_incompatible: features.into(),
            features_compatible: compatible.into(),
            volume_uuid: self.volume_uuid,
            brick_uuid: self.brick_uuid,
            volume_name: self.volume_name.padded(),
            brick_id: self.brick_id.into(),
            brick_count: self.brick_count.into(),
            state: self.state.number().into(),
            metadata_state: self.metadata_state.number().into(),
            weight: self.weight.into(),
            generation: self.generation.into(),
            brick_size: self.brick_size.into(),
            stripe_size: self.stripe_size.into(),
            volume_state: self.volume_state.number().into(),
            metadata_offset: self.metadata.offset.into(),
            metadata_len: self.metadata.len.into(),
            metadata_generation: self.metadata_generation.into(),
            data_offset: self.data.offset.into(),
            data_len: self.data.len.into(),
            created: self.created.into(),
            updated: self.updated.into(),
            runs: runs.into(),
            aways: aways.into(),
            growths: growths.into(),
            pad: 0.into(),
            brick_ids,
            away,
            metadata_grown,
            holders: holders.into(),
            holder_ids,
            reserved: [0; raw::RESERVED],
        };
        raw.checksum = raw.computed().into();
        let mut bytes = [0; SUPERBLOCK_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Reads a copy that stood at byte `at` of a device of `device_bytes`; bytes behind the first
    /// [`SUPERBLOCK_LEN`] are not looked at. Compatible feature bits that are not known are ignored, and gone when it is
    /// written again.
    ///
    /// # Errors
    /// In this order: too few bytes, no magic ([`BrickError::NotABrick`]), a wrong checksum, a version or an
    /// incompatible feature that is not known, a value that cannot be.
    pub fn parse(bytes: &[u8], at: u64, device_bytes: u64) -> Result<BrickSuperblock, BrickError> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return Err(BrickError::TooShort { at, have: bytes.len() });
        };
        if raw.magic != MAGIC {
            return Err(BrickError::NotABrick { at });
        }
        let (stored, computed) = (raw.checksum.get(), raw.computed());
        if stored != computed {
            return Err(BrickError::Checksum { at, stored, computed });
        }
        if raw.version != VERSION {
            return Err(BrickError::Version { at, found: raw.version.get() });
        }
        let unknown = raw.features_incompatible.get() & !FEATURE_GROWN;
        if unknown != 0 {
            return Err(BrickError::Features { at, bits: unknown });
        }
        let has_grown = raw.features_incompatible.get() & FEATURE_GROWN != 0;
        let impossible = |field, found, must| Err(BrickError::Field { at, field, found, must });
        // A compatible feature of a newer version may use these bytes, and they may be ignored then.
        let compatible = raw.features_compatible.get();
        if compatible & !FEATURE_HOLDERS == 0
            && let Some(place) = raw.reserved.iter().position(|&byte| byte != 0)
        {
            let place = (SUPERBLOCK_LEN - raw::RESERVED + place) as u64;
            return impossible("the offset of a reserved byte that is not zero", place, "none");
        }
        if raw.pad != 0 {
            return impossible("the reserved word at 238", raw.pad.get().into(), "0");
        }
        let growths = raw.growths.get();
        if has_grown != (growths > 0) {
            let must = "more than 0 with the feature, and 0 without";
            return impossible("the number of areas added to the metadata", growths.into(), must);
        }
        let grown = raw::grown_of_raw(&raw.metadata_grown, growths);
        let metadata_grown = match grown {
            Some(grown) => grown,
            // Without the feature a compatible one may use these bytes.
            None if !has_grown && raw.features_compatible != 0 => Vec::new(),
            None => {
                let must = "that of areas that are not empty, with zeros behind them";
                let field = "the number of areas added to the metadata";
                return impossible(field, growths.into(), must);
            }
        };
        let Some(state) = BrickState::of_number(raw.state.get()) else {
            return impossible("the state", raw.state.get().into(), "1 to 4");
        };
        let Some(metadata_state) = MetadataState::of_number(raw.metadata_state.get()) else {
            return impossible("the metadata's state", raw.metadata_state.get().into(), "0 to 2");
        };
        let Some(volume_state) = VolumeState::of_number(raw.volume_state.get()) else {
            return impossible("the volume's state", raw.volume_state.get().into(), "0 to 2");
        };
        let runs = raw.runs.get();
        let Some(brick_ids) = BrickIds::of_raw(&raw.brick_ids, runs) else {
            return impossible(
                "the number of runs of ids",
                runs.into(),
                "that of sorted, separate runs",
            );
        };
        let aways = raw.aways.get();
        let Some(away) = members::away_of_raw(&raw.away, aways) else {
            return impossible(
                "the number of missing bricks",
                aways.into(),
                "that of sorted entries",
            );
        };
        let holders = raw.holders.get();
        let metadata_holders = match raw::holders_of_raw(&raw.holder_ids, holders) {
            Some(ids) if (compatible & FEATURE_HOLDERS != 0) != ids.is_empty() => ids,
            // Without the feature another compatible one may use these bytes.
            _ if compatible & FEATURE_HOLDERS == 0 && compatible != 0 => Vec::new(),
            _ => {
                let must = "3 with the feature, of ascending ids, and 0 without";
                return impossible("the number of metadata holders", holders.into(), must);
            }
        };
        let volume_name = VolumeName::of_padded(&raw.volume_name)
            .map_err(|source| BrickError::Name { at, source })?;
        let superblock = BrickSuperblock {
            volume_uuid: raw.volume_uuid,
            brick_uuid: raw.brick_uuid,
            volume_name,
            brick_id: raw.brick_id.get(),
            brick_count: raw.brick_count.get(),
            state,
            weight: raw.weight.get(),
            generation: raw.generation.get(),
            brick_size: raw.brick_size.get(),
            stripe_size: raw.stripe_size.get(),
            metadata_state,
            metadata_generation: raw.metadata_generation.get(),
            metadata: Area { offset: raw.metadata_offset.get(), len: raw.metadata_len.get() },
            metadata_grown,
            data: Area { offset: raw.data_offset.get(), len: raw.data_len.get() },
            created: raw.created.get(),
            updated: raw.updated.get(),
            volume_state,
            brick_ids,
            away,
            metadata_holders,
        };
        superblock.check(at, device_bytes)?;
        Ok(superblock)
    }

    /// Checks the values against a device of `device_bytes`; `at` is for the message.
    ///
    /// # Errors
    /// The first value that cannot be: [`BrickError::CutShort`] where the device is smaller than the brick,
    /// else [`BrickError::Field`] or [`BrickError::Overlap`].
    pub fn check(&self, at: u64, device_bytes: u64) -> Result<(), BrickError> {
        let must = |holds: bool, field, found, must| {
            if holds { Ok(()) } else { Err(BrickError::Field { at, field, found, must }) }
        };
        must(self.volume_uuid != [0; 16], "the volume's uuid", 0, "other than 0")?;
        must(self.brick_uuid != [0; 16], "the brick's uuid", 0, "other than 0")?;
        must(self.brick_count > 0, "the number of bricks", 0, "at least 1")?;
        must(self.weight > 0 || self.state != BrickState::Data, "the weight", 0, "at least 1")?;
        must(
            (1..=MAX_GENERATION).contains(&self.generation),
            "the generation",
            self.generation,
            "1 to 9223372036854775807",
        )?;
        let stripe = self.stripe_size;
        must(
            stripe.is_power_of_two() && (MIN_STRIPE..=MAX_STRIPE).contains(&stripe),
            "the stripe size",
            stripe.into(),
            "a power of two from 16384 to 67108864",
        )?;
        must(
            self.brick_size.is_multiple_of(BLOCK) && self.brick_size >= 2 * BLOCK,
            "the brick's size",
            self.brick_size,
            "a multiple of 4096 with room for two superblocks",
        )?;
        if device_bytes < self.brick_size {
            return Err(BrickError::CutShort { at, need: self.brick_size, have: device_bytes });
        }
        self.check_members(at)?;
        self.check_areas(at)?;
        if self.metadata.len == 0 {
            let number = self.metadata_state.number().into();
            must(
                number == 0,
                "the metadata's state",
                number,
                "0, since there is no metadata region",
            )?;
        }
        if self.metadata_state == MetadataState::Unused {
            let found = self.metadata_generation;
            must(
                found == 0,
                "the metadata's generation",
                found,
                "0, since the metadata region is not used",
            )?;
        }
        let (least, rule) = match self.state {
            BrickState::MetadataOnly => (0, "any"),
            _ => (u64::from(stripe), "at least one stripe"),
        };
        must(self.data.len >= least, "the length of the data", self.data.len, rule)?;
        Ok(())
    }

    /// The ids are as many as there are bricks, this one is among them, and those that are away are others of them.
    fn check_members(&self, at: u64) -> Result<(), BrickError> {
        let wrong = |field, found, must| Err(BrickError::Field { at, field, found, must });
        let ids = &self.brick_ids;
        if ids.are_told() {
            let count = ids.iter().count();
            if count != usize::from(self.brick_count) {
                return wrong("the number of ids", count as u64, "the number of bricks");
            }
            // A brick that is being added is not yet listed.
            if !ids.contains(self.brick_id) && self.volume_state != VolumeState::Creating {
                return wrong("the brick's id", self.brick_id.into(), "among the volume's ids");
            }
        }
        let holders = &self.metadata_holders;
        if !holders.is_empty() && holders.len() != MAX_HOLDERS {
            return wrong("the number of metadata holders", holders.len() as u64, "0 or 3");
        }
        let strange = holders.iter().find(|id| ids.are_told() && !ids.contains(**id));
        if let Some(id) = strange {
            return wrong("the id of a metadata holder", (*id).into(), "among the volume's ids");
        }
        if self.away.len() > MAX_AWAY {
            return wrong("the number of missing bricks", self.away.len() as u64, "at most 128");
        }
        for Away { brick_id, generation } in &self.away {
            let id = *brick_id;
            if id == self.brick_id || ids.are_told() && !ids.contains(id) {
                return wrong(
                    "the id of a missing brick",
                    id.into(),
                    "that of another brick of the volume",
                );
            }
            if *generation == 0 || *generation > self.generation {
                return wrong(
                    "the generation of a missing brick",
                    *generation,
                    "from 1 to this brick's",
                );
            }
        }
        Ok(())
    }

    /// Size of the whole metadata region in bytes.
    pub fn metadata_size(&self) -> u64 {
        self.metadata_areas().fold(0, |sum, area| sum.saturating_add(area.len))
    }

    /// The areas of the metadata region, in its order; empty if there is no region.
    pub fn metadata_areas(&self) -> impl Iterator<Item = Area> + '_ {
        let first = Some(self.metadata).filter(|area| area.len > 0);
        first.into_iter().chain(self.metadata_grown.iter().copied())
    }

    /// All areas are inside the brick, and no two share a byte.
    fn check_areas(&self, at: u64) -> Result<(), BrickError> {
        let wrong = |field, found, must| Err(BrickError::Field { at, field, found, must });
        self.check_area(at, "metadata", self.metadata)?;
        self.check_area(at, "data", self.data)?;
        let grown = self.metadata_grown.len();
        if grown > MAX_GROWN {
            return wrong("the number of areas added to the metadata", grown as u64, "0 to 15");
        }
        if self.metadata.len == 0 && grown > 0 {
            return wrong(
                "the number of areas added to the metadata",
                grown as u64,
                "0, since there is no metadata region",
            );
        }
        for area in &self.metadata_grown {
            self.check_area(at, "metadata", *area)?;
        }
        let all: Vec<Area> = self.metadata_areas().chain([self.data]).collect();
        match areas::that_overlap(all) {
            // If one of the two is the data area, the message must name it as such.
            Some((one, other)) if one == self.data => {
                Err(BrickError::Overlap { at, metadata: other, data: one })
            }
            Some((metadata, data)) => Err(BrickError::Overlap { at, metadata, data }),
            None => Ok(()),
        }
    }

    /// An area is empty, or between the two copies.
    fn check_area(
        &self,
        at: u64,
        area: &'static str,
        Area { offset, len }: Area,
    ) -> Result<(), BrickError> {
        let aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        let end = offset.checked_add(len);
        let inside = offset >= BLOCK && end.is_some_and(|end| end <= self.brick_size - BLOCK);
        if aligned && (inside && len > 0 || offset == 0 && len == 0) {
            return Ok(());
        }
        Err(BrickError::Outside { at, area, offset, len, brick_size: self.brick_size })
    }
}
