//! SIGINT and SIGTERM: the first asks for an orderly end, one that comes later ends the process at once. SIGHUP is the same where a
//! terminal was closed; without a terminal it asks for a new process that takes over, as daemons are told of an upgrade.
//!
//! Signals within two seconds are one: supervisors and `timeout` send theirs to the process and to its group.

use super::End;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Signals that come closer together are one.
const TOGETHER: Duration = Duration::from_secs(2);

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// An orderly end.
    End,
    /// The same as the first.
    Again,
    /// No longer to wait for the orderly end.
    GiveUp,
}

/// What a signal at `now` asks for, `first` being when the first one came.
fn meaning(first: Option<Instant>, now: Instant) -> Meaning {
    match first {
        None => Meaning::End,
        Some(first) if now.saturating_duration_since(first) < TOGETHER => Meaning::Again,
        Some(_) => Meaning::GiveUp,
    }
}

/// Sends [`End::Signal`] at the first signal; exits with 128 + number at one that comes later.
///
/// # Errors
/// When the system refuses a handler or a thread.
pub fn listen(ends: Sender<End>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("taking over signals")?;
    let has_terminal = std::fs::File::open("/dev/tty").is_ok();
    let work = move || {
        let mut first = None;
        for signal in signals.forever() {
            if signal == SIGHUP && !has_terminal && first.is_none() {
                // As below.
                let _ = ends.send(End::Renew);
                continue;
            }
            let now = Instant::now();
            match meaning(first, now) {
                Meaning::End => {
                    first = Some(now);
                    // The other side is gone when the process ends anyway.
                    let _ = ends.send(End::Signal);
                }
                Meaning::Again => {}
                Meaning::GiveUp => {
                    crate::output::note(
                        "braid: ended by another signal before everything was stopped; what was not stopped is left as \
                         after a crash: `braid examine` shows it, the next `braid serve` resyncs it",
                    );
                    std::process::exit(128 + signal);
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(work)
        .context("starting the thread that waits for signals")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_two_seconds_are_one() {
        let first = Instant::now();
        assert_eq!(meaning(None, first), Meaning::End);
        for (after_ms, expected) in
            [(0, Meaning::Again), (1999, Meaning::Again), (2000, Meaning::GiveUp)]
        {
            let now = first + Duration::from_millis(after_ms);
            assert_eq!(meaning(Some(first), now), expected, "{after_ms}");
        }
    }
}
