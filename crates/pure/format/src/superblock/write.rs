//! From a [`Superblock`] to bytes: feature bits derived, checksum computed.

use super::features::Features;
use super::fields::{Leftover, Superblock};
use super::raw::{self, FIXED, Raw, RawPpl, RawReshape};
use super::role::Role;
use super::v0;
use super::version::Version;
use crate::SECTOR;
use zerocopy::{IntoBytes, transmute};

/// Entries that the role table of a new array has for this many members: as many as fill the
/// superblock's last sector (mdadm's rule; 128 entries and 512 bytes for up to 128 members).
pub fn role_table_len(members: usize) -> usize {
    (FIXED.saturating_add(members.saturating_mul(2)).max(2 * FIXED).next_multiple_of(SECTOR)
        - FIXED)
        / 2
}

impl Superblock {
    /// The feature map that follows from the fields.
    pub fn features(&self) -> Features {
        let mut features = Features::empty();
        features.set(Features::BITMAP_OFFSET, self.bitmap_offset != 0);
        let recovering = self.recovery_offset.is_some() && self.own_role() != Role::Journal;
        features.set(Features::RECOVERY_OFFSET, recovering);
        features.set(Features::RECOVERY_BITMAP, recovering && self.recovery_by_bitmap);
        features.set(Features::BAD_BLOCKS, self.bad_blocks);
        features.set(Features::REPLACEMENT, self.replacement);
        features.set(Features::CLUSTERED, self.clustered);
        features.set(Features::JOURNAL, self.journal);
        features.set(Features::RAID0_LAYOUT, self.level == 0 && self.raid0_layout);
        if let Some(ppl) = self.ppl {
            features.insert(if ppl.multiple { Features::MULTIPLE_PPLS } else { Features::PPL });
        }
        if let Some(reshape) = self.reshape {
            features.insert(Features::RESHAPE_ACTIVE);
            features
                .set(Features::RESHAPE_BACKWARDS, reshape.delta_disks == 0 && reshape.backwards);
            features.set(Features::NEW_OFFSET, self.new_offset != 0);
        }
        features
    }

    /// The bytes to write at `super_offset`: 4096 of version 0.90, else 256 + 2 * roles, rounded up with zeros
    /// to whole sectors. The caller pads further with zeros to the member's logical block size.
    ///
    /// Of fields that share bytes a bitmap takes precedence over a PPL (the result is then refused by
    /// [`Superblock::parse`]), and on a journal device the journal tail over a recovery offset.
    ///
    /// 0.90 stores only what it has fields for ([`Version::max_members`], [`Version::has_recovery_offset`]). A member that is
    /// recovering is written as a spare, and a member in sync under the number of its slot, so
    /// [`Superblock::dev_number`] may differ when it is read again.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.version == Version::V0_90 {
            return v0::to_bytes(self);
        }
        let mut raw = self.to_raw();
        let mut bytes = raw.as_bytes().to_vec();
        for role in &self.roles {
            bytes.extend_from_slice(&role.to_raw().to_le_bytes());
        }
        raw.checksum = raw::checksum(&bytes).into();
        // `bytes` begins with the fixed part it was made from.
        if let Some(head) = bytes.first_chunk_mut::<FIXED>() {
            *head = transmute!(raw);
        }
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes
    }

    fn to_raw(&self) -> Raw {
        let Leftover { bitmap, reshape, new_offset, recovery } = self.leftover;
        let bitmap = match (self.bitmap_offset, self.ppl) {
            (0, None) => bitmap,
            (0, Some(ppl)) => {
                transmute!(RawPpl { offset: ppl.offset.into(), size: ppl.size.into() })
            }
            (offset, _) => offset.to_le_bytes(),
        };
        let new_offset = match self.new_offset {
            0 => new_offset,
            _ if self.reshape.is_none() => new_offset,
            offset => offset.to_le_bytes(),
        };
        let reshape = match self.reshape {
            None => transmute!(reshape),
            Some(reshape) => RawReshape {
                new_level: reshape.new_level.into(),
                position: reshape.position.into(),
                delta_disks: reshape.delta_disks.into(),
                new_layout: reshape.new_layout.into(),
                new_chunk_sectors: reshape.new_chunk_sectors.into(),
            },
        };
        let recovery = match self.recovery_offset {
            _ if self.own_role() == Role::Journal => self.journal_tail.to_le_bytes(),
            Some(offset) => offset.to_le_bytes(),
            None => recovery,
        };
        Raw {
            magic: raw::MAGIC.into(),
            major: raw::MAJOR.into(),
            feature_map: self.features().bits().into(),
            pad0: 0.into(),
            set_uuid: self.set_uuid,
            set_name: self.set_name.0,
            ctime: self.ctime.into(),
            level: self.level.into(),
            layout: self.layout.into(),
            size: self.size.into(),
            chunk_sectors: self.chunk_sectors.into(),
            raid_disks: self.raid_disks.into(),
            bitmap,
            reshape,
            new_offset,
            data_offset: self.data_offset.into(),
            data_size: self.data_size.into(),
            super_offset: self.super_offset.into(),
            recovery,
            dev_number: self.dev_number.into(),
            cnt_corrected_read: self.cnt_corrected_read.into(),
            device_uuid: self.device_uuid,
            devflags: self.devflags,
            bblog_shift: self.bblog_shift,
            bblog_size: self.bblog_size.into(),
            bblog_offset: self.bblog_offset.into(),
            utime: self.utime.into(),
            events: self.events.into(),
            resync_offset: self.resync_offset.into(),
            checksum: 0.into(),
            max_dev: u32::try_from(self.roles.len()).unwrap_or(u32::MAX).into(),
            logical_block_size: self.logical_block_size.into(),
            pad3: [0; 28],
        }
    }
}
