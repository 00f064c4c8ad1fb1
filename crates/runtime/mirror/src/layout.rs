//! Where the blocks of a mirror and the table of their sums lie in a region.
//!
//! A region that has grown has one part for each growth behind its first: the table of the blocks that came with it, and
//! those blocks. Nothing of what was there before moves, and the tables number their blocks on as one.
//!
//! This module does not know the device of the region.

use crate::region::BLOCK;
use crate::sums::table_blocks;

/// The most parts of a region.
pub(crate) const PARTS_MAX: usize = 16;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Blocks up to the end of each part; ascending, at least one.
    ends: Vec<u64>,
}

impl Layout {
    /// With parts that end after so many blocks. `None` where those do not ascend, or are too many.
    pub(crate) fn of_ends(ends: Vec<u64>) -> Option<Layout> {
        let ascend =
            ends.first().is_some_and(|first| *first > 0) && ends.is_sorted_by(|one, two| one < two);
        (ascend && ends.len() <= PARTS_MAX).then_some(Layout { ends })
    }

    /// The same with one part more, as large as a region of `size` bytes allows. `None` where it allows none.
    pub(crate) fn grown_to(&self, size: u64) -> Option<Layout> {
        let mut ends = self.ends.clone();
        ends.push(blocks_in(size));
        Layout::of_ends(ends)
    }

    /// Blocks up to the end of each part.
    pub(crate) fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Blocks of the table.
    pub(crate) fn tables(&self) -> u64 {
        table_blocks(self.blocks())
    }

    /// Bytes of a region that holds it.
    pub(crate) fn size(&self) -> u64 {
        // However many parts, each block stands once.
        self.blocks().saturating_add(self.tables()).saturating_add(1).saturating_mul(BLOCK as u64)
    }

    /// Where a block begins, in bytes.
    pub(crate) fn block_at(&self, block: u64) -> u64 {
        // In front of it are the header, the blocks before it, and the tables up to those of its part.
        (1 + table_blocks(self.end_of_part(block)) + block) * BLOCK as u64
    }

    /// Where a block of the table begins, in bytes.
    pub(crate) fn table_at(&self, number: u64) -> u64 {
        let before = self.ends.iter().take_while(|end| table_blocks(**end) <= number).last();
        (1 + before.copied().unwrap_or(0) + number) * BLOCK as u64
    }

    /// Of `count` blocks from `first` on, those that lie in a row.
    pub(crate) fn in_a_row(&self, first: u64, count: u64) -> u64 {
        count.min(self.end_of_part(first).saturating_sub(first).max(1))
    }

    /// True where `other` is this one, grown any number of times.
    pub(crate) fn is_beginning_of(&self, other: &Layout) -> bool {
        other.ends.starts_with(&self.ends)
    }

    fn end_of_part(&self, block: u64) -> u64 {
        let end = self.ends.iter().find(|end| block < **end);
        end.copied().unwrap_or(self.blocks())
    }
}

/// Blocks of a mirror in a region of `size` bytes.
pub(crate) fn blocks_in(size: u64) -> u64 {
    let all = (size / BLOCK as u64).saturating_sub(1);
    let mut blocks = all.saturating_sub(table_blocks(all));
    while blocks + 1 + table_blocks(blocks + 1) <= all {
        blocks += 1;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_block_has_a_place_of_its_own_and_none_moves_by_growth() {
        let mut layout = Layout::of_ends(vec![blocks_in(5 << 20)]).unwrap();
        for size in [(5 << 20) + 4096, 6 << 20, 14 << 20, 15 << 20] {
            let before = layout.clone();
            layout = layout.grown_to(size).unwrap();
            assert!(before.is_beginning_of(&layout) && !layout.is_beginning_of(&before));
            assert!((0..before.blocks()).all(|at| before.block_at(at) == layout.block_at(at)));
            assert!((0..before.tables()).all(|at| before.table_at(at) == layout.table_at(at)));
            assert!(layout.size() <= size);
            let blocks = (0..layout.blocks()).map(|at| layout.block_at(at));
            let places: BTreeSet<u64> =
                blocks.chain((0..layout.tables()).map(|at| layout.table_at(at))).collect();
            assert_eq!(places.len() as u64, layout.blocks() + layout.tables());
            assert_eq!(places.first(), Some(&(BLOCK as u64)));
            assert_eq!(places.last(), Some(&(layout.size() - BLOCK as u64)));
            let mut at = 0;
            while at < layout.blocks() {
                let count = layout.in_a_row(at, 300);
                let last = at + count - 1;
                assert_eq!(layout.block_at(last) - layout.block_at(at), (count - 1) * BLOCK as u64);
                at += count;
            }
        }
        assert_eq!(layout.grown_to(15 << 20), None);
        assert_eq!(Layout::of_ends(vec![5, 5]), None);
        assert_eq!(Layout::of_ends(vec![0]), None);
        assert_eq!(Layout::of_ends(Vec::new()), None);
        assert_eq!(Layout::of_ends((1..18).collect()), None);
    }
}
