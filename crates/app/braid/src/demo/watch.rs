//! When the rebuild began and ended: asked of the server again and again while other things go on.

use crate::client::Client;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two questions.
const EVERY: Duration = Duration::from_millis(20);

/// Watches until it is told that the rebuild has ended.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Option<Duration>>>>,
}

impl Watch {
    /// Starts to watch the array `name` of the server at `control`.
    ///
    /// # Errors
    /// When the server is not there.
    pub fn start(control: PathBuf, name: &str) -> Result<Watch> {
        let mut client = Client::connect_to(&control)?;
        let (stop, name) = (Arc::new(AtomicBool::new(false)), name.to_string());
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen: Option<(Instant, Instant)> = None;
            while !stopping.load(Ordering::Relaxed) {
                let job = client.detail(Some(&name))?.job;
                if job.is_some_and(|job| job.kind == "recover") {
                    let now = Instant::now();
                    seen = Some((seen.map_or(now, |(first, _)| first), now));
                }
                std::thread::sleep(EVERY);
            }
            Ok(seen.map(|(first, last)| last.duration_since(first) + EVERY))
        });
        Ok(Watch { stop, thread: Some(thread) })
    }

    /// How long the rebuild took; it must have ended.
    ///
    /// # Errors
    /// When none was seen.
    pub fn finish(mut self) -> Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the watch is finished once")?;
        match thread.join() {
            Ok(seen) => seen?.context("no rebuild was seen"),
            Err(_) => bail!("the thread that watches the rebuild has ended"),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // After an error elsewhere nobody wants to know what it saw.
            let _ = thread.join();
        }
    }
}
