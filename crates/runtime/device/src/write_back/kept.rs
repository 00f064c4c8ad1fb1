//! Blocks that were written and are in memory only.

use braid_shard::Buf;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of a block: what is kept or not kept as a whole. A multiple of every device's logical block.
pub(super) const BLOCK: u64 = 4096;

/// Blocks by their first byte.
pub(super) type Blocks = BTreeMap<u64, Buf>;

/// The blocks that are kept.
#[derive(Default)]
pub(super) struct Kept {
    /// Those that came since the last batch left.
    new: Blocks,
    /// Those of the batch that is on its way to the device. One that comes again meanwhile is new.
    leaving: Rc<Blocks>,
    /// Those that the device did not take. They are read here for as long as the device is used at all.
    refused: Blocks,
}

impl Kept {
    /// Keeps the block that begins at `at`.
    pub fn put(&mut self, at: u64, block: Buf) {
        self.new.insert(at, block);
    }

    /// Bytes that came since the last batch left.
    pub fn new_bytes(&self) -> u64 {
        self.new.len() as u64 * BLOCK
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        (self.new.len() + self.leaving.len() + self.refused.len()) as u64 * BLOCK
    }

    /// True if nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    fn maps(&self) -> [&Blocks; 3] {
        // The newest comes last.
        [&self.refused, &self.leaving, &self.new]
    }

    /// True if any block overlaps `bytes`.
    pub fn overlaps(&self, bytes: &Range<u64>) -> bool {
        let blocks = blocks_of(bytes);
        self.maps().iter().any(|map| map.range(blocks.clone()).next().is_some())
    }

    /// The blocks that overlap `bytes`, each as it was written last.
    pub fn within(&self, bytes: &Range<u64>) -> Blocks {
        let mut found = Blocks::new();
        for map in self.maps() {
            let blocks = map.range(blocks_of(bytes));
            found.extend(blocks.map(|(at, block)| (*at, block.slice(0..block.len()))));
        }
        found
    }

    /// The new blocks become the next batch. The one before has [ended](Kept::end_batch).
    pub fn begin_batch(&mut self) -> Rc<Blocks> {
        self.leaving = Rc::new(std::mem::take(&mut self.new));
        Rc::clone(&self.leaving)
    }

    /// The batch is on the device, but for `refused`.
    pub fn end_batch(&mut self, refused: Blocks) {
        self.refused.extend(refused);
        self.leaving = Rc::default();
    }
}

/// The first bytes of the blocks that overlap `bytes`.
fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    let first = bytes.start / BLOCK * BLOCK;
    // Never before the first, also where there are no bytes.
    first..bytes.end.max(first)
}
