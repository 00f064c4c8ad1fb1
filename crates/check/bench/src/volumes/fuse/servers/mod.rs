//! What a volume's mount is compared with: file systems that fuser alone answers, in a process of their own.
//!
//! Both ask the kernel for what braid asks it for (capabilities, sizes, timeouts, threads), so that what is left of the
//! difference is the volume.

mod lower;
mod memory_file;
mod passthrough;

use anyhow::Context;
use clap::Subcommand;
use fuser::{
    Config, Filesystem, FopenFlags, InitFlags, KernelConfig, MountOption, OpenFlags, SessionACL,
};
use rustix::fs::OFlags;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use memory_file::FILE;

/// How long the kernel may go on with what it knows, as a volume's mount has it.
const KNOWN_FOR: Duration = Duration::from_secs(86_400);
const MAX_WRITE: u32 = 1 << 20;
const READ_AHEAD: u32 = 8 << 20;
const BACKGROUND: u16 = 256;
const THREADS: usize = 2;

/// One of them; it serves until its standard input ends.
#[derive(Subcommand)]
pub enum Server {
    /// One file in memory
    Memory {
        /// Where to mount
        mount: PathBuf,
        /// Bytes of the file
        size: usize,
    },
    /// A directory as it is
    Through {
        /// Where to mount
        mount: PathBuf,
        /// The directory
        below: PathBuf,
    },
}

impl Server {
    /// Mounts, says so in a line, and serves.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Server::Memory { mount, size } => serve(memory_file::MemoryFile::new(size), &mount),
            Server::Through { mount, below } => {
                serve(passthrough::Passthrough::new(&below)?, &mount)
            }
        }
    }
}

fn serve(file_system: impl Filesystem, mount: &Path) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = fuser::spawn_mount(file_system, mount, &config)
        .with_context(|| format!("mounting at {}", mount.display()))?;
    let device = std::fs::metadata(mount).context("looking at the mount point")?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    for (name, value) in [("read_ahead_kb", READ_AHEAD >> 10), ("max_ratio", 20)] {
        let path = format!("/sys/class/bdi/{major}:{minor}/{name}");
        std::fs::write(&path, value.to_string()).with_context(|| format!("setting {path}"))?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "serving").and_then(|()| out.flush()).context("saying so")?;
    std::io::stdin().read_to_end(&mut Vec::new()).context("waiting for the end")?;
    session.umount_and_join().context("unmounting")
}

/// Agrees with the kernel on what a volume's mount agrees on. True where files that bypass the page cache can be
/// mapped.
fn configure(config: &mut KernelConfig) -> bool {
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
fn open_flags(flags: OpenFlags, direct_mmap: bool) -> FopenFlags {
    let cached = FopenFlags::FOPEN_KEEP_CACHE;
    if is_direct(flags) && direct_mmap {
        return cached | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    }
    cached
}

fn is_direct(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DIRECT)
}
