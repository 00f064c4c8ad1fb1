//! The flags of a member that its superblock keeps.

use braid_format::superblock::Superblock;

/// The flags of a member in its superblock (md's `writemostly` and `failfast` of a member's
/// `state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberFlags {
    /// Level 1: read only what no other member has. Without effect on other levels.
    pub write_mostly: bool,
    /// Levels 1 and 10: the first error fails the member, unless it is the last that has the data.
    pub failfast: bool,
}

impl MemberFlags {
    /// The flags in `superblock`.
    pub fn of(superblock: &Superblock) -> MemberFlags {
        MemberFlags { write_mostly: superblock.write_mostly(), failfast: superblock.failfast() }
    }

    /// `devflags` with these flags; its other bits stay.
    pub fn within(self, devflags: u8) -> u8 {
        devflags & !3 | u8::from(self.write_mostly) | u8::from(self.failfast) << 1
    }
}
