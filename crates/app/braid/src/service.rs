//! The service manager's side of a server: readiness, status and watchdog (`sd_notify`), priorities in the journal, and what keeps
//! the process going when memory is short.
//!
//! Everything here is asked for, and goes without where the system or the manager does not offer it.

pub use braid_control::protocol::Priority;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};
use sd_notify::NotifyState;
use std::os::linux::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::Duration;

/// The kernel takes other processes before one with this value, and never this one before them.
const OOM_SCORE: &str = "-900";

/// A service manager waits to be told.
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Clients can connect. `status` is what `systemctl status` shows. A process that took over from another is the main one now.
pub fn ready(status: &str) {
    let own = NotifyState::MainPid(std::process::id());
    tell(&[own, NotifyState::Ready, NotifyState::Status(status)]);
}

/// From now on another process is the one that matters.
pub fn main_process(number: u32) {
    tell(&[NotifyState::MainPid(number)]);
}

/// The start goes on, for `time` more at least.
pub fn starting(time: Duration) {
    tell(&[NotifyState::ExtendTimeoutUsec(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))]);
}

/// Shows another status.
pub fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// An orderly end has begun, and may take `time`.
pub fn stopping(time: Duration) {
    let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

/// The process does its work.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The time in which the manager wants to hear [`alive`], or ends the process.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn tell(states: &[NotifyState<'_>]) {
    if !is_there() {
        return;
    }
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// Before the first thread is started: the kernel does not choose this process when memory is short, does not wait for writes to
/// its own devices when it needs memory, and, with `lock_memory`, does not swap it out. Gives what was granted.
pub fn protect(lock_memory: bool) -> Vec<&'static str> {
    let mut granted = Vec::new();
    if std::fs::write("/proc/self/oom_score_adj", OOM_SCORE).is_ok() {
        granted.push("oom_score_adj");
    }
    if configure_io_flusher_behavior(true).is_ok() {
        granted.push("io_flusher");
    }
    // With a limit later mappings would fail, and with them requests.
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if lock_memory && unlimited && rustix::mm::mlockall(all).is_ok() {
        granted.push("mlockall");
    }
    tracing::debug!(?granted, "against a shortage of memory");
    granted
}

/// Standard error is read by the journal, which knows times and names, and takes priorities.
pub fn is_journal() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
        let Ok(found) = std::fs::metadata("/proc/self/fd/2") else { return false };
        stream == format!("{}:{}", found.st_dev(), found.st_ino())
    })
}

/// A line for standard error: for the journal with its priority, and without the program's name, which it knows.
pub fn line(priority: Priority, text: &str, journal: bool) -> String {
    if !journal {
        return text.to_string();
    }
    let text = text.strip_prefix("braid: ").unwrap_or(text);
    // Each line has one of its own.
    let lines = text.lines().map(|line| format!("<{}>{line}", priority as u8));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_gets_priorities_and_a_terminal_does_not() {
        let text = "braid: array a: degraded\nadd a member";
        assert_eq!(line(Priority::Critical, text, true), "<2>array a: degraded\n<2>add a member");
        assert_eq!(line(Priority::Critical, text, false), text);
    }
}
