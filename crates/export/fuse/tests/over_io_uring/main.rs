//! The same tests as `mounted`, with requests over io_uring. Needs root, /dev/fuse and a kernel that has it (Linux 6.14,
//! the parameter `enable_uring` of its module fuse), and says so where they are missing. The parameter is set while the
//! tests run.

#[path = "../mounted/lifecycle.rs"]
mod lifecycle;
#[path = "../mounted/operations.rs"]
mod operations;
#[path = "../mounted/support/mod.rs"]
mod support;

/// True if requests come over io_uring.
const OVER_IO_URING: bool = true;
