//! Attributes of a file, as `stat` shows them.

/// Number of a file.
pub type Ino = u64;

/// The permission bits of a mode: rwx for three, setuid, setgid, sticky.
pub const MODE_MASK: u16 = 0o7777;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device's name.
    CharDevice,
    /// A block device's name.
    BlockDevice,
}

impl Kind {
    /// The type bits of `st_mode` (`S_IFMT`), as every Unix has them.
    pub fn bits(self) -> u32 {
        match self {
            Kind::Fifo => 0o010000,
            Kind::CharDevice => 0o020000,
            Kind::Directory => 0o040000,
            Kind::BlockDevice => 0o060000,
            Kind::File => 0o100000,
            Kind::Symlink => 0o120000,
            Kind::Socket => 0o140000,
        }
    }

    /// The kind that the type bits of `mode` name; `None` when they name none. No bits at all mean a regular file,
    /// as for mknod(2).
    pub fn from_bits(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170000 {
            0o010000 => Kind::Fifo,
            0o020000 => Kind::CharDevice,
            0o040000 => Kind::Directory,
            0o060000 => Kind::BlockDevice,
            0 | 0o100000 => Kind::File,
            0o120000 => Kind::Symlink,
            0o140000 => Kind::Socket,
            _ => return None,
        })
    }
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that, 0 to 999,999,999.
    pub nanos: u32,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Number.
    pub ino: Ino,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes (`st_blocks`).
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes or the content.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// The kind of file.
    pub kind: Kind,
    /// Permission bits, within [`MODE_MASK`].
    pub perm: u16,
    /// Names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device's name, in the kernel's 32-bit form; else 0.
    pub rdev: u32,
    /// The size of request that is best, in bytes (`st_blksize`).
    pub blksize: u32,
}
