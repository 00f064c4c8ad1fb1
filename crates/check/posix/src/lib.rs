//! What POSIX asks of a file system, and random operations against a reference.

#![forbid(unsafe_code)]
