//! This host as others see it, and which arrays tell others that they are in use.

use braid_array::options::{AssembleOptions, DEFAULT_HEARTBEAT_MS, Host};
use braid_device::Opener;
use braid_format::heartbeat::Process;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::Arc;

/// Identifies the running kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The arrays that have a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    /// Where a member is reached over a network.
    Auto,
    /// None does.
    Off,
    /// All do, every so many seconds.
    Seconds(u32),
}

impl FromStr for Heartbeat {
    type Err = String;

    fn from_str(text: &str) -> Result<Heartbeat, String> {
        match text {
            "auto" => Ok(Heartbeat::Auto),
            "off" | "0" => Ok(Heartbeat::Off),
            seconds => match seconds.parse() {
                Ok(seconds @ 1..=60) => Ok(Heartbeat::Seconds(seconds)),
                _ => Err("auto, off, or 1 to 60 seconds".to_string()),
            },
        }
    }
}

/// The means that keep other hosts off arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Which arrays have a heartbeat.
    pub heartbeat: Heartbeat,
    /// Those that have one reserve the disks that can be.
    pub reservations: bool,
    /// The arrays were another process's of this host, which has handed them over.
    pub handed_over: bool,
}

impl Guard {
    /// Those that are used unless others are asked for.
    pub const AUTO: Guard =
        Guard { heartbeat: Heartbeat::Auto, reservations: true, handed_over: false };

    /// `options` for an array of these members. May block: not for a shard's thread.
    pub fn applied(self, options: AssembleOptions, openers: &[Arc<dyn Opener>]) -> AssembleOptions {
        AssembleOptions {
            heartbeat_ms: beat_every(self.heartbeat, openers),
            reservations: self.reservations,
            handed_over: self.handed_over,
            host: Host { locks: !is_remote(openers), ..this() },
            ..options
        }
    }
}

/// The name of this host, what tells its kernel from others, and this process.
fn this() -> Host {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = fs::read_to_string(BOOT_ID).ok();
    let boot = boot.and_then(|text| uuid::Uuid::parse_str(text.trim()).ok());
    let process = namespace().map(|namespace| Process { namespace, id: std::process::id() });
    let boot = boot.map(uuid::Uuid::into_bytes).unwrap_or_default();
    Host { name, boot, process, locks: false }
}

/// Milliseconds between two beats for an array of these members; `None`: it has no heartbeat.
fn beat_every(wanted: Heartbeat, openers: &[Arc<dyn Opener>]) -> Option<u32> {
    match wanted {
        Heartbeat::Off => None,
        Heartbeat::Seconds(seconds) => Some(seconds.saturating_mul(1000)),
        Heartbeat::Auto => is_remote(openers).then_some(DEFAULT_HEARTBEAT_MS),
    }
}

/// A member is reached over a network, so no lock of this host keeps others off.
fn is_remote(openers: &[Arc<dyn Opener>]) -> bool {
    openers.iter().any(|opener| opener.is_remote())
}

/// The namespace of this process's id.
fn namespace() -> Option<u64> {
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// Of processes with the same namespace the kernel says whether they have ended; of others nobody does.
pub fn has_ended(process: &Process) -> bool {
    let id = i32::try_from(process.id).ok().and_then(Pid::from_raw);
    let unknown = |id: Pid| test_kill_process(id) == Err(Errno::SRCH);
    Some(process.namespace) == namespace() && id.is_some_and(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_a_word_or_seconds() {
        assert_eq!("auto".parse(), Ok(Heartbeat::Auto));
        assert_eq!("off".parse(), Ok(Heartbeat::Off));
        assert_eq!("60".parse(), Ok(Heartbeat::Seconds(60)));
        for wrong in ["61", "-1", "2s", "on", ""] {
            let refused = wrong.parse::<Heartbeat>();
            assert!(refused.is_err_and(|why| why.contains("1 to 60")), "{wrong:?}");
        }
    }

    #[test]
    fn this_host_has_a_name_and_a_boot() {
        let host = this();
        assert!(!host.name.is_empty());
        assert_eq!(host, this());
        assert_ne!(host.boot, [0; 16]);
    }

    #[test]
    fn a_process_of_the_same_namespace_has_ended_once_the_kernel_knows_it_no_more() {
        let own = this().process.unwrap();
        assert!(!has_ended(&own));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of_child = Process { id: child.id(), ..own };
        assert!(!has_ended(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&of_child));
        assert!(!has_ended(&Process { namespace: own.namespace + 1, ..of_child }));
        assert!(!has_ended(&Process { id: u32::MAX, ..own }));
    }
}
