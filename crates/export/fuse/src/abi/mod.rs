//! The protocol of /dev/fuse (linux/fuse.h, version 7.42): what requests and replies look like as bytes.
//!
//! | file | subject |
//! |---|---|
//! | `fields` | numbers and names read from a request, put into a reply |
//! | `request` | a request taken apart |
//! | `reply` | the bodies of replies |
//! | `directory` | entries of a directory, as many as the kernel has room for |
//! | `ioctl` | the few ioctls that are answered |
//! | `init` | what is agreed when a mount starts |
//! | `ring` | commands and memory of FUSE over io_uring |
//!
//! Numbers are in the machine's order. Invariant: no bytes of a request cause a panic.

pub(crate) mod directory;
pub(crate) mod fields;
pub(crate) mod init;
pub(crate) mod ioctl;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod ring;

/// Bytes of `fuse_out_header`.
pub(crate) const OUT_HEADER: u32 = 16;
/// Bytes of `fuse_in_header`.
pub(crate) const HEADER: usize = 40;
/// Bytes of a write before its payload: the header and `fuse_write_in`.
pub(crate) const BEFORE_PAYLOAD: usize = HEADER + 40;
/// The least that may be read at once (`FUSE_MIN_READ_BUFFER`).
pub(crate) const READ_MIN: usize = 8192;
