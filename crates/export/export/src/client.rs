//! The clients of a door: who they are, and what they have done.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The target of the log's lines about clients that come and leave, as a filter of logs names it.
pub const CLIENTS: &str = "clients";

/// A client that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The name of the target that it uses.
    pub target: String,
    /// The protocol's name, as [`Export::protocol`](crate::Export::protocol) gives it.
    pub protocol: &'static str,
    /// Address and port, or the process at the other end of a unix socket.
    pub address: String,
    /// Its counters since it connected.
    pub traffic: Traffic,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} export {})", self.address, self.protocol, self.target)
    }
}

/// The counters of a client since it connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that were taken from it.
    pub requests: u64,
    /// Bytes that were read for it.
    pub read_bytes: u64,
    /// Bytes that it wrote; discarded and zeroed ones do not count.
    pub written_bytes: u64,
    /// Requests that failed or were refused.
    pub errors: u64,
    /// Requests that are under way.
    pub in_flight: u64,
}

/// The counters behind a [`Traffic`]. Its connection's shard alone counts, so that it costs a load and a store and no
/// locked instruction; any thread may look.
#[derive(Debug, Default)]
pub struct Figures {
    requests: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    ended: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Figures {
    /// A request was taken.
    pub fn began(&self) {
        add(&self.requests, 1);
    }

    /// A request has ended, which moved `read` and `written` bytes of data.
    pub fn ended(&self, read: u64, written: u64, failed: bool) {
        add(&self.read_bytes, read);
        add(&self.written_bytes, written);
        add(&self.errors, u64::from(failed));
        add(&self.ended, 1);
    }

    /// The counters now.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // First those that have ended, so that none is counted that has not begun.
        let ended = now(&self.ended);
        let requests = now(&self.requests);
        Traffic {
            requests,
            read_bytes: now(&self.read_bytes),
            written_bytes: now(&self.written_bytes),
            errors: now(&self.errors),
            in_flight: requests.saturating_sub(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_counts_what_began_and_ended() {
        let figures = Figures::default();
        (0..3).for_each(|_| figures.began());
        figures.ended(4096, 0, false);
        figures.ended(0, 512, true);
        let expected =
            Traffic { requests: 3, read_bytes: 4096, written_bytes: 512, errors: 1, in_flight: 1 };
        assert_eq!(figures.traffic(), expected);
    }

    #[test]
    fn clients_are_named_with_protocol_and_target() {
        let client = Client {
            target: "vault".into(),
            protocol: "nbd",
            address: "10.0.0.7:40312".into(),
            traffic: Traffic::default(),
        };
        assert_eq!(client.to_string(), "10.0.0.7:40312 (nbd export vault)");
    }
}
