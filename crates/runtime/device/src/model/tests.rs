//! Times of modelled devices on a virtual clock; all expectations follow from the parameters.

use super::{Kind, Model, ModelSpec};
use crate::device::Device;
use crate::request::{Op, Request};
use crate::testing::{Seen, ask, bytes, fill, shard};
use crate::{IoSets, Opener};
use braid_shard::{Nanos, Shard};
use std::rc::Rc;

const MIB: u64 = 1 << 20;

fn open(shard: &Shard, spec: &str) -> Rc<dyn Device> {
    Model::new(&ModelSpec::parse(spec).unwrap()).unwrap().open(shard).unwrap()
}

/// The time that `count` reads of `len` bytes take, `depth` of them at a time.
fn time_reads(spec: &str, count: u64, len: u64, depth: u64, place: fn(u64) -> u64) -> Nanos {
    let shard = shard();
    let device = open(&shard, spec);
    let (sets, pool, start) = (IoSets::new(&shard), shard.pool().clone(), shard.now());
    shard.block_on(async move {
        let mut at = 0;
        while at < count {
            let mut set = sets.start();
            for tag in at..(at + depth).min(count) {
                let request = Request::read(place(tag) * len, pool.get(len as usize));
                set.submit(tag as u32, &*device, request);
            }
            set.finish().await;
            at += depth;
        }
    });
    shard.now() - start
}

#[test]
fn one_request_takes_cost_and_transfer_and_latency() {
    // 4096 bytes at 4 GiB/s: 954 ns, rounded up.
    let took = time_reads("64K,read=4G,latency=50us,cost=3us", 1, 4096, 1, |at| at);
    assert_eq!(took, 3_000 + 954 + 50_000);
}

#[test]
fn latencies_of_requests_in_flight_overlap_and_costs_do_not() {
    let took = time_reads("64K,latency=50us,cost=3us", 10, 4096, 10, |at| at);
    assert_eq!(took, 10 * 3_000 + 50_000 + 1);
}

#[test]
fn the_queue_depth_bounds_what_overlaps() {
    let took = time_reads("64K,latency=50us,depth=2", 10, 4096, 10, |at| at);
    // Five rounds of two; a nanosecond each for the transfer at an unlimited rate.
    assert!((250_000..250_020).contains(&took), "{took}");
}

#[test]
fn sequential_reads_run_at_the_data_rate() {
    for (kind, rate) in [(Kind::SataSsd, 550u64), (Kind::Nvme, 3500), (Kind::Hdd, 180)] {
        let spec = ModelSpec::new(kind, 64 * MIB).to_string();
        let took = time_reads(&spec, 64, MIB, 64, |at| at);
        let least = 64 * MIB * 1000 / rate;
        assert!((least..least + least / 10).contains(&took), "{kind:?} {took} {least}");
    }
}

#[test]
fn directions_have_data_paths_of_their_own() {
    let shard = shard();
    let device = open(&shard, "4M,read=100M,write=100M");
    let (sets, pool, start) = (IoSets::new(&shard), shard.pool().clone(), shard.now());
    let write = fill(&shard, 0, MIB as usize, 1);
    shard.block_on(async move {
        let mut set = sets.start();
        set.submit(0, &*device, write);
        set.submit(1, &*device, Request::read(2 * MIB, pool.get(MIB as usize)));
        set.finish().await;
    });
    assert_eq!(shard.now() - start, 10_000_000);
}

#[test]
fn a_head_makes_random_reads_slow_and_sequential_ones_not() {
    let scattered = |at: u64| (at * 7919) % 16384;
    let random = time_reads("hdd,64M", 100, 4096, 1, scattered);
    let sequential = time_reads("hdd,64M", 100, 4096, 1, |at| at);
    // Between a seek to the next track and one over the whole disk with a whole turn.
    assert!((100 * 1_000_000..100 * 23_500_000).contains(&random), "{random}");
    assert!(sequential < random / 20, "{sequential} {random}");
}

#[test]
fn a_seed_gives_the_same_times_again_and_another_seed_others() {
    let time = |spec: &str| time_reads(spec, 50, 4096, 4, |at| (at * 31) % 64);
    assert_eq!(time("nvme,1M,seed=3"), time("nvme,1M,seed=3"));
    assert_ne!(time("nvme,1M,seed=3"), time("nvme,1M,seed=4"));
    assert!(time("nvme,1M,seed=3") > time("nvme,1M"));
}

#[test]
fn a_flush_ends_after_what_was_submitted_before_and_takes_its_time() {
    let shard = shard();
    let device = open(&shard, "1M,latency=50us,flush=1ms");
    assert!(device.info().volatile_cache);
    let seen = Rc::new(Seen::default());
    let start = shard.now();
    seen.submit(&*device, 0, fill(&shard, 0, 4096, 1));
    let flushed = ask(&shard, &device, Request::flush());
    flushed.result.unwrap();
    assert_eq!(seen.results(), [(0, None)]);
    assert_eq!(shard.now() - start, 50_001 + 1_000_000);
}

#[test]
fn two_shards_share_one_device() {
    let model = Model::new(&ModelSpec::parse("1M,cost=10us").unwrap()).unwrap();
    let shard = shard();
    let (one, other) = (model.open(&shard).unwrap(), model.open(&shard).unwrap());
    let seen = Rc::new(Seen::default());
    let start = shard.now();
    seen.submit(&*one, 0, fill(&shard, 4096, 4096, 9));
    let read = ask(&shard, &other, Request::read(4096, shard.pool().get(4096)));
    assert_eq!(shard.now() - start, 20_001);
    assert_eq!(bytes(read), [9; 4096]);
}

#[test]
fn requests_in_flight_end_although_the_device_was_dropped_and_then_its_task_ends() {
    let shard = shard();
    let device = open(&shard, "1M,latency=50us");
    let seen = Rc::new(Seen::default());
    seen.submit(&*device, 7, fill(&shard, 0, 4096, 1));
    drop(device);
    let waiter = shard.clone();
    shard.block_on(async move { waiter.sleep(100_000).await });
    assert_eq!(seen.results(), [(7, None)]);
    assert_eq!(shard.live_tasks(), 0);
}

#[test]
fn zeroed_ranges_read_as_zero() {
    let shard = shard();
    let device = open(&shard, "1M,latency=50us");
    ask(&shard, &device, fill(&shard, 0, 8192, 5)).result.unwrap();
    let op = Op::WriteZeroes { len: 4096, unmap: true, fua: false };
    ask(&shard, &device, Request { offset: 4096, op }).result.unwrap();
    let read = bytes(ask(&shard, &device, Request::read(0, shard.pool().get(8192))));
    assert!(read[..4096].iter().all(|byte| *byte == 5));
    assert!(read[4096..].iter().all(|byte| *byte == 0));
}
