//! What a request of FUSE is as a system call on what lies below: kinds, attributes, times, flags, buffers.

use fuser::{FileAttr, FileType, INodeNo, OpenFlags, TimeOrNow};
use rustix::fs::{OFlags, Stat, Timespec};
use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

/// What direct I/O wants buffers to begin at multiples of.
pub const ALIGNMENT: usize = 4096;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// `len` aligned bytes of the thread, whatever they hold.
pub fn aligned<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len + ALIGNMENT {
            buffer.resize(len + ALIGNMENT, 0);
        }
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        work(&mut buffer[start..start + len])
    })
}

/// The type in a mode.
pub fn kind(mode: u32) -> FileType {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Attributes of file `ino`.
pub fn attr(ino: u64, stat: &Stat) -> FileAttr {
    let time = |seconds: i64, nanos: u64| {
        let seconds = u64::try_from(seconds).unwrap_or_default();
        UNIX_EPOCH + Duration::new(seconds, nanos as u32)
    };
    FileAttr {
        ino: INodeNo(ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// A time to be set, or left as it is.
pub fn stamp(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

/// A file for reading too where it is written: the kernel fills pages up that it writes a part of.
pub fn lower_flags(flags: OpenFlags) -> OFlags {
    let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
    let kept = flags & (OFlags::DIRECT | OFlags::TRUNC);
    let access =
        if flags & OFlags::RWMODE == OFlags::RDONLY { OFlags::RDONLY } else { OFlags::RDWR };
    access | kept | OFlags::CLOEXEC
}

/// Attributes where only the number is looked at.
pub fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
