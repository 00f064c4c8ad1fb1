//! The blocks of a journal device, by their ring sectors: sectors from its data offset, modulo the ring.

use crate::metadata::superblock::{read, write};
use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Request};
use braid_format::SECTOR;
use braid_format::journal::{BLOCK, BLOCK_SECTORS, ring_sectors};
use braid_format::superblock::Superblock;
use braid_shard::{Buf, BufMut, Shard};
use std::rc::Rc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct Ring {
    /// The journal device's name, as it was opened.
    pub(crate) name: String,
    device: Rc<dyn Device>,
    /// Byte of the device at which it begins.
    at: u64,
    sectors: u64,
}

impl Ring {
    /// The ring that the superblock of a journal device names; `None` when it does not lie within the device, in whole
    /// blocks of it.
    pub(crate) fn of(name: &str, device: &Rc<dyn Device>, superblock: &Superblock) -> Option<Ring> {
        let at = superblock.data_offset.checked_mul(SECTOR_BYTES)?;
        let sectors = ring_sectors(superblock.data_size);
        let end = at.checked_add(sectors.checked_mul(SECTOR_BYTES)?)?;
        let info = device.info();
        let block = u64::from(info.logical_block.max(SECTOR as u32));
        let whole = at.is_multiple_of(block) && (BLOCK as u64).is_multiple_of(block);
        let inside = sectors > 0 && end <= info.size && whole;
        inside.then(|| Ring { name: name.to_string(), device: Rc::clone(device), at, sectors })
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.sectors / BLOCK_SECTORS
    }

    /// The ring sector `blocks` blocks behind `position`.
    pub(crate) fn after(&self, position: u64, blocks: u64) -> u64 {
        (position + blocks % self.blocks() * BLOCK_SECTORS) % self.sectors
    }

    /// Of `blocks` blocks from `position` on those before the end of the ring, and those that are at its start.
    fn split(&self, position: u64, blocks: u64) -> (u64, u64) {
        let first = blocks.min((self.sectors - position) / BLOCK_SECTORS);
        (first, blocks - first)
    }

    /// Reads `blocks` blocks, no more than the ring has, from the ring sector `position` on, which is that of a block.
    pub(crate) async fn read(
        &self,
        shard: &Shard,
        position: u64,
        blocks: u64,
    ) -> Result<BufMut, IoError> {
        let (first, rest) = self.split(position, blocks);
        let at = self.at + position * SECTOR_BYTES;
        let head = read(shard, &self.device, at, first as usize * BLOCK).await?;
        if rest == 0 {
            return Ok(head);
        }
        let tail = read(shard, &self.device, self.at, rest as usize * BLOCK).await?;
        let mut all = shard.pool().get(head.len() + tail.len());
        let (start, end) =
            all.split_at_mut_checked(head.len()).ok_or(IoError::new(IoErrorKind::Invalid))?;
        start.copy_from_slice(&head);
        end.copy_from_slice(&tail);
        Ok(all)
    }

    /// Reads the blocks that stand at these ring sectors, in their order.
    pub(crate) async fn read_each(
        &self,
        shard: &Shard,
        places: &[u64],
    ) -> Result<Vec<Buf>, IoError> {
        let mut set = IoSets::new(shard).start();
        for (tag, place) in (0..).zip(places) {
            let buf = shard.pool().get(BLOCK);
            let at = self.at + (place % self.sectors) * SECTOR_BYTES;
            set.submit(tag, &*self.device, Request::read(at, buf));
        }
        let mut blocks: Vec<Option<Buf>> = places.iter().map(|_| None).collect();
        for (tag, outcome) in set.finish().await {
            outcome.result?;
            if let (Op::Read(mut bufs), Some(place)) = (outcome.op, blocks.get_mut(tag as usize)) {
                *place = bufs.pop().map(BufMut::freeze);
            }
        }
        blocks.into_iter().collect::<Option<Vec<Buf>>>().ok_or(IoError::new(IoErrorKind::Invalid))
    }

    /// Writes whole blocks from the ring sector `position` on, durably.
    pub(crate) async fn write(
        &self,
        shard: &Shard,
        position: u64,
        blocks: Buf,
    ) -> Result<(), IoError> {
        let (first, rest) = self.split(position, (blocks.len() / BLOCK) as u64);
        let (first, at) = (first as usize * BLOCK, self.at + position * SECTOR_BYTES);
        if rest == 0 {
            return write(shard, &self.device, at, blocks).await;
        }
        write(shard, &self.device, at, blocks.slice(0..first)).await?;
        write(shard, &self.device, self.at, blocks.slice(first..blocks.len())).await
    }
}
