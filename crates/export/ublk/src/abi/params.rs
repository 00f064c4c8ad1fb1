//! The properties of a disk (`struct ublk_params`): sizes, limits and abilities.

use super::request::SECTOR;
use braid_device::TargetInfo;

/// Bytes of the structure, up to the part about discards.
pub const PARAMS_BYTES: usize = 60;

const TYPE_BASIC: u32 = 1 << 0;
const TYPE_DISCARD: u32 = 1 << 1;
const ATTR_READ_ONLY: u32 = 1 << 0;
const ATTR_ROTATIONAL: u32 = 1 << 1;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;

/// Sectors of the largest discard or write-zeroes: 1 GiB.
const ZEROED_SECTORS_MAX: u32 = 1 << 21;
/// The kernel takes logical blocks up to a page.
const LOGICAL_SHIFT_MAX: u32 = 12;

/// The structure for a target, of which a request has at most `request_bytes` bytes.
pub fn encode(info: &TargetInfo, request_bytes: u32) -> [u8; PARAMS_BYTES] {
    let device = &info.device;
    let logical = shift(device.logical_block.max(512)).min(LOGICAL_SHIFT_MAX);
    let physical = shift(device.physical_block).max(logical);
    let minimum = shift(device.minimum_io).max(physical);
    // Both are powers of two here. A full stripe that is none cannot be told; what is none must not pass for one.
    let optimal = match device.optimal_io.is_power_of_two() {
        true => shift(device.optimal_io).max(minimum),
        false => minimum,
    };
    let mut attributes = ATTR_VOLATILE_CACHE | ATTR_FUA;
    if info.read_only {
        attributes |= ATTR_READ_ONLY;
    }
    if device.rotational {
        attributes |= ATTR_ROTATIONAL;
    }
    let changes = !info.read_only;
    let types = if changes { TYPE_BASIC | TYPE_DISCARD } else { TYPE_BASIC };
    let mut bytes = [0; PARAMS_BYTES];
    let mut put = |at: usize, field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
    };
    put(0, &(PARAMS_BYTES as u32).to_ne_bytes());
    put(4, &types.to_ne_bytes());
    put(8, &attributes.to_ne_bytes());
    // Shifts are below 32.
    put(12, &[logical as u8, physical as u8, optimal as u8, minimum as u8]);
    put(16, &(request_bytes / SECTOR as u32).to_ne_bytes());
    put(24, &(device.size / SECTOR).to_ne_bytes());
    if changes {
        let sectors = if device.discards { ZEROED_SECTORS_MAX } else { 0 };
        put(44, &(1u32 << physical).to_ne_bytes());
        put(48, &sectors.to_ne_bytes());
        put(52, &ZEROED_SECTORS_MAX.to_ne_bytes());
        put(56, &1u16.to_ne_bytes());
    }
    bytes
}

/// The size of a disk with these properties, in bytes.
pub fn size(bytes: &[u8; PARAMS_BYTES]) -> u64 {
    let mut sectors = [0; 8];
    sectors.copy_from_slice(&bytes[24..32]);
    u64::from_ne_bytes(sectors).saturating_mul(SECTOR)
}

/// True if such a disk takes no writes.
pub fn is_read_only(bytes: &[u8; PARAMS_BYTES]) -> bool {
    u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) & ATTR_READ_ONLY != 0
}

/// The logical block of such a disk, in bytes.
pub fn logical_block(bytes: &[u8; PARAMS_BYTES]) -> u32 {
    1u32.checked_shl(u32::from(bytes[12])).unwrap_or(0)
}

/// The largest power of two that is not above `bytes`, as its exponent.
fn shift(bytes: u32) -> u32 {
    bytes.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::DeviceInfo;

    fn info(optimal_io: u32, read_only: bool) -> TargetInfo {
        let device = DeviceInfo {
            physical_block: 4096,
            minimum_io: 64 << 10,
            optimal_io,
            ..DeviceInfo::plain("disk", 1 << 30)
        };
        TargetInfo { name: "disk".into(), description: String::new(), device, read_only }
    }

    #[test]
    fn the_fields_stand_where_the_header_has_them() {
        let bytes = encode(&info(256 << 10, false), 1 << 20);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4), word(8)), (60, 3, ATTR_VOLATILE_CACHE | ATTR_FUA));
        assert_eq!(bytes[12..16], [9, 12, 18, 16]);
        assert_eq!((word(16), word(20)), (2048, 0));
        assert_eq!((size(&bytes), logical_block(&bytes)), (1 << 30, 512));
        assert_eq!((word(40), word(44)), (0, 4096));
        assert_eq!((word(48), word(52)), (ZEROED_SECTORS_MAX, ZEROED_SECTORS_MAX));
        assert_eq!(bytes[56..], [1, 0, 0, 0]);
    }

    #[test]
    fn a_stripe_that_is_no_power_of_two_is_not_told_as_one() {
        let bytes = encode(&info(192 << 10, false), 1 << 20);
        assert_eq!(bytes[12..16], [9, 12, 16, 16]);
    }

    #[test]
    fn a_read_only_disk_offers_nothing_that_writes() {
        let bytes = encode(&info(0, true), 1 << 20);
        assert_eq!(bytes[4], TYPE_BASIC as u8);
        assert!(is_read_only(&bytes) && !is_read_only(&encode(&info(0, false), 1 << 20)));
        assert_eq!(bytes[40..], [0; 20]);
    }
}
