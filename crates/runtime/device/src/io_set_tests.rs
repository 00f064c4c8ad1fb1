//! Sets over devices that answer at once, later, or never.

use super::IoSets;
use crate::device::Device;
use crate::error::IoErrorKind;
use crate::info::DeviceInfo;
use crate::model::{Model, ModelSpec};
use crate::ram::Ram;
use crate::request::Request;
use crate::target::Opener;
use crate::testing::{bytes, fill, shard};
use crate::{Completion, IoError};
use std::cell::Cell;
use std::rc::Rc;

fn slow(shard: &braid_shard::Shard) -> Rc<dyn Device> {
    let spec = ModelSpec::parse("1M,read-latency=90us,write-latency=20us").unwrap();
    Model::new(&spec).unwrap().open(shard).unwrap()
}

#[test]
fn outcomes_carry_their_tags_and_come_in_the_order_of_completion() {
    let shard = shard();
    let (device, ram, sets) =
        (slow(&shard), Ram::new("ram", 1 << 20).device(), IoSets::new(&shard));
    let (read, write) = (Request::read(0, shard.pool().get(4096)), fill(&shard, 8192, 4096, 2));
    let fast = fill(&shard, 0, 4096, 3);
    let tags = shard.block_on(async move {
        let mut set = sets.start();
        set.submit(1, &*device, read);
        set.submit(2, &*device, write);
        set.submit(3, &*ram, fast);
        assert_eq!(set.pending(), 2);
        let outcomes = set.finish().await;
        outcomes.map(|(tag, outcome)| (tag, outcome.result.is_ok())).collect::<Vec<_>>()
    });
    assert_eq!(tags, [(3, true), (2, true), (1, true)]);
}

#[test]
fn outcomes_are_given_one_by_one_as_they_come() {
    let shard = shard();
    let (device, sets) = (slow(&shard), IoSets::new(&shard));
    let (read, write) = (Request::read(0, shard.pool().get(4096)), fill(&shard, 8192, 4096, 2));
    shard.block_on(async move {
        let mut set = sets.start();
        set.submit(1, &*device, read);
        set.submit(2, &*device, write);
        assert_eq!(set.next().await.map(|(tag, _)| tag), Some(2));
        assert_eq!(set.pending(), 1);
        assert_eq!(set.next().await.map(|(tag, _)| tag), Some(1));
        assert!(set.next().await.is_none());
        assert_eq!(set.finish().await.count(), 0);
    });
}

#[test]
fn outcomes_tell_where_they_were_also_when_a_set_is_used_again() {
    let shard = shard();
    let (device, sets) = (slow(&shard), IoSets::new(&shard));
    for base in [0, 65536] {
        let (device, sets) = (Rc::clone(&device), sets.clone());
        let first = Request::read(base, shard.pool().get(4096));
        let second = Request::read(base + 8192, shard.pool().get(512));
        let found = shard.block_on(async move {
            let mut set = sets.start();
            set.submit(7, &*device, first);
            set.submit(7, &*device, second);
            let mut outcomes = set.finish().await;
            let mut found = Vec::new();
            while let Some((tag, bytes, _)) = outcomes.next_placed() {
                found.push((tag, bytes));
            }
            found.sort_by_key(|(_, bytes)| bytes.start);
            found
        });
        assert_eq!(found, [(7, base..base + 4096), (7, base + 8192..base + 8704)]);
    }
}

#[test]
fn a_spurious_wake_up_does_not_end_the_wait() {
    let shard = shard();
    let (device, sets) = (slow(&shard), IoSets::new(&shard));
    let (request, waker) = (Request::read(0, shard.pool().get(4096)), shard.clone());
    let start = shard.now();
    shard.block_on(async move {
        // Wakes this task before anything has completed.
        waker.wake_at(waker.now() + 5_000, waker.current_task());
        sets.one(&*device, request).await.result.unwrap();
    });
    assert!(shard.now() - start >= 90_000);
}

#[test]
fn late_outcomes_of_a_dropped_set_do_not_reach_the_next_one() {
    let shard = shard();
    let (device, ram, sets) =
        (slow(&shard), Ram::new("ram", 1 << 20).device(), IoSets::new(&shard));
    let pool = shard.pool().clone();
    let write = fill(&shard, 0, 4096, 7);
    let (waiter, read) = (shard.clone(), Request::read(0, pool.get(4096)));
    let found = shard.block_on(async move {
        let mut dropped = sets.start();
        dropped.submit(1, &*device, read);
        drop(dropped);
        sets.one(&*ram, write).await.result.unwrap();
        let outcome = sets.one(&*ram, Request::read(0, pool.get(4096))).await;
        waiter.sleep(1_000_000).await;
        bytes(outcome)
    });
    assert_eq!(found, [7; 4096]);
    assert_eq!(shard.pool().outstanding(), 0);
}

/// Forgets every request, or fails it.
struct Careless(DeviceInfo, Cell<bool>);

impl Device for Careless {
    fn info(&self) -> &DeviceInfo {
        &self.0
    }

    fn submit(&self, request: Request, done: Completion) {
        if self.1.get() {
            done.finish(Err(IoError::new(IoErrorKind::NoSpace)), request.op);
        }
    }
}

#[test]
fn a_request_that_is_forgotten_ends_as_gone() {
    let shard = shard();
    let device = Rc::new(Careless(DeviceInfo::plain("careless", 1 << 20), Cell::new(false)));
    let as_device: Rc<dyn Device> = Rc::clone(&device) as _;
    let kind = |request| crate::testing::ask(&shard, &as_device, request).result.unwrap_err().kind;
    assert_eq!(kind(Request::flush()), IoErrorKind::Gone);
    device.1.set(true);
    assert_eq!(kind(Request::flush()), IoErrorKind::NoSpace);
}
