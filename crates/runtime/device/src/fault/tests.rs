//! Each fault, alone, over memory.

use super::{Action, Fault, Faults, OpKind, Rule};
use crate::device::Device;
use crate::error::IoErrorKind;
use crate::ram::Ram;
use crate::request::{Op, Request};
use crate::testing::{Log, Seen, ask, bytes, fill, shard};
use braid_shard::Shard;
use smallvec::smallvec;
use std::rc::Rc;

struct Set {
    shard: Shard,
    faults: Faults,
    fault: Rc<Fault>,
    device: Rc<dyn Device>,
    /// The same memory, without faults.
    below: Rc<dyn Device>,
    log: Rc<Log>,
}

fn set_with_seed(seed: u64) -> Set {
    let shard = shard();
    let below = Ram::new("ram", 1 << 20).device();
    let log = Log::new(Rc::clone(&below));
    let faults = Faults::new(seed);
    let fault = Fault::new(&shard, Rc::clone(&log) as Rc<dyn Device>, &faults);
    Set { device: Rc::clone(&fault) as _, shard, faults, fault, below, log }
}

fn set() -> Set {
    set_with_seed(1)
}

impl Set {
    fn read(&self, block: u64) -> Result<(), IoErrorKind> {
        let request = Request::read(block * 4096, self.shard.pool().get(4096));
        ask(&self.shard, &self.device, request).result.map_err(|error| error.kind)
    }

    fn write(&self, block: u64) -> Result<(), IoErrorKind> {
        let request = fill(&self.shard, block * 4096, 4096, 1);
        ask(&self.shard, &self.device, request).result.map_err(|error| error.kind)
    }
}

#[test]
fn errors_by_kind_and_range_leave_everything_else_alone() {
    let set = set();
    let rule = Rule::new(Action::Fail(IoErrorKind::Medium)).on(OpKind::Read).within(4096..8192);
    let id = set.faults.add(rule);
    assert_eq!(set.read(0), Ok(()));
    assert_eq!(set.read(1), Err(IoErrorKind::Medium));
    assert_eq!(set.read(2), Ok(()));
    assert_eq!(set.write(1), Ok(()));
    assert_eq!(ask(&set.shard, &set.device, Request::flush()).result, Ok(()));
    assert_eq!(set.faults.hits(), 1);
    set.faults.remove(id);
    assert_eq!(set.read(1), Ok(()));
}

#[test]
fn a_rule_can_wait_and_can_wear_off() {
    let set = set();
    set.faults.add(Rule::new(Action::Fail(IoErrorKind::NoSpace)).after(2).times(3));
    let results: Vec<bool> = (0..8).map(|block| set.write(block).is_ok()).collect();
    assert_eq!(results, [true, true, false, false, false, true, true, true]);
}

#[test]
fn probability_follows_the_seed() {
    let failures = |seed| {
        let set = set_with_seed(seed);
        let rule = Rule::new(Action::Fail(IoErrorKind::Medium)).with_probability(0.25);
        set.faults.add(rule);
        (0..200).map(|block| set.read(block).is_err()).collect::<Vec<bool>>()
    };
    let failed = failures(5).iter().filter(|failed| **failed).count();
    // Chosen by the seed, so this is no matter of luck: about a quarter of 200.
    assert!((30..70).contains(&failed), "{failed}");
    assert_eq!(failures(5), failures(5));
    assert_ne!(failures(5), failures(6));
}

#[test]
fn a_device_that_is_gone_answers_everything_with_that_until_it_is_back() {
    let set = set();
    set.faults.set_gone(true);
    assert_eq!(set.read(0), Err(IoErrorKind::Gone));
    assert_eq!(set.write(0), Err(IoErrorKind::Gone));
    assert!(set.log.seen.borrow().is_empty());
    set.faults.set_gone(false);
    assert_eq!(set.write(0), Ok(()));
}

#[test]
fn hanging_requests_go_on_when_released_and_fail_when_gone() {
    let set = set();
    set.faults.add(Rule::new(Action::Hang).times(2));
    let seen = Rc::new(Seen::default());
    seen.submit(&*set.device, 0, fill(&set.shard, 0, 4096, 1));
    while set.shard.turn().progressed {}
    assert_eq!((set.fault.hanging(), seen.results().len()), (1, 0));
    set.faults.release();
    while set.shard.turn().progressed {}
    assert_eq!((set.fault.hanging(), seen.results()), (0, vec![(0, None)]));

    seen.submit(&*set.device, 1, fill(&set.shard, 0, 4096, 1));
    set.faults.set_gone(true);
    while set.shard.turn().progressed {}
    assert_eq!(seen.results()[1], (1, Some(IoErrorKind::Gone)));
}

#[test]
fn a_delayed_request_reaches_the_device_later() {
    let set = set();
    set.faults.add(Rule::new(Action::Delay(5_000_000)).times(1));
    let start = set.shard.now();
    assert_eq!(set.write(3), Ok(()));
    assert_eq!(set.shard.now() - start, 5_000_000);
    assert_eq!(set.write(3), Ok(()));
    assert_eq!(set.shard.now() - start, 5_000_000);
}

#[test]
fn a_torn_write_leaves_its_first_blocks() {
    let set = set();
    set.faults.add(Rule::new(Action::Torn(9)));
    let whole = set.shard.pool().copy_of(&[7; 8192]).freeze();
    let bufs = smallvec![whole.slice(0..4096), whole.slice(4096..8192)];
    let outcome =
        ask(&set.shard, &set.device, Request { offset: 0, op: Op::Write { bufs, fua: true } });
    assert_eq!(outcome.result.unwrap_err().kind, IoErrorKind::Medium);
    let Op::Write { bufs, fua: true } = outcome.op else { panic!("not the write back") };
    assert_eq!(bufs.len(), 2);
    let found = bytes(ask(&set.shard, &set.below, Request::read(0, set.shard.pool().get(8192))));
    assert!(found[..9 * 512].iter().all(|byte| *byte == 7));
    assert!(found[9 * 512..].iter().all(|byte| *byte == 0));
    assert_eq!(set.read(0), Err(IoErrorKind::Medium));
}

#[test]
fn a_flipped_bit_is_one_bit_and_no_error() {
    for seed in 0..20 {
        let set = set_with_seed(seed);
        set.faults.add(Rule::new(Action::FlipBit));
        let pool = set.shard.pool();
        let bufs = smallvec![pool.zeroed(4096), pool.zeroed(512), pool.zeroed(4096)];
        let read = Request { offset: 0, op: Op::Read(bufs) };
        let found = bytes(ask(&set.shard, &set.device, read));
        assert_eq!(found.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1, "seed {seed}");
    }
}

#[test]
fn hanging_requests_are_released_from_another_thread() {
    let shard = Shard::with_ring(0).unwrap();
    let faults = Faults::new(0);
    let inner = Ram::new("ram", 1 << 20).device();
    let device: Rc<dyn Device> = Fault::new(&shard, inner, &faults);
    faults.add(Rule::new(Action::Hang));
    let (send, receive) = std::sync::mpsc::channel();
    let releaser = std::thread::spawn(move || {
        receive.recv().unwrap();
        faults.release();
    });
    let request = fill(&shard, 0, 4096, 1);
    let sets = crate::IoSets::new(&shard);
    let outcome = shard.block_on(async move {
        let mut set = sets.start();
        set.submit(0, &*device, request);
        assert_eq!(set.pending(), 1);
        send.send(()).unwrap();
        set.finish().await.collect::<Vec<_>>()
    });
    assert_eq!(outcome[0].1.result, Ok(()));
    releaser.join().unwrap();
}
