//! The outside world of a shard: a clock and something to wait on.
//!
//! The real one is the [`Ring`](crate::ring::Ring); the simulator brings one with a virtual clock.

/// Time in nanoseconds since an arbitrary origin that is fixed for the life of a reactor.
pub type Nanos = u64;

/// A clock, a source of completions, and a place to sleep.
pub trait Reactor {
    /// The time now. Never goes back.
    fn now(&self) -> Nanos;

    /// Submits prepared operations and delivers completions, without waiting. True when at least one
    /// completion was delivered.
    fn poll(&self) -> bool;

    /// The same for a caller that parks if this finds nothing and nothing else turns up. Prepared operations may wait
    /// until then, so that one system call submits them and sleeps.
    fn poll_before_park(&self) -> bool {
        self.poll()
    }

    /// Sleeps until something completes, the doorbell rings, or `deadline` has come.
    /// The reactor calls `still_idle` once more after it has armed the doorbell, and must not sleep when the answer is
    /// false. May return early for any reason.
    fn park(&self, deadline: Option<Nanos>, still_idle: &dyn Fn() -> bool);
}
