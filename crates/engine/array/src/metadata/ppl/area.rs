//! The area of one member: where units go, and what an empty one holds.
//!
//! ```text
//!  ┌────────┬────────┬─────────┬────────┬──────────────┬───────┐
//!  │ header │ header │ partial │ header │ partial      │ …     │   a ring, from 264 KiB on
//!  │ no     │ unit   │ parity  │ unit   │ parity       │       │
//!  │ entry  │ 7      │         │ 12     │              │       │
//!  └────────┴────────┴─────────┴────────┴──────────────┴───────┘
//! ```
//!
//! md walks from the start of the area from unit to unit until a header is damaged or older than the one before. The first
//! header of a ring stays as it is, so that a unit that the power cut short, also the first of another round, leaves an
//! area that begins with an intact header. A smaller area holds one unit, at its start.

use braid_device::Request;
use braid_format::SECTOR;
use braid_format::ppl::{HEADER, Header};
use braid_format::superblock::Superblock;
use braid_shard::Shard;

const SECTOR_BYTES: u64 = SECTOR as u64;
const HEADER_BYTES: u64 = HEADER as u64;
/// Bytes from which on md uses an area as a ring: room for two units of its own.
const RING_FROM: u64 = 2 * ((128 << 10) + HEADER_BYTES);
/// Bytes of partial parity in a unit at most: what the most entries of a block each need.
const PARTIAL_MAX: u64 = 640 << 10;
/// Partial parity comes in blocks of members, which have at most so many bytes.
const BLOCK_MAX: u64 = 4096;

/// See the module's documentation. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// Byte of the member at which it begins.
    pub(crate) at: u64,
    len: u64,
}

impl Area {
    /// The area that the member's superblock names; `None` without one, or when it has no room for a unit.
    pub(crate) fn of(superblock: &Superblock) -> Option<Area> {
        let (at, sectors) = superblock.ppl_sectors()?;
        let area = Area { at: at.checked_mul(SECTOR_BYTES)?, len: sectors * SECTOR_BYTES };
        (area.len >= HEADER_BYTES + BLOCK_MAX).then_some(area)
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// md uses it as a ring, and says so in the superblock.
    pub(crate) fn is_ring(&self) -> bool {
        self.len >= RING_FROM
    }

    /// Where the first unit goes.
    pub(crate) fn first(&self) -> u64 {
        if self.is_ring() { HEADER_BYTES } else { 0 }
    }

    /// Bytes of partial parity that a unit can have.
    pub(crate) fn partial_max(&self) -> u64 {
        // At its end a ring keeps room for a header that is none: md looks there for the next unit.
        let rest = if self.is_ring() { self.first() + HEADER_BYTES } else { 0 };
        let most = (self.len - rest - HEADER_BYTES).min(PARTIAL_MAX);
        most - most % BLOCK_MAX
    }

    /// Where a unit of `len` bytes goes that would follow at `next`.
    pub(crate) fn place(&self, next: u64, len: u64) -> u64 {
        let fits = self.is_ring() && next + len + HEADER_BYTES <= self.len;
        if fits { next } else { self.first() }
    }

    /// The requests that make the area empty; the second only once the first is durable, as both are when they complete:
    /// what the area held is gone before the new header is there.
    pub(crate) fn empty(
        &self,
        shard: &Shard,
        set_uuid: &[u8; 16],
        generation: u64,
    ) -> [Request; 2] {
        // An area has at most 65535 sectors.
        let zeroes = shard.pool().zeroed(self.len as usize).freeze();
        [Request::write(self.at, zeroes, true), self.first_header(shard, set_uuid, generation)]
    }

    /// Writes a header without entries to the start of the area.
    pub(crate) fn first_header(
        &self,
        shard: &Shard,
        set_uuid: &[u8; 16],
        generation: u64,
    ) -> Request {
        let header = Header { generation, entries: Vec::new() }.to_bytes(set_uuid);
        Request::write(self.at, shard.pool().copy_of(&header).freeze(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn units_of_a_ring_follow_its_first_header_and_leave_room_for_another_at_its_end() {
        let area = Area { at: 0, len: 1024 * KIB };
        assert_eq!((area.first(), area.partial_max()), (4 * KIB, 640 * KIB));
        assert_eq!(area.place(4 * KIB, 100 * KIB), 4 * KIB);
        assert_eq!(area.place(920 * KIB, 100 * KIB), 920 * KIB);
        assert_eq!(area.place(921 * KIB, 100 * KIB), 4 * KIB);
    }

    #[test]
    fn a_small_area_holds_one_unit_at_its_start() {
        let area = Area { at: 0, len: 132 * KIB };
        assert_eq!((area.first(), area.partial_max()), (0, 128 * KIB));
        assert_eq!(area.place(8 * KIB, 8 * KIB), 0);
        let small = Area { at: 0, len: 264 * KIB };
        assert!(small.is_ring() && small.partial_max() == 252 * KIB);
    }
}
