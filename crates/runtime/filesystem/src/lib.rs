//! The answers of a mounted file system: the [`FileSystem`] trait, attributes and errors.
//!
//! For files it is what `braid_device::Target` is for blocks: exports (FUSE) call it, an engine (a volume) stands
//! behind it, and neither knows the other. Requests are futures on one shard; nothing here blocks.
//!
//! This crate does not know FUSE, bricks, or where bytes lie.

#![forbid(unsafe_code)]

mod attr;
mod error;
mod lease;
mod request;

pub use attr::{Attr, Ino, Kind, MODE_MASK, Time};
pub use error::Errno;
pub use lease::{Lease, Leased, LeasedRead, Leases};
pub use request::{
    Allocate, Caller, DirEntry, Entry, FileFlags, FileSystem, NAME_MAX, NewNode, Opening,
    RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, ROOT, RenameFlags, Seek, SetAttr, SetTime,
    Space, TrimRange, Writing, XATTR_NAME_MAX, XATTR_VALUE_MAX, XattrMode,
};
