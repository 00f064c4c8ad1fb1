//! The description that a disk gives of itself: feature bits, and the configuration space (`struct virtio_blk_config`).

use super::request::{RANGES_MAX, SECTOR, SECTORS_PER_RANGE_MAX};
use crate::protocol::F_PROTOCOL_FEATURES;
use crate::queue::SEGMENTS_MAX;
use braid_device::{DeviceInfo, TargetInfo};

/// Bytes of one part of a payload: with as many as there may be, nearly 32 MiB.
pub const SEGMENT_BYTES_MAX: u32 = 128 << 10;
/// Bytes of the largest read or write.
pub const REQUEST_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64 * SEGMENTS_MAX as u64;

const F_SIZE_MAX: u64 = 1 << 1;
const F_SEG_MAX: u64 = 1 << 2;
const F_RO: u64 = 1 << 5;
const F_BLK_SIZE: u64 = 1 << 6;
/// Flushes are offered; a driver that does not take them gets every write durable.
pub const F_FLUSH: u64 = 1 << 9;
const F_TOPOLOGY: u64 = 1 << 10;
const F_MQ: u64 = 1 << 12;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
const F_INDIRECT_DESC: u64 = 1 << 28;
/// Notifications are asked for by index.
pub const F_EVENT_IDX: u64 = 1 << 29;
const F_VERSION_1: u64 = 1 << 32;

/// The features that are offered for a target.
pub fn features(info: &TargetInfo) -> u64 {
    let always = F_SIZE_MAX
        | F_SEG_MAX
        | F_BLK_SIZE
        | F_FLUSH
        | F_TOPOLOGY
        | F_MQ
        | F_INDIRECT_DESC
        | F_EVENT_IDX
        | F_VERSION_1
        | F_PROTOCOL_FEATURES;
    let rights = match (info.read_only, info.device.discards) {
        (true, _) => F_RO,
        (false, true) => F_DISCARD | F_WRITE_ZEROES,
        (false, false) => F_WRITE_ZEROES,
    };
    always | rights
}

/// The configuration space of a target that has `queues` queues. What a front end reads beyond it is zero.
pub fn space(info: &TargetInfo, queues: u16) -> Vec<u8> {
    let device = &info.device;
    let block = device.logical_block.max(512);
    let mut space = Space(Vec::with_capacity(60));
    space.u64(device.size / SECTOR);
    space.u32(SEGMENT_BYTES_MAX);
    space.u32(SEGMENTS_MAX);
    // No geometry of cylinders, heads and sectors.
    space.u32(0);
    space.u32(block);
    topology(&mut space, device, block);
    // No cache mode to be set, and a byte of padding.
    space.u16(0);
    space.u16(queues);
    let ranges = |offered| if offered { (SECTORS_PER_RANGE_MAX, RANGES_MAX) } else { (0, 0) };
    let (sectors, most) = ranges(device.discards && !info.read_only);
    space.u32(sectors);
    space.u32(most);
    // Discards that begin and end at such a multiple waste nothing.
    let aligned = device.minimum_io.max(device.physical_block).max(block);
    space.u32(aligned / SECTOR as u32);
    let (sectors, most) = ranges(!info.read_only);
    space.u32(sectors);
    space.u32(most);
    // Zeroing may give space back, and three bytes of padding.
    space.u32(u32::from_le_bytes([1, 0, 0, 0]));
    space.0
}

fn topology(space: &mut Space, device: &DeviceInfo, block: u32) {
    let blocks = |bytes: u32| bytes / block;
    let physical = blocks(device.physical_block).max(1).ilog2();
    // It is at most 31.
    space.u8(physical as u8);
    space.u8(0);
    space.u16(u16::try_from(blocks(device.minimum_io)).unwrap_or(0));
    space.u32(blocks(device.optimal_io));
}

struct Space(Vec<u8>);

impl Space {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> TargetInfo {
        let device = DeviceInfo {
            logical_block: 4096,
            physical_block: 8192,
            minimum_io: 64 << 10,
            optimal_io: 256 << 10,
            ..DeviceInfo::plain("disk", 1 << 30)
        };
        TargetInfo { name: "disk".into(), description: String::new(), device, read_only: false }
    }

    #[test]
    fn the_fields_stand_where_the_specification_has_them() {
        let space = space(&info(), 4);
        assert_eq!(space.len(), 60);
        let u32_at = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        let u16_at = |at: usize| u16::from_le_bytes(space[at..at + 2].try_into().unwrap());
        assert_eq!(u32_at(0), (1 << 30) / 512);
        assert_eq!((u32_at(8), u32_at(12)), (SEGMENT_BYTES_MAX, SEGMENTS_MAX));
        assert_eq!((u32_at(20), space[24], u16_at(26), u32_at(28)), (4096, 1, 16, 64));
        assert_eq!(u16_at(34), 4);
        assert_eq!((u32_at(36), u32_at(40), u32_at(44)), (SECTORS_PER_RANGE_MAX, RANGES_MAX, 128));
        assert_eq!((u32_at(48), u32_at(52), space[56]), (SECTORS_PER_RANGE_MAX, RANGES_MAX, 1));
    }

    #[test]
    fn a_read_only_target_offers_nothing_that_writes() {
        let offered = features(&TargetInfo { read_only: true, ..info() });
        assert_eq!(offered & (F_RO | F_DISCARD | F_WRITE_ZEROES | F_FLUSH), F_RO | F_FLUSH);
        assert_eq!(features(&info()) & (F_RO | F_DISCARD), F_DISCARD);
    }
}
