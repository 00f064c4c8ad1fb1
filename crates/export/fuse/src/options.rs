//! Options of a mount, and the errors of mounting.

use braid_filesystem::Errno;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a mount. [`MountOptions::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where: an existing directory on which nothing is mounted.
    pub dir: PathBuf,
    /// Name of what is mounted; `mount` and `df` show `braid:NAME`.
    pub name: String,
    /// Other users may reach it, within the permissions of the files; else only who mounts. Users other than root
    /// need `user_allow_other` in /etc/fuse.conf for it. The default is whether root mounts.
    pub allow_other: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// The uses of its files that the kernel refuses.
    pub without: Without,
    /// The file system keeps POSIX access control lists, by which the kernel is to judge access.
    pub access_lists: bool,
    /// The kernel collects writes and hands them over in large pieces, later; fsync and close wait for them.
    pub writeback_cache: bool,
    /// Largest write and read of the kernel, in bytes: 4 KiB to 16 MiB. The kernel lowers it to what it can do,
    /// 1 MiB unless `fs.fuse.max_pages_limit` was raised.
    pub max_write: u32,
    /// The time for which the kernel may use cached attributes without asking.
    pub attr_timeout: Duration,
    /// The time for which the kernel may use cached names, and cached absence of names, without asking.
    pub entry_timeout: Duration,
    /// Bytes that the kernel reads ahead of a sequential reader. Only root can set it.
    pub read_ahead: u64,
    /// Bytes of reads and, again, of writes that are under way at once; at least one of `max_write`. What is
    /// above waits.
    pub memory: usize,
    /// Requests come over io_uring where the kernel offers that: Linux 6.14 and newer, with the parameter
    /// `enable_uring` of its module fuse set. Else, and without this, through /dev/fuse.
    pub io_uring: bool,
    /// Requests under way on the file system's shard, or waiting for it in the kernel, from which on further shards take part, where
    /// there are any: see [`Mount::start_on`](crate::Mount::start_on). A request that is alone is answered soonest by the shard that has the file
    /// system.
    pub share_from: usize,
    /// A mount that the kernel and this process have wedged, each waiting for the other, is noticed after so long and
    /// ended, so that the processes that wait in it can be: an error of ours, or of the kernel's. Must not be zero.
    pub patience: Duration,
    /// A program and its first words: a process that calls [`guard`](crate::guard) with the three numbers that are given after them,
    /// and ends the mount when this process was killed. Without one (empty) a mount may hang then, until it is unmounted by force.
    pub guard: Vec<OsString>,
}

/// Uses of files that the kernel refuses in a mount (mount(8)). Without root all but programs is refused anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Setuid and setgid bits and capabilities of programs: `nosuid`.
    pub setuid: bool,
    /// Names of devices: `nodev`.
    pub devices: bool,
    /// Programs: `noexec`.
    pub programs: bool,
}

impl MountOptions {
    /// `name` at `dir`, with the defaults.
    pub fn new(dir: impl Into<PathBuf>, name: impl Into<String>) -> MountOptions {
        MountOptions {
            dir: dir.into(),
            name: name.into(),
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            without: Without::default(),
            access_lists: false,
            writeback_cache: true,
            max_write: 1 << 20,
            attr_timeout: Duration::from_secs(86_400),
            entry_timeout: Duration::from_secs(86_400),
            read_ahead: 8 << 20,
            memory: 32 << 20,
            io_uring: true,
            share_from: 4,
            patience: Duration::from_secs(60),
            guard: Vec::new(),
        }
    }

    /// The source that the table of mounts shows.
    pub(crate) fn source(&self) -> String {
        format!("braid:{}", self.name)
    }

    pub(crate) fn check(&self) -> Result<(), MountError> {
        let wrong = |why: String| Err(MountError::Option { why });
        if !(4096..=16 << 20).contains(&self.max_write) || !self.max_write.is_multiple_of(4096) {
            let now = self.max_write;
            return wrong(format!("max_write {now}; a multiple of 4096 up to 16 MiB is possible"));
        }
        if self.patience.is_zero() {
            return wrong("a patience of nothing; a minute is usual".to_owned());
        }
        if self.name.is_empty() || self.name.bytes().any(|byte| byte.is_ascii_control()) {
            return wrong(format!("the name {:?}; give it visible characters", self.name));
        }
        Ok(())
    }
}

/// Why a file system was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// An option is out of range.
    #[error("mounting: {why}")]
    Option {
        /// What, and what is possible.
        why: String,
    },
    /// There is no such directory.
    #[error("mounting at {}: there is no such directory; make it with mkdir -p", dir.display())]
    Missing {
        /// The mount point.
        dir: PathBuf,
    },
    /// It is something else than a directory.
    #[error("mounting at {}: it is not a directory; give an existing, empty one", dir.display())]
    NotDirectory {
        /// The mount point.
        dir: PathBuf,
    },
    /// Something is mounted there.
    #[error("mounting at {}: {source_name} is mounted there; unmount it first or take another directory", dir.display())]
    Occupied {
        /// The mount point.
        dir: PathBuf,
        /// The source that the table of mounts names.
        source_name: String,
    },
    /// The file system that is mounted there has lost its server, and is not ours to clean up.
    #[error("mounting at {}: {source_name} is mounted there and does not answer; umount --lazy {} and try again", dir.display(), dir.display())]
    Dead {
        /// The mount point.
        dir: PathBuf,
        /// The source that the table of mounts names.
        source_name: String,
    },
    /// The mount point cannot be looked at.
    #[error("mounting at {}: looking at the directory: {error}", dir.display())]
    Inaccessible {
        /// The mount point.
        dir: PathBuf,
        /// The error that the kernel gave.
        error: std::io::Error,
    },
    /// The kernel has no FUSE, or this container has not.
    #[error(
        "opening /dev/fuse: {error}; load the module (modprobe fuse), or give the container the device"
    )]
    NoDevice {
        /// The error that the kernel gave.
        error: std::io::Error,
    },
    /// /dev/fuse may not be opened.
    #[error(
        "opening /dev/fuse: {error}; mount as root, or have the device's permissions changed (usually 0666)"
    )]
    DeviceDenied {
        /// The error that the kernel gave.
        error: std::io::Error,
    },
    /// This user may not mount, and there is no helper that may.
    #[error("mounting at {}: only root may, or a user with the helper fusermount3, which was not found; mount as root or install the package fuse3", dir.display())]
    NoHelper {
        /// The mount point.
        dir: PathBuf,
    },
    /// The helper refused.
    #[error("mounting at {}: fusermount3 refused: {message}", dir.display())]
    Helper {
        /// The mount point.
        dir: PathBuf,
        /// Its message.
        message: String,
    },
    /// The kernel refused.
    #[error("mounting at {}: {error}", dir.display())]
    Refused {
        /// The mount point.
        dir: PathBuf,
        /// The error that the kernel gave.
        error: std::io::Error,
    },
    /// The kernel's FUSE and ours did not agree.
    #[error("mounting at {}: no agreement with the kernel's FUSE: {error}; braid needs Linux 5.15 or newer", dir.display())]
    Handshake {
        /// The mount point.
        dir: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// A thread could not be started.
    #[error("mounting at {}: starting a thread: {error}", dir.display())]
    Thread {
        /// The mount point.
        dir: PathBuf,
        /// The error that the kernel gave.
        error: std::io::Error,
    },
    /// The shard is gone.
    #[error("mounting at {}: the shard of the file system has ended", dir.display())]
    ShardGone {
        /// The mount point.
        dir: PathBuf,
    },
}

/// Why a file system was not unmounted, or not in order.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Files are open, or a process has its working directory there. It stays mounted.
    #[error("unmounting {}: it is in use; end what uses it (fuser -vm {} names it), or unmount it lazily: then it is gone from the tree at once, and ends when its last user does", dir.display(), dir.display())]
    Busy {
        /// The mount point.
        dir: PathBuf,
    },
    /// The kernel or the helper refused. It stays mounted.
    #[error("unmounting {}: {message}", dir.display())]
    Refused {
        /// The mount point.
        dir: PathBuf,
        /// The error.
        message: String,
    },
    /// It is unmounted, but what was written last may not be durable.
    #[error("unmounting {}: it is unmounted, but making the last changes durable failed: {error}", dir.display())]
    NotDurable {
        /// The mount point.
        dir: PathBuf,
        /// The file system's error.
        error: Errno,
    },
}

/// The end of a mount.
#[derive(Debug)]
pub struct Ended {
    /// The side that ended it.
    pub by: EndedBy,
    /// Success if everything acknowledged was made durable afterwards.
    pub durable: Result<(), Errno>,
}

/// The side that ended a mount.
#[derive(Debug)]
pub enum EndedBy {
    /// [`Mount::unmount`](crate::Mount::unmount), or the drop of the mount.
    Us,
    /// `umount` or `fusermount3 -u` by somebody else, or the kernel's abort file.
    Outside,
    /// Reading requests failed.
    Failed(std::io::Error),
}
