//! The cost and the gain of the bitmap, in the virtual time of modelled members and in bytes: figures that do
//! not depend on the machine. `cargo test … -- --nocapture` shows them.

use crate::assemble::assemble;
use crate::control::Control;
use crate::control::tests::world::{World, members, pattern};
use crate::create::create;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use braid_device::model::{Kind, Model};
use braid_device::{IoSets, Opener, Request, Target};
use braid_layout::Level;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const WRITES: u64 = 10_000;
const DEPTH: u64 = 32;

/// Numbers that look random.
fn scatter(nr: u64) -> u64 {
    let mixed = (nr + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

/// Nanoseconds that 4 KiB writes anywhere take on modelled SSDs, 32 at a time, all bits clear at first.
fn random_writes(level: Level, disks: usize, bitmap: CreateBitmap) -> u64 {
    let world = World::new(1);
    let model = |nr| {
        let parameters = Kind::SataSsd.parameters();
        Arc::new(Model::with_parameters(format!("ssd{nr}"), 256 * MIB, parameters).unwrap())
    };
    let openers: Vec<Arc<dyn Opener>> = (0..disks).map(|nr| model(nr) as Arc<dyn Opener>).collect();
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 * KIB),
        assume_clean: true,
        bitmap,
        ..CreateOptions::new("data", level, disks)
    };
    let ctx = world.ctx.clone();
    let array = world.run(async move {
        create(&ctx, openers.iter().cloned().map(Some).collect(), options).await.unwrap();
        let first = assemble(&ctx, openers.clone(), AssembleOptions::default()).await.unwrap();
        Control::find(&ctx.shard, first.id()).unwrap().stop().await;
        assemble(&ctx, openers, AssembleOptions::default()).await.unwrap()
    });
    let shard = world.shards[0].clone();
    let device = array.open(&shard).unwrap();
    let blocks = array.info().device.size / 4096;
    let start = shard.now();
    let (next, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(DEPTH)));
    for _ in 0..DEPTH {
        let (shard, device) = (shard.clone(), Rc::clone(&device));
        let (next, left) = (Rc::clone(&next), Rc::clone(&left));
        let sets = IoSets::new(&shard);
        shard.clone().spawn(async move {
            while next.get() < WRITES {
                let at = scatter(next.replace(next.get() + 1)) % blocks * 4096;
                let buf = shard.pool().zeroed(4096).freeze();
                sets.one(&*device, Request::write(at, buf, false)).await.result.unwrap();
            }
            left.set(left.get() - 1);
        });
    }
    let clock = shard.clone();
    world.run(async move {
        while left.get() > 0 {
            clock.sleep(100_000).await;
        }
        clock.now() - start
    })
}

#[test]
fn small_writes_anywhere_cost_less_than_a_tenth_more() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let without = random_writes(level, disks, CreateBitmap::None);
        // mdadm's default, and one of which every bit is set within the run.
        for chunk in [None, Some(MIB)] {
            let with = random_writes(level, disks, CreateBitmap::Internal { chunk });
            let quotient = without as f64 / with as f64;
            println!("{level}, bitmap chunk {chunk:?}: rate with bitmap / without = {quotient:.3}");
            assert!(quotient >= 0.9, "{level}, {chunk:?}: {quotient}");
        }
    }
}

/// Bytes written to a member: by writes while it is there, or by its re-adding after them.
fn copied(level: Level, disks: usize, chunk: u64, ranges: &[(u64, u64)], away: bool) -> u64 {
    let world = World::new(1);
    let component = match level {
        Level::Raid1 => 1024,
        Level::Raid10 => 512,
        _ => 1024 / (disks as u64 - 1) + 1,
    };
    let members = members("m", disks, (component + 8) * MIB);
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 * KIB),
        assume_clean: true,
        bitmap: CreateBitmap::Internal { chunk: Some(chunk) },
        ..CreateOptions::new("data", level, disks)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    world.sleep(20_000_000_000);
    let count = || members[1].written.load(Ordering::Relaxed);
    if away {
        let (removing, selector) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
        world.run(async move {
            removing.membership().fail(&selector).await.unwrap();
            removing.membership().remove(&selector).await.unwrap();
        });
    }
    let mut before = count();
    for (at, len) in ranges {
        world.write(&array, 0, *at, &pattern(*at, *len as usize)).unwrap();
    }
    if away {
        before = count();
        let (adding, opener) = (Rc::clone(&control), Arc::clone(&members[1]) as Arc<dyn Opener>);
        world.run(async move { adding.membership().re_add(opener).await }).unwrap();
        world.wait_idle(&control);
        assert_eq!(world.status(&control).degraded, 0);
    }
    count() - before
}

#[test]
fn a_member_that_was_away_gets_less_than_twice_what_it_missed() {
    let percent = 1024 * MIB / 100;
    let together: Vec<(u64, u64)> = (0..percent / MIB).map(|nr| ((300 + nr) * MIB, MIB)).collect();
    let apart: Vec<(u64, u64)> =
        (0..percent / (64 * KIB)).map(|nr| (scatter(nr) % 16000 * 64 * KIB, 64 * KIB)).collect();
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid10, 4)] {
        for (what, ranges) in [("in one place", &together), ("64 KiB here and there", &apart)] {
            let missed = copied(level, disks, 64 * KIB, ranges, false);
            let copied = copied(level, disks, 64 * KIB, ranges, true);
            let quotient = copied as f64 / missed as f64;
            println!(
                "{level}, 1 % of 1 GiB changed {what}: {copied} bytes written for {missed} missed: {quotient:.2}"
            );
            // A bit stands for the same rows of all members of a parity level: a chunk that was written
            // alone takes the member's with it in two of so many stripes as there are members.
            let most = match level {
                Level::Raid5 if ranges.len() == apart.len() => disks as f64 / 2.0 + 0.25,
                _ => 2.0,
            };
            assert!(quotient <= most, "{level}, {what}: {quotient}");
        }
    }
}
