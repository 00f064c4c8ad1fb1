//! What is agreed with the kernel when a mount starts: capabilities and limits (linux/fuse.h, FUSE_INIT).

use crate::options::MountOptions;
use fuser::{InitFlags, KernelConfig};

/// Requests that the kernel may have under way for readers ahead, writers behind and asynchronous direct I/O.
const BACKGROUND: u16 = 256;

/// Each is used where the kernel has it.
fn wanted(options: &MountOptions) -> [InitFlags; 12] {
    let writeback = if options.writeback_cache && !options.read_only {
        InitFlags::FUSE_WRITEBACK_CACHE
    } else {
        InitFlags::empty()
    };
    [
        writeback,
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_EXPORT_SUPPORT,
        // Without it every write asks for the attribute security.capability first.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_MAX_PAGES,
        InitFlags::FUSE_PARALLEL_DIROPS,
    ]
}

pub(crate) fn configure(options: &MountOptions, config: &mut KernelConfig) {
    for flag in wanted(options) {
        if let Err(missing) = config.add_capabilities(flag) {
            tracing::debug!(?missing, "the kernel has not this capability of FUSE; done without");
        }
    }
    // A refusal of these names the nearest possible value.
    if let Err(possible) = config.set_max_write(options.max_write) {
        let _ = config.set_max_write(possible);
    }
    let ahead = u32::try_from(options.read_ahead).unwrap_or(u32::MAX);
    if let Err(possible) = config.set_max_readahead(ahead) {
        let _ = config.set_max_readahead(possible);
    }
    let _ = config.set_max_background(BACKGROUND);
    let _ = config.set_congestion_threshold(BACKGROUND / 4 * 3);
}
