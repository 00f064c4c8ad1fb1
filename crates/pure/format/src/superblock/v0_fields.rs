//! The fields that only version 0.90 has, and its order of the bytes of a uuid.

/// Fields of version 0.90 alone. All zero in new superblocks and in those of other versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct V0 {
    /// Number of the md device that the array had last.
    pub md_minor: u32,
    /// Patch version; 0 in all that Linux writes.
    pub patch: u32,
    /// Bits of the array's state that no other field holds, as found.
    pub state: u32,
    /// A bit for each dev number from `raid_disks` on that is a member: by its role alone a spare looks like an unused
    /// entry. A member with another role, and the superblock's own, count as set.
    pub present: u32,
    /// Of each member, by dev number, what the table of disks says beside its role.
    pub devices: Vec<V0Device>,
}

/// The entry of a member in the table of disks, beside its role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V0Device {
    /// Major number that the device had last.
    pub major: u32,
    /// Minor number that the device had last.
    pub minor: u32,
    /// State bits beyond faulty, active, in sync and removed; those of the superblock's own member follow
    /// from its devflags.
    pub flags: u32,
}

/// 16 bytes with the bytes of each word reversed.
pub(super) fn swap_words(bytes: &[u8]) -> [u8; 16] {
    std::array::from_fn(|at| bytes.get(at ^ 3).copied().unwrap_or(0))
}
