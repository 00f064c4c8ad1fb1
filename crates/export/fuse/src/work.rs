//! A request on its way to the file system: what the kernel asks, owned.

use braid_filesystem::{
    Allocate, Caller, FileFlags, Ino, Kind, NewNode, RenameFlags, Seek, SetAttr, TrimRange,
    XattrMode,
};
use braid_shard::BufMut;
use braid_shard::sync::Share;

pub(crate) type Name = Box<[u8]>;

/// Held by a write until its end.
pub(crate) enum Held {
    /// A share of the bytes of writes that may be under way.
    Share(#[allow(dead_code, reason = "it is given back when it is dropped")] Share),
    /// Another shard is told by its drop.
    Sent(#[allow(dead_code, reason = "as above")] Box<dyn std::any::Any>),
}

/// One request.
pub(crate) enum Work {
    Lookup {
        parent: Ino,
        name: Name,
    },
    Attr {
        ino: Ino,
    },
    SetAttr {
        caller: Caller,
        ino: Ino,
        set: SetAttr,
    },
    Make {
        caller: Caller,
        parent: Ino,
        name: Name,
        node: Node,
    },
    /// Attributes, the time of creation with them.
    Statx {
        ino: Ino,
    },
    Create {
        caller: Caller,
        parent: Ino,
        name: Name,
        node: Node,
        how: Opening,
    },
    /// A file without a name, open.
    CreateUnnamed {
        caller: Caller,
        parent: Ino,
        node: Node,
        how: Opening,
    },
    /// The attributes that chattr(1) sets.
    Flags {
        ino: Ino,
        form: Form,
    },
    SetFlags {
        ino: Ino,
        new: NewFlags,
    },
    Trim {
        caller: Caller,
        range: TrimRange,
    },
    ReadLink {
        ino: Ino,
    },
    Link {
        ino: Ino,
        parent: Ino,
        name: Name,
    },
    Unlink {
        parent: Ino,
        name: Name,
    },
    RemoveDir {
        parent: Ino,
        name: Name,
    },
    Rename {
        from: (Ino, Name),
        to: (Ino, Name),
        flags: RenameFlags,
    },
    Open {
        caller: Caller,
        ino: Ino,
        how: Opening,
    },
    /// `open`: the number that its opening got.
    Close {
        ino: Ino,
        open: u64,
    },
    /// `direct`: a process reads past the page cache, which may hold a longer file than the file system knows. Else the
    /// kernel fills pages of its cache, and holds them locked until the reply.
    Read {
        ino: Ino,
        offset: u64,
        len: usize,
        direct: bool,
    },
    /// `held`: nothing for what comes over io_uring, which brings its memory with it.
    Write {
        ino: Ino,
        open: u64,
        offset: u64,
        data: BufMut,
        how: WriteHow,
        held: Option<Held>,
    },
    Sync {
        ino: Ino,
        open: u64,
        data_only: bool,
    },
    Allocate {
        caller: Caller,
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
    },
    /// The kernel has written out both ranges, and forgets the pages of the second one after it.
    CopyRange {
        caller: Caller,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    },
    /// `current`: the kernel holds nothing back of the file.
    Seek {
        ino: Ino,
        offset: u64,
        what: Seek,
        current: bool,
    },
    /// `size`: bytes that the kernel has room for.
    ReadDir {
        ino: Ino,
        offset: u64,
        size: usize,
    },
    /// The same, with what a look-up of each gives.
    ReadDirPlus {
        ino: Ino,
        offset: u64,
        size: usize,
    },
    Space {
        ino: Ino,
    },
    SetXattr {
        ino: Ino,
        name: Name,
        value: Box<[u8]>,
        mode: XattrMode,
        /// The setgid bit goes: whoever sets an access control list is not in the group of the file.
        clear_setgid: bool,
    },
    Xattr {
        ino: Ino,
        name: Name,
        size: usize,
    },
    Xattrs {
        ino: Ino,
        size: usize,
    },
    RemoveXattr {
        ino: Ino,
        name: Name,
    },
}

/// The file that [`Work::Make`] makes.
pub(crate) struct Node {
    pub kind: Kind,
    pub perm: u16,
    pub umask: u16,
    pub rdev: u32,
    pub target: Box<[u8]>,
}

impl Node {
    /// As the file system is asked for it.
    pub fn to_make(&self) -> NewNode<'_> {
        let &Node { kind, perm, umask, rdev, ref target } = self;
        NewNode { kind, perm, umask, rdev, target }
    }
}

/// A form of the attributes that chattr(1) sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `FS_IOC_GETFLAGS`: a word, without the project.
    Flags,
    /// `FS_IOC_FSGETXATTR`: `struct fsxattr`.
    Extended,
}

/// A change of these attributes: with [`Form::Flags`] the project stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewFlags {
    pub form: Form,
    pub flags: FileFlags,
}

/// The way in which a write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteHow {
    /// The setuid and setgid bits go.
    pub clear_setid: bool,
    /// The capabilities of a program go, which the kernel has not taken away itself.
    pub clear_capabilities: bool,
    /// A process writes past the page cache.
    pub direct: bool,
    /// The page cache writes out what it has held back.
    pub cached: bool,
    /// It is durable before it is answered.
    pub durable: Option<Durable>,
}

/// The extent to which a synchronous write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// The data, and the metadata without which it could not be read: `O_DSYNC`.
    Data,
    /// All of the file: `O_SYNC`.
    File,
}

impl Work {
    /// The end of this request may be the end of a process's asynchronous read or write, which there are where requests
    /// come through /dev/fuse. The kernel then does in the
    /// thread that sends the reply what may wait for a page of this mount, or for another reply of ours: it locks the
    /// pages that were read into, and closes the file when that was all that kept it open, which writes it out.
    pub fn ends_a_users_call(&self) -> bool {
        match self {
            Work::Read { direct, .. } => *direct,
            Work::Write { how, .. } => how.direct,
            _ => false,
        }
    }
}

/// The way in which a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_EXCL`.
    pub exclusive: bool,
    /// It may be written to, or mapped to be.
    pub writes: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_APPEND`.
    pub appends: bool,
}

impl Opening {
    /// From the flags of open(2).
    pub(crate) fn of(flags: u32) -> Opening {
        use rustix::fs::OFlags;
        let flags = OFlags::from_bits_retain(flags);
        Opening {
            truncate: flags.contains(OFlags::TRUNC),
            exclusive: flags.contains(OFlags::EXCL),
            direct: flags.contains(OFlags::DIRECT),
            appends: flags.contains(OFlags::APPEND),
            writes: flags & OFlags::RWMODE != OFlags::RDONLY,
        }
    }

    /// As far as the file system may refuse it.
    pub(crate) fn to_file(self) -> braid_filesystem::Opening {
        let Opening { truncate, writes, appends, .. } = self;
        braid_filesystem::Opening { truncate, writes, appends }
    }
}
