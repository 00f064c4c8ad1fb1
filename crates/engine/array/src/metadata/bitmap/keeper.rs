//! The bits of a running array, on its home shard: what the members are to hold, who writes under
//! each bit, and what may be cleared.
//!
//! Does no I/O: control writes the pages that are *dirty* here, batch after batch, and says when a
//! batch is durable.
//!
//! Invariant: [`Keeper::hold`] names a batch to wait for unless every bit was durable already.

use crate::metadata::bitmap::Shape;
use braid_format::bitmap::{BitmapSuperblock, Bits, HEADER, area_len};
use std::collections::BTreeSet;

/// Bytes that are written at once, at most: as in md, whose unit is a page of memory.
pub(crate) const PAGE: usize = 4096;

/// The number of a batch of page writes.
pub(crate) type BatchNr = u64;

/// See the module's documentation.
pub(crate) struct Keeper {
    /// As it is written with the first page.
    pub(crate) superblock: BitmapSuperblock,
    shape: Shape,
    bits: Bits,
    /// Bits set.
    count: u32,
    /// Redundancy is not known to hold under these.
    needed: Bits,
    /// Shards that may write under each bit.
    holders: Vec<u16>,
    /// Set, and in no batch yet.
    fresh: BTreeSet<u32>,
    /// Set in the batch that is being written.
    writing: BTreeSet<u32>,
    dirty: BTreeSet<usize>,
    /// The batch that will be started next; those below have been.
    next: BatchNr,
    /// Batches below are durable.
    done: BatchNr,
}

/// No bit set.
pub(crate) fn clear_bits(len: u64) -> Bits {
    // Callers hold `len` to `BITS_MAX`, so the area is at most some 512 KiB.
    Bits::from_area(&vec![0; area_len(len) as usize], len)
}

impl Keeper {
    /// `bits` as they were found, `needed` those that a resync has to visit; both of the length that
    /// `superblock` says.
    pub(crate) fn new(superblock: BitmapSuperblock, bits: Bits, needed: Bits) -> Keeper {
        let shape = Shape::new(superblock.chunk_bytes, bits.len());
        let count = bits.iter_set().count() as u32;
        let holders = vec![0; shape.bits() as usize];
        Keeper {
            superblock,
            shape,
            bits,
            count,
            needed,
            holders,
            fresh: BTreeSet::new(),
            writing: BTreeSet::new(),
            dirty: BTreeSet::new(),
            next: 1,
            done: 1,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of set bits.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The set bits as they are now.
    pub(crate) fn bits(&self) -> &Bits {
        &self.bits
    }

    /// The bits that a resync has still to visit.
    pub(crate) fn needed(&self) -> &Bits {
        &self.needed
    }

    fn page_of(bit: u32) -> usize {
        (HEADER + bit as usize / 8) / PAGE
    }

    /// A shard will write under `bits`. Gives the batch after which it may; `None`: at once.
    pub(crate) fn hold(&mut self, bits: &[u32]) -> Option<BatchNr> {
        let mut wait = None;
        for bit in bits {
            if let Some(holders) = self.holders.get_mut(*bit as usize) {
                *holders = holders.saturating_add(1);
            }
            if self.bits.set((*bit).into()) {
                self.count += 1;
                self.fresh.insert(*bit);
                self.dirty.insert(Keeper::page_of(*bit));
            }
            let batch = if self.fresh.contains(bit) {
                Some(self.next)
            } else if self.writing.contains(bit) {
                Some(self.next - 1)
            } else {
                None
            };
            wait = wait.max(batch);
        }
        wait
    }

    /// A resync has to visit everything from byte `from` on: the bits over it are set and needed. Nothing of it is written
    /// yet.
    pub(crate) fn need_from(&mut self, from: u64) {
        for bit in 0..self.shape.bits() {
            if self.shape.bytes(bit).end > from {
                self.needed.set(bit.into());
                self.count += u32::from(self.bits.set(bit.into()));
            }
        }
    }

    /// A shard does not write under `bits` any more.
    pub(crate) fn release(&mut self, bits: &[u32]) {
        for bit in bits {
            if let Some(holders) = self.holders.get_mut(*bit as usize) {
                *holders = holders.saturating_sub(1);
            }
        }
    }

    /// Starts the next batch and gives its pages; `None` when nothing has changed. One at a time.
    pub(crate) fn start_batch(&mut self) -> Option<(BatchNr, Vec<usize>)> {
        if self.dirty.is_empty() {
            return None;
        }
        self.writing = std::mem::take(&mut self.fresh);
        let batch = self.next;
        self.next += 1;
        Some((batch, std::mem::take(&mut self.dirty).into_iter().collect()))
    }

    /// The batch is durable on all members that are left.
    pub(crate) fn end_batch(&mut self, batch: BatchNr) {
        self.writing.clear();
        self.done = batch + 1;
    }

    pub(crate) fn is_done(&self, batch: BatchNr) -> bool {
        batch < self.done
    }

    /// The bytes of a page, header included in the first, without what follows the last bit.
    pub(crate) fn page(&self, page: usize) -> Vec<u8> {
        let end = self.len().min((page + 1) * PAGE);
        let mut bytes = Vec::with_capacity(PAGE);
        if page == 0 {
            bytes.extend_from_slice(&self.superblock.to_bytes());
        }
        let from = (page * PAGE).max(HEADER) - HEADER;
        bytes.extend_from_slice(self.bits.bytes().get(from..end - HEADER).unwrap_or_default());
        bytes
    }

    /// Bytes of superblock and bits.
    pub(crate) fn len(&self) -> usize {
        len(self.shape.bits().into())
    }

    pub(crate) fn pages(&self) -> usize {
        self.len().div_ceil(PAGE)
    }

    /// Set bits under which nobody writes and redundancy holds.
    pub(crate) fn clearable(&self) -> Vec<u32> {
        let free = |bit: &u64| {
            let holders = self.holders.get(*bit as usize).copied();
            holders == Some(0) && !self.needed.get(*bit)
        };
        // Bits are fewer than `BITS_MAX`.
        self.bits.iter_set().filter(free).map(|bit| bit as u32).collect()
    }

    /// Clears those of `bits` that are still clearable.
    pub(crate) fn clear(&mut self, bits: &[u32]) {
        for bit in bits {
            let held = self.holders.get(*bit as usize) != Some(&0);
            if !held && !self.needed.get((*bit).into()) && self.bits.clear((*bit).into()) {
                self.count -= 1;
                self.dirty.insert(Keeper::page_of(*bit));
            }
        }
    }

    /// Redundancy holds below byte `bytes`.
    pub(crate) fn synced_below(&mut self, bytes: u64) {
        let shape = self.shape;
        let below = |bit: &u64| shape.bytes(*bit as u32).end <= bytes;
        let synced: Vec<u64> = self.needed.iter_set().take_while(below).collect();
        for bit in synced {
            self.needed.clear(bit);
        }
    }
}

/// Bytes of superblock and `bits` bits.
pub(crate) fn len(bits: u64) -> usize {
    HEADER + bits.div_ceil(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(bits: u64) -> Keeper {
        let superblock = BitmapSuperblock::new([7; 16], bits * 8, 4096);
        Keeper::new(superblock, clear_bits(bits), clear_bits(bits))
    }

    #[test]
    fn a_new_bit_waits_for_its_batch_and_a_durable_one_for_nothing() {
        let mut keeper = keeper(100_000);
        assert_eq!(keeper.hold(&[3, 99_999]), Some(1));
        let (batch, pages) = keeper.start_batch().unwrap();
        assert_eq!((batch, pages), (1, vec![0, (HEADER + 99_999 / 8) / PAGE]));
        // While the batch is written its bits are waited for, and new ones for the next batch.
        assert_eq!(keeper.hold(&[3]), Some(1));
        assert_eq!(keeper.hold(&[3, 4]), Some(2));
        keeper.end_batch(batch);
        assert!(keeper.is_done(1) && !keeper.is_done(2));
        assert_eq!(keeper.hold(&[3]), None);
        assert_eq!(keeper.count(), 3);
    }

    #[test]
    fn a_bit_is_cleared_when_nobody_holds_it_and_must_be_written_again_then() {
        let mut keeper = keeper(16);
        keeper.hold(&[1, 2]);
        keeper.hold(&[2]);
        let (batch, _) = keeper.start_batch().unwrap();
        keeper.end_batch(batch);
        keeper.release(&[1, 2]);
        assert_eq!(keeper.clearable(), [1]);
        keeper.clear(&[1, 2]);
        assert_eq!(keeper.count(), 1);
        assert_eq!(keeper.page(0)[HEADER..], [0b100, 0]);
        assert_eq!(keeper.hold(&[1]), Some(2));
        assert_eq!(keeper.start_batch(), Some((2, vec![0])));
        assert_eq!(keeper.start_batch(), None);
    }

    #[test]
    fn what_a_resync_needs_stays_set_until_it_has_come_by() {
        let mut needed = clear_bits(16);
        needed.set(1);
        needed.set(9);
        let superblock = BitmapSuperblock::new([7; 16], 16 * 8, 4096);
        let mut keeper = Keeper::new(superblock, needed.clone(), needed);
        assert!(keeper.clearable().is_empty());
        keeper.synced_below(2 * 4096);
        assert_eq!(keeper.clearable(), [1]);
        keeper.synced_below(u64::MAX);
        assert_eq!(keeper.clearable(), [1, 9]);
        assert_eq!(keeper.page(0).len(), HEADER + 2);
    }
}
