//! Waiting for what was begun on a machine, and how a run ends that has failed.

use crate::machine::{Later, Machine, Step};
use braid_array::status::{Ended, Left};
use braid_shard::Nanos;

/// The run is over: the world knows the failure, or there is nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

/// In nanoseconds.
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// A request, command or job that takes longer, in nanoseconds, waits for something that never comes.
pub(crate) const PATIENCE: Nanos = 600 * SECOND;

/// A stop has left an array like this, and says so: writes may be half done, or not durable.
pub(crate) fn ends_like_a_crash(left: &Left) -> bool {
    left.ended == Ended::Active || left.not_durable.is_some()
}

/// Steps until `later` is there.
///
/// # Errors
/// When the run has failed, or waits for ever.
pub fn wait<T>(machine: &Machine, what: &str, later: &Later<T>) -> Result<T, Over> {
    let start = machine.world.now();
    loop {
        if let Some(value) = later.borrow_mut().take() {
            return Ok(value);
        }
        let stuck = machine.step() == Step::Stuck && later.borrow().is_none();
        if machine.world.failure().is_some() {
            return Err(Over);
        }
        if stuck || machine.world.now() > start + PATIENCE {
            let text =
                format!("{what} waits; at members: [{}]", machine.world.describe_under_way());
            machine.world.fail("nothing_waits_for_ever", text);
            return Err(Over);
        }
    }
}
