//! Checks and repairs go on by themselves after a restart, after another job and when their hours come: one thread that looks
//! once a second.

use super::running::Running;
use anyhow::{Context, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Watches for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>) -> Result<()> {
    let running = Arc::downgrade(running);
    std::thread::Builder::new()
        .name("checks".to_string())
        .spawn(move || watch(&running))
        .context("starting the thread that goes on with checks")?;
    Ok(())
}

fn watch(running: &Weak<Running>) {
    while let Some(running) = running.upgrade() {
        running.look_at_scrubs();
        drop(running);
        std::thread::sleep(EVERY);
    }
}
