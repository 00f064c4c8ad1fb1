//! What a target looks like as an NBD export, and what a device's errors are called in NBD.
//!
//! Owns only these two translations.

use braid_device::{IoErrorKind, TargetInfo};

use crate::protocol::constants::PAYLOAD_BYTES_MAX;
use crate::protocol::{BlockSizes, ErrorCode, Export, Features};

/// The export for a target.
pub(super) fn export_of(info: &TargetInfo) -> Export {
    let device = &info.device;
    let minimum = device.logical_block.max(1);
    let preferred = device.physical_block.max(minimum).max(512);
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
            // A prefetch would do nothing here, so it is not offered.
            cache: false,
            rotational: device.rotational,
        },
    }
}

/// The NBD error for a device's error (proto.md, "Error values").
pub(super) fn error_code(kind: IoErrorKind) -> ErrorCode {
    match kind {
        IoErrorKind::Medium | IoErrorKind::Gone | IoErrorKind::Lost => ErrorCode::Io,
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
    use braid_device::DeviceInfo;

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
    fn a_read_only_target_offers_nothing_that_writes() {
        let features = export_of(&info(true, 512, 4096)).features;
        assert!(features.read_only && features.flush);
        assert!(!features.trim && !features.write_zeroes && !features.fast_zero);
    }
}
