use super::*;
use crate::ram::Ram;
use crate::testing::{Log, Seen, ask, bytes, fill as filled, shard};
use std::collections::VecDeque;

const SIZE: u64 = 4 << 20;

/// A device whose blocks hold their own numbers, as bytes, with its log.
fn numbered(shard: &Shard) -> (Rc<Log>, Rc<dyn Device>) {
    let ram = Ram::new("r", SIZE);
    for block in 0..SIZE / 4096 {
        ram.memory().write((block * 4096) as usize, &[(block % 251) as u8; 4096]);
    }
    let log = Log::new(ram.device());
    let ahead: Rc<dyn Device> = ReadAhead::new(shard, Rc::clone(&log) as Rc<dyn Device>);
    (log, ahead)
}

fn read(shard: &Shard, device: &Rc<dyn Device>, block: u64, blocks: u64) -> Vec<u8> {
    let buf = shard.pool().get((blocks * 4096) as usize);
    bytes(ask(shard, device, Request::read(block * 4096, buf)))
}

fn expected(block: u64, blocks: u64) -> Vec<u8> {
    (block..block + blocks).flat_map(|block| vec![(block % 251) as u8; 4096]).collect()
}

#[test]
fn small_reads_that_follow_each_other_are_answered_by_few() {
    let shard = shard();
    let (log, ahead) = numbered(&shard);
    let mut at = 0;
    for round in 0..200 {
        let blocks = 1 + round % 3;
        assert_eq!(read(&shard, &ahead, at, blocks), expected(at, blocks));
        // Some blocks are left out in between.
        at += blocks + round % 2;
    }
    let reads = log.seen.borrow().len();
    assert!(reads < 20, "{reads} reads of the device for 200");
    let is_right = log.seen.borrow().iter().all(|(_, from, len)| from + len <= SIZE);
    assert!(is_right, "nothing is read beyond the end");
}

#[test]
fn reads_here_and_there_and_long_ones_go_through_as_they_are() {
    let shard = shard();
    let (log, ahead) = numbered(&shard);
    for block in [700, 20, 400, 900, 100, 600] {
        assert_eq!(read(&shard, &ahead, block, 1), expected(block, 1));
    }
    assert_eq!(read(&shard, &ahead, 0, 32), expected(0, 32));
    assert_eq!(read(&shard, &ahead, 32, 32), expected(32, 32));
    let lens: Vec<u64> = log.seen.borrow().iter().map(|(_, _, len)| *len).collect();
    assert_eq!(lens, [vec![4096; 6], vec![32 * 4096; 2]].concat());
}

#[test]
fn two_readers_are_told_apart() {
    let shard = shard();
    let (log, ahead) = numbered(&shard);
    for block in 0..100 {
        assert_eq!(read(&shard, &ahead, block, 1), expected(block, 1));
        assert_eq!(read(&shard, &ahead, 500 + block, 1), expected(500 + block, 1));
    }
    assert!(log.seen.borrow().len() < 20);
}

#[test]
fn what_is_written_is_not_answered_from_before() {
    let shard = shard();
    let (_, ahead) = numbered(&shard);
    assert_eq!(read(&shard, &ahead, 0, 1), expected(0, 1));
    assert_eq!(read(&shard, &ahead, 1, 1), expected(1, 1), "reads more");
    assert!(ask(&shard, &ahead, filled(&shard, 3 * 4096, 4096, 7)).result.is_ok());
    assert_eq!(read(&shard, &ahead, 3, 1), vec![7; 4096]);
    let zero = Op::WriteZeroes { len: 4096, unmap: false, fua: false };
    assert!(ask(&shard, &ahead, Request { offset: 4 * 4096, op: zero }).result.is_ok());
    assert_eq!(read(&shard, &ahead, 4, 1), vec![0; 4096]);
}

#[test]
fn a_bad_block_ahead_fails_only_who_asks_for_it() {
    let shard = shard();
    let (log, ahead) = numbered(&shard);
    log.bad.set(Some(4 * 4096));
    for block in 0..4 {
        assert_eq!(read(&shard, &ahead, block, 1), expected(block, 1));
    }
    let buf = shard.pool().get(4096);
    assert!(ask(&shard, &ahead, Request::read(4 * 4096, buf)).result.is_err());
    assert_eq!(read(&shard, &ahead, 5, 1), expected(5, 1));
}

/// Keeps requests until they are let go, one by one.
struct Held {
    below: Rc<dyn Device>,
    held: RefCell<VecDeque<(Request, Completion)>>,
}

impl Device for Held {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        self.held.borrow_mut().push_back((request, done));
    }
}

impl Held {
    /// Carries out the first or the last that is held.
    fn let_go(&self, last: bool) {
        let mut held = self.held.borrow_mut();
        let (request, done) = if last { held.pop_back() } else { held.pop_front() }.unwrap();
        drop(held);
        self.below.submit(request, done);
    }
}

#[test]
fn a_read_ahead_beside_a_write_is_not_kept() {
    for read_first in [true, false] {
        let shard = shard();
        let below = Ram::new("r", SIZE).device();
        let held = Rc::new(Held { below, held: RefCell::default() });
        let ahead: Rc<dyn Device> = ReadAhead::new(&shard, Rc::clone(&held) as Rc<dyn Device>);
        let seen = Rc::new(Seen::default());
        let read = |token, block: u64| {
            let request = Request::read(block * 4096, shard.pool().get(4096));
            seen.submit(&*ahead, token, request);
            while shard.turn().progressed {}
        };
        read(0, 0);
        held.let_go(false);
        // The write and the read ahead over its place are on their way together.
        seen.submit(&*ahead, 1, filled(&shard, 3 * 4096, 4096, 9));
        read(2, 1);
        assert_eq!(held.held.borrow().len(), 2);
        held.let_go(read_first);
        while shard.turn().progressed {}
        held.let_go(false);
        while shard.turn().progressed {}
        read(3, 3);
        if !held.held.borrow().is_empty() {
            held.let_go(false);
        }
        while shard.turn().progressed {}
        let mut all = seen.0.borrow_mut();
        let at = all.iter().position(|(token, _)| *token == 3).unwrap();
        assert_eq!(bytes(all.remove(at).1), vec![9; 4096], "read first: {read_first}");
    }
}
