//! While memory is short, the caches of all arrays give theirs back, bit by bit: one thread that looks once
//! a second.

use super::running::Running;
use crate::memory::Memory;
use anyhow::{Context, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Watches for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>, memory: Memory) -> Result<()> {
    let running = Arc::downgrade(running);
    std::thread::Builder::new()
        .name("memory".to_string())
        .spawn(move || watch(&running, &memory))
        .context("starting the thread that watches memory")?;
    Ok(())
}

fn watch(running: &Weak<Running>, memory: &Memory) {
    loop {
        std::thread::sleep(EVERY);
        let Some(running) = running.upgrade() else { return };
        if memory.is_short() {
            running.shrink_caches();
        }
    }
}
