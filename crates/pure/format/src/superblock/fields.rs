//! The fields of a member's superblock, for all versions.

use super::name::Name;
use super::role::Role;
use super::v0_fields::{V0, swap_words};
use super::version::Version;

/// Bytes to read at each candidate place before [`Superblock::parse`]: the largest superblock.
pub const READ_LEN: usize = 4096;

/// Value of [`Superblock::resync_offset`] when all redundancy is in sync.
pub const CLEAN: u64 = u64::MAX;

/// The superblock of one member. Offsets and sizes are in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version. For 1.x not stored as such: the minor number follows from the location of the superblock.
    pub version: Version,
    /// Identifies the array; equal on all members. In the order in which it is shown; the words of 0.90 are
    /// stored the other way round (see [`Superblock::bitmap_uuid`]).
    pub set_uuid: [u8; 16],
    /// The array's name, `homehost:name` when mdadm made it.
    pub set_name: Name,
    /// Creation time as stored: low 40 bits seconds, high 24 bits microseconds. See [`time_seconds`](super::time_seconds).
    pub ctime: u64,
    /// -1 linear, 0, 1, 4, 5, 6 or 10.
    pub level: i32,
    /// The level's layout number; 0 for levels 1 and 4.
    pub layout: u32,
    /// Level 0 only: `layout` is valid (feature RAID0_LAYOUT). Without it the data of members of unequal size cannot be
    /// located. Has no effect on other levels.
    pub raid0_layout: bool,
    /// Sectors used of each component; 0 for level 0 and linear.
    pub size: u64,
    /// Chunk in sectors; 0 for level 1.
    pub chunk_sectors: u32,
    /// Number of slots. During a reshape the new number.
    pub raid_disks: u32,
    /// The write-intent bitmap's place relative to the superblock; 0 = no bitmap.
    pub bitmap_offset: i32,
    /// The partial parity log of this member; excludes a bitmap and a journal.
    pub ppl: Option<Ppl>,
    /// The array has a journal device (set on every member).
    pub journal: bool,
    /// The array belongs to a cluster (md-cluster): only md-cluster may write it.
    pub clustered: bool,
    /// A reshape in progress.
    pub reshape: Option<Reshape>,
    /// With `reshape`: the data offset of the new geometry on this member is `data_offset + new_offset`.
    /// Not stored without a reshape.
    pub new_offset: i32,
    /// Member sector at which the component starts; 0 for version 0.
    pub data_offset: u64,
    /// Sectors on this member that the component may use.
    pub data_size: u64,
    /// Sector of this superblock.
    pub super_offset: u64,
    /// Only component sectors below this are valid on this member; `None`: all are.
    pub recovery_offset: Option<u64>,
    /// With `recovery_offset`: the bitmap is enough to finish this recovery (a re-add).
    pub recovery_by_bitmap: bool,
    /// Journal device only: the ring sector at which recovery of the journal starts. Not stored when
    /// this member's own role is another.
    pub journal_tail: u64,
    /// This member's index in `roles`; unrelated to the slot. Permanent, except in 0.90, where a member that
    /// gets a slot also gets the slot's number.
    pub dev_number: u32,
    /// Corrected read errors.
    pub cnt_corrected_read: u32,
    /// Unique per member. 0.90 stores none, so it is derived from the array's uuid and the dev number on reading. A member and
    /// the one it replaced may therefore share it: compare with [`Superblock::is_twin_of`].
    pub device_uuid: [u8; 16],
    /// Bit 0 write-mostly, bit 1 failfast; other bits are kept as found.
    pub devflags: u8,
    /// This member replaces the other member of its slot.
    pub replacement: bool,
    /// The bad-block log is not empty.
    pub bad_blocks: bool,
    /// Shift that the entries of the bad-block log are stored with.
    pub bblog_shift: u8,
    /// Sectors of the bad-block log.
    pub bblog_size: u16,
    /// The bad-block log's place relative to the superblock; 0 = this member can have none.
    pub bblog_offset: i32,
    /// Time of the last update, stored as `ctime`.
    pub utime: u64,
    /// Update counter; the members with the highest are up to date.
    pub events: u64,
    /// Everything below is in sync; [`CLEAN`] = all is; 0 = the array was active.
    pub resync_offset: u64,
    /// Bytes of the array's logical blocks; 0 = not recorded, as Linux before 6.19 has it and demands it.
    pub logical_block_size: u32,
    /// The role of each member, by dev number. At most [`MAX_ROLES`](super::MAX_ROLES) entries, of which 0.90 keeps 27.
    pub roles: Vec<Role>,
    /// Contents of fields whose feature bit is not set; zero in new superblocks.
    pub leftover: Leftover,
    /// The fields that only version 0.90 has.
    pub v0: V0,
}

/// The place of a member's partial parity log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ppl {
    /// Sectors from the superblock.
    pub offset: i16,
    /// Sectors.
    pub size: u16,
    /// A ring of log units rather than a single one (feature MULTIPLE_PPLS).
    pub multiple: bool,
}

/// A reshape in progress. `Superblock::{level, layout, chunk_sectors}` are the old ones,
/// `raid_disks` is the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// Level of the new geometry.
    pub new_level: i32,
    /// Array sector reached.
    pub position: u64,
    /// New number of slots minus old.
    pub delta_disks: i32,
    /// Layout of the new geometry.
    pub new_layout: u32,
    /// Chunk of the new geometry in sectors.
    pub new_chunk_sectors: u32,
    /// The reshape runs from high to low sectors: always when slots are taken away, never when slots
    /// are added, as recorded when their number stays.
    pub backwards: bool,
}

/// Contents of fields that are not valid, since no feature bit is set for them. The kernel and mdadm leave old values there,
/// for example those of a finished reshape. Keeping them means that a rewritten superblock differs from the old one only in
/// the fields that were changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// +96..+100, when there is neither bitmap nor PPL.
    pub bitmap: [u8; 4],
    /// +100..+124, when there is no reshape.
    pub reshape: [u8; 24],
    /// +124..+128, when there is no reshape or no move of the data offset.
    pub new_offset: [u8; 4],
    /// +152..+160, when the member is neither recovering nor a journal.
    pub recovery: [u8; 8],
}

impl Superblock {
    /// An empty superblock: no level, no size, no roles, clean. A base for `Superblock { level: 5, ..Superblock::empty(Version::V1_2) }`.
    pub fn empty(version: Version) -> Superblock {
        Superblock {
            version,
            set_uuid: [0; 16],
            set_name: Name::default(),
            ctime: 0,
            level: 0,
            layout: 0,
            raid0_layout: false,
            size: 0,
            chunk_sectors: 0,
            raid_disks: 0,
            bitmap_offset: 0,
            ppl: None,
            journal: false,
            clustered: false,
            reshape: None,
            new_offset: 0,
            data_offset: 0,
            data_size: 0,
            super_offset: 0,
            recovery_offset: None,
            recovery_by_bitmap: false,
            journal_tail: 0,
            dev_number: 0,
            cnt_corrected_read: 0,
            device_uuid: [0; 16],
            devflags: 0,
            replacement: false,
            bad_blocks: false,
            bblog_shift: 0,
            bblog_size: 0,
            bblog_offset: 0,
            utime: 0,
            events: 0,
            resync_offset: CLEAN,
            logical_block_size: 0,
            roles: Vec::new(),
            leftover: Leftover::default(),
            v0: V0::default(),
        }
    }

    /// The role of this member, by its own table.
    pub fn own_role(&self) -> Role {
        self.role_of(self.dev_number)
    }

    /// The role of the member with this dev number. A number beyond the table, and a slot beyond the
    /// number of slots (the larger of old and new during a reshape), mean spare.
    pub fn role_of(&self, dev_number: u32) -> Role {
        let role = usize::try_from(dev_number).ok().and_then(|index| self.roles.get(index));
        match role {
            Some(Role::Slot(slot)) if u32::from(*slot) >= self.slots() => Role::Spare,
            Some(role) => *role,
            None => Role::Spare,
        }
    }

    /// Number of slots; during a reshape the larger of the old and the new number.
    pub fn slots(&self) -> u32 {
        let old = match self.reshape {
            Some(reshape) => self.raid_disks.saturating_sub_signed(reshape.delta_disks),
            None => self.raid_disks,
        };
        self.raid_disks.max(old)
    }

    /// The uuid that the array's bitmap has: the array's, in the order in which it is stored.
    pub fn bitmap_uuid(&self) -> [u8; 16] {
        if self.version == Version::V0_90 { swap_words(&self.set_uuid) } else { self.set_uuid }
    }

    /// True if `other` was read from the same member: from a copy of it, or from its device under another name (a whole
    /// disk and its last partition). In 0.90 a member that was replaced and the one that
    /// took its slot have the same number and differ in `events`.
    pub fn is_twin_of(&self, other: &Superblock) -> bool {
        self.set_uuid == other.set_uuid
            && self.device_uuid == other.device_uuid
            && (self.version != Version::V0_90 || self.events == other.events)
    }

    /// True if all redundancy is in sync according to this superblock.
    pub fn is_clean(&self) -> bool {
        self.resync_offset == CLEAN
    }

    /// True if reads should prefer other members (devflags bit 0).
    pub fn write_mostly(&self) -> bool {
        self.devflags & 1 != 0
    }

    /// True if I/O to this member should fail fast rather than be retried (devflags bit 1).
    pub fn failfast(&self) -> bool {
        self.devflags & 2 != 0
    }

    /// Member sector of the bitmap superblock, when there is one.
    pub fn bitmap_sector(&self) -> Option<u64> {
        if self.bitmap_offset == 0 {
            return None;
        }
        self.super_offset.checked_add_signed(i64::from(self.bitmap_offset))
    }

    /// Member sector of the bad-block log, when this member can have one.
    pub fn bblog_sector(&self) -> Option<u64> {
        if self.bblog_offset == 0 || self.bblog_size == 0 {
            return None;
        }
        self.super_offset.checked_add_signed(i64::from(self.bblog_offset))
    }
}
