//! Ends a mount that is wedged: the shard waits in the kernel, which waits for the shard. Nothing else ends the processes
//! that wait in it then, nor a `sync` of the machine.
//!
//! Two things are looked at: whether the shard answers, and whether the kernel goes on with what it was asked to write
//! out while the shard has nothing to do. Time is counted in looks, so that a process or a machine that was stopped for a
//! while is not taken for wedged.
//!
//! Over io_uring the kernel ends a request that it has begun to hand over only when the shard goes on; that the shard never
//! waits there is all that helps (`Work::ends_a_users_call`).

use crate::mountpoint::MountPoint;
use crate::write_out::WriteOut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Looks without a change after which the mount is taken for wedged.
const LOOKS: u32 = 12;

/// Where the shard answers the looks.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The last look that was answered.
    answered: AtomicU64,
    /// Requests that were under way then.
    under_way: AtomicU64,
}

impl Pulse {
    /// Answers look number `look`.
    pub fn answer(&self, look: u64, under_way: usize) {
        self.under_way.store(under_way as u64, Ordering::Release);
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
                if let Some(why) = looks.look(answered, idle, write_out.under_way())
                    && point.has_waiting()
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

/// What was seen.
#[derive(Default)]
struct Looks {
    /// Looks that the shard has not answered.
    silent: u32,
    /// Looks for which the kernel has been at the same call while the shard was idle.
    stuck: u32,
    call: Option<u64>,
}

impl Looks {
    /// One look more: why the mount is wedged, if it is.
    fn look(&mut self, answered: bool, idle: bool, call: Option<u64>) -> Option<&'static str> {
        self.silent = if answered { 0 } else { self.silent + 1 };
        let same = call.is_some() && call == self.call;
        self.stuck = if same && answered && idle { self.stuck + 1 } else { 0 };
        self.call = call;
        if self.silent >= LOOKS {
            return Some("requests have not been answered");
        }
        (self.stuck >= LOOKS).then_some("a file has not been written out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_is_silent_all_the_time_is_wedged() {
        let mut looks = Looks::default();
        for _ in 1..LOOKS {
            assert_eq!(looks.look(false, false, None), None);
        }
        assert_eq!(looks.look(true, false, None), None, "it was slow");
        for _ in 1..LOOKS {
            assert_eq!(looks.look(false, false, None), None);
        }
        assert!(looks.look(false, false, None).is_some());
    }

    #[test]
    fn a_call_that_waits_for_a_slow_brick_is_not_wedged() {
        let mut looks = Looks::default();
        for _ in 0..100 {
            assert_eq!(looks.look(true, false, Some(7)), None, "a request is under way");
        }
        for call in 0..100 {
            assert_eq!(looks.look(true, true, Some(call)), None, "each is another one");
        }
        let wedged = (0..=LOOKS).find_map(|_| looks.look(true, true, Some(7)));
        assert!(wedged.is_some());
    }
}
