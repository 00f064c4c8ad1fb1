//! Ends a mount that is wedged: the shard waits in the kernel, which waits for the shard. Nothing else ends the processes
//! that wait in it then, nor a `sync` of the machine.
//!
//! Three things are looked at: whether the shard answers; whether the kernel goes on with what it was asked to write
//! out while the shard has nothing to do; and whether a request waits in the kernel that the shard, with nothing to do
//! and nothing new to begin, does not get or has answered. Time is counted in looks, so that a process or a machine that
//! was stopped for a while is not taken for wedged.

use crate::mountpoint::MountPoint;
use crate::write_out::WriteOut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Looks without a change after which the mount is taken for wedged.
const LOOKS: u32 = 12;

/// The progress of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Requests that it is at, without those that wait for another thread.
    pub under_way: usize,
    /// Requests that were ever begun.
    pub begun: u64,
}

/// Where the shard answers the looks.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The last look that was answered.
    answered: AtomicU64,
    /// Requests that were under way then.
    under_way: AtomicU64,
    /// Requests that had been begun by then.
    begun: AtomicU64,
}

impl Pulse {
    /// Answers look number `look`.
    pub fn answer(&self, look: u64, at: Progress) {
        self.under_way.store(at.under_way as u64, Ordering::Release);
        self.begun.store(at.begun, Ordering::Release);
        self.answered.store(look, Ordering::Release);
    }
}

/// Looks after one mount until it is dropped.
pub(crate) struct Watchdog {
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Starts the thread. `ask` has the shard answer a look, without waiting for it; false when the shard is gone.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(
        point: MountPoint,
        write_out: Arc<WriteOut>,
        patience: Duration,
        pulse: Arc<Pulse>,
        ask: impl Fn(u64) -> bool + Send + 'static,
    ) -> std::io::Result<Watchdog> {
        let (stop, stopped) = mpsc::channel::<()>();
        std::thread::Builder::new().name("fuse-watchdog".to_owned()).spawn(move || {
            let mut looks = Looks::default();
            let (mut look, every) = (0, patience / LOOKS);
            while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                let answered = pulse.answered.load(Ordering::Acquire) >= look;
                let idle = pulse.under_way.load(Ordering::Acquire) == 0;
                let waiting = point.has_waiting();
                let seen = Seen {
                    answered,
                    idle,
                    call: write_out.under_way(),
                    kept: (waiting == Some(true)).then(|| pulse.begun.load(Ordering::Acquire)),
                };
                // Where the kernel does not tell, it is in doubt.
                if let Some(why) = looks.look(seen)
                    && waiting != Some(false)
                {
                    tracing::error!(
                        dir = %point.dir().display(),
                        "{why} for {} s: the kernel and this server wait for each other; the mount is ended, \
                         and what waits in it gets an error. Mount the volume again; what was not synced is lost",
                        patience.as_secs()
                    );
                    point.abort();
                    return;
                }
                if answered {
                    look += 1;
                    if !ask(look) {
                        return;
                    }
                }
            }
        })?;
        Ok(Watchdog { _stop: stop })
    }
}

/// One look.
#[derive(Clone, Copy)]
struct Seen {
    /// The shard has answered.
    answered: bool,
    /// It had no request under way.
    idle: bool,
    /// The call that the kernel was at: see [`WriteOut::under_way`].
    call: Option<u64>,
    /// Requests waited in the kernel: how many the shard had begun by then.
    kept: Option<u64>,
}

/// The looks so far, as far as they were alike.
#[derive(Default)]
struct Looks {
    /// Looks that the shard has not answered.
    silent: u32,
    /// Looks for which the kernel has been at the same call while the shard was idle.
    stuck: u32,
    call: Option<u64>,
    /// Looks for which requests waited in the kernel while the shard was idle and began none.
    idle: u32,
    kept: Option<u64>,
}

impl Looks {
    /// One look more: why the mount is wedged, if it is.
    fn look(&mut self, seen: Seen) -> Option<&'static str> {
        self.silent = if seen.answered { 0 } else { self.silent + 1 };
        let at_rest = seen.answered && seen.idle;
        let same_call = seen.call.is_some() && seen.call == self.call;
        self.stuck = if same_call && at_rest { self.stuck + 1 } else { 0 };
        self.call = seen.call;
        let still_kept = seen.kept.is_some() && seen.kept == self.kept;
        self.idle = if still_kept && at_rest { self.idle + 1 } else { 0 };
        self.kept = seen.kept;
        if self.silent >= LOOKS {
            return Some("requests have not been answered");
        }
        if self.stuck >= LOOKS {
            return Some("a file has not been written out");
        }
        (self.idle >= LOOKS)
            .then_some("the kernel has kept a request that this server does not get")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Seen = Seen { answered: true, idle: false, call: None, kept: None };
    const IDLE: Seen = Seen { idle: true, ..BUSY };

    #[test]
    fn a_shard_that_is_silent_all_the_time_is_wedged() {
        let mut looks = Looks::default();
        let silent = Seen { answered: false, ..BUSY };
        for _ in 1..LOOKS {
            assert_eq!(looks.look(silent), None);
        }
        assert_eq!(looks.look(BUSY), None, "it was slow");
        for _ in 1..LOOKS {
            assert_eq!(looks.look(silent), None);
        }
        assert!(looks.look(silent).is_some());
    }

    #[test]
    fn a_request_that_the_kernel_keeps_from_an_idle_shard_wedges() {
        let mut looks = Looks::default();
        for begun in 0..100 {
            assert_eq!(looks.look(Seen { kept: Some(begun), ..IDLE }), None, "others come");
        }
        for _ in 0..100 {
            assert_eq!(looks.look(Seen { kept: Some(7), ..BUSY }), None, "one is under way");
        }
        for _ in 0..100 {
            assert_eq!(looks.look(IDLE), None, "nobody waits");
        }
        let wedged = (0..=LOOKS).find_map(|_| looks.look(Seen { kept: Some(7), ..IDLE }));
        assert!(wedged.is_some());
    }

    #[test]
    fn a_call_that_waits_for_a_slow_brick_is_not_wedged() {
        let mut looks = Looks::default();
        for _ in 0..100 {
            assert_eq!(looks.look(Seen { call: Some(7), ..BUSY }), None, "a request is under way");
        }
        for call in 0..100 {
            assert_eq!(looks.look(Seen { call: Some(call), ..IDLE }), None, "each is another one");
        }
        let wedged = (0..=LOOKS).find_map(|_| looks.look(Seen { call: Some(7), ..IDLE }));
        assert!(wedged.is_some());
    }
}
