//! Settings: what is refused, what they do, and changes of them under way.

use crate::array::Array;
use crate::assemble::assemble;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::create::create;
use crate::error::ControlError;
use crate::options::CreateOptions;
use crate::settings::{RmwLevel, SettingError, Settings, StripeCacheSize, StripeSize};
use braid_device::model::{Kind, Model};
use braid_device::{IoSets, Opener, Request, Target};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const CHUNK: u64 = 64 << 10;
const SIZE: u64 = 3 << 20;

fn start(
    world: &World,
    level: Level,
    disks: usize,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let members = members("m", disks, SIZE);
    let options = CreateOptions {
        chunk_size: Some(CHUNK),
        assume_clean: true,
        ..CreateOptions::new("settings", level, disks)
    };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    (members, array, control)
}

fn set(world: &World, control: &Rc<Control>, settings: Settings) -> Result<(), ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.set(settings).await })
}

/// All writes in one turn; the answers come together.
fn write_all(world: &World, array: &Array, writes: &[(u64, usize)]) {
    let shard = world.shards[0].clone();
    let device = array.open(&shard).unwrap();
    let (sets, pool) = (IoSets::new(&shard), shard.pool().clone());
    let writes = writes.to_vec();
    world.run(async move {
        let mut set = sets.start();
        for (nr, (offset, len)) in writes.into_iter().enumerate() {
            let buf = pool.copy_of(&pattern(offset, len)).freeze();
            set.submit(nr as u32, &*device, Request::write(offset, buf, false));
        }
        assert!(set.finish().await.all(|(_, outcome)| outcome.result.is_ok()));
    });
}

fn bytes_read(members: &[Arc<TestMember>]) -> u64 {
    members.iter().map(|member| member.read.swap(0, Ordering::Relaxed)).sum()
}

fn bytes_written(members: &[Arc<TestMember>]) -> u64 {
    members.iter().map(|member| member.written.swap(0, Ordering::Relaxed)).sum()
}

#[test]
fn values_that_cannot_be_are_refused_and_nothing_changes() {
    let world = World::new(2);
    let (_, _, control) = start(&world, Level::Raid5, 4);
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings { rmw_level: RmwLevel::Prefer, ..Settings::default() };
        change(&mut settings);
        match set(&world, &control, settings) {
            Err(ControlError::Setting { why, .. }) => why,
            other => panic!("{settings:?}: {other:?}"),
        }
    };
    let refused = [
        with(|s| s.stripe_size = StripeSize::Bytes(12 << 10)),
        with(|s| s.stripe_size = StripeSize::Bytes(2048)),
        with(|s| s.stripe_size = StripeSize::Bytes(2 * CHUNK)),
        with(|s| s.stripe_cache_size = StripeCacheSize::Bytes(u64::MAX)),
        with(|s| s.shards = Some(0)),
        with(|s| s.shards = Some(3)),
    ];
    assert!(matches!(refused[0], SettingError::NotAPowerOfTwo { bytes: 12288, chunk: CHUNK }));
    assert!(matches!(refused[1], SettingError::TooSmall { bytes: 2048 }));
    assert!(matches!(refused[2], SettingError::AboveChunk { chunk: CHUNK, .. }));
    assert!(matches!(refused[3], SettingError::Memory { .. }));
    assert!(matches!(refused[4], SettingError::Shards { asked: 0, there: 2 }));
    assert!(matches!(refused[5], SettingError::Shards { asked: 3, there: 2 }));
    assert_eq!(control.settings(), Settings::default());
    assert_eq!(world.status(&control).settings, Settings::default());

    let world = World::new(1);
    let members = members("m", 2, SIZE);
    world.create(&members, CreateOptions::new("mirror", Level::Raid1, 2));
    let (_, control) = world.assemble(&members);
    let settings = Settings { stripe_size: StripeSize::Bytes(8192), ..Settings::default() };
    let error = set(&world, &control, settings).unwrap_err();
    assert!(error.to_string().contains("levels 4, 5 and 6"), "{error}");
}

#[test]
fn stripes_and_lines_stay_as_they_are_during_a_job() {
    let world = World::new(2);
    let (_, _, control) = start(&world, Level::Raid5, 4);
    control.jobs().pause_jobs(true);
    control.jobs().start_check().unwrap();
    world.sleep(1_000_000);
    for settings in [
        Settings { stripe_size: StripeSize::Bytes(8192), ..Settings::default() },
        Settings { shards: Some(1), ..Settings::default() },
    ] {
        let error = set(&world, &control, settings).unwrap_err();
        assert!(matches!(error, ControlError::SettingDuring { .. }), "{error}");
        assert_eq!(control.settings(), Settings::default());
    }
    let cache = Settings { stripe_cache_size: StripeCacheSize::Lines(8), ..Settings::default() };
    set(&world, &control, cache).unwrap();
    control.jobs().pause_jobs(false);
    world.wait_idle(&control);
    set(&world, &control, Settings { shards: Some(1), ..Settings::default() }).unwrap();
    assert_eq!(world.status(&control).shards, 1);
}

#[test]
fn writes_of_one_turn_that_fill_a_stripe_are_one_full_stripe() {
    let world = World::new(1);
    let (members, array, control) = start(&world, Level::Raid6, 6);
    let before = world.status(&control).counters;
    bytes_read(&members);
    bytes_written(&members);
    // A whole stripe in 16K pieces, last to first, and half a chunk of the next.
    let mut writes: Vec<(u64, usize)> = (0..16).rev().map(|nr| (nr << 14, 16 << 10)).collect();
    writes.push((4 * CHUNK, 32 << 10));
    write_all(&world, &array, &writes);
    let after = world.status(&control).counters;
    assert_eq!(after.pieces - before.pieces, 17);
    assert_eq!(after.batches - before.batches, 2);
    assert_eq!(after.full_stripes - before.full_stripes, 1);
    assert_eq!(after.rmw + after.reconstruct - before.rmw - before.reconstruct, 1);
    // 32K of 4+2: two parities and the old data, or the three other chunks.
    assert_eq!(bytes_read(&members), 3 * (32 << 10));
    for (offset, len) in writes {
        assert_eq!(world.read(&array, 0, offset, len).unwrap(), pattern(offset, len));
    }
    assert_eq!(world.check(&control), 0);
}

#[test]
fn what_a_write_has_read_or_written_is_not_read_again() {
    let world = World::new(1);
    let (members, array, control) = start(&world, Level::Raid5, 5);
    let once = || {
        bytes_read(&members);
        write_all(&world, &array, &[(8192, 4096)]);
        bytes_read(&members)
    };
    assert_eq!(once(), 2 * 4096);
    assert_eq!(once(), 0);
    let cache = world.status(&control).cache;
    assert_eq!((cache.hits, cache.misses, cache.lines), (2, 2, 1));

    let lines = |lines| Settings {
        stripe_cache_size: StripeCacheSize::Lines(lines),
        ..Settings::default()
    };
    set(&world, &control, lines(0)).unwrap();
    assert_eq!((once(), once()), (2 * 4096, 2 * 4096));
    assert_eq!(world.status(&control).cache.bytes, 0);
    set(&world, &control, lines(3)).unwrap();
    once();
    assert_eq!(world.status(&control).cache.bytes, 2 * 4096, "stripe_size of the data and of P");

    // Whole lines of 16K are read; what is next to a write is there for the next one.
    set(&world, &control, Settings { stripe_size: StripeSize::Bytes(16 << 10), ..lines(8) })
        .unwrap();
    assert_eq!(once(), 2 * (16 << 10));
    write_all(&world, &array, &[(12288, 4096)]);
    assert_eq!(bytes_read(&members), 0);
    assert_eq!(world.check(&control), 0);
}

#[test]
fn rmw_level_says_which_way_a_write_takes() {
    let world = World::new(1);
    let (_, array, control) = start(&world, Level::Raid5, 4);
    let mut at = 0;
    // Two chunks' worth of reads either way: a tie. No line is used twice.
    let mut ways = |level: RmwLevel| {
        let settings = Settings { rmw_level: level, ..Settings::default() };
        set(&world, &control, settings).unwrap();
        let before = world.status(&control).counters;
        write_all(&world, &array, &[(at, 4096)]);
        at += 3 * CHUNK;
        let after = world.status(&control).counters;
        (after.rmw - before.rmw, after.reconstruct - before.reconstruct)
    };
    assert_eq!(ways(RmwLevel::Disable), (0, 1));
    assert_eq!(ways(RmwLevel::Enable), (0, 1));
    assert_eq!(ways(RmwLevel::Prefer), (1, 0));
    // Members without heads: what the processor has less to do for.
    assert_eq!(ways(RmwLevel::Auto), (1, 0));
}

#[test]
fn a_write_keeps_to_the_lines_that_it_has_locked() {
    let world = World::new(1);
    // Members that take their time: what is read is old by the time that it is used.
    let ssd = |nr| Model::with_parameters(format!("m{nr}"), SIZE, Kind::SataSsd.parameters());
    let openers: Vec<Arc<dyn Opener>> =
        (0..5).map(|nr| Arc::new(ssd(nr).unwrap()) as Arc<dyn Opener>).collect();
    let (ctx, slots) = (world.ctx.clone(), openers.iter().cloned().map(Some).collect());
    let options = CreateOptions {
        chunk_size: Some(CHUNK),
        assume_clean: true,
        ..CreateOptions::new("settings", Level::Raid5, 5)
    };
    world.run(async move { create(&ctx, slots, options).await }).unwrap();
    let ctx = world.ctx.clone();
    let array =
        world.run(async move { assemble(&ctx, openers, Default::default()).await }).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let places = [(0, 4096), (CHUNK + 8192, 4096)];
    let (own, shard) = (Rc::clone(&control), world.shards[0].clone());
    let device = array.open(&shard).unwrap();
    world.run(async move {
        // The writes hold their rows, and wait for the array to become active, when the height changes.
        let turn = own.record.turn().await;
        let sets = IoSets::new(&shard);
        let mut set = sets.start();
        for (nr, (offset, len)) in places.into_iter().enumerate() {
            let buf = shard.pool().copy_of(&pattern(offset, len)).freeze();
            set.submit(nr as u32, &*device, Request::write(offset, buf, false));
            for _ in 0..10 {
                shard.next_turn().await;
            }
        }
        let tall = Settings { stripe_size: StripeSize::Bytes(CHUNK), ..Settings::default() };
        own.set(tall).await.unwrap();
        drop(turn);
        assert!(set.finish().await.all(|(_, outcome)| outcome.result.is_ok()));
    });
    for (offset, len) in places {
        assert_eq!(world.read(&array, 0, offset, len).unwrap(), pattern(offset, len));
    }
    assert_eq!(world.check(&control), 0);
}

#[test]
fn settings_change_while_requests_go_on_and_no_byte_is_lost() {
    let world = World::new(3);
    let (_, array, control) = start(&world, Level::Raid6, 5);
    let size = array.info().device.size;
    let sizes = [StripeSize::Auto, StripeSize::Bytes(4096), StripeSize::Bytes(CHUNK)];
    for round in 0..12_u64 {
        let devices: Vec<_> = world.shards.iter().map(|shard| array.open(shard).unwrap()).collect();
        let mut tasks = Vec::new();
        for (nr, device) in devices.into_iter().enumerate() {
            let shard = world.shards[nr].clone();
            let own = shard.clone();
            let done = Rc::new(std::cell::Cell::new(false));
            tasks.push(Rc::clone(&done));
            shard.spawn(async move {
                let sets = IoSets::new(&own);
                for step in 0..20 {
                    let mut set = sets.start();
                    // The shards write to places of their own, in stripes that they share.
                    let places = (0..size / 8192).filter(|at| at % 3 == nr as u64);
                    for at in places.skip(step * 4).take(4) {
                        let buf = own.pool().copy_of(&pattern(round ^ at, 8192)).freeze();
                        set.submit(0, &*device, Request::write(at * 8192, buf, false));
                    }
                    assert!(set.finish().await.all(|(_, outcome)| outcome.result.is_ok()));
                }
                done.set(true);
            });
        }
        let settings = Settings {
            stripe_size: sizes[round as usize % 3],
            stripe_cache_size: StripeCacheSize::Lines(round as u32 * 3),
            shards: Some(1 + (round % 3) as u16),
            ..Settings::default()
        };
        set(&world, &control, settings).unwrap();
        assert_eq!(world.status(&control).shards, 1 + (round % 3) as u16);
        while tasks.iter().any(|done| !done.get()) {
            world.sleep(1000);
        }
        for at in (0..size / 8192).step_by(5).filter(|at| at / 3 < 80) {
            assert_eq!(world.read(&array, 0, at * 8192, 8192).unwrap(), pattern(round ^ at, 8192));
        }
    }
    assert_eq!(world.check(&control), 0);
}
