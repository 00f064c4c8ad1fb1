//! FUSE over io_uring: requests come as completions of the shard's own ring and leave as submissions of it, so that a
//! turn of the shard costs one system call, however many requests it answers and takes.
//!
//! | file | subject |
//! |---|---|
//! | `entry` | one entry of a queue: the memory in which a request comes and its reply goes |
//! | `entries` | the entries of one mount; replies into them |
//! | `cpus` | how many queues the kernel has |
//! | `switch` | the parameter that switches it on |
//!
//! The kernel has a queue for each processor that the machine could have, and sends a request by that of the processor
//! it was made on; each of them ends in one shard's ring here, those of all processors in that of the file system where no
//! further shard serves the mount. What is not asked for a reply (forgotten files, interrupts)
//! goes on to come through /dev/fuse, and so does everything where the kernel has this switched off.

mod cpus;
mod entries;
#[allow(unsafe_code)]
mod entry;
mod switch;

pub(crate) use entries::{Entries, unexpected};
pub use switch::io_uring_is_off;
