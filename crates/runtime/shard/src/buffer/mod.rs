//! Aligned buffers of one shard, counted without atomics.
//!
//! A [`Pool`] hands out memory in power-of-two classes, each block aligned to 4096 bytes, and keeps
//! freed blocks for reuse, so that steady state allocates nothing. [`BufMut`] is the only handle on
//! its range and may write it; [`Buf`] is one of any number of readers. Both can be split into
//! parts; [`BufMut::freeze`] turns one into the other.
//!
//! Handles never leave their thread. A range that another shard is to work on travels as a
//! [`Loan`]: the block stays counted at home until the loan is back, the borrower makes handles of
//! its own over the same memory, and when the last of them is dropped the loan goes home.
//!
//! Invariant: the ranges of two live `BufMut`s never overlap, nor does a `BufMut` with a `Buf`.

mod block;
mod fixed;
mod handle;
mod memory;
mod pool;
mod racy;
mod region;
mod shared;
#[cfg(test)]
mod tests;

pub use block::Loan;
pub use fixed::FixedBuffer;
pub use handle::{Buf, BufMut};
pub use memory::{ALIGN, LEN_MAX};
pub use pool::Pool;
pub use shared::SharedMemory;
