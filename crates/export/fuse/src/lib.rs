//! A file system mounted through FUSE.

#![forbid(unsafe_code)]
