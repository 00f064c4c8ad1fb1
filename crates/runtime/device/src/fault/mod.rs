//! A filter that makes a device misbehave, on purpose and reproducibly: errors, silence, delays,
//! torn writes, flipped bits.
//!
//! [`Faults`] is the switchboard: cheap to clone, usable from any thread. [`Fault`] is the filter
//! on one shard. Rules are tried in the order in which they were added, and the first that
//! applies decides. Without rules a request costs one atomic load.
//!
//! Nothing here takes a lock: rules are appended to a list, and their counters are atomic.
//!
//! Invariant: a request that was submitted to the filter always completes, or hangs until
//! [`Faults::release`]; all random choices come from the seed.

mod device;
mod list;
mod rules;
#[cfg(test)]
mod tests;

pub use device::Fault;
pub use rules::{Action, Faults, OpKind, Rule, RuleId};
