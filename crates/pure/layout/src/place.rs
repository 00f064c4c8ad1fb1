//! Positions: a slot of the array, a byte of a member.

/// A position in the array: `0..slots`. md calls it `raid_disk`; it is unrelated to a member's dev
/// number.
pub type Slot = usize;

/// One byte position on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The slot of the member.
    pub slot: Slot,
    /// Component offset, in bytes.
    pub offset: u64,
}
