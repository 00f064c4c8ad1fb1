//! One thread, one executor, one io_uring.
//!
//! A [`Shard`] owns everything that runs on its thread: tasks, timers, aligned buffers and the
//! reactor that waits for the outside world. Nothing in it is shared with another thread except
//! the receiving ends of mailboxes and the doorbell that wakes a sleeping shard.
//!
//! ```text
//!   run queue ──► poll tasks ──► (empty) ──► idle hooks: plugs submit what they collected
//!       ▲                                          │
//!       └── completions, messages, timers ◄── reactor: io_uring, or a simulator's clock
//! ```
//!
//! It does not know RAID, members or protocols. The simulator replaces only the
//! [`Reactor`]; every other line runs unchanged there.
//!
//! Invariant: a future is polled by its own shard only, and only one is being advanced at a time
//! per slot; wakers are not used, a leaf future notes [`Shard::current_task`] instead.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod buffer;
pub mod executor;
pub mod mailbox;
pub mod plant;
pub mod reactor;
#[allow(unsafe_code)]
pub mod ring;
mod shard;
pub mod sync;
#[cfg(test)]
pub(crate) mod testing;
pub mod threads;
mod timer;

pub use buffer::{Buf, BufMut, Loan, Pool};
pub use executor::{Spawner, TaskId};
pub use reactor::{Nanos, Reactor};
pub use shard::{IdleHook, Shard, ShardId, Turn};
