//! A stripe with all of its copies.
//!
//! Copy 0 is there whenever another is, but for stripes that are being cut off. Bit n of `written` of a copy says that this
//! copy has sub-block n; one that another copy has was missed by those that do not have it.

use super::group::ExtentGroup;
use braid_format::volume::extent::{Extent, of_copy};
use smallvec::SmallVec;
use std::rc::Rc;

/// Bricks that a copy must not come to.
pub type Avoid = SmallVec<[u16; 3]>;

/// A stripe of a file, whose groups of extents stay in memory meanwhile: looking at its extents costs nothing.
#[derive(Clone)]
pub struct Stripe {
    number: u64,
    groups: SmallVec<[Rc<ExtentGroup>; 1]>,
}

impl Stripe {
    pub(super) fn new(number: u64) -> Stripe {
        Stripe { number, groups: SmallVec::new() }
    }

    pub(super) fn push(&mut self, group: Rc<ExtentGroup>) {
        self.groups.push(group);
    }

    /// Its number, without a copy.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Copies that may have an extent: at least one.
    pub fn rows(&self) -> u8 {
        // At most the copies that there can be.
        self.groups.len() as u8
    }

    /// The group of a copy, and the number that it has there.
    pub fn place(&self, copy: u8) -> (&Rc<ExtentGroup>, u64) {
        (&self.groups[usize::from(copy)], of_copy(self.number, copy))
    }

    /// The extent of a copy, as things are now.
    pub fn get(&self, copy: u8) -> Extent {
        let (group, number) = self.place(copy);
        group.get(number)
    }

    /// The copies that have an extent, with it.
    pub fn extents(&self) -> impl Iterator<Item = (u8, Extent)> + '_ {
        (0..self.rows()).map(|copy| (copy, self.get(copy))).filter(|(_, extent)| !extent.is_hole())
    }

    /// The copies from number `copies` on that have an extent: those that are too many for a file that is to have so many.
    pub fn extra(&self, copies: u8) -> impl Iterator<Item = (u8, Extent)> + '_ {
        self.extents().filter(move |(copy, _)| *copy >= copies)
    }

    /// All copies together: the longest of them, and what is written of any. Its place says nothing where there are
    /// several; without copies it is the extent.
    pub fn together(&self) -> Extent {
        let mut all = self.get(0);
        for copy in 1..self.rows() {
            let one = self.get(copy);
            all.written |= one.written;
            all.blocks = all.blocks.max(one.blocks);
        }
        all
    }

    /// A snapshot has the extent of a copy, too, or other stripes may have it.
    pub fn is_shared(&self, copy: u8) -> bool {
        let (group, number) = self.place(copy);
        group.is_shared(number)
    }

    /// The bricks of all copies but one.
    pub fn others_than(&self, copy: u8) -> Avoid {
        if self.rows() == 1 {
            return Avoid::new();
        }
        self.extents().filter(|(other, _)| *other != copy).map(|(_, extent)| extent.brick).collect()
    }
}
