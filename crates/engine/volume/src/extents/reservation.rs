//! Blocks that are reserved for a stripe: they become its extent, or are free again.

use super::brick::Brick;
use braid_format::volume::extent::Extent;
use std::cell::Cell;
use std::rc::Rc;

/// A run of blocks that nobody else gets. Unless it becomes an extent it is free again when this is dropped.
pub struct Reservation {
    brick: Rc<Brick>,
    start: u64,
    blocks: u64,
    kept: Cell<bool>,
}

impl Reservation {
    pub(super) fn new(brick: &Rc<Brick>, start: u64, blocks: u64) -> Reservation {
        Reservation { brick: Rc::clone(brick), start, blocks, kept: Cell::new(false) }
    }

    /// The brick that the blocks are on.
    pub fn brick(&self) -> &Rc<Brick> {
        &self.brick
    }

    /// The first block.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The extent that it becomes, of which these sub-blocks are written.
    pub fn extent(&self, written: u32) -> Extent {
        // At most the blocks of a stripe, which fit.
        let blocks = self.blocks as u16;
        Extent { start: self.start, written, blocks, brick: self.brick.id, common: false }
    }

    /// The blocks are in use from the open transaction on.
    pub(super) fn confirm(&self) {
        self.kept.set(true);
        self.brick.space.confirm(self.start, self.blocks);
    }

    /// The blocks are in use, and no extent names them: damage, for tests.
    #[cfg(test)]
    pub fn lose(&self) {
        self.confirm();
    }

    /// The blocks stay reserved for ever: a bug that is planted.
    pub fn leak(&self) {
        self.kept.set(true);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.kept.get() {
            self.brick.space.release(self.start, self.blocks);
        }
    }
}
