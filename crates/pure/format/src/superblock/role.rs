//! The entries of the role table: the part that a member has in the array.

/// The role of a member. Stored as 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Holds this slot. 0..=0xfeff in sane tables; a number up to 0xfffc is kept as found and means spare
    /// wherever it is beyond the number of slots ([`super::Superblock::role_of`] says so).
    Slot(u16),
    /// A spare, or no member at all.
    Spare,
    /// Failed.
    Faulty,
    /// The journal device.
    Journal,
}

const SPARE: u16 = 0xffff;
const FAULTY: u16 = 0xfffe;
const JOURNAL: u16 = 0xfffd;

impl Role {
    /// The role that a table entry means. Every value has one.
    pub fn from_raw(raw: u16) -> Role {
        match raw {
            SPARE => Role::Spare,
            FAULTY => Role::Faulty,
            JOURNAL => Role::Journal,
            slot => Role::Slot(slot),
        }
    }

    /// The table entry for this role. `Slot` numbers of 0xfffd and more are written as spare.
    pub fn to_raw(self) -> u16 {
        match self {
            Role::Slot(slot) if slot < JOURNAL => slot,
            Role::Slot(_) | Role::Spare => SPARE,
            Role::Faulty => FAULTY,
            Role::Journal => JOURNAL,
        }
    }

    /// The slot, if the member holds one.
    pub fn slot(self) -> Option<u16> {
        match self {
            Role::Slot(slot) => Some(slot),
            _ => None,
        }
    }
}
