//! Arrays of groups are looked at once a second: one thread.

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
        .name("spares".to_string())
        .spawn(move || watch(&running))
        .context("starting the thread that moves spares between arrays")?;
    Ok(())
}

fn watch(running: &Weak<Running>) {
    while let Some(running) = running.upgrade() {
        running.share_spares();
        drop(running);
        std::thread::sleep(EVERY);
    }
}
