//! The requests that a plug sends down, seen by a log below it.

use super::{MERGED_MAX, Plug, PlugStats};
use crate::completion::Completion;
use crate::device::Device;
use crate::error::IoErrorKind;
use crate::info::DeviceInfo;
use crate::meter::Metered;
use crate::ram::Ram;
use crate::request::{Op, Request};
use crate::testing::{Log, Seen, bytes, fill, shard};
use braid_shard::Shard;
use std::cell::RefCell;
use std::rc::Rc;

const BLOCK: u64 = 4096;

fn plugged() -> (Shard, Rc<Log>, Rc<Plug>, Rc<Seen>) {
    let shard = shard();
    let log = Log::new(Ram::new("ram", 16 << 20).device());
    let plug = Plug::new(&shard, Rc::clone(&log) as Rc<dyn Device>);
    (shard, log, plug, Rc::new(Seen::default()))
}

fn read(shard: &Shard, block: u64) -> Request {
    Request::read(block * BLOCK, shard.pool().get(BLOCK as usize))
}

fn write(shard: &Shard, block: u64) -> Request {
    fill(shard, block * BLOCK, BLOCK as usize, block as u8)
}

#[test]
fn neighbours_in_any_order_become_one_request_and_each_gets_its_own_outcome() {
    let (shard, log, plug, seen) = plugged();
    for block in [3, 1, 0, 2, 7] {
        seen.submit(&*plug, block, write(&shard, block));
    }
    assert!(log.seen.borrow().is_empty(), "nothing goes down before the shard is idle");
    shard.turn();
    assert_eq!(*log.seen.borrow(), [("write", 0, 4 * BLOCK), ("write", 7 * BLOCK, BLOCK)]);
    assert_eq!(seen.results(), [0, 1, 2, 3, 7].map(|block| (block, None)));
    let expected = PlugStats { requests_in: 5, requests_out: 2, bytes: 5 * BLOCK };
    assert_eq!(plug.stats(), expected);

    seen.0.borrow_mut().clear();
    for block in [2, 7, 1] {
        seen.submit(&*plug, block, read(&shard, block));
    }
    shard.turn();
    assert_eq!(seen.0.borrow().len(), 3);
    for (block, outcome) in seen.0.take() {
        assert_eq!(bytes(outcome), [block as u8; BLOCK as usize]);
    }
}

#[test]
fn only_what_follows_in_kind_and_place_is_merged() {
    let (shard, log, plug, seen) = plugged();
    let buf = shard.pool().zeroed(BLOCK as usize).freeze();
    seen.submit(&*plug, 0, write(&shard, 0));
    seen.submit(&*plug, 1, Request::write(BLOCK, buf, true));
    seen.submit(&*plug, 2, read(&shard, 2));
    seen.submit(&*plug, 3, write(&shard, 3));
    seen.submit(&*plug, 4, write(&shard, 3));
    for (token, block) in [(5, 4), (6, 5)] {
        let op = Op::Discard { len: BLOCK };
        seen.submit(&*plug, token, Request { offset: block * BLOCK, op });
    }
    shard.turn();
    let expected = [
        ("read", 2 * BLOCK, BLOCK),
        ("write", 0, BLOCK),
        ("write", 3 * BLOCK, BLOCK),
        ("write", 3 * BLOCK, BLOCK),
        ("write fua", BLOCK, BLOCK),
        ("discard", 4 * BLOCK, BLOCK),
        ("discard", 5 * BLOCK, BLOCK),
    ];
    assert_eq!(*log.seen.borrow(), expected);
    assert_eq!(seen.results().len(), 7);
}

#[test]
fn a_merged_request_stays_within_its_bounds() {
    let (shard, log, plug, seen) = plugged();
    // By bytes: 6 MiB in pieces of 1 MiB.
    for piece in 0..6u64 {
        seen.submit(&*plug, piece, fill(&shard, piece << 20, 1 << 20, 1));
    }
    shard.turn();
    assert_eq!(*log.seen.borrow(), [("write", 0, MERGED_MAX), ("write", MERGED_MAX, 2 << 20)]);
    // By buffers: 600 of one block.
    log.seen.borrow_mut().clear();
    for block in 0..600 {
        seen.submit(&*plug, block, read(&shard, block));
    }
    shard.turn();
    let segments = braid_shard::ring::SEGMENTS_MAX as u64;
    let rest = 600 - segments;
    let expected = [("read", 0, segments * BLOCK), ("read", segments * BLOCK, rest * BLOCK)];
    assert_eq!(*log.seen.borrow(), expected);
}

#[test]
fn a_flush_goes_down_after_what_was_collected_before_it() {
    let (shard, log, plug, seen) = plugged();
    seen.submit(&*plug, 0, write(&shard, 0));
    seen.submit(&*plug, 1, Request::flush());
    assert_eq!(*log.seen.borrow(), [("write", 0, BLOCK), ("flush", 0, 0)]);
}

#[test]
fn a_bad_block_fails_only_those_who_asked_for_it() {
    let (shard, log, plug, seen) = plugged();
    for block in 0..8 {
        seen.submit(&*plug, block, write(&shard, block));
    }
    shard.turn();
    seen.0.borrow_mut().clear();
    log.seen.borrow_mut().clear();
    log.bad.set(Some(5 * BLOCK + 512));
    for block in 4..8 {
        seen.submit(&*plug, block, read(&shard, block));
    }
    while shard.turn().progressed {}
    assert_eq!(log.seen.borrow()[0], ("read", 4 * BLOCK, 4 * BLOCK));
    assert_eq!(log.seen.borrow().len(), 5);
    let medium = Some(IoErrorKind::Medium);
    assert_eq!(seen.results(), [(4, None), (5, medium), (6, None), (7, None)]);
    for (block, outcome) in seen.0.take().into_iter().filter(|(block, _)| *block != 5) {
        assert_eq!(bytes(outcome), [block as u8; BLOCK as usize]);
    }
}

#[test]
fn tasks_that_always_have_more_to_do_do_not_hold_requests_back() {
    let (shard, _, plug, seen) = plugged();
    seen.submit(&*plug, 0, write(&shard, 0));
    let (busy, watched) = (shard.clone(), Rc::clone(&seen));
    // Never lets the run queue become empty until the write is done.
    shard.block_on(async move {
        while watched.0.borrow().is_empty() {
            busy.yield_now().await;
        }
    });
    assert_eq!(seen.results(), [(0, None)]);
}

#[test]
fn a_dropped_plug_ends_what_it_holds_and_leaves_the_shard() {
    let (shard, log, plug, seen) = plugged();
    seen.submit(&*plug, 9, write(&shard, 0));
    drop(plug);
    assert_eq!(seen.results(), [(9, Some(IoErrorKind::Gone))]);
    shard.turn();
    assert!(log.seen.borrow().is_empty());
}

/// A plug over a metered device that keeps what it gets.
fn sharing(rotational: bool) -> (Shard, Rc<Keeper>, Rc<Plug>, Rc<Seen>) {
    let shard = shard();
    let info = DeviceInfo { wants_plug: true, rotational, ..DeviceInfo::plain("slow", 1 << 30) };
    let keeper = Rc::new(Keeper { info, kept: RefCell::default() });
    let metered = Metered::new(&shard, Rc::clone(&keeper) as Rc<dyn Device>);
    (shard.clone(), keeper, Plug::metered(&shard, metered), Rc::new(Seen::default()))
}

/// Keeps requests for ever.
struct Keeper {
    info: DeviceInfo,
    kept: RefCell<Vec<(Request, Completion)>>,
}

impl Keeper {
    /// Sizes in KiB of what has come since the last question.
    fn sizes(&self, from: usize) -> Vec<u64> {
        self.kept.borrow().iter().skip(from).map(|(request, _)| request.len() >> 10).collect()
    }
}

impl Device for Keeper {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        self.kept.borrow_mut().push((request, done));
    }
}

/// Submits `count` reads of 64 KiB that lie together, and lets them go.
fn stream(shard: &Shard, plug: &Plug, seen: &Rc<Seen>, first: u64, count: u64) {
    for nr in first..first + count {
        seen.submit(plug, nr, Request::read(nr << 16, shard.pool().get(1 << 16)));
    }
    shard.turn();
}

#[test]
fn a_device_without_heads_that_has_nothing_to_do_gets_two_requests_and_a_busy_one_one() {
    let (shard, keeper, plug, seen) = sharing(false);
    stream(&shard, &plug, &seen, 0, 8);
    assert_eq!(keeper.sizes(0), [256, 256]);
    stream(&shard, &plug, &seen, 8, 8);
    assert_eq!(keeper.sizes(2), [512]);
}

#[test]
fn what_lies_together_is_not_shared_out_below_the_size_that_it_was_cut_from() {
    for (cut_from, sizes) in [(64, vec![256, 256]), (256, vec![256, 256]), (257, vec![512])] {
        let (shard, keeper, plug, seen) = sharing(false);
        plug.cut_from(cut_from << 10);
        stream(&shard, &plug, &seen, 0, 8);
        assert_eq!(keeper.sizes(0), sizes, "{cut_from}");
    }
    let (shard, keeper, plug, seen) = sharing(false);
    stream(&shard, &plug, &seen, 0, 3);
    assert_eq!(keeper.sizes(0), [128, 64], "never less than is worth a request of its own");
}

#[test]
fn a_disk_with_heads_gets_what_lies_together_as_one() {
    let (shard, keeper, plug, seen) = sharing(true);
    stream(&shard, &plug, &seen, 0, 8);
    assert_eq!(keeper.sizes(0), [512]);
}
