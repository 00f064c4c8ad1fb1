//! The volumes of the configuration that are not mounted yet.

use crate::configuration::VolumeEntry;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For so long the end of the server waits for a mount that is being made.
const LAST_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether it is made.
const GLANCE: Duration = Duration::from_millis(20);

/// The volumes that are to be mounted.
#[derive(Default)]
pub struct Mounting(Mutex<Wanted>);

#[derive(Default)]
pub(super) struct Wanted {
    /// Those that have not been mounted yet.
    pub(super) entries: Vec<VolumeEntry>,
    /// Why, as it was said last, by what the volume is called.
    pub(super) said: BTreeMap<String, String>,
    /// One is being mounted now.
    pub(super) busy: bool,
    /// The server is about to end.
    pub(super) over: bool,
}

impl Mounting {
    pub(super) fn wanted(&self) -> MutexGuard<'_, Wanted> {
        // Every change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mounts nothing more; waits a while for what is being mounted.
    pub fn stop(&self) {
        self.wanted().over = true;
        let until = Instant::now() + LAST_WITHIN;
        while self.wanted().busy && Instant::now() < until {
            std::thread::sleep(GLANCE);
        }
    }
}
