//! Arrays of groups are looked at once a second: one thread.

use super::running::Running;
use super::watch::{self, each_second};
use anyhow::Result;
use std::sync::Arc;

/// Watches for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>) -> Result<()> {
    let thread = ("spares", "that moves spares between arrays");
    watch::start(running, thread, |running| each_second(running, Running::share_spares))
}
