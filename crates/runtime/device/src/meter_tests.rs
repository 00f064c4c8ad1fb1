//! A meter before a device that takes as long as it is told, by a clock that jumps.

use super::{LONGEST, Metered, Watch};
use crate::completion::Completion;
use crate::counts::Direction;
use crate::device::Device;
use crate::error::IoErrorKind;
use crate::info::DeviceInfo;
use crate::ram::Ram;
use crate::request::{Op, Request};
use crate::testing::{Seen, VirtualClock, fill};
use crate::watch::Overdue;
use braid_shard::{Nanos, Shard};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

const MS: Nanos = 1_000_000;

/// Keeps requests until it is told to end the oldest.
struct Slow {
    info: DeviceInfo,
    waiting: RefCell<VecDeque<(Request, Completion)>>,
}

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        self.waiting.borrow_mut().push_back((request, done));
    }
}

struct Bench {
    shard: Shard,
    slow: Rc<Slow>,
    meter: Rc<Metered>,
    seen: Rc<Seen>,
}

impl Bench {
    fn new() -> Bench {
        let shard = Shard::with_reactor(0, Rc::new(VirtualClock::at(1_000 * MS)));
        let info = DeviceInfo { wants_plug: true, ..DeviceInfo::plain("slow", 1 << 30) };
        let slow = Rc::new(Slow { info, waiting: RefCell::default() });
        let meter = Metered::new(&shard, Rc::clone(&slow) as Rc<dyn Device>);
        Bench { shard, slow, meter, seen: Rc::new(Seen::default()) }
    }

    fn submit(&self, request: Request) {
        self.seen.submit(&*self.meter, 0, request);
    }

    fn read(&self, len: usize) {
        self.submit(Request::read(0, self.shard.pool().get(len)));
    }

    fn end_oldest(&self) {
        let (request, done) = self.slow.waiting.borrow_mut().pop_front().unwrap();
        done.finish(Ok(()), request.op);
    }

    fn pass(&self, time: Nanos) {
        let shard = self.shard.clone();
        self.shard.block_on(async move { shard.sleep(time).await });
    }
}

#[test]
fn times_are_those_that_a_hand_would_compute() {
    let bench = Bench::new();
    // Two reads: 0 to 3 ms and 1 to 5 ms; nothing until 10 ms; a write from 10 to 12 ms.
    bench.read(4096);
    bench.pass(MS);
    bench.read(8192);
    assert_eq!(bench.meter.figures().in_flight, 2);
    bench.pass(2 * MS);
    assert_eq!(bench.meter.figures().busy, 3 * MS, "what is under way counts until now");
    bench.end_oldest();
    bench.pass(2 * MS);
    bench.end_oldest();
    bench.pass(5 * MS);
    bench.submit(fill(&bench.shard, 0, 4096, 1));
    bench.pass(2 * MS);
    bench.end_oldest();
    let figures = bench.meter.figures();
    assert_eq!((figures.busy, figures.in_flight, figures.age), (7 * MS, 0, 12 * MS));
    let reads = figures.latency(Direction::Read);
    assert_eq!((reads.requests(), reads.total, reads.max), (2, 7 * MS, 4 * MS));
    let writes = figures.latency(Direction::Write);
    assert_eq!((writes.requests(), writes.total), (1, 2 * MS));
    // Over 12 ms: 9 ms under way make a mean queue depth of 0.75.
    let total: Nanos = figures.latency.iter().map(|latency| latency.total).sum();
    assert_eq!(total as f64 / (12 * MS) as f64, 0.75);
    let reads = figures.counts.of(Direction::Read);
    assert_eq!((reads.requests, reads.bytes, reads.sizes[3], reads.sizes[4]), (2, 12288, 1, 1));
    assert_eq!(bench.seen.0.borrow().len(), 3);
}

#[test]
fn quantiles_are_right_to_two_digits_and_never_above_the_longest() {
    let bench = Bench::new();
    for nr in 1..=1000 {
        bench.read(512);
        bench.pass(nr * 10_000);
        bench.end_oldest();
    }
    let figures = bench.meter.figures();
    let reads = figures.latency(Direction::Read);
    for (share, micros) in [(0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0), (0.999, 9_990.0)] {
        let found = reads.quantile(share) as f64 / 1000.0;
        assert!((found / micros - 1.0).abs() < 0.01, "{share}: {found} µs, not {micros}");
    }
    assert_eq!(reads.quantile(1.0), 10 * MS);
    assert_eq!(figures.latency(Direction::Flush).quantile(0.5), 0);
}

#[test]
fn what_is_beyond_the_range_counts_as_its_end() {
    let bench = Bench::new();
    bench.read(512);
    bench.end_oldest();
    bench.read(512);
    bench.pass(3 * LONGEST);
    bench.end_oldest();
    let figures = bench.meter.figures();
    let reads = figures.latency(Direction::Read);
    assert_eq!((reads.requests(), reads.max, reads.total), (2, 3 * LONGEST, 3 * LONGEST));
    assert!(reads.quantile(0.99) >= LONGEST && reads.quantile(0.5) < 1000);
}

#[test]
fn what_a_device_lets_go_of_has_ended_too() {
    let bench = Bench::new();
    bench.submit(Request::flush());
    bench.submit(Request { offset: 0, op: Op::WriteZeroes { len: 4096, unmap: true, fua: false } });
    bench.slow.waiting.borrow_mut().clear();
    let figures = bench.meter.figures();
    assert_eq!(figures.in_flight, 0);
    assert_eq!(figures.latency(Direction::Flush).requests(), 1);
    assert_eq!(figures.latency(Direction::Discard).requests(), 1);
    assert_eq!(figures.counts.of(Direction::Discard).bytes, 4096);
    let gone = Some(IoErrorKind::Gone);
    assert_eq!(bench.seen.results(), [(0, gone), (0, gone)]);
}

#[test]
fn figures_of_shards_add_up() {
    let bench = Bench::new();
    bench.read(512);
    bench.pass(MS);
    bench.end_oldest();
    let one = bench.meter.figures();
    let mut sum = super::Figures::default();
    sum.join(&one);
    sum.join(&one);
    assert_eq!((sum.busy, sum.counts.reads.requests), (2 * MS, 2));
    let reads = sum.latency(Direction::Read);
    assert_eq!((reads.requests(), reads.total, reads.max), (2, 2 * MS, MS));
}

#[test]
fn a_device_in_memory_is_counted_and_not_timed() {
    let shard = crate::testing::shard();
    let meter = Metered::new(&shard, Ram::new("ram", 1 << 20).device());
    let seen = Rc::new(Seen::default());
    seen.submit(&*meter, 0, fill(&shard, 0, 4096, 1));
    let figures = meter.figures();
    assert_eq!(figures.counts.writes.requests, 1);
    assert_eq!(figures.latency(Direction::Write).requests(), 0);
}

#[test]
fn a_device_that_is_given_up_answers_at_once_and_keeps_what_it_has() {
    let bench = Bench::new();
    bench.read(8192);
    bench.submit(fill(&bench.shard, 0, 4096, 1));
    bench.meter.give_up();
    let gone = (0, Some(IoErrorKind::Gone));
    assert_eq!(bench.seen.results(), [gone, gone]);
    // The reader got a buffer of the same length, which is not the device's.
    {
        let seen = bench.seen.0.borrow();
        let Op::Read(bufs) = &seen[0].1.op else { panic!("no read") };
        let waiting = bench.slow.waiting.borrow();
        let Op::Read(kept) = &waiting[0].0.op else { panic!("no read") };
        assert_eq!(bufs[0].len(), 8192);
        assert_ne!(bufs[0].as_ptr(), kept[0].as_ptr());
    }
    bench.read(4096);
    assert_eq!(bench.seen.results(), [gone, gone, gone]);
    assert_eq!(bench.meter.figures().in_flight, 0);
    let watch = bench.shard.local::<Watch>();
    assert_eq!((bench.meter.owed(), watch.owed("slow"), watch.owed("other")), (2, 2, 0));
    bench.end_oldest();
    bench.end_oldest();
    assert_eq!((bench.meter.owed(), watch.owed("slow")), (0, 0));
    assert_eq!(bench.seen.results().len(), 3);
}

#[test]
fn a_device_that_was_given_up_is_closed_when_it_has_ended_what_it_had() {
    let Bench { shard, slow, meter, seen } = Bench::new();
    seen.submit(&*meter, 0, fill(&shard, 0, 4096, 1));
    meter.give_up();
    drop(meter);
    shard.block_on(shard.yield_now());
    assert_eq!(Rc::strong_count(&slow), 2, "it may still write what it has");
    let (request, done) = slow.waiting.borrow_mut().pop_front().unwrap();
    done.finish(Ok(()), request.op);
    shard.block_on(shard.yield_now());
    assert_eq!(Rc::strong_count(&slow), 1);
}

#[test]
fn whoever_wants_to_know_is_told_of_what_is_overdue() {
    let bench = Bench::new();
    let told: Rc<RefCell<Vec<Nanos>>> = Rc::default();
    let tell = Rc::clone(&told);
    let tell = Box::new(move |waiting| tell.borrow_mut().push(waiting / (1_000 * MS)));
    bench.meter.when_overdue(Some(Overdue { limit: 3_000 * MS, tell }));
    bench.read(4096);
    let sleep = |seconds: u64| {
        let shard = bench.shard.clone();
        bench.shard.block_on(async move { shard.sleep(seconds * 1_000 * MS).await });
    };
    sleep(5);
    assert_eq!(*told.borrow(), [3, 4, 5]);
    bench.end_oldest();
    sleep(60);
    assert_eq!(*told.borrow(), [3, 4, 5]);
    assert_eq!(bench.shard.live_tasks(), 0, "nothing is under way, and the shard is kept awake");
}
