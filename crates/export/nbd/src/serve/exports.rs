//! A target as an NBD export, and a device's errors as NBD error codes.
//!
//! Owns only these two translations.

use braid_device::{DeviceInfo, IoErrorKind, TargetInfo};

use crate::protocol::constants::PAYLOAD_BYTES_MAX;
use crate::protocol::{BlockSizes, ErrorCode, Export, Features};

/// The export for a target.
pub(super) fn export_of(info: &TargetInfo) -> Export {
    let device = &info.device;
    let minimum = device.logical_block.max(1);
    let preferred = preferred(device).max(minimum).max(512);
    Export {
        name: info.name.clone(),
        description: info.description.clone(),
        size: device.size,
        block: BlockSizes { minimum, preferred, maximum: PAYLOAD_BYTES_MAX },
        features: Features {
            read_only: info.read_only,
            flush: true,
            fua: true,
            trim: device.discards && !info.read_only,
            write_zeroes: !info.read_only,
            fast_zero: !info.read_only,
            // All connections reach the same target, and its flush covers every completed write.
            multi_conn: true,
            // Where nothing is kept that was read, a prefetch would only cost.
            cache: !device.direct,
            rotational: device.rotational,
        },
    }
}

/// Aligned requests that are multiples of this need nothing read first: a whole stripe where an array says so,
/// else the piece that goes to one member only. Only powers of two may be said (proto.md, "Block size constraints").
fn preferred(device: &DeviceInfo) -> u32 {
    let sayable = |bytes: &u32| {
        bytes.is_power_of_two() && *bytes <= PAYLOAD_BYTES_MAX && *bytes >= device.physical_block
    };
    let sizes = [device.optimal_io, device.minimum_io];
    sizes.into_iter().find(sayable).unwrap_or(device.physical_block)
}

/// The NBD error for a device's error (proto.md, "Error values").
pub(super) fn error_code(kind: IoErrorKind) -> ErrorCode {
    match kind {
        IoErrorKind::Medium | IoErrorKind::Gone | IoErrorKind::Lost | IoErrorKind::Reserved => {
            ErrorCode::Io
        }
        // "Not supported" on the wire is reserved for fast zeroing.
        IoErrorKind::Invalid | IoErrorKind::Unsupported => ErrorCode::Invalid,
        IoErrorKind::NoSpace => ErrorCode::NoSpace,
        IoErrorKind::Refused => ErrorCode::NotPermitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ExportTable;

    fn info(read_only: bool, logical_block: u32, physical_block: u32) -> TargetInfo {
        let device =
            DeviceInfo { logical_block, physical_block, ..DeviceInfo::plain("disk", 1 << 20) };
        TargetInfo { name: "disk".into(), description: String::new(), device, read_only }
    }

    #[test]
    fn block_sizes_of_every_device_may_be_advertised() {
        for (logical, physical) in [(512, 512), (512, 4096), (4096, 4096), (4096, 512), (1, 1)] {
            let export = export_of(&info(false, logical, physical));
            assert_eq!(export.block.minimum, logical);
            assert!(ExportTable::new(vec![export], None).is_ok());
        }
    }

    #[test]
    fn an_array_prefers_a_whole_stripe_where_that_can_be_said_and_else_a_chunk() {
        for (chunk, stripe, preferred) in [
            (64 << 10, 256 << 10, 256 << 10),
            (64 << 10, 192 << 10, 64 << 10),
            (64 << 20, 256 << 20, 4096),
            (0, 0, 4096),
        ] {
            let mut info = info(false, 512, 4096);
            (info.device.minimum_io, info.device.optimal_io) = (chunk, stripe);
            let export = export_of(&info);
            assert_eq!(export.block.preferred, preferred, "{chunk} {stripe}");
            assert!(ExportTable::new(vec![export], None).is_ok());
        }
    }

    #[test]
    fn a_read_only_target_offers_nothing_that_writes() {
        let features = export_of(&info(true, 512, 4096)).features;
        assert!(features.read_only && features.flush);
        assert!(!features.trim && !features.write_zeroes && !features.fast_zero);
    }
}
