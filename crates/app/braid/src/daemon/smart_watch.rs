//! The disks that members lie on are asked for their health now and then: one thread. What they warn of is told once.
//!
//! Nothing follows from a warning: a disk that says that it fails may serve for years, and one that fails may have said
//! nothing.

use super::details::device_numbers;
use super::running::Running;
use super::smart::{Unasked, Warnings, ask};
use super::watch::{self, EVERY};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The program that disks are asked by, and how often.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The program.
    pub smartctl: PathBuf,
    /// From one round to the next.
    pub every: Duration,
}

/// Asks for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>, asking: Asking) -> Result<()> {
    let thread = ("smart", "that asks disks for their health");
    watch::start(running, thread, move |running| look(running, &asking))
}

fn look(running: &Weak<Running>, asking: &Asking) {
    while let Some(now) = running.upgrade() {
        let members = now.names_of_members();
        drop(now);
        for (array, member) in members {
            let Some(disk) = disk_of(&member) else { continue };
            match ask(&asking.smartctl, &disk) {
                Ok(warnings) => {
                    let Some(running) = running.upgrade() else { return };
                    tell(&running.smart, (&array, &member), warnings);
                }
                Err(Unasked::NotInstalled) => return,
                Err(Unasked::NoAnswer(why)) => {
                    tracing::debug!("array {array}: asking {member} for its health: {why:#}");
                }
            }
        }
        let next = Instant::now() + asking.every;
        while Instant::now() < next {
            if running.strong_count() == 0 {
                return;
            }
            std::thread::sleep(EVERY);
        }
    }
}

fn tell(known: &Warnings, (array, member): (&str, &str), warnings: Vec<String>) {
    if !known.replace(member, warnings.clone()) {
        return;
    }
    if warnings.is_empty() {
        tracing::info!("array {array}: the disk of {member} warns of nothing any more (SMART)");
    }
    for warning in warnings {
        tracing::warn!(
            "array {array}: the disk of {member} warns (SMART): {warning}; replace it while it serves: braid replace {array} \
             {member} --with DEVICE"
        );
    }
}

/// The whole disk that a member lies on, if it is a block device.
fn disk_of(member: &str) -> Option<PathBuf> {
    let (major, minor) = device_numbers(member)?;
    let entry = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // The kernel puts a partition into the folder of its disk.
    let disk = if entry.join("partition").exists() { entry.parent()? } else { &entry };
    Some(Path::new("/dev").join(disk.file_name()?))
}
