//! Completion times of the requests to a modelled device.
//!
//! A request waits for one of the device's slots (queue depth), then for the controller, which
//! takes a fixed time per request, then for the data path of its direction, which has a fixed
//! data rate. It completes after a latency, during which others are served. A disk with a
//! moving head serves one request at a time, and first moves the head unless the request starts where
//! the previous one ended.
//!
//! Shards share a timeline without locks: a server is just the time at which it is free again, advanced
//! atomically. Slots are used in turn: with a queue depth of n a request waits for the n-th request
//! before it.

use super::parameters::{Parameters, Seek};
use crate::random::Random;
use crate::request::Op;
use braid_shard::Nanos;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SECOND: u128 = 1_000_000_000;

/// The timeline of a device, for the requests of all shards.
pub(super) struct Timeline {
    parameters: Parameters,
    /// Size in bytes. The time of a seek depends on the distance relative to it.
    size: u64,
    controller: Server,
    read_path: Server,
    write_path: Server,
    /// The time at which each slot is free again.
    slots: Vec<AtomicU64>,
    arrivals: AtomicUsize,
    /// The time at which everything submitted so far has completed.
    last_end: AtomicU64,
    /// Byte under the head.
    head: AtomicU64,
    random: Random,
}

/// Serves one request after the other; holds the time at which it is free again.
#[derive(Default)]
struct Server(AtomicU64);

impl Server {
    /// Serves a request that takes `span`, as soon as the server is free after `start`. Returns the end.
    fn serve(&self, start: Nanos, span: Nanos) -> Nanos {
        let end = |free: Nanos| free.max(start).saturating_add(span);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free))) {
            Ok(free) | Err(free) => end(free),
        }
    }
}

impl Timeline {
    pub(super) fn new(parameters: Parameters, size: u64) -> Timeline {
        Timeline {
            parameters,
            size,
            controller: Server::default(),
            read_path: Server::default(),
            write_path: Server::default(),
            slots: (0..parameters.depth.max(1)).map(|_| AtomicU64::new(0)).collect(),
            arrivals: AtomicUsize::new(0),
            last_end: AtomicU64::new(0),
            head: AtomicU64::new(0),
            random: Random::new(parameters.seed.unwrap_or(0)),
        }
    }

    /// The time at which a request of `len` bytes completes that is submitted `now`.
    pub(super) fn end_of(&self, now: Nanos, offset: u64, len: u64, op: &Op) -> Nanos {
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed);
        // Cannot be out of bounds: there is at least one slot.
        let slot = &self.slots[arrival % self.slots.len()];
        let start = now.max(slot.load(Ordering::Relaxed));
        let parameters = &self.parameters;
        let forced = |fua: bool| if fua { parameters.flush } else { 0 };
        let end = match op {
            Op::Read(_) => self.transfer(start, offset, len, true),
            Op::Write { fua, .. } => {
                self.transfer(start, offset, len, false).saturating_add(forced(*fua))
            }
            Op::WriteZeroes { unmap, fua, .. } => {
                let moved = if *unmap { 0 } else { len };
                self.transfer(start, offset, moved, false).saturating_add(forced(*fua))
            }
            Op::Discard { .. } => self.command(start).saturating_add(parameters.write_latency),
            Op::Flush => {
                let before = self.last_end.load(Ordering::Relaxed);
                self.command(start).max(before).saturating_add(parameters.flush)
            }
        };
        slot.store(end, Ordering::Relaxed);
        self.last_end.fetch_max(end, Ordering::Relaxed);
        end
    }

    /// The time at which the controller is done with a request.
    fn command(&self, start: Nanos) -> Nanos {
        self.controller.serve(start, self.parameters.cost)
    }

    fn transfer(&self, start: Nanos, offset: u64, len: u64, read: bool) -> Nanos {
        let Parameters { read_rate, write_rate, read_latency, write_latency, .. } = self.parameters;
        let (rate, latency, path) = match read {
            true => (read_rate, read_latency, &self.read_path),
            false => (write_rate, write_latency, &self.write_path),
        };
        let moving = (u128::from(len) * SECOND).div_ceil(u128::from(rate.max(1))) as Nanos;
        let moved = match self.parameters.seek {
            Some(seek) => {
                let head = self.head.swap(offset + len, Ordering::Relaxed);
                let positioning = self.positioning(seek, head, offset, rate);
                self.controller.serve(
                    start,
                    positioning.saturating_add(moving).saturating_add(self.parameters.cost),
                )
            }
            None => path.serve(self.command(start), moving),
        };
        moved.saturating_add(self.vary(latency))
    }

    /// Time until the head is over `offset`. It is zero for the next byte. For a short distance ahead the head waits
    /// until the bytes between have passed. Otherwise there is a seek, which grows with the square root of the distance,
    /// and a random part of a revolution.
    fn positioning(&self, seek: Seek, head: u64, offset: u64, rate: u64) -> Nanos {
        let ahead = offset.wrapping_sub(head);
        let passing = (u128::from(ahead) * SECOND / u128::from(rate.max(1))) as Nanos;
        if ahead == 0 || passing < seek.turn / 2 && offset > head {
            return passing;
        }
        let way = offset.abs_diff(head) as f64 / self.size.max(1) as f64;
        let span = seek.longest.saturating_sub(seek.shortest) as f64;
        let moving = seek.shortest + (span * way.sqrt()) as Nanos;
        moving + self.random.below(seek.turn)
    }

    /// With a seed, latencies vary upwards by up to a quarter.
    fn vary(&self, latency: Nanos) -> Nanos {
        match self.parameters.seed {
            Some(_) => latency + self.random.below(latency / 4),
            _ => latency,
        }
    }
}
