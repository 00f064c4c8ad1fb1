//! The body of every kernel, written once over an abstract vector register.
//!
//! This module has the loops: how far to unroll, in which order to read the sources, how to handle the ends.
//! It does not know any instruction: each architecture's file supplies a [`Vector`] and wraps these
//! functions in ones compiled for its instructions, into which they are inlined. Invariant: a byte at
//! offset `i` of an output depends only on bytes at offset `i` of the inputs.
//!
//! The measurements that shaped the loops are in docs/benchmarks/parity.md.

mod copy;
mod syndrome;
mod update;
mod vector;
mod xor;
mod zero;

pub(super) use copy::{copy_pq, copy_xor};
pub(super) use syndrome::{pq, q, recover_from_q, recover_two};
pub(super) use update::{delta_pq, delta_q, update_p, update_pq};
pub(super) use vector::Vector;
pub(super) use xor::{xor, xor_into};
pub(super) use zero::is_zero;
