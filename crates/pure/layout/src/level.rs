//! The RAID levels: their md numbers, their names and their redundancy.
//!
//! Layouts and sizes are elsewhere. Invariant: a name that [`Level`] displays parses
//! back to the same level.

use std::fmt;

/// A RAID level that braid can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Members one after another.
    Linear,
    /// Striped, no redundancy.
    Raid0,
    /// Every member a copy of the array.
    Raid1,
    /// One parity chunk per stripe, always on the last slot.
    Raid4,
    /// One parity chunk per stripe, usually rotating.
    Raid5,
    /// Two parity chunks, P and Q, per stripe.
    Raid6,
    /// Striped copies: near, far or offset.
    Raid10,
}

impl Level {
    /// Every level, in ascending order of its md number.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// The number in md's superblock (`level`, `md_p.h`); linear is -1.
    pub fn md_number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }

    /// The level with this number in md's superblock; `None` for numbers that braid does not run
    /// (multipath, faulty, containers, nonsense).
    pub fn from_md(number: i32) -> Option<Self> {
        Level::ALL.into_iter().find(|level| level.md_number() == number)
    }

    /// Parity chunks per stripe: 1 for 4 and 5, 2 for 6, otherwise 0.
    pub fn parity_count(self) -> usize {
        match self {
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            _ => 0,
        }
    }

    /// True if redundancy is kept as parity (4, 5, 6).
    pub fn is_parity(self) -> bool {
        self.parity_count() > 0
    }

    /// True if redundancy is kept as copies (1, 10).
    pub fn is_mirror(self) -> bool {
        matches!(self, Level::Raid1 | Level::Raid10)
    }

    /// True if an array of this level can lose a member.
    pub fn has_redundancy(self) -> bool {
        self.is_parity() || self.is_mirror()
    }

    /// True if members of one array may differ in used size (0 and linear); the other levels use
    /// one common component size.
    pub fn uses_member_sizes(self) -> bool {
        matches!(self, Level::Raid0 | Level::Linear)
    }

    /// The least number of slots.
    pub fn min_slots(self) -> usize {
        match self {
            Level::Linear | Level::Raid0 | Level::Raid1 => 1,
            Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
            Level::Raid6 => 4,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_level() {
        for level in Level::ALL {
            assert_eq!(Level::from_md(level.md_number()), Some(level));
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(level.md_number().to_string().parse(), Ok(level));
        }
        assert_eq!("Stripe".parse(), Ok(Level::Raid0));
        assert_eq!("mirror".parse(), Ok(Level::Raid1));
    }

    #[test]
    fn foreign_levels_are_refused() {
        for number in [-2, -4, -5, 2, 3, 7, 11, i32::MIN, i32::MAX] {
            assert_eq!(Level::from_md(number), None, "{number}");
        }
        for name in ["", "raid", "raid2", "05", "faulty", "container", " 5"] {
            assert!(name.parse::<Level>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn display_honours_the_width_of_a_table() {
        assert_eq!(format!("{:>8}|{:<8}|", Level::Raid5, Level::Linear), "   raid5|linear  |");
    }
}
