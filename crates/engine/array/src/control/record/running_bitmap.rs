//! The bitmap of a running array: its bits, its place on the members, and who may write it.

use crate::metadata::bitmap::keeper::Keeper;
use crate::metadata::bitmap::load::len_on;
use crate::metadata::bitmap::{BitmapNr, FIRST_BITMAP};
use crate::status::BitmapStatus;
use braid_device::Device;
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_shard::sync::{Budget, Notify};
use braid_shard::{Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SECTOR_BYTES: u64 = SECTOR as u64;
const SECOND: Nanos = 1_000_000_000;

/// The bitmap that a running array has, if any: it may be given one, or lose it.
pub(crate) struct Current {
    bitmap: RefCell<Option<Rc<Bitmap>>>,
    next: Cell<BitmapNr>,
    /// Instead of what a bitmap says, in milliseconds.
    daemon_sleep_ms: Option<u64>,
}

impl Current {
    /// The one that the array had when it was assembled, `offset` sectors from its superblock.
    pub(crate) fn new(
        shard: &Shard,
        found: Option<(Keeper, i32)>,
        daemon_sleep_ms: Option<u64>,
    ) -> Current {
        let bitmap = found.map(|(keeper, offset)| {
            Rc::new(Bitmap::new(shard, (FIRST_BITMAP, offset), keeper, daemon_sleep_ms))
        });
        let next = Cell::new(FIRST_BITMAP + 1);
        Current { bitmap: RefCell::new(bitmap), next, daemon_sleep_ms }
    }

    pub(crate) fn get(&self) -> Option<Rc<Bitmap>> {
        self.bitmap.borrow().clone()
    }

    pub(crate) fn set(&self, bitmap: Option<Rc<Bitmap>>) {
        *self.bitmap.borrow_mut() = bitmap;
    }

    /// The superblock of a member on `device` leaves room for the bitmap, if there is one.
    pub(crate) fn has_room(&self, device: &Rc<dyn Device>, superblock: &Superblock) -> bool {
        self.get().is_none_or(|bitmap| bitmap.fits(device, superblock))
    }

    /// Another bitmap, with a number that none had before.
    pub(crate) fn make(&self, shard: &Shard, offset: i32, keeper: Keeper) -> Bitmap {
        let nr = self.next.replace(self.next.get() + 1);
        Bitmap::new(shard, (nr, offset), keeper, self.daemon_sleep_ms)
    }
}

/// The bitmap of a running array.
pub(crate) struct Bitmap {
    pub(crate) nr: BitmapNr,
    /// Its place, in sectors from the superblock. Not asked of superblocks, which forget it a moment
    /// before it may be given up.
    pub(crate) offset: i32,
    pub(crate) keeper: RefCell<Keeper>,
    pub(crate) pen: Rc<Budget>,
    /// The right to a round of clearing, from what shards give up to the bits that are cleared: a write
    /// that ends in between gives its bit up to the next round, whose flush covers it.
    pub(crate) round: Rc<Budget>,
    /// A task is writing batches.
    pub(crate) writing: Cell<bool>,
    pub(crate) written: Notify,
    /// Nanoseconds between two rounds of clearing.
    pub(crate) daemon_sleep: Nanos,
    /// Batches of pages written so far.
    pub(crate) batches: Cell<u64>,
}

impl Bitmap {
    /// `daemon_sleep_ms`: instead of what the bitmap says.
    pub(crate) fn new(
        shard: &Shard,
        (nr, offset): (BitmapNr, i32),
        keeper: Keeper,
        daemon_sleep_ms: Option<u64>,
    ) -> Bitmap {
        let daemon_sleep = match daemon_sleep_ms {
            Some(ms) => ms.max(1).saturating_mul(1_000_000),
            None => u64::from(keeper.superblock.daemon_sleep).saturating_mul(SECOND),
        };
        Bitmap {
            nr,
            offset,
            keeper: RefCell::new(keeper),
            pen: Budget::new(shard, 1),
            round: Budget::new(shard, 1),
            writing: Cell::new(false),
            written: Notify::new(shard),
            daemon_sleep,
            batches: Cell::new(0),
        }
    }

    pub(crate) fn status(&self) -> BitmapStatus {
        let keeper = self.keeper.borrow();
        BitmapStatus {
            offset: self.offset,
            chunk: keeper.superblock.chunk_bytes.into(),
            bits: keeper.shape().bits().into(),
            dirty: keeper.count().into(),
            events_cleared: keeper.superblock.events_cleared,
            batches: self.batches.get(),
        }
    }

    pub(crate) fn offset(&self) -> i32 {
        self.offset
    }

    /// The member has room for it: nothing else stands there, and its blocks allow the place.
    pub(crate) fn fits(&self, device: &Rc<dyn Device>, superblock: &Superblock) -> bool {
        let block = device.info().logical_block.max(SECTOR as u32);
        let len = len_on(self.keeper.borrow().shape().bits().into(), block) as u64;
        let superblock = Superblock { bitmap_offset: self.offset, ..superblock.clone() };
        let room = superblock.bitmap_room().saturating_mul(SECTOR_BYTES);
        let Some(at) = self.place(&superblock) else { return false };
        let end = at.saturating_add(len);
        let data = superblock.data_offset.saturating_mul(SECTOR_BYTES);
        let data_end = data.saturating_add(superblock.size.saturating_mul(SECTOR_BYTES));
        len <= room
            && at.is_multiple_of(block.into())
            && (end <= data || at >= data_end)
            && end <= device.info().size
    }

    /// First byte of the bitmap on a member.
    pub(crate) fn place(&self, superblock: &Superblock) -> Option<u64> {
        let sector = superblock.super_offset.checked_add_signed(self.offset.into())?;
        sector.checked_mul(SECTOR_BYTES)
    }
}
