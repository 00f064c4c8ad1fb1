//! A request on its way to the shard: what fuser parsed, owned, with the reply that is due.

use crate::payload::Payload;
use braid_filesystem::{Allocate, Caller, Ino, Kind, RenameFlags, Seek, SetAttr, XattrMode};
use fuser::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

pub(crate) type Name = Box<[u8]>;

/// One request. Dropping it unanswered answers EIO.
pub(crate) enum Work {
    Lookup {
        parent: Ino,
        name: Name,
        reply: ReplyEntry,
    },
    Forget {
        ino: Ino,
        count: u64,
    },
    Attr {
        ino: Ino,
        reply: ReplyAttr,
    },
    SetAttr {
        caller: Caller,
        ino: Ino,
        set: SetAttr,
        reply: ReplyAttr,
    },
    Make {
        caller: Caller,
        parent: Ino,
        name: Name,
        node: Node,
        reply: ReplyEntry,
    },
    Create {
        caller: Caller,
        parent: Ino,
        name: Name,
        perm: u16,
        how: Opening,
        reply: ReplyCreate,
    },
    ReadLink {
        ino: Ino,
        reply: ReplyData,
    },
    Link {
        ino: Ino,
        parent: Ino,
        name: Name,
        reply: ReplyEntry,
    },
    Unlink {
        parent: Ino,
        name: Name,
        reply: ReplyEmpty,
    },
    RemoveDir {
        parent: Ino,
        name: Name,
        reply: ReplyEmpty,
    },
    Rename {
        from: (Ino, Name),
        to: (Ino, Name),
        flags: RenameFlags,
        reply: ReplyEmpty,
    },
    Open {
        caller: Caller,
        ino: Ino,
        how: Opening,
        reply: ReplyOpen,
    },
    Close {
        ino: Ino,
        reply: ReplyEmpty,
    },
    /// `direct`: the kernel does not look into its cache, which may hold a longer file than the file system knows.
    Read {
        ino: Ino,
        offset: u64,
        len: usize,
        direct: bool,
        reply: ReplyData,
    },
    Write {
        ino: Ino,
        offset: u64,
        data: Payload,
        clear_setid: bool,
        reply: ReplyWrite,
    },
    Sync {
        ino: Ino,
        data_only: bool,
        reply: ReplyEmpty,
    },
    Allocate {
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
        reply: ReplyEmpty,
    },
    Seek {
        ino: Ino,
        offset: u64,
        what: Seek,
        reply: ReplyLseek,
    },
    ReadDir {
        ino: Ino,
        offset: u64,
        reply: ReplyDirectory,
    },
    ReadDirPlus {
        ino: Ino,
        offset: u64,
        reply: ReplyDirectoryPlus,
    },
    Space {
        reply: ReplyStatfs,
    },
    SetXattr {
        ino: Ino,
        name: Name,
        value: Box<[u8]>,
        mode: XattrMode,
        reply: ReplyEmpty,
    },
    Xattr {
        ino: Ino,
        name: Name,
        size: usize,
        reply: ReplyXattr,
    },
    Xattrs {
        ino: Ino,
        size: usize,
        reply: ReplyXattr,
    },
    RemoveXattr {
        ino: Ino,
        name: Name,
        reply: ReplyEmpty,
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
#[derive(Clone, Copy)]
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
    pub(crate) fn of(flags: i32) -> Opening {
        use rustix::fs::OFlags;
        let flags = OFlags::from_bits_retain(flags as u32);
        Opening {
            truncate: flags.contains(OFlags::TRUNC),
            direct: flags.contains(OFlags::DIRECT),
            exclusive: flags.contains(OFlags::EXCL),
        }
    }
}
