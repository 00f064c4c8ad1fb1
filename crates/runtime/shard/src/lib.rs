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
//! Invariant: only its own shard polls a future, and a future is never polled from within itself. There are
//! no wakers: a leaf future notes [`Shard::current_task`] instead.

#![deny(unsafe_code)]

mod blocking;
#[allow(unsafe_code)]
pub mod buffer;
mod doorbell;
pub mod executor;
mod id;
mod inbox;
pub mod mailbox;
mod pause;
mod perform;
pub mod plant;
pub mod range_locks;
pub mod reactor;
#[allow(unsafe_code)]
pub mod ring;
mod shard;
pub mod sync;
mod task;
#[cfg(test)]
pub(crate) mod testing;
pub mod threads;
mod timer;
pub mod version;

pub use buffer::{Buf, BufMut, Loan, Pool};
pub use doorbell::Doorbell;
pub use executor::Spawner;
pub use id::ShardId;
pub use reactor::{Nanos, Reactor};
pub use shard::{IdleHook, Shard, Turn};
pub use task::TaskId;
