//! The reasons for which the kernel refuses an io_uring, in messages that say how to change that.
//!
//! The kernel answers `EPERM` both when a sysctl and when a filter forbids it, and `ENOMEM` both when
//! memory and when the right to lock it is short, so the settings of the system decide which it is. Required features
//! are checked once at the start: a feature that turns out to be missing later would show as a shard that hangs.

use super::enter::{ENTER_EXT_ARG, ENTER_GETEVENTS, is_transient};
use super::queues::Queues;
use io_uring::types;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;

/// The ring could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// `kernel.io_uring_disabled` forbids it, to everybody or to this user.
    #[error("io_uring is switched off on this machine: kernel.io_uring_disabled is {level}; {}", of_level(*.level))]
    SwitchedOff {
        /// The sysctl's value: 1 or 2.
        level: u8,
    },
    /// A system call is forbidden, by a filter or a security module.
    #[error(
        "{call} is not permitted here: {}; allow io_uring_setup, io_uring_enter and io_uring_register (a container's seccomp profile, SystemCallFilter=@aio of a systemd unit, an SELinux policy)",
        if *.filtered { "a seccomp filter denies it" } else { "a security module denies it" }
    )]
    Denied {
        /// The system call.
        call: &'static str,
        /// The process runs under a seccomp filter.
        filtered: bool,
    },
    /// The kernel knows no io_uring.
    #[error(
        "Linux {release} answers that it has no io_uring: it is older than 5.15, built without it, or a seccomp filter hides it; use Linux 5.15 or newer with CONFIG_IO_URING, and a filter that allows io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Absent {
        /// The running kernel.
        release: String,
    },
    /// The kernel's io_uring is too old.
    #[error(
        "io_uring of Linux {release} has no {feature}, which came with Linux {since}; braid needs Linux 5.15 or newer"
    )]
    TooOld {
        /// The running kernel.
        release: String,
        /// The missing feature.
        feature: &'static str,
        /// The version that brought it.
        since: &'static str,
    },
    /// No memory for the queues.
    #[error(
        "no memory for the queues of an io_uring: {lockable}, or this process's group is out of memory; raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity of a systemd unit, --ulimit memlock=-1 of a container), give it more memory, or use fewer --shards"
    )]
    Memory {
        /// The limit on locked memory.
        lockable: Lockable,
    },
    /// Too many open files.
    #[error("no descriptor left for an io_uring; raise the limit on open files (ulimit -n)")]
    Descriptors,
    /// No eventfd for the doorbell.
    #[error(
        "creating an eventfd for the doorbell failed; raise the limit on open files (ulimit -n)"
    )]
    Doorbell,
    /// The kernel refused for another reason.
    #[error("{call}: {source}; braid needs Linux 5.15 or newer with io_uring allowed")]
    Other {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Memory that the process may lock (`RLIMIT_MEMLOCK`), in bytes; `None` for any amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockable(pub Option<u64>);

impl fmt::Display for Lockable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "only {} KiB may be locked", bytes >> 10),
            None => write!(f, "although memory may be locked without a limit"),
        }
    }
}

fn of_level(level: u8) -> &'static str {
    match level {
        1 => {
            "it is left to CAP_SYS_ADMIN and the group of kernel.io_uring_group: run braid as one of these, or set kernel.io_uring_disabled=0 with sysctl"
        }
        _ => "set it to 0 with sysctl, or to 1 for the group of kernel.io_uring_group only",
    }
}

const SETUP: &str = "io_uring_setup";
const ENTER: &str = "io_uring_enter";

impl RingError {
    /// Explains an error of io_uring_setup.
    pub(super) fn of_setup(error: &io::Error) -> RingError {
        RingError::of(SETUP, error, &System::here())
    }

    fn of(call: &'static str, error: &io::Error, system: &System) -> RingError {
        match error.raw_os_error() {
            Some(libc::EPERM) if call == SETUP && system.disabled > 0 && !system.filtered => {
                RingError::SwitchedOff { level: system.disabled }
            }
            // Under a filter either may be the reason, but the sysctl is known to forbid it.
            Some(libc::EPERM) if call == SETUP && system.disabled > 1 => {
                RingError::SwitchedOff { level: system.disabled }
            }
            Some(libc::EPERM | libc::EACCES) => {
                RingError::Denied { call, filtered: system.filtered }
            }
            Some(libc::ENOSYS) => RingError::Absent { release: system.release.clone() },
            Some(libc::ENOMEM) => RingError::Memory { lockable: Lockable(system.lockable) },
            Some(libc::EMFILE | libc::ENFILE) => RingError::Descriptors,
            Some(code) => RingError::Other { call, source: io::Error::from_raw_os_error(code) },
            None => RingError::Other { call, source: io::Error::other(error.to_string()) },
        }
    }
}

/// The settings of the system that decide whether io_uring is available.
struct System {
    release: String,
    /// `kernel.io_uring_disabled`; 0 if there is no such setting (before Linux 6.6).
    disabled: u8,
    /// This thread is under a seccomp filter.
    filtered: bool,
    lockable: Option<u64>,
}

impl System {
    fn here() -> System {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/thread-self/status");
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        System {
            release: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            disabled: text("/proc/sys/kernel/io_uring_disabled").trim().parse().unwrap_or(0),
            filtered: mode.is_some_and(|mode| mode.trim() == "2"),
            lockable: getrlimit(Resource::Memlock).current,
        }
    }
}

/// The features that the ring relies on, beside older operations: name, and version of the kernel that
/// introduced it.
const FEATURES: [(&str, &str); 3] = [
    ("completions that are kept when the queue is full (IORING_FEAT_NODROP)", "5.5"),
    ("waiting for sockets without a thread each (IORING_FEAT_FAST_POLL)", "5.7"),
    ("waiting with a time limit (IORING_FEAT_EXT_ARG)", "5.11"),
];

/// Checks that the features that braid uses are there, and that the ring can be entered.
pub(super) fn check(queues: &Queues) -> Result<(), RingError> {
    let parameters = queues.parameters();
    let has = [
        parameters.is_feature_nodrop(),
        parameters.is_feature_fast_poll(),
        parameters.is_feature_ext_arg(),
    ];
    if let Some((feature, since)) = missing(has) {
        return Err(RingError::TooOld { release: System::here().release, feature, since });
    }
    let span = types::Timespec::new();
    let args = types::SubmitArgs::new().timespec(&span);
    let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
    // SAFETY: nothing is submitted; the argument is the structure that the flag announces.
    match unsafe { queues.submitter().enter(0, 0, flags, Some(&args)) } {
        Err(error) if !is_transient(&error) => Err(RingError::of(ENTER, &error, &System::here())),
        _ => Ok(()),
    }
}

fn missing(has: [bool; FEATURES.len()]) -> Option<(&'static str, &'static str)> {
    FEATURES.into_iter().zip(has).find_map(|(feature, has)| (!has).then_some(feature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shard;
    use crate::threads::{self, StartError};
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

    /// Has a system call of this thread answered with `errno` from now on.
    fn deny(call: libc::c_long, errno: i32) {
        let arch: TargetArch = std::env::consts::ARCH.try_into().unwrap();
        let denied = SeccompAction::Errno(errno as u32);
        let rules = [(call, vec![])].into_iter().collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        apply_filter(&program).unwrap();
    }

    /// The refusal of a shard on a thread whose `call` is denied.
    fn refused(call: libc::c_long, errno: i32) -> String {
        let thread = std::thread::spawn(move || {
            deny(call, errno);
            Shard::with_ring(0).err().map(|error| error.to_string())
        });
        thread.join().unwrap().expect("the shard was made")
    }

    #[test]
    fn a_filter_that_denies_a_call_is_named_at_the_start() {
        let text = refused(libc::SYS_io_uring_setup, libc::EPERM);
        assert!(text.contains("io_uring_setup is not permitted here: a seccomp filter"), "{text}");
        let text = refused(libc::SYS_io_uring_enter, libc::EPERM);
        assert!(text.contains("io_uring_enter is not permitted here: a seccomp filter"), "{text}");
        for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
            let text = refused(call, libc::ENOSYS);
            assert!(text.contains("answers that it has no io_uring"), "{text}");
        }
        let text = refused(libc::SYS_io_uring_setup, libc::ENOMEM);
        assert!(text.contains("no memory for the queues") && text.contains("ulimit -l"), "{text}");
        // Filters are inherited by threads, and threads of shards are.
        let thread = std::thread::spawn(|| {
            deny(libc::SYS_io_uring_enter, libc::EPERM);
            matches!(threads::start(2), Err(StartError::Ring { shard: 0, .. }))
        });
        assert!(thread.join().unwrap());
    }

    #[test]
    fn a_shard_that_loses_its_ring_ends_rather_than_spin() {
        let thread = std::thread::spawn(|| {
            let shard = Shard::with_ring(0).unwrap();
            deny(libc::SYS_io_uring_enter, libc::EPERM);
            shard.block_on(shard.sleep(1_000_000));
        });
        let told = thread.join().unwrap_err();
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.contains("refuses io_uring_enter: Operation not permitted"), "{told}");
    }

    #[test]
    fn a_shard_whose_operations_are_not_taken_now_still_gets_messages() {
        let shards = threads::start(1).unwrap();
        let remote = &shards.remotes()[0];
        remote.run(|_| deny(libc::SYS_io_uring_enter, libc::EAGAIN));
        for number in 0..10 {
            assert_eq!(remote.call(move |_| number), Some(number));
        }
    }

    #[test]
    fn what_forbids_io_uring_is_told_from_the_system() {
        let system = |disabled, filtered| System {
            release: "5.10.0-28-amd64".into(),
            disabled,
            filtered,
            lockable: Some(64 << 10),
        };
        let text = |errno, disabled, filtered| {
            let error = io::Error::from_raw_os_error(errno);
            RingError::of(SETUP, &error, &system(disabled, filtered)).to_string()
        };
        assert!(text(libc::EPERM, 2, false).contains("kernel.io_uring_disabled is 2; set it to 0"));
        assert!(text(libc::EPERM, 2, true).contains("kernel.io_uring_disabled is 2"));
        assert!(text(libc::EPERM, 1, false).contains("CAP_SYS_ADMIN and the group"));
        assert!(text(libc::EPERM, 0, false).contains("a security module denies it"));
        assert!(text(libc::EPERM, 0, true).contains("a seccomp filter denies it"));
        assert!(text(libc::ENOMEM, 0, false).contains("only 64 KiB may be locked"));
        assert!(text(libc::ENOSYS, 0, false).contains("Linux 5.10.0-28-amd64"));
        assert!(text(libc::EMFILE, 0, false).contains("ulimit -n"));
        assert!(text(libc::EINVAL, 0, false).contains("io_uring_setup: "));
    }

    #[test]
    fn a_kernel_without_timed_waits_is_too_old() {
        assert_eq!(missing([true; 3]), None);
        let (feature, since) = missing([true, true, false]).unwrap();
        let release = "5.10.0-28-amd64".into();
        let text = RingError::TooOld { release, feature, since }.to_string();
        assert!(text.contains("EXT_ARG") && text.contains("needs Linux 5.15"), "{text}");
    }
}
