//! A filter that makes a device misbehave, on purpose and reproducibly: errors, silence, delays,
//! torn writes, flipped bits.
//!
//! [`Faults`] is the switchboard: cheap to clone, usable from any thread. [`Fault`] is the filter
//! on one shard. Rules are looked at in the order in which they were added; the first that
//! applies decides. Without rules a request costs one atomic load.
//!
//! Nothing here takes a lock: what is rare is appended, what changes is atomic.
//!
//! Invariant: a request that the filter took always completes, or hangs until
//! [`Faults::release`]; all random choices come from the seed.

mod device;
mod list;
mod rules;
#[cfg(test)]
mod tests;

pub use device::Fault;
pub use rules::{Action, Faults, OpKind, Rule, RuleId};
