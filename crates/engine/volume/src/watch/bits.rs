//! The blocks that extents name, in some groups of blocks at a time.

use braid_format::volume::extent::Extent;
use braid_format::volume::space::{GROUP_BLOCKS, WORDS};
use std::collections::BTreeMap;
use std::ops::Range;

/// A brick, and a group of its blocks.
pub type Group = (u16, u64);

/// The blocks that extents name, in some groups.
pub struct Bits {
    window: Range<Group>,
    groups: BTreeMap<Group, Box<[u64; WORDS]>>,
    /// A block was named twice.
    shared: bool,
    /// An extent has gone since: what it shared with another is not named any more.
    doubtful: bool,
}

impl Default for Bits {
    fn default() -> Bits {
        Bits::new((0, 0)..(0, 0))
    }
}

impl Bits {
    /// Of the groups of `window`, none of them named yet.
    pub fn new(window: Range<Group>) -> Bits {
        Bits { window, groups: BTreeMap::new(), shared: false, doubtful: false }
    }

    /// Names the blocks of an extent; gives how many were named already.
    pub fn name(&mut self, extent: &Extent) -> u32 {
        let mut twice = 0;
        self.each_word(extent, true, |word, mask| {
            twice += (*word & mask).count_ones();
            *word |= mask;
        });
        self.shared |= twice > 0;
        twice
    }

    /// Names the blocks of an extent that others may have, too.
    pub fn name_kept(&mut self, extent: &Extent) {
        self.each_word(extent, true, |word, mask| *word |= mask);
    }

    /// The extent is not there any more.
    pub fn unname(&mut self, extent: &Extent) {
        self.doubtful |= self.shared;
        self.each_word(extent, false, |word, mask| *word &= !mask);
    }

    /// Calls `change` with each word that the extent touches, and the bits of it.
    fn each_word(&mut self, extent: &Extent, fill: bool, mut change: impl FnMut(&mut u64, u64)) {
        let Some(end) = extent.start.checked_add(extent.blocks.into()) else { return };
        let mut at = extent.start;
        while at < end {
            let bits = (end - at).min(64 - at % 64);
            let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << (at % 64) };
            let group = (extent.brick, at / GROUP_BLOCKS);
            if self.window.contains(&group) {
                if fill {
                    self.groups.entry(group).or_insert_with(|| Box::new([0; WORDS]));
                }
                if let Some(words) = self.groups.get_mut(&group) {
                    change(&mut words[(at % GROUP_BLOCKS / 64) as usize], mask);
                }
            }
            at += bits;
        }
    }

    /// The bits of a group of which a block was named.
    pub fn of(&self, group: Group) -> Option<&[u64; WORDS]> {
        self.groups.get(&group).map(|words| &**words)
    }

    /// The groups of `brick` in `range` of which a block was named.
    pub fn named_in(&self, brick: u16, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.groups.range((brick, range.start)..(brick, range.end)).map(|((_, group), _)| *group)
    }

    /// Blocks that nobody names may still be another file's.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, blocks: u16) -> Extent {
        Extent { start, blocks, brick: 1, ..Extent::HOLE }
    }

    #[test]
    fn blocks_are_named_once_across_groups_and_outside_the_window_not_at_all() {
        let mut bits = Bits::new((1, 0)..(1, 2));
        assert_eq!(bits.name(&extent(GROUP_BLOCKS - 10, 100)), 0);
        assert_eq!(bits.name(&extent(GROUP_BLOCKS, 64)), 64);
        assert_eq!(bits.name(&extent(5 * GROUP_BLOCKS, 64)), 0);
        assert_eq!(bits.groups.len(), 2);
        assert!(!bits.doubtful);
        bits.unname(&extent(GROUP_BLOCKS - 10, 100));
        assert!(bits.doubtful);
        assert_eq!(bits.name(&extent(0, 1)) + bits.name(&extent(GROUP_BLOCKS, 90)), 0);
    }
}
