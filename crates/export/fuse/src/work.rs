//! A request on its way to the file system: what the kernel asks, owned.

use braid_filesystem::{Allocate, Caller, Ino, Kind, RenameFlags, Seek, SetAttr, XattrMode};
use braid_shard::BufMut;
use braid_shard::sync::Share;

pub(crate) type Name = Box<[u8]>;

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
    Create {
        caller: Caller,
        parent: Ino,
        name: Name,
        perm: u16,
        how: Opening,
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
    Close {
        ino: Ino,
    },
    /// `direct`: the kernel does not look into its cache, which may hold a longer file than the file system knows.
    Read {
        ino: Ino,
        offset: u64,
        len: usize,
        direct: bool,
    },
    /// `share`: of the bytes of writes that may be under way; what comes over io_uring brings its memory with it.
    Write {
        ino: Ino,
        offset: u64,
        data: BufMut,
        clear_setid: bool,
        share: Option<Share>,
    },
    Sync {
        ino: Ino,
        data_only: bool,
    },
    Allocate {
        ino: Ino,
        how: Allocate,
        offset: u64,
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
    Space,
    SetXattr {
        ino: Ino,
        name: Name,
        value: Box<[u8]>,
        mode: XattrMode,
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

/// What [`Work::Make`] makes.
pub(crate) struct Node {
    pub kind: Kind,
    pub perm: u16,
    pub rdev: u32,
    pub target: Box<[u8]>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_EXCL`.
    pub exclusive: bool,
}

impl Opening {
    /// From the flags of open(2).
    pub(crate) fn of(flags: u32) -> Opening {
        use rustix::fs::OFlags;
        let flags = OFlags::from_bits_retain(flags);
        Opening {
            truncate: flags.contains(OFlags::TRUNC),
            direct: flags.contains(OFlags::DIRECT),
            exclusive: flags.contains(OFlags::EXCL),
        }
    }
}
