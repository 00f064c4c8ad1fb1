//! A member that holds a slot, as a log is replayed to it before the array runs.

use crate::metadata::superblock::read;
use crate::state::bad_blocks::BadBlocks;
use braid_device::{Device, IoError};
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_layout::Slot;
use braid_shard::{BufMut, Shard};
use std::ops::Range;
use std::rc::Rc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// See the module's documentation.
pub(crate) struct Holder {
    pub(crate) slot: Slot,
    pub(crate) name: String,
    pub(crate) device: Rc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// What it holds is valid below this component byte.
    pub(crate) valid_below: u64,
    /// Member sectors that it cannot give.
    pub(crate) bad: BadBlocks,
}

impl Holder {
    /// Byte of the member where its component starts.
    pub(crate) fn data(&self) -> u64 {
        self.superblock.data_offset.saturating_mul(SECTOR_BYTES)
    }

    /// It holds what it should in these component bytes.
    pub(crate) fn holds(&self, bytes: &Range<u64>) -> bool {
        bytes.end <= self.valid_below && !self.bad.overlaps(&self.sectors(bytes))
    }

    /// All of these component bytes are recorded as bad.
    pub(crate) fn is_bad(&self, bytes: &Range<u64>) -> bool {
        self.bad.covers(&self.sectors(bytes))
    }

    fn sectors(&self, bytes: &Range<u64>) -> Range<u64> {
        (self.data() + bytes.start) / SECTOR_BYTES..(self.data() + bytes.end).div_ceil(SECTOR_BYTES)
    }

    /// Reads these component bytes.
    pub(crate) async fn read(&self, shard: &Shard, bytes: &Range<u64>) -> Result<BufMut, IoError> {
        // At most a chunk.
        let len = (bytes.end - bytes.start) as usize;
        read(shard, &self.device, self.data() + bytes.start, len).await
    }
}
