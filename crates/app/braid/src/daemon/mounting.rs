//! Volumes of the configuration are mounted: at the start, and later when what they are made of has come.
//!
//! A thread of its own does that, since a brick may not answer. Each is mounted once: who unmounts it wants it unmounted.

use super::running::Running;
use super::watch;
use crate::configuration::{Configuration, VolumeEntry};
use crate::output;
use anyhow::Result;
use braid_control::protocol::volume::VolumeRequest;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Between two looks whether an array has come that a volume may lie on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two tries to mount what is not mounted.
const TRY_EVERY: Duration = Duration::from_secs(10);
/// The same where another host may have had them.
const TRY_EVERY_LEASED: Duration = Duration::from_secs(2);
/// For so long who waits for volumes waits for the first tries.
const FIRST_WITHIN: Duration = Duration::from_secs(30);

/// Has a thread mount the volumes of the configuration. What is given hears when each has been tried once.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>, configuration: &Configuration) -> Result<Tried> {
    let (send, tried) = mpsc::channel::<()>();
    let entries: Vec<VolumeEntry> =
        configuration.volumes.iter().filter(|entry| entry.start).cloned().collect();
    if entries.is_empty() {
        return Ok(Tried(tried));
    }
    running.mounting.wanted().entries = entries;
    let degraded_after = configuration.degraded_after.map(Duration::from_secs);
    watch::start(running, ("mounting", "that mounts volumes"), move |running| {
        let mut send = Some(send);
        let since = Instant::now();
        let (mut arrays, mut last) = (Vec::new(), None::<Instant>);
        loop {
            let Some(running) = running.upgrade() else { return };
            let now = running.array_names();
            if now != arrays || last.is_none_or(|last| last.elapsed() >= running.try_every()) {
                let overdue = degraded_after.is_some_and(|after| since.elapsed() >= after);
                if !running.try_to_mount(overdue) {
                    return;
                }
                (arrays, last) = (now, Some(Instant::now()));
                // Whoever waits for the first tries goes on.
                drop(send.take());
            }
            drop(running);
            std::thread::sleep(LOOK_EVERY);
        }
    })?;
    Ok(Tried(tried))
}

/// Hears when each volume has been tried once.
pub struct Tried(Receiver<()>);

impl Tried {
    /// Waits for that, for a while.
    pub fn wait(self) {
        // The other end is dropped.
        if self.0.recv_timeout(FIRST_WITHIN) == Err(mpsc::RecvTimeoutError::Timeout) {
            output::note(format!(
                "warning: a volume is not mounted after {} s: a brick of it does not answer; the start goes on without it",
                FIRST_WITHIN.as_secs()
            ));
        }
    }
}

impl Running {
    fn try_every(&self) -> Duration {
        if self.lease.is_some() { TRY_EVERY_LEASED } else { TRY_EVERY }
    }

    fn array_names(&self) -> Vec<String> {
        self.arrays().iter().map(|array| array.name().to_string()).collect()
    }

    /// Tries to mount all that have not been yet; false when there is nothing left to be tried.
    fn try_to_mount(&self, overdue: bool) -> bool {
        let entries = self.mounting.wanted().entries.clone();
        for entry in entries {
            {
                let mut wanted = self.mounting.wanted();
                if wanted.over {
                    return false;
                }
                wanted.busy = true;
            }
            let mounted = self.mount_entry(&entry, overdue);
            let mut wanted = self.mounting.wanted();
            wanted.busy = false;
            match mounted {
                Ok(said) => {
                    wanted.entries.retain(|other| *other != entry);
                    wanted.said.remove(&entry.mount);
                    output::note(format!("braid: {said}"));
                }
                Err(error) => {
                    let why = output::said(&error);
                    if wanted.said.get(&entry.mount) != Some(&why) {
                        output::note(format!(
                            "warning: volume {} is not mounted at {}: {why}; it is tried again every {} s",
                            entry.called(),
                            entry.mount,
                            self.try_every().as_secs()
                        ));
                        wanted.said.insert(entry.mount.clone(), why);
                    }
                }
            }
        }
        !self.mounting.wanted().entries.is_empty()
    }

    fn mount_entry(&self, entry: &VolumeEntry, overdue: bool) -> Result<String> {
        if let Ok(hosted) = self.volumes.find(Some(&entry.wanted())) {
            return Ok(format!(
                "volume {} is mounted at {} already",
                hosted.name,
                hosted.dir.display()
            ));
        }
        let said = self.volume_order(VolumeRequest::Mount {
            name: entry.wanted(),
            dir: entry.mount.clone(),
            bricks: entry.bricks.clone(),
            // Bricks get as long to come as members of arrays.
            degraded: entry.degraded && overdue,
            minority: false,
            take_back: false,
            read_only: entry.read_only,
            allow_other: entry.allow_other,
            no_suid: entry.no_suid,
            no_dev: entry.no_dev,
            no_exec: entry.no_exec,
            lease: None,
            create: None,
        })?;
        if self.mounting.wanted().over
            && let Ok(hosted) = self.volumes.find(Some(&entry.wanted()))
        {
            hosted.unmount_at_end()?;
            self.volumes.forget(&hosted);
        }
        Ok(said)
    }

    /// Mounts what the configuration wants mounted and is not, also what was unmounted: in sentences, what was done and what
    /// could not be.
    pub(super) fn mount_all_of(&self, configuration: &Configuration) -> (Vec<String>, Vec<String>) {
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for entry in configuration.volumes.iter().filter(|entry| entry.start) {
            if self.volumes.find(Some(&entry.wanted())).is_ok() {
                continue;
            }
            match self.mount_entry(entry, false) {
                Ok(said) => {
                    self.mounting.wanted().entries.retain(|other| other != entry);
                    done.push(said);
                }
                Err(error) => refused.push(output::said(&error)),
            }
        }
        (done, refused)
    }
}
