//! Until when this process may write, on a clock that goes on while the machine sleeps, and its end when that has passed.

use crate::output;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Between two looks at the clock. A sleep of the machine does not count for a thread that sleeps.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The time that the last words get: whoever reads them may not.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A moment, in nanoseconds since the machine was started.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// So long before etcd may give the key to another nothing is written here any more: for what is under way in the network,
/// and for clocks that do not go equally fast.
pub(super) fn margin(ttl: Duration) -> Duration {
    ttl / 5
}

/// See the module's documentation.
pub(super) struct Deadline {
    until: AtomicU64,
    /// Something is held that others want: without a lease it must not be written.
    armed: AtomicBool,
    /// Everything has been stopped in order: nothing is written any more.
    over: AtomicBool,
    /// Ends the process.
    end: fn(),
}

impl Deadline {
    /// Counts from `sent`, when the lease was asked for.
    pub fn new(sent: u64, ttl: Duration, end: fn()) -> Deadline {
        let (armed, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let deadline = Deadline { until: AtomicU64::new(0), armed, over, end };
        deadline.extend(sent, ttl);
        deadline
    }

    /// The lease was renewed for `ttl` by a request that was sent at `sent`.
    pub fn extend(&self, sent: u64, ttl: Duration) {
        let nanos = u64::try_from((ttl - margin(ttl)).as_nanos()).unwrap_or(u64::MAX);
        self.until.fetch_max(sent.saturating_add(nanos), Ordering::SeqCst);
    }

    /// The time that is left at the moment `now`.
    pub fn left(&self, now: u64) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::SeqCst).saturating_sub(now))
    }

    /// From now on the process ends when it has passed; or does not, while nothing is held.
    pub fn arm(&self, on: bool) {
        self.armed.store(on, Ordering::SeqCst);
    }

    fn has_passed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) && self.left(now()).is_zero()
    }

    /// Nothing is written any more, and the process may end as it likes.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// See [`Deadline::is_over`].
    pub fn end_in_order(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Ends the process if it has passed, unless [`Deadline::guard`] is about to.
    pub fn check(&self) {
        if !self.has_passed() {
            return;
        }
        // Who finds that long afterwards was stopped for a while, and has no time for words.
        let late = now().saturating_sub(self.until.load(Ordering::SeqCst));
        if u128::from(late) < 2 * LAST_WORDS.as_nanos() {
            std::thread::sleep(3 * LAST_WORDS);
        }
        (self.end)();
    }

    /// Waits until it has passed, and ends the process then.
    pub fn guard(&self) {
        while !self.is_over() {
            if self.has_passed() {
                say_so();
                return (self.end)();
            }
            let left = self.left(now()).max(Duration::from_millis(1));
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// Ends the process as `kill -9` does: what waits in its queues goes with it.
pub(super) fn end_process() {
    // There is no process that may not signal itself.
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Says that the lease has ended, if that can be said in a moment.
fn say_so() {
    let (send, said) = mpsc::channel();
    let say = move || {
        output::note(
            "braid: the lease was not renewed in time: this process ends at once, so that another host may take its arrays",
        );
        let _ = send.send(());
    };
    if std::thread::Builder::new().spawn(say).is_ok() {
        // Whoever reads it may hang.
        let _ = said.recv_timeout(LAST_WORDS);
    }
}

/// A thread that ends the process when the deadline has passed.
///
/// # Errors
/// When the system refuses a thread.
pub(super) fn watch(deadline: &Arc<Deadline>) -> std::io::Result<()> {
    let deadline = Arc::clone(deadline);
    std::thread::Builder::new()
        .name("lease-guard".to_string())
        .spawn(move || deadline.guard())
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    static ENDS: AtomicU64 = AtomicU64::new(0);

    fn count() {
        ENDS.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn the_time_counts_from_when_the_request_was_sent_less_a_fifth() {
        let ttl = Duration::from_secs(10);
        let deadline = Deadline::new(1_000, ttl, || ());
        assert_eq!(deadline.left(1_000), Duration::from_secs(8));
        deadline.extend(2_000, ttl);
        assert_eq!(deadline.left(1_000), Duration::from_secs(8) + Duration::from_nanos(1_000));
        // An answer that comes late takes nothing back.
        deadline.extend(1_500, ttl);
        assert_eq!(deadline.left(2_000), Duration::from_secs(8));
        assert_eq!(deadline.left(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn once_it_has_passed_the_process_ends_if_it_holds_anything() {
        let deadline = Deadline::new(now(), Duration::from_millis(500), count);
        deadline.arm(true);
        deadline.check();
        assert_eq!(ENDS.load(Ordering::SeqCst), 0);
        deadline.guard();
        assert_eq!(ENDS.load(Ordering::SeqCst), 1);
        deadline.check();
        assert_eq!(ENDS.load(Ordering::SeqCst), 2);
        // Nothing is held.
        deadline.arm(false);
        deadline.check();
        deadline.arm(true);
        deadline.end_in_order();
        deadline.guard();
        assert_eq!(ENDS.load(Ordering::SeqCst), 2);
    }
}
