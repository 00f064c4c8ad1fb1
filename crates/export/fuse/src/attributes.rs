//! Attributes, times and kinds of files between the trait's types and fuser's.

use braid_filesystem::{Attr, Ino, Kind, SetTime, Time};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: to_system(attr.atime),
        mtime: to_system(attr.mtime),
        ctime: to_system(attr.ctime),
        crtime: to_system(attr.crtime),
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// Attributes where only number and kind are looked at: a directory entry that brings no look-up. Number 0 says
/// in a look-up's answer that there is no such name.
pub(crate) fn nothing_but(ino: Ino, kind: Kind) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn to_system(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let moved = if time.seconds >= 0 {
        UNIX_EPOCH.checked_add(whole)
    } else {
        UNIX_EPOCH.checked_sub(whole)
    };
    // SystemTime holds every i64 of seconds; were it not so, 1970 is shown rather than nothing.
    moved.and_then(|moved| moved.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time that fuser took from a request. Before 1970 fuser 0.18 subtracts the nanoseconds where they are to be
/// added, so the seconds and nanoseconds of the request are those of the distance: the test below pins it.
pub(crate) fn from_system(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = 0i64.checked_sub_unsigned(before.as_secs()).unwrap_or(i64::MIN);
            Time { seconds, nanos: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(from_system(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_replies_are_exact_on_both_sides_of_1970() {
        let at = |seconds, nanos| to_system(Time { seconds, nanos });
        assert_eq!(at(0, 0), UNIX_EPOCH);
        assert_eq!(at(1, 5), UNIX_EPOCH + Duration::new(1, 5));
        assert_eq!(at(-2, 800_000_000), UNIX_EPOCH - Duration::new(1, 200_000_000));
        assert_ne!(at(i64::MAX, 999_999_999), UNIX_EPOCH);
        assert_ne!(at(i64::MIN, 0), UNIX_EPOCH);
    }

    #[test]
    fn times_of_requests_are_taken_as_fuser_gives_them() {
        assert_eq!(from_system(UNIX_EPOCH + Duration::new(7, 9)), Time { seconds: 7, nanos: 9 });
        // What fuser makes of -2 s and 800,000,000 ns.
        let given = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(from_system(given), Time { seconds: -2, nanos: 800_000_000 });
    }
}
