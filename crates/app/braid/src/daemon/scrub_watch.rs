//! Checks and repairs go on by themselves after a restart, after another job and when their hours come: one thread that looks
//! once a second.

use super::running::Running;
use super::watch::{self, each_second};
use anyhow::Result;
use std::sync::Arc;

/// Watches for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>) -> Result<()> {
    let thread = ("checks", "that goes on with checks");
    watch::start(running, thread, |running| each_second(running, Running::look_at_scrubs))
}
