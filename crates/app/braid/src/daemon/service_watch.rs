//! The service manager hears that the server does its work, and how its arrays are.

use super::orders::status;
use super::running::Running;
use super::watch;
use crate::output;
use crate::service;
use anyhow::Result;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Between two looks where nothing else is asked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Has a thread tell it, where there is a service manager.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>) -> Result<()> {
    if !service::is_there() {
        return Ok(());
    }
    let watchdog = service::watchdog();
    // Twice in the time that it is given.
    let every = watchdog.map_or(LOOK_EVERY, |time| (time / 2).min(LOOK_EVERY));
    let does = ("service", "that tells the service manager of the server");
    watch::start(running, does, move |running| {
        let mut told = String::new();
        while let Some(running) = running.upgrade() {
            if watchdog.is_some_and(|time| running.shards_answer(time)) {
                service::alive();
            }
            let now = running.summary();
            if now != told {
                service::status(&now);
                told = now;
            }
            drop(running);
            std::thread::sleep(every);
        }
    })
}

impl Running {
    /// Each shard does what it is asked within that time.
    fn shards_answer(&self, time: Duration) -> bool {
        let (send, answers) = mpsc::channel();
        for shard in &self.remotes {
            let send = send.clone();
            shard.run(move |_| {
                // Nobody may wait any more.
                let _ = send.send(());
            });
        }
        let end = Instant::now() + time;
        let left = || end.saturating_duration_since(Instant::now());
        self.remotes.iter().all(|_| answers.recv_timeout(left()).is_ok())
    }

    /// All arrays and volumes in one line.
    pub fn summary(&self) -> String {
        let arrays = self.arrays().clone();
        let (mut degraded, mut jobs) = (Vec::new(), Vec::new());
        for array in &arrays {
            // One that has been stopped meanwhile is neither.
            let Ok(status) = status(array) else { continue };
            if status.degraded > 0 {
                degraded.push(array.name().to_string());
            }
            if let Some(job) = &status.job {
                jobs.push(format!("{} of {}", job.kind, array.name()));
            }
        }
        let count = arrays.len();
        let mut text = match count {
            1 => "1 array".to_string(),
            _ => format!("{count} arrays"),
        };
        match self.volumes_here().len() {
            0 => {}
            volumes => text.push_str(&format!(", {}", output::count(volumes, "volume"))),
        }
        if !degraded.is_empty() {
            text.push_str(&format!("; degraded: {}", degraded.join(", ")));
        }
        if !jobs.is_empty() {
            text.push_str(&format!("; running: {}", jobs.join(", ")));
        }
        match self.doors.clients().len() {
            0 => {}
            1 => text.push_str("; 1 client"),
            clients => text.push_str(&format!("; {clients} clients")),
        }
        text
    }
}
