//! A real kernel's FUSE over a file system in memory. Needs root and /dev/fuse, and says so where they are missing.

mod lifecycle;
mod operations;
mod support;
mod wedged;

/// True if requests come over io_uring.
const OVER_IO_URING: bool = false;
