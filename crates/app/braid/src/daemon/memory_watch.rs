//! While memory is short, the caches of all arrays give theirs back, bit by bit: one thread that looks once
//! a second.

use super::running::Running;
use super::watch::{self, EVERY};
use crate::memory::Memory;
use anyhow::Result;
use std::sync::{Arc, Weak};

/// Watches for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>, memory: Memory) -> Result<()> {
    let thread = ("memory", "that watches memory");
    watch::start(running, thread, move |running| look(running, &memory))
}

fn look(running: &Weak<Running>, memory: &Memory) {
    loop {
        std::thread::sleep(EVERY);
        let Some(running) = running.upgrade() else { return };
        if memory.is_short() {
            running.shrink_caches();
        }
    }
}
