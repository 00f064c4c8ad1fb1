//! The agreement with the kernel that a volume's mount makes, made in the same words by what it is compared with.

use fuser::{FopenFlags, InitFlags, KernelConfig, OpenFlags};
use rustix::fs::OFlags;
use std::time::Duration;

/// How long the kernel may go on with what it knows, as a volume's mount has it.
pub const KNOWN_FOR: Duration = Duration::from_secs(86_400);
const MAX_WRITE: u32 = 1 << 20;
/// Bytes that the kernel reads ahead.
pub const READ_AHEAD: u32 = 8 << 20;
const BACKGROUND: u16 = 256;

/// Agrees with the kernel on what a volume's mount agrees on. True where files that bypass the page cache can be
/// mapped.
pub fn configure(config: &mut KernelConfig) -> bool {
    for flag in [
        InitFlags::FUSE_WRITEBACK_CACHE,
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_EXPORT_SUPPORT,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_MAX_PAGES,
        InitFlags::FUSE_PARALLEL_DIROPS,
    ] {
        // Done without where the kernel has it not, as a volume's mount does.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(MAX_WRITE);
    let _ = config.set_max_readahead(READ_AHEAD);
    let _ = config.set_max_background(BACKGROUND);
    let _ = config.set_congestion_threshold(BACKGROUND / 4 * 3);
    config.capabilities().contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
}

/// As a volume's mount answers an open.
pub fn open_flags(flags: OpenFlags, direct_mmap: bool) -> FopenFlags {
    let cached = FopenFlags::FOPEN_KEEP_CACHE;
    if is_direct(flags) && direct_mmap {
        return cached | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    }
    cached
}

/// True for an open that passes the page cache by.
pub fn is_direct(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DIRECT)
}
