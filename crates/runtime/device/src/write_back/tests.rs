use super::kept::BLOCK;
use super::*;
use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::ram::Ram;
use crate::request::{Op, Request};
use crate::testing::{Log, Seen, ask, bytes, fill, shard};
use braid_shard::Shard;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

fn over_log(shard: &Shard) -> (Rc<Log>, Rc<WriteBack>) {
    let log = Log::new(Ram::new("r", 16 << 20).device());
    let back = WriteBack::new(shard, Rc::clone(&log) as Rc<dyn Device>);
    (log, back)
}

fn read(shard: &Shard, device: &Rc<WriteBack>, offset: u64, len: usize) -> Vec<u8> {
    let device = Rc::clone(device) as Rc<dyn Device>;
    bytes(ask(shard, &device, Request::read(offset, shard.pool().get(len))))
}

fn flush(shard: &Shard, device: &Rc<WriteBack>) -> Result<(), IoError> {
    ask(shard, &(Rc::clone(device) as Rc<dyn Device>), Request::flush()).result
}

#[test]
fn what_is_kept_is_read_and_reaches_the_device_with_its_neighbours_at_a_flush() {
    let shard = shard();
    let (log, back) = over_log(&shard);
    assert!(back.info().volatile_cache);
    for at in [2, 0, 1, 8, 3] {
        assert!(back.keep(&fill(&shard, at * BLOCK, 4096, at as u8 + 1)));
    }
    assert!(back.keep(&fill(&shard, BLOCK, 4096, 20)), "over one that is kept");
    assert!(log.seen.borrow().is_empty());
    assert_eq!(read(&shard, &back, BLOCK, 8192), [vec![20; 4096], vec![3; 4096]].concat());
    assert!(log.seen.borrow().is_empty(), "all of it was in memory");
    let part = read(&shard, &back, 2 * BLOCK + 512, 5 * 4096);
    assert_eq!((part[0], part[4096 - 512], part[2 * 4096 - 512]), (3, 4, 0));
    log.seen.borrow_mut().clear();
    flush(&shard, &back).unwrap();
    assert_eq!(*log.seen.borrow(), [("write", 0, 4 * BLOCK), ("write", 8 * BLOCK, BLOCK)]);
    assert_eq!(read(&shard, &back, BLOCK, 4096), vec![20; 4096]);
    flush(&shard, &back).unwrap();
    assert_eq!(log.seen.borrow().len(), 3, "once, and the last read");
}

#[test]
fn only_small_whole_writes_are_kept_and_only_so_many() {
    let shard = shard();
    let failing = Failing::new();
    failing.holds.set(true);
    let back = WriteBack::new(&shard, Rc::clone(&failing) as Rc<dyn Device>);
    assert!(!back.keep(&fill(&shard, 512, 4096, 1)), "not whole blocks");
    assert!(!back.keep(&fill(&shard, 0, 68 << 10, 1)), "long");
    assert!(!back.keep(&fill(&shard, 16 << 20, 4096, 1)), "beyond the end");
    assert!(!back.keep(&Request::flush()));
    let buf = shard.pool().zeroed(4096).freeze();
    assert!(!back.keep(&Request::write(0, buf, true)), "durable at once");
    let taken = (0..1000).take_while(|at| back.keep(&fill(&shard, at * 65536, 65536, 1))).count();
    assert_eq!(taken, 128, "8 MiB");
    failing.let_go();
    while shard.turn().progressed {}
    assert!(back.keep(&fill(&shard, 0, 65536, 1)), "what was enough for a batch was written out");
}

#[test]
fn other_requests_come_after_what_is_kept_of_their_range() {
    let shard = shard();
    let (log, back) = over_log(&shard);
    let device = Rc::clone(&back) as Rc<dyn Device>;
    back.keep(&fill(&shard, 0, 4096, 1));
    assert!(ask(&shard, &device, fill(&shard, 65536, 131_072, 2)).result.is_ok());
    assert_eq!(*log.seen.borrow(), [("write", 65536, 131_072)], "apart");
    assert!(ask(&shard, &device, fill(&shard, 0, 131_072, 3)).result.is_ok());
    assert_eq!(log.seen.borrow()[1..], [("write", 0, 4096), ("write", 0, 131_072)]);
    assert_eq!(read(&shard, &back, 0, 4096), vec![3; 4096]);
    back.keep(&fill(&shard, 0, 4096, 4));
    let zero = Op::WriteZeroes { len: 4096, unmap: false, fua: false };
    assert!(ask(&shard, &device, Request { offset: 0, op: zero }).result.is_ok());
    assert_eq!(read(&shard, &back, 0, 4096), vec![0; 4096]);
    flush(&shard, &back).unwrap();
    assert_eq!(read(&shard, &back, 0, 4096), vec![0; 4096]);
}

/// Fails writes that touch some blocks, with an error; holds others back when it is told to.
struct Failing {
    below: Rc<dyn Device>,
    bad: RefCell<BTreeSet<u64>>,
    kind: Cell<IoErrorKind>,
    holds: Cell<bool>,
    held: RefCell<Vec<(Request, Completion)>>,
}

impl Failing {
    fn new() -> Rc<Failing> {
        Rc::new(Failing {
            below: Ram::new("r", 16 << 20).device(),
            bad: RefCell::default(),
            kind: Cell::new(IoErrorKind::Medium),
            holds: Cell::new(false),
            held: RefCell::default(),
        })
    }

    fn let_go(&self) {
        self.holds.set(false);
        for (request, done) in self.held.take() {
            self.below.submit(request, done);
        }
    }
}

impl Device for Failing {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        let blocks = request.offset / BLOCK..(request.offset + request.len()) / BLOCK;
        let is_write = matches!(request.op, Op::Write { .. });
        if is_write && self.holds.get() {
            return self.held.borrow_mut().push((request, done));
        }
        match is_write && self.bad.borrow().range(blocks).next().is_some() {
            true => done.complete(Outcome::failed(IoError::new(self.kind.get()), request.op)),
            false => self.below.submit(request, done),
        }
    }
}

#[test]
fn a_block_that_is_not_taken_fails_every_flush_and_is_still_read() {
    let shard = shard();
    let failing = Failing::new();
    failing.bad.borrow_mut().insert(2);
    let back = WriteBack::new(&shard, Rc::clone(&failing) as Rc<dyn Device>);
    for at in 0..4 {
        back.keep(&fill(&shard, at * BLOCK, 4096, at as u8 + 1));
    }
    assert_eq!(flush(&shard, &back).unwrap_err().kind, IoErrorKind::Medium);
    assert_eq!(flush(&shard, &back).unwrap_err().kind, IoErrorKind::Medium, "never a success");
    assert_eq!(read(&shard, &back, 2 * BLOCK, 4096), vec![3; 4096]);
    assert!(!back.keep(&fill(&shard, 0, 4096, 9)), "nothing more is promised");
    let device = Rc::clone(&failing) as Rc<dyn Device>;
    let below = bytes(ask(&shard, &device, Request::read(0, shard.pool().get(4 * 4096))));
    let firsts: Vec<u8> = below.chunks(4096).map(|block| block[0]).collect();
    assert_eq!(firsts, [1, 2, 0, 4], "its neighbours are there");
}

#[test]
fn a_device_without_space_is_asked_again() {
    let shard = shard();
    let failing = Failing::new();
    failing.bad.borrow_mut().insert(0);
    failing.kind.set(IoErrorKind::NoSpace);
    let back = WriteBack::new(&shard, Rc::clone(&failing) as Rc<dyn Device>);
    back.keep(&fill(&shard, 0, 4096, 5));
    let own = Rc::clone(&failing);
    let clock = shard.clone();
    shard.spawn(async move {
        clock.sleep(20_000_000_000).await;
        own.bad.borrow_mut().clear();
    });
    flush(&shard, &back).unwrap();
    assert_eq!(read(&shard, &back, 0, 4096), vec![5; 4096]);
}

#[test]
fn what_comes_while_a_batch_leaves_is_newer() {
    let shard = shard();
    let failing = Failing::new();
    let back = WriteBack::new(&shard, Rc::clone(&failing) as Rc<dyn Device>);
    back.keep(&fill(&shard, 0, 4096, 1));
    failing.holds.set(true);
    let seen = Rc::new(Seen::default());
    seen.submit(&*back, 1, Request::flush());
    while shard.turn().progressed {}
    back.keep(&fill(&shard, 0, 4096, 2));
    assert_eq!(read(&shard, &back, 0, 4096), vec![2; 4096]);
    seen.submit(&*back, 2, Request::flush());
    while shard.turn().progressed {}
    assert!(seen.results().is_empty(), "neither is durable yet");
    assert_eq!(failing.held.borrow().len(), 1, "one after the other");
    failing.let_go();
    while shard.turn().progressed {}
    assert_eq!(seen.results(), [(1, None), (2, None)]);
    let device = Rc::clone(&failing) as Rc<dyn Device>;
    assert_eq!(
        bytes(ask(&shard, &device, Request::read(0, shard.pool().get(4096)))),
        vec![2; 4096]
    );
}

#[test]
fn a_device_whose_filter_is_let_go_is_not_held_any_longer() {
    let shard = shard();
    let (log, back) = over_log(&shard);
    back.keep(&fill(&shard, 0, 4096, 1));
    flush(&shard, &back).unwrap();
    drop(back);
    while shard.turn().progressed {}
    assert_eq!(Rc::strong_count(&log), 1);
}
