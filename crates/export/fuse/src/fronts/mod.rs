//! A mount on other shards than that of its file system.
//!
//! | file | subject |
//! |---|---|
//! | `message` | what the shards of a mount say to each other |
//! | `front` | a mount on another shard: reads that its leases suffice for are answered there, all else goes home |
//! | `home` | the file system's own shard: what comes from the others, and when they are called |
//!
//! Each front reads /dev/fuse by a descriptor of its own, but only while the home shard has more to do than a few requests
//! (`MountOptions::share_from`), under way or, where bricks answer at once, in the kernel: a request that waits alone would wake
//! all readers, and what goes home costs a message. A request that a front has read and passed on is answered by the home shard,
//! through that front's descriptor.

mod front;
mod home;
mod message;

pub(crate) use front::{NewFront, end, progress, start};
pub(crate) use home::{attach, detach};
pub(crate) use message::{FRONTS_MAX, Msg, Shared};
