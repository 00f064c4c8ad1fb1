//! A real kernel's FUSE over a file system in memory. Needs root and /dev/fuse, and says so where they are missing.

mod killed;
mod lifecycle;
mod operations;
mod several_shards;
mod support;
mod wedged;

/// True if requests come over io_uring.
const OVER_IO_URING: bool = false;
