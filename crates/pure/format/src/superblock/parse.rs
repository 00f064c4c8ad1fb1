//! From bytes to a [`Superblock`], with the checks that the kernel makes on load.

use super::error::SuperblockError;
use super::features::Features;
use super::fields::{Leftover, Ppl, Reshape, Superblock};
use super::name::Name;
use super::raw::{self, FIXED, Raw, RawPpl, RawReshape};
use super::role::Role;
use super::slots::check_slots;
use super::v0;
use super::version::{MAX_ROLES, Version};
use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes, transmute};

/// The most sectors of a bad-block log: the kernel reads it as one page.
const BBLOG_MAX: u16 = 8;
/// The largest logical block size: that of the largest page of a kernel.
const BLOCK_MAX: u32 = 64 << 10;
/// The least data a member may have, in sectors.
const DATA_MIN: u64 = 10;

impl Superblock {
    /// Reads a superblock of version `version` from `bytes`, which were read at sector `at` of a member of `dev_sectors`:
    /// [`super::READ_LEN`] bytes, or as many as there are.
    ///
    /// Makes the checks of Linux `md.c` (super_1_load), with the checksum before all checks of content. A superblock that is
    /// returned was written completely, at this location, and its data fits the member. Its numbers may still describe an
    /// impossible array.
    ///
    /// # Errors
    /// [`SuperblockError::NoMagic`] when there is none; anything else when there is one that cannot be used.
    pub fn parse(
        bytes: &[u8],
        version: Version,
        at: u64,
        dev_sectors: u64,
    ) -> Result<Superblock, SuperblockError> {
        if version == Version::V0_90 {
            return v0::parse(bytes, at);
        }
        let short = |need| SuperblockError::TooShort { at, have: bytes.len(), need };
        let (raw, rest) = Raw::read_from_prefix(bytes).map_err(|_| short(FIXED))?;
        if raw.magic.get() != raw::MAGIC {
            return Err(SuperblockError::NoMagic { at, found: raw.magic.get() });
        }
        if raw.major.get() != raw::MAJOR {
            return Err(SuperblockError::Major { at, found: raw.major.get() });
        }
        let max_dev = raw.max_dev.get();
        let roles = usize::try_from(max_dev).ok().filter(|&n| n <= MAX_ROLES);
        let roles = roles.ok_or(SuperblockError::MaxDev { at, found: max_dev })?;
        let len = FIXED + 2 * roles;
        let whole = bytes.get(..len).ok_or_else(|| short(len))?;
        let computed = raw::checksum(whole);
        if raw.checksum.get() != computed {
            return Err(SuperblockError::Checksum { at, stored: raw.checksum.get(), computed });
        }
        if raw.super_offset.get() != at {
            return Err(SuperblockError::WrongPlace { at, stored: raw.super_offset.get() });
        }
        let features = check_features(&raw, at)?;
        let (roles, _) =
            <[U16]>::ref_from_prefix_with_elems(rest, roles).map_err(|_| short(len))?;
        let sb = from_raw(&raw, features, roles, version);
        if features.contains(Features::RAID0_LAYOUT) && sb.level != 0 {
            return Err(SuperblockError::Raid0Layout { at, level: sb.level });
        }
        check_rest(&raw, &sb, at, dev_sectors, len)?;
        Ok(sb)
    }
}

fn check_features(raw: &Raw, at: u64) -> Result<Features, SuperblockError> {
    let features = Features::from_bits_retain(raw.feature_map.get());
    let unknown = features.difference(Features::all());
    if !unknown.is_empty() {
        return Err(SuperblockError::UnknownFeature { at, bits: unknown.bits() });
    }
    let any_ppl = Features::PPL | Features::MULTIPLE_PPLS;
    if features.contains(any_ppl) {
        return Err(SuperblockError::FeatureConflict {
            at,
            first: Features::PPL,
            second: Features::MULTIPLE_PPLS,
        });
    }
    let ppl = features & any_ppl;
    for other in [Features::BITMAP_OFFSET, Features::JOURNAL] {
        if !ppl.is_empty() && features.contains(other) {
            return Err(SuperblockError::FeatureConflict { at, first: ppl, second: other });
        }
    }
    Ok(features)
}

fn from_raw(raw: &Raw, features: Features, roles: &[U16], version: Version) -> Superblock {
    let mut leftover = Leftover::default();
    let mut sb = Superblock {
        set_uuid: raw.set_uuid,
        set_name: Name(raw.set_name),
        ctime: raw.ctime.get(),
        level: raw.level.get(),
        layout: raw.layout.get(),
        raid0_layout: features.contains(Features::RAID0_LAYOUT),
        size: raw.size.get(),
        chunk_sectors: raw.chunk_sectors.get(),
        raid_disks: raw.raid_disks.get(),
        journal: features.contains(Features::JOURNAL),
        clustered: features.contains(Features::CLUSTERED),
        data_offset: raw.data_offset.get(),
        data_size: raw.data_size.get(),
        super_offset: raw.super_offset.get(),
        dev_number: raw.dev_number.get(),
        cnt_corrected_read: raw.cnt_corrected_read.get(),
        device_uuid: raw.device_uuid,
        devflags: raw.devflags,
        replacement: features.contains(Features::REPLACEMENT),
        bad_blocks: features.contains(Features::BAD_BLOCKS),
        bblog_shift: raw.bblog_shift,
        bblog_size: raw.bblog_size.get(),
        bblog_offset: raw.bblog_offset.get(),
        utime: raw.utime.get(),
        events: raw.events.get(),
        resync_offset: raw.resync_offset.get(),
        logical_block_size: raw.logical_block_size.get(),
        roles: roles.iter().map(|role| Role::from_raw(role.get())).collect(),
        ..Superblock::empty(version)
    };
    if features.contains(Features::BITMAP_OFFSET) {
        sb.bitmap_offset = i32::from_le_bytes(raw.bitmap);
    } else if features.intersects(Features::PPL | Features::MULTIPLE_PPLS) {
        let ppl: RawPpl = transmute!(raw.bitmap);
        let multiple = features.contains(Features::MULTIPLE_PPLS);
        sb.ppl = Some(Ppl { offset: ppl.offset.get(), size: ppl.size.get(), multiple });
    } else {
        leftover.bitmap = raw.bitmap;
    }
    if features.contains(Features::RESHAPE_ACTIVE) {
        sb.reshape = Some(reshape(&raw.reshape, features));
    } else {
        leftover.reshape.copy_from_slice(raw.reshape.as_bytes());
    }
    if features.contains(Features::RESHAPE_ACTIVE | Features::NEW_OFFSET) {
        sb.new_offset = i32::from_le_bytes(raw.new_offset);
    } else {
        leftover.new_offset = raw.new_offset;
    }
    if sb.own_role() == Role::Journal {
        sb.journal_tail = u64::from_le_bytes(raw.recovery);
    } else if features.contains(Features::RECOVERY_OFFSET) {
        sb.recovery_offset = Some(u64::from_le_bytes(raw.recovery));
        sb.recovery_by_bitmap = features.contains(Features::RECOVERY_BITMAP);
    } else {
        leftover.recovery = raw.recovery;
    }
    sb.leftover = leftover;
    sb
}

fn reshape(raw: &RawReshape, features: Features) -> Reshape {
    let delta_disks = raw.delta_disks.get();
    Reshape {
        new_level: raw.new_level.get(),
        position: raw.position.get(),
        delta_disks,
        new_layout: raw.new_layout.get(),
        new_chunk_sectors: raw.new_chunk_sectors.get(),
        backwards: delta_disks < 0
            || (delta_disks == 0 && features.contains(Features::RESHAPE_BACKWARDS)),
    }
}

fn check_rest(
    raw: &Raw,
    sb: &Superblock,
    at: u64,
    dev_sectors: u64,
    len: usize,
) -> Result<(), SuperblockError> {
    check_slots(sb, at)?;
    if sb.data_size < DATA_MIN {
        return Err(SuperblockError::DataSize { at, found: sb.data_size });
    }
    if raw.pad0.get() != 0 {
        return Err(SuperblockError::Reserved { at, field: std::mem::offset_of!(Raw, pad0) });
    }
    if raw.pad3 != [0; 28] {
        return Err(SuperblockError::Reserved { at, field: std::mem::offset_of!(Raw, pad3) });
    }
    let block = sb.logical_block_size;
    if block != 0 && !(block.is_power_of_two() && (512..=BLOCK_MAX).contains(&block)) {
        return Err(SuperblockError::Field {
            at,
            field: "logical_block_size",
            found: block.into(),
            must: "0 or a power of two from 512 to 65536",
        });
    }
    if sb.bblog_size > BBLOG_MAX {
        return Err(SuperblockError::BadBlockLogSize { at, found: sb.bblog_size });
    }
    let have = if sb.version.data_follows() {
        let end = at.saturating_add(len.div_ceil(crate::SECTOR) as u64);
        let old = i128::from(sb.data_offset);
        for (field, data) in [("data_offset", old), ("new_offset", old + i128::from(sb.new_offset))]
        {
            if data < i128::from(end) {
                return Err(SuperblockError::DataOverSuperblock { at, field, data, end });
            }
        }
        dev_sectors
    } else {
        at
    };
    let need = u128::from(sb.data_offset) + u128::from(sb.data_size);
    if need > u128::from(have) {
        return Err(SuperblockError::DataBeyondMember {
            at,
            data_offset: sb.data_offset,
            data_size: sb.data_size,
            need,
            have,
        });
    }
    Ok(())
}
