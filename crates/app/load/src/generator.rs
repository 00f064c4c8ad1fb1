//! One generator on one shard: keeps so many requests in flight and counts what comes back.
//!
//! The sink only notes what has completed; a task takes the notes and submits the next requests,
//! so a device may complete within `submit`. Nothing is allocated per request. The clock is read
//! every few requests, or for each when latencies are asked for.

use crate::measure::{Slice, Until};
use crate::offsets::{Random, Region};
use crate::payload::Payload;
use braid_device::{Completion, Device, IoError, Op, Outcome, Request, Sink};
use braid_shard::{BufMut, Nanos, Shard, TaskId};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// Requests between two looks at the clock, when nothing has to be waited for.
const CLOCK_EVERY: u32 = 32;
/// Requests after which the rest of the shard gets a turn.
const YIELD_EVERY: u32 = 256;
/// Latencies are kept to two digits, up to this many nanoseconds.
const LATENCY_MAX: u64 = 60_000_000_000;

/// What one generator does. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Percent of requests that read.
    pub reads: u8,
    /// At random places, rather than one after the other.
    pub random: bool,
    /// Every write is on stable storage before it counts.
    pub fua: bool,
    /// A flush after so many writes; 0: none.
    pub flush_every: u32,
    /// The seed of the places.
    pub seed: u64,
    /// Bytes of data that writes take theirs from.
    pub payload: u64,
    /// Latencies are noted.
    pub latency: bool,
    /// Seconds are the thread's processor time.
    pub processor_time: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Data,
    Flush,
}

#[derive(Clone, Copy)]
struct InFlight {
    kind: Kind,
    submitted: Nanos,
}

struct Done {
    slot: u32,
    read: Option<BufMut>,
    error: Option<IoError>,
}

/// What the task alone uses.
struct Own {
    random: Random,
    regions: Vec<Region>,
    next_device: usize,
    payload: Payload,
    slots: Vec<InFlight>,
    free: Vec<u32>,
    since_flush: u32,
    latency: Option<Histogram<u64>>,
    /// The other buffer of `done`.
    spare: Vec<Done>,
}

/// See the module's documentation.
pub struct Generator {
    shard: Shard,
    traffic: Traffic,
    devices: Vec<Rc<dyn Device>>,
    own: RefCell<Own>,
    done: RefCell<Vec<Done>>,
    waiter: Cell<TaskId>,
}

impl Generator {
    /// A generator on `devices` in turn, each within its region.
    pub fn new(
        shard: &Shard,
        devices: Vec<(Rc<dyn Device>, Region)>,
        traffic: Traffic,
    ) -> Rc<Generator> {
        let depth = traffic.depth.max(1);
        let directions = (traffic.reads > 0, traffic.reads < 100);
        let payload = Payload::new(
            shard.pool(),
            traffic.block as usize,
            traffic.payload as usize,
            depth as usize,
            directions,
        );
        let (devices, regions) = devices.into_iter().unzip();
        let own = Own {
            random: Random::new(traffic.seed),
            regions,
            next_device: 0,
            payload,
            slots: vec![InFlight { kind: Kind::Data, submitted: 0 }; depth as usize],
            free: (0..depth).collect(),
            since_flush: 0,
            latency: None,
            spare: Vec::with_capacity(depth as usize),
        };
        Rc::new(Generator {
            shard: shard.clone(),
            traffic,
            devices,
            own: RefCell::new(own),
            done: RefCell::new(Vec::with_capacity(depth as usize)),
            waiter: Cell::new(TaskId::NONE),
        })
    }

    /// Runs one slice and waits for every request of it.
    pub async fn slice(self: Rc<Generator>, until: Until) -> Result<Slice, IoError> {
        if self.traffic.latency {
            self.own.borrow_mut().latency = Histogram::new_with_max(LATENCY_MAX, 2).ok();
        }
        let (deadline, requests_max) = match until {
            Until::Nanos(nanos) => (self.shard.now().saturating_add(nanos), u64::MAX),
            Until::Requests(requests) => (Nanos::MAX, requests.max(1)),
        };
        let clock = Stopwatch::start(&self.shard, self.traffic.processor_time);
        let mut slice = Slice::default();
        let (mut in_flight, mut submitted) = (0, 0u64);
        let (mut since_clock, mut since_yield) = (0, 0);
        let (mut ending, mut failure) = (false, None);
        loop {
            while !ending && in_flight < self.traffic.depth {
                in_flight += 1;
                submitted += self.submit_next();
                ending = submitted >= requests_max;
            }
            let took = self.take_done(&mut slice, &mut failure);
            in_flight -= took;
            ending |= failure.is_some();
            if ending && in_flight == 0 {
                break;
            }
            since_clock += took;
            since_yield += took;
            if took == 0 {
                self.completion().await;
                since_clock = CLOCK_EVERY;
            } else if since_yield >= YIELD_EVERY {
                since_yield = 0;
                self.shard.yield_now().await;
            }
            if since_clock >= CLOCK_EVERY {
                since_clock = 0;
                ending |= self.shard.now() >= deadline;
            }
        }
        slice.seconds = clock.seconds();
        slice.latency = self.own.borrow_mut().latency.take();
        failure.map_or(Ok(slice), Err)
    }

    /// Submits one request; 1 when it carries data.
    fn submit_next(self: &Rc<Generator>) -> u64 {
        let (device, request, slot, data) = {
            let own = &mut *self.own.borrow_mut();
            // As many slots as the depth, and the caller counts.
            let slot = own.free.pop().unwrap_or_default();
            let index = own.next_device;
            own.next_device = if index + 1 == self.devices.len() { 0 } else { index + 1 };
            let flush = self.traffic.flush_every > 0 && own.since_flush >= self.traffic.flush_every;
            let request = if flush {
                own.since_flush = 0;
                Request::flush()
            } else {
                self.data_request(own, index)
            };
            let kind = if flush { Kind::Flush } else { Kind::Data };
            let submitted = if self.traffic.latency { self.shard.now() } else { 0 };
            if let Some(place) = own.slots.get_mut(slot as usize) {
                *place = InFlight { kind, submitted };
            }
            (self.devices.get(index), request, slot, u64::from(!flush))
        };
        let sink = Rc::clone(self) as Rc<dyn Sink>;
        let done = Completion::new(sink, u64::from(slot));
        // Dropped, the completion says that the device is gone.
        if let Some(device) = device {
            device.submit(request, done);
        }
        data
    }

    fn data_request(&self, own: &mut Own, index: usize) -> Request {
        let offset = match own.regions.get_mut(index) {
            Some(region) if self.traffic.random => region.random(&mut own.random),
            Some(region) => region.sequential(),
            None => 0,
        };
        let reads = match self.traffic.reads {
            0 => false,
            100.. => true,
            percent => own.random.below(100) < u64::from(percent),
        };
        if reads {
            return Request::read(offset, own.payload.next_read());
        }
        own.since_flush += 1;
        Request::write(offset, own.payload.next_written(), self.traffic.fua)
    }

    /// Takes note of what has completed and gives how many that were.
    fn take_done(&self, slice: &mut Slice, failure: &mut Option<IoError>) -> u32 {
        let own = &mut *self.own.borrow_mut();
        if self.done.borrow().is_empty() {
            return 0;
        }
        let mut done = self.done.replace(std::mem::take(&mut own.spare));
        let count = done.len() as u32;
        let now = if own.latency.is_some() { self.shard.now() } else { 0 };
        for Done { slot, read, error } in done.drain(..) {
            own.free.push(slot);
            if let Some(buf) = read {
                own.payload.keep(buf);
            }
            if let Some(error) = error {
                failure.get_or_insert(error);
            }
            let Some(in_flight) = own.slots.get(slot as usize) else { continue };
            if let Kind::Data = in_flight.kind {
                slice.requests += 1;
                slice.bytes += self.traffic.block;
                if let Some(latency) = &mut own.latency {
                    latency.saturating_record(now.saturating_sub(in_flight.submitted));
                }
            }
        }
        own.spare = done;
        count
    }

    async fn completion(&self) {
        poll_fn(|_| {
            if !self.done.borrow().is_empty() {
                return Poll::Ready(());
            }
            self.waiter.set(self.shard.current_task());
            Poll::Pending
        })
        .await;
    }
}

impl Sink for Generator {
    fn complete(&self, token: u64, outcome: Outcome) {
        let read = match outcome.op {
            Op::Read(mut bufs) => bufs.pop(),
            _ => None,
        };
        let done = Done { slot: token as u32, read, error: outcome.result.err() };
        self.done.borrow_mut().push(done);
        self.shard.wake(self.waiter.replace(TaskId::NONE));
    }
}

/// Seconds by the wall, or of this thread's processor time.
pub struct Stopwatch {
    shard: Shard,
    processor: bool,
    start: Nanos,
}

impl Stopwatch {
    /// Starts one: of this thread's processor time, or of the shard's clock.
    pub fn start(shard: &Shard, processor: bool) -> Stopwatch {
        let start = if processor { processor_nanos() } else { shard.now() };
        Stopwatch { shard: shard.clone(), processor, start }
    }

    /// Seconds since it was started.
    pub fn seconds(&self) -> f64 {
        let now = if self.processor { processor_nanos() } else { self.shard.now() };
        now.saturating_sub(self.start) as f64 / 1e9
    }
}

fn processor_nanos() -> Nanos {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    // A thread's processor time is never negative, its nanoseconds are below 10^9.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::DeviceInfo;
    use braid_device::IoErrorKind;
    use braid_device::ram::Ram;
    use braid_device::trace::Trace;

    fn traffic(reads: u8) -> Traffic {
        Traffic {
            block: 4096,
            depth: 8,
            reads,
            random: true,
            fua: false,
            flush_every: 0,
            seed: 3,
            payload: 1 << 16,
            latency: false,
            processor_time: false,
        }
    }

    fn run(shard: &Shard, device: Rc<dyn Device>, traffic: Traffic) -> Result<Slice, IoError> {
        let region = Region::share(0..device.info().size, traffic.block, 0, 1).unwrap();
        let generator = Generator::new(shard, vec![(device, region)], traffic);
        shard.block_on(generator.slice(Until::Requests(1000)))
    }

    #[test]
    fn every_request_that_was_asked_for_is_made_and_counted() {
        let shard = Shard::with_ring(0).unwrap();
        for reads in [0, 30, 100] {
            let trace = Trace::new(Ram::new("ram", 1 << 20).device());
            let slice = run(&shard, Rc::clone(&trace) as Rc<dyn Device>, traffic(reads)).unwrap();
            let counts = trace.counts();
            assert_eq!(counts.reads.requests + counts.writes.requests, 1000);
            assert_eq!((slice.requests, slice.bytes), (1000, 1000 * 4096));
            let share = counts.reads.requests as i64 / 10 - i64::from(reads);
            assert!(share.abs() <= 6, "{share}");
        }
    }

    #[test]
    fn flushes_come_between_writes_and_do_not_count() {
        let shard = Shard::with_ring(0).unwrap();
        let trace = Trace::new(Ram::new("ram", 1 << 20).device());
        let traffic = Traffic { flush_every: 10, fua: true, latency: true, ..traffic(0) };
        let slice = run(&shard, Rc::clone(&trace) as Rc<dyn Device>, traffic).unwrap();
        let counts = trace.counts();
        assert_eq!((counts.writes.requests, counts.forced.requests), (1000, 1000));
        assert_eq!((slice.requests, counts.flushes), (1000, 99));
        assert_eq!(slice.latency.unwrap().len(), 1000);
    }

    /// Completes nothing until it has eight requests, then all, last first.
    struct Late {
        info: DeviceInfo,
        shard: Shard,
        held: Rc<RefCell<Vec<(Request, Completion)>>>,
    }

    impl Device for Late {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }

        fn submit(&self, request: Request, done: Completion) {
            self.held.borrow_mut().push((request, done));
            if self.held.borrow().len() == 8 {
                let (held, shard) = (Rc::clone(&self.held), self.shard.clone());
                self.shard.spawn(async move {
                    shard.yield_now().await;
                    let mut batch = std::mem::take(&mut *held.borrow_mut());
                    while let Some((request, done)) = batch.pop() {
                        done.finish(Ok(()), request.op);
                    }
                });
            }
        }
    }

    #[test]
    fn the_depth_is_kept_on_a_device_that_completes_later() {
        let shard = Shard::with_ring(0).unwrap();
        let info = DeviceInfo::plain("late", 1 << 20);
        let late = Late { info, shard: shard.clone(), held: Rc::default() };
        // Ends only if eight are in flight whenever there are eight left: 1000 is a multiple.
        let slice = run(&shard, Rc::new(late), traffic(50)).unwrap();
        assert_eq!(slice.requests, 1000);
    }

    struct Broken(DeviceInfo);

    impl Device for Broken {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }

        fn submit(&self, request: Request, done: Completion) {
            done.finish(Err(IoError::new(IoErrorKind::Medium)), request.op);
        }
    }

    #[test]
    fn a_failed_request_ends_the_slice_with_its_error() {
        let shard = Shard::with_ring(0).unwrap();
        let device = Rc::new(Broken(DeviceInfo::plain("broken", 1 << 20)));
        let error = run(&shard, device, traffic(100)).unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Medium);
    }
}
