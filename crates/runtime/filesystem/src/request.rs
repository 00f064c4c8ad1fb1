//! The requests of a file system, one method each.

use crate::attr::{Attr, Ino, Kind, Time};
use crate::error::Errno;
use crate::lease::Lease;
use braid_shard::{Buf, BufMut};
use std::cell::Cell;

/// The root directory.
pub const ROOT: Ino = 1;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest name of an extended attribute, in bytes (Linux: `XATTR_NAME_MAX`).
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute, in bytes (Linux: `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_MAX: usize = 65536;
/// renameat2(2): fail when the new name exists.
pub const RENAME_NOREPLACE: RenameFlags = RenameFlags(1);
/// renameat2(2): both exist and change places.
pub const RENAME_EXCHANGE: RenameFlags = RenameFlags(2);
/// renameat2(2): a whiteout, a character device of number 0, takes the old name, as overlayfs wants it.
pub const RENAME_WHITEOUT: RenameFlags = RenameFlags(4);

/// Flags of a rename, with the kernel's values; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags(pub u32);

/// The user that asks, to whom new files belong. Permissions are checked by the caller of the trait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The kind of file that [`FileSystem::make`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// The kind of file.
    pub kind: Kind,
    /// Permission bits, as they were asked for.
    pub perm: u16,
    /// Bits that are taken away from them, unless the directory has a default access control list.
    pub umask: u16,
    /// For names of devices: the number.
    pub rdev: u32,
    /// For symbolic links: what they point to, 1 to 4095 bytes.
    pub target: &'a [u8],
}

impl NewNode<'_> {
    /// The permission bits, the umask applied.
    pub fn masked(&self) -> u16 {
        self.perm & !self.umask
    }
}

/// The attributes of a file or directory that chattr(1) sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFlags {
    /// Nothing of it may change, not even its names (`+i`).
    pub immutable: bool,
    /// It may only be appended to, a directory only get new names (`+a`).
    pub append: bool,
    /// Reading does not change the time of reading (`+A`).
    pub no_atime: bool,
    /// dump(8) leaves it out (`+d`).
    pub no_dump: bool,
    /// Of a directory: what is made in it gets its project (`+P`).
    pub inherits_project: bool,
    /// Its project (`-p`); 0 for none.
    pub project: u32,
}

/// The way in which a file is opened, as far as that may be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// `O_TRUNC`.
    pub truncate: bool,
    /// It may be written to, or mapped to be.
    pub writes: bool,
    /// `O_APPEND`.
    pub appends: bool,
}

impl Opening {
    /// To read only.
    pub const READ: Opening = Opening { truncate: false, writes: false, appends: false };
    /// To read and write.
    pub const WRITE: Opening = Opening { truncate: false, writes: true, appends: false };
}

/// The way in which a range of a file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writing {
    /// The setuid and setgid bits are to go (`FUSE_WRITE_KILL_SUIDGID`).
    pub clear_setid: bool,
    /// Nobody waits to see the data on the devices, as when the kernel's page cache writes it out: small parts may be answered
    /// when there is room for them, and everything behaves as if they were written. An error after that is a loss, which an
    /// fsync tells of.
    pub behind: bool,
    /// Whoever writes tells the mtime and ctime in a [`SetAttr`] of its own, maybe before the write is done, as Linux does
    /// for its write-back cache (fs/fuse/inode.c, `fuse_write_inode`): the write leaves both alone.
    pub times_told: bool,
}

/// The free space that [`FileSystem::trim`] discards (linux/fs.h, `struct fstrim_range`), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// The first byte, counted over all devices one after the other.
    pub start: u64,
    /// Bytes; `u64::MAX`: all.
    pub len: u64,
    /// Shorter free ranges are left out.
    pub min_len: u64,
}

/// A name that was looked up. The caller holds one reference on `attr.ino` more: see [`FileSystem::forget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// Tells files apart that had the same number at different times.
    pub generation: u64,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the request.
    Now,
    /// That time.
    To(Time),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: the file is cut, or extended with a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
    /// Last change of the attributes; the time of the request when `None` and anything else changes.
    pub ctime: Option<Time>,
}

/// The change that [`FileSystem::allocate`] makes to a range (fallocate(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Space is set aside; with `keep_size` the file does not grow.
    Reserve {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
    /// The range becomes a hole, its space is released; the size stays.
    PunchHole,
    /// The range reads as zero, its space stays or is set aside.
    ZeroRange {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
}

/// The target of lseek(2): data or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`; the end of the file counts as a hole.
    Hole,
}

/// The condition under which an extended attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Made, or replaced.
    Any,
    /// It must not exist (`XATTR_CREATE`).
    Create,
    /// It must exist (`XATTR_REPLACE`).
    Replace,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The file.
    pub ino: Ino,
    /// The kind of file.
    pub kind: Kind,
    /// Where reading goes on after this entry: 1 to 2^63 - 4.
    pub cookie: u64,
    /// Its name: 1 to [`NAME_MAX`] bytes, no slash, no zero.
    pub name: Vec<u8>,
}

/// The figures of `statfs`. Sizes are in units of `block` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a unit.
    pub block: u32,
    /// All.
    pub blocks: u64,
    /// Free.
    pub free: u64,
    /// Free for those who are not root.
    pub available: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that there can still be.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u32,
}

/// A file system on one shard. Every method may be called again before an earlier call has completed.
///
/// Numbers are those that an [`Entry`] gave and that were not forgotten, or [`ROOT`]; others give
/// [`Errno::Stale`] or [`Errno::NotFound`]. A file that is open or referenced stays usable after its last name is gone. What was
/// acknowledged is seen by every later request; it is durable after [`FileSystem::fsync`] or [`FileSystem::sync`].
///
/// Permissions are not checked here (FUSE's `default_permissions` does); ownership rules that follow from them
/// (setuid bits cleared by a write, say) are.
#[allow(async_fn_in_trait)]
pub trait FileSystem {
    /// Looks `name` up in `parent`; `.` and `..` work, and `.` of what is no directory is the file itself (an NFS server
    /// finds files so). Adds a reference.
    async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, Errno>;

    /// Gives `count` references back.
    fn forget(&self, ino: Ino, count: u64);

    /// Attributes.
    async fn attr(&self, ino: Ino) -> Result<Attr, Errno>;

    /// Changes attributes. `caller` is who asks, for what only root keeps (setgid bits of others' groups). A size
    /// that is set, also to what it was, takes the setuid and setgid bits of a file away unless `caller` is root.
    async fn set_attr(&self, caller: Caller, ino: Ino, set: SetAttr) -> Result<Attr, Errno>;

    /// Makes a file, directory, symbolic link or special file. Adds a reference.
    async fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
    ) -> Result<Entry, Errno>;

    /// Makes a regular file that has no name in the directory `parent`, and may be given one ([`link`](FileSystem::link)); without
    /// one it is gone when it is not used any more (`O_TMPFILE`). Adds a reference. Who opens it to write does so next.
    async fn make_unnamed(
        &self,
        _caller: Caller,
        _parent: Ino,
        _node: NewNode<'_>,
    ) -> Result<Entry, Errno> {
        Err(Errno::Unsupported)
    }

    /// The attributes of a file or directory that chattr(1) sets; [`Errno::Unsupported`] where there are none.
    async fn flags(&self, _ino: Ino) -> Result<FileFlags, Errno> {
        Err(Errno::Unsupported)
    }

    /// Sets all of them. Its caller has checked that this user may.
    async fn set_flags(&self, _ino: Ino, _flags: FileFlags) -> Result<(), Errno> {
        Err(Errno::Unsupported)
    }

    /// Tells the devices which space is free (fstrim(8)), and gives the bytes of it; [`Errno::Unsupported`] where no device
    /// wants to know.
    async fn trim(&self, _range: TrimRange) -> Result<u64, Errno> {
        Err(Errno::Unsupported)
    }

    /// The target of a symbolic link.
    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno>;

    /// Gives `ino` another name. Adds a reference.
    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Errno>;

    /// Takes a name away from what is not a directory.
    async fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Errno>;

    /// Removes an empty directory.
    async fn remove_dir(&self, parent: Ino, name: &[u8]) -> Result<(), Errno>;

    /// Renames, atomically.
    async fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno>;

    /// Keeps `ino` in existence until [`close`](FileSystem::close), also without a name. A file that may not be opened so, since it
    /// is immutable or only to be appended to, is [`Errno::NotPermitted`].
    async fn open(&self, ino: Ino, how: Opening) -> Result<(), Errno>;

    /// Ends one [`open`](FileSystem::open).
    fn close(&self, ino: Ino);

    /// Writes of `ino` through the page cache would better not be delayed: little space is left, for it or for all, and an
    /// error should reach the writer.
    fn is_nearly_full(&self, ino: Ino) -> bool;

    /// Somebody beside the caller reads and writes the content of `ino` now: nobody opens it to write, which is
    /// [`Errno::Busy`], and nobody keeps what was read of it. False where nobody does that.
    fn is_shared(&self, _ino: Ino) -> bool {
        false
    }

    /// The content of `ino` is made or changed by others at any time: nothing of it is kept, and what is written goes
    /// through at once. False where only the caller changes it.
    fn is_uncached(&self, _ino: Ino) -> bool {
        false
    }

    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file. The time of reading is not noted.
    async fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Buf, Errno>;

    /// The same, in `room` if the file system can read to where it is told. What is given may be there or elsewhere,
    /// and begin anywhere in it.
    async fn read_into(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        room: BufMut,
    ) -> Result<Buf, Errno> {
        drop(room);
        self.read(ino, offset, len).await
    }

    /// All that another shard needs to read by itself a part of `ino` that has `offset` in it, as far as can be told now. `None`: it is
    /// to ask for each read.
    async fn lease(&self, _ino: Ino, _offset: u64) -> Option<Lease> {
        None
    }

    /// Writes all of `data` at `offset`.
    async fn write(&self, ino: Ino, offset: u64, data: Buf, how: Writing) -> Result<(), Errno>;

    /// Copies `len` bytes from an offset of one file to an offset of another, or of the same, where the two ranges do not overlap
    /// (copy_file_range): gives how many were copied, from the start on; 0 at the end of the source. Whatever is copied may be
    /// shared by both.
    ///
    /// # Errors
    /// [`Errno::Unsupported`]: it is to be read and written.
    async fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64, Errno> {
        let _ = (from, to, len);
        Err(Errno::Unsupported)
    }

    /// Makes durable what was acknowledged of this file; `data_only` leaves out attributes that reading the data
    /// does not need.
    async fn fsync(&self, ino: Ino, data_only: bool) -> Result<(), Errno>;

    /// The same for one opener: `told` is a number of losses of the file that it has been told of, at first what
    /// [`losses_told`](FileSystem::losses_told) gave when it opened the file. An error that means a loss is given once to
    /// each, whoever asked first; `told` is raised.
    async fn fsync_since(&self, ino: Ino, data_only: bool, told: &Cell<u64>) -> Result<(), Errno> {
        let _ = told;
        self.fsync(ino, data_only).await
    }

    /// The number of times that acknowledged writes to the file were lost, as far as anybody has been told; a loss of which nobody has
    /// been told yet is told to who opens the file after it.
    fn losses_told(&self, ino: Ino) -> u64 {
        let _ = ino;
        0
    }

    /// Makes everything durable that was acknowledged, but for what was lost with a device before: fsync of the file tells that.
    async fn sync(&self) -> Result<(), Errno>;

    /// fallocate(2) on a regular file.
    async fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<(), Errno>;

    /// The first offset from `offset` on that is what is looked for.
    ///
    /// # Errors
    /// [`Errno::Nxio`] when `offset` is at or after the end, or no data follows.
    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Errno>;

    /// Up to `max` entries of a directory after `cookie` (0: from the start), without `.` and `..`; empty at the
    /// end. An entry that is neither made nor removed meanwhile is given exactly once by a reading from start to end.
    async fn read_dir(&self, ino: Ino, cookie: u64, max: usize) -> Result<Vec<DirEntry>, Errno>;

    /// The same with what a look-up of each gives; adds a reference on each. An entry that went away meanwhile has
    /// `None`.
    async fn read_dir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno>;

    /// The directory that `ino`, a directory, is in; the root is in itself.
    async fn parent(&self, ino: Ino) -> Result<Ino, Errno>;

    /// Space, as `ino` may have it.
    async fn space(&self, ino: Ino) -> Result<Space, Errno>;

    /// Sets an extended attribute.
    async fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno>;

    /// The value of one.
    async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno>;

    /// The names of all.
    async fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno>;

    /// Removes one.
    async fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno>;
}
