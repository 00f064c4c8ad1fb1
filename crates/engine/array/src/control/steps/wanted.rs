//! The array that a command asks for.

use crate::control::following::Goal;
use crate::control::levels::rules::{PARITY_FIRST, Q_LAST};
use braid_layout::Level;

/// The layout that an array is to have at its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedLayout {
    /// The one that costs least.
    #[default]
    Any,
    /// The one that leaves every byte where it is; mdadm's `preserve`.
    Preserve,
    /// That one, without a slot that has Q to itself; mdadm's `normalise`.
    Normalise,
    /// md's number.
    Number(u32),
}

/// The array that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedArray {
    /// The level.
    pub level: Level,
    /// The layout.
    pub layout: WantedLayout,
    /// Bytes of a chunk; `None`: as it is.
    pub chunk_size: Option<u64>,
    /// Slots; `None`: as many as it needs.
    pub raid_disks: Option<usize>,
}

impl WantedArray {
    /// The goal, of which everything is known.
    pub(crate) fn of(goal: &Goal) -> WantedArray {
        WantedArray {
            level: goal.level,
            layout: WantedLayout::Number(goal.layout),
            chunk_size: Some(goal.chunk_size).filter(|chunk| *chunk > 0),
            raid_disks: Some(goal.raid_disks),
        }
    }
}

/// md's number of the layout without a slot that has Q to itself, where `layout` has one; another stays.
pub fn normal_layout(level: Level, layout: u32) -> u32 {
    let q_last = level == Level::Raid6 && (Q_LAST..=Q_LAST + PARITY_FIRST).contains(&layout);
    if q_last { layout - Q_LAST } else { layout }
}
