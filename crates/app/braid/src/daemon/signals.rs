//! SIGINT, SIGTERM and SIGHUP: the first asks for an orderly end, the second ends the process at once.

use super::End;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

/// Sends [`End::Signal`] at the first signal; exits with 128 + number at the second.
///
/// # Errors
/// When the system refuses a handler or a thread.
pub fn listen(ends: Sender<End>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("taking over signals")?;
    let work = move || {
        let mut asked = false;
        for signal in signals.forever() {
            if asked {
                crate::output::note(
                    "braid: ended at once by a second signal; arrays stay marked active",
                );
                std::process::exit(128 + signal);
            }
            asked = true;
            // The other side is gone when the process ends anyway.
            let _ = ends.send(End::Signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(work)
        .context("starting the thread that waits for signals")?;
    Ok(())
}
