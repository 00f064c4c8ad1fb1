//! The operations of a run and how often each is drawn.

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// read(2).
    Read,
    /// write(2), within the file or beyond its end.
    Write,
    /// read(2) past the page cache.
    DirectRead,
    /// write(2) past the page cache.
    DirectWrite,
    /// io_submit(2) of a direct read, which goes on beside what follows.
    AsyncRead,
    /// io_submit(2) of a direct write, which goes on beside what follows.
    AsyncWrite,
    /// Reading a shared map.
    MapRead,
    /// Writing to a shared map, with msync(2) or without.
    MapWrite,
    /// write(2) at the end.
    Append,
    /// ftruncate(2).
    Truncate,
    /// fallocate(2) that makes a hole.
    Punch,
    /// fallocate(2) that makes zeros.
    Zero,
    /// The same, which leaves the size.
    ZeroKeep,
    /// fallocate(2) that sets space aside.
    Allocate,
    /// The same, which leaves the size.
    AllocateKeep,
    /// copy_file_range(2) within the file.
    Copy,
    /// fsync(2).
    Sync,
    /// fdatasync(2).
    DataSync,
    /// posix_fadvise(2): the kernel forgets the file.
    Forget,
    /// The file is opened anew, and closed.
    Reopen,
    /// The kernel forgets all files.
    DropCaches,
    /// The whole file is read.
    CompareAll,
}

/// The kinds and how often each is drawn.
pub const KINDS: &[(Kind, u32)] = &[
    (Kind::Read, 16),
    (Kind::Write, 20),
    (Kind::DirectRead, 4),
    (Kind::DirectWrite, 4),
    (Kind::AsyncRead, 8),
    (Kind::AsyncWrite, 8),
    (Kind::MapRead, 6),
    (Kind::MapWrite, 8),
    (Kind::Append, 4),
    (Kind::Truncate, 8),
    (Kind::Punch, 6),
    (Kind::Zero, 3),
    (Kind::ZeroKeep, 3),
    (Kind::Allocate, 3),
    (Kind::AllocateKeep, 3),
    (Kind::Copy, 5),
    (Kind::Sync, 2),
    (Kind::DataSync, 2),
    (Kind::Forget, 4),
    (Kind::Reopen, 2),
    (Kind::DropCaches, 1),
    (Kind::CompareAll, 1),
];
