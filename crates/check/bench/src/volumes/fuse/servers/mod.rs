//! What a volume's mount is compared with: file systems that fuser alone answers, in a process of their own.
//!
//! Both ask the kernel for what braid asks it for (capabilities, sizes, timeouts, threads), so that what is left of the
//! difference is the volume.

mod agreed;
mod lower;
mod memory_file;
mod passthrough;

use agreed::READ_AHEAD;
use anyhow::Context;
use clap::Subcommand;
use fuser::{Config, Filesystem, MountOption, SessionACL};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use memory_file::FILE;

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
