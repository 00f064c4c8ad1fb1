//! Threads of the server that look at its arrays now and then, for as long as it is there.

use super::running::Running;
use anyhow::{Context, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two looks.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Has a thread of this name carry out `watch`, which ends when `running` is gone. `does` says in a message what it is for:
/// "that watches memory".
///
/// # Errors
/// When the system refuses a thread.
pub(super) fn start(
    running: &Arc<Running>,
    (name, does): (&str, &str),
    watch: impl FnOnce(&Weak<Running>) + Send + 'static,
) -> Result<()> {
    let running = Arc::downgrade(running);
    std::thread::Builder::new()
        .name(name.to_string())
        .spawn(move || watch(&running))
        .with_context(|| format!("starting the thread {does}"))?;
    Ok(())
}

/// Looks once a second, at first now.
pub(super) fn each_second(running: &Weak<Running>, look: impl Fn(&Running)) {
    while let Some(running) = running.upgrade() {
        look(&running);
        drop(running);
        std::thread::sleep(EVERY);
    }
}
