//! When a modelled device is done with a request.
//!
//! A request waits for one of the device's slots (queue depth), then for the controller, which
//! takes a fixed time per request, then for the data path of its direction, which moves so many
//! bytes per second; after a latency, during which others are served, it ends. A disk with a
//! moving head serves one request at a time, and first moves the head unless the request follows
//! the one before.

use super::parameters::{Parameters, Seek};
use crate::device::Op;
use braid_shard::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND: u128 = 1_000_000_000;

/// The device's time, for the requests of all shards.
pub(super) struct Timeline {
    parameters: Parameters,
    /// Bytes; the head's way is measured against it.
    size: u64,
    controller_free: Nanos,
    read_path_free: Nanos,
    write_path_free: Nanos,
    /// Ends of the requests that hold a slot.
    in_service: BinaryHeap<Reverse<Nanos>>,
    /// End of everything submitted so far.
    last_end: Nanos,
    /// Byte under the head.
    head: u64,
    random: u64,
}

impl Timeline {
    pub(super) fn new(parameters: Parameters, size: u64) -> Timeline {
        Timeline {
            parameters,
            size,
            controller_free: 0,
            read_path_free: 0,
            write_path_free: 0,
            in_service: BinaryHeap::new(),
            last_end: 0,
            head: 0,
            random: parameters.seed.unwrap_or(0),
        }
    }

    /// When a request of `len` bytes that is submitted `now` ends.
    pub(super) fn end_of(&mut self, now: Nanos, offset: u64, len: u64, op: &Op) -> Nanos {
        let start = self.slot(now);
        let parameters = self.parameters;
        let end = match op {
            Op::Read(_) => self.transfer(start, offset, len, true),
            Op::Write { fua, .. } => {
                let forced = if *fua { parameters.flush } else { 0 };
                self.transfer(start, offset, len, false) + forced
            }
            Op::WriteZeroes { unmap, fua, .. } => {
                let forced = if *fua { parameters.flush } else { 0 };
                let moved = if *unmap { 0 } else { len };
                self.transfer(start, offset, moved, false) + forced
            }
            Op::Discard { .. } => self.command(start) + parameters.write_latency,
            Op::Flush => self.command(start).max(self.last_end) + parameters.flush,
        };
        self.in_service.push(Reverse(end));
        self.last_end = self.last_end.max(end);
        end
    }

    /// The time from which the request holds a slot.
    fn slot(&mut self, now: Nanos) -> Nanos {
        while self.in_service.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.in_service.pop();
        }
        if self.in_service.len() < self.parameters.depth.max(1) as usize {
            return now;
        }
        self.in_service.pop().map_or(now, |Reverse(end)| end)
    }

    /// The controller's part.
    fn command(&mut self, start: Nanos) -> Nanos {
        self.controller_free = self.controller_free.max(start) + self.parameters.cost;
        self.controller_free
    }

    fn transfer(&mut self, start: Nanos, offset: u64, len: u64, read: bool) -> Nanos {
        let Parameters { read_rate, write_rate, read_latency, write_latency, .. } = self.parameters;
        let (rate, latency) =
            if read { (read_rate, read_latency) } else { (write_rate, write_latency) };
        let moving = (u128::from(len) * SECOND).div_ceil(u128::from(rate.max(1))) as Nanos;
        if let Some(seek) = self.parameters.seek {
            let positioning = self.positioning(seek, offset, rate);
            self.head = offset + len;
            self.controller_free = self.command(start) + positioning + moving;
            return self.controller_free + self.vary(latency);
        }
        let commanded = self.command(start);
        let path = if read { &mut self.read_path_free } else { &mut self.write_path_free };
        *path = commanded.max(*path) + moving;
        let moved = *path;
        moved + self.vary(latency)
    }

    /// Time until the head is over `offset`: none for the next byte; the bytes between, for a
    /// short way ahead; otherwise a seek that grows with the root of the distance, and a random
    /// part of a turn.
    fn positioning(&mut self, seek: Seek, offset: u64, rate: u64) -> Nanos {
        let ahead = offset.wrapping_sub(self.head);
        let passing = (u128::from(ahead) * SECOND / u128::from(rate.max(1))) as Nanos;
        if ahead == 0 || passing < seek.turn / 2 && offset > self.head {
            return passing;
        }
        let way = offset.abs_diff(self.head) as f64 / self.size.max(1) as f64;
        let span = seek.longest.saturating_sub(seek.shortest) as f64;
        let moving = seek.shortest + (span * way.sqrt()) as Nanos;
        moving + self.next_random() % seek.turn.max(1)
    }

    /// With a seed, latencies vary upwards by up to a quarter.
    fn vary(&mut self, latency: Nanos) -> Nanos {
        match self.parameters.seed {
            Some(_) if latency >= 4 => latency + self.next_random() % (latency / 4),
            _ => latency,
        }
    }

    fn next_random(&mut self) -> u64 {
        crate::random::next(&mut self.random)
    }
}
