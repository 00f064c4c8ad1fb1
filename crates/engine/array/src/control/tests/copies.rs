//! Which copy reads are had from: streams, shortest queues, write-mostly members.

use crate::array::Array;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{CreateOptions, MemberSelector};
use crate::state::flags::MemberFlags;
use braid_device::{IoSets, Op, Request, Target};
use braid_layout::Level;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const MILLI: u64 = 1_000_000;
const CHUNK: u64 = 64 * KIB;
const NEAR_2: u32 = 0x102;
const FAR_2: u32 = 0x201;
const WRITE_MOSTLY: MemberFlags = MemberFlags { write_mostly: true, failfast: false };

fn options(level: Level, disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        assume_clean: true,
        ..CreateOptions::new("data", level, disks)
    }
}

/// Members whose reads take a millisecond.
fn slow(count: usize, rotational: bool) -> Vec<Arc<TestMember>> {
    let members = members("m", count, 34 * MIB);
    for member in &members {
        member.rotational.store(rotational, Ordering::Relaxed);
        member.slow.store(MILLI, Ordering::Relaxed);
    }
    members
}

/// Bytes read from each member since `before`.
fn read(members: &[Arc<TestMember>], before: &[u64]) -> Vec<u64> {
    let now = members.iter().map(|member| member.read.load(Ordering::Relaxed));
    now.zip(before).map(|(now, before)| now - before).collect()
}

fn so_far(members: &[Arc<TestMember>]) -> Vec<u64> {
    read(members, &vec![0; members.len()])
}

/// Readers that each read `len` bytes at their offsets one after the other, all at the same time.
fn readers(world: &World, array: &Arc<Array>, len: usize, offsets: Vec<Vec<u64>>) {
    let left = Rc::new(Cell::new(offsets.len()));
    for offsets in offsets {
        let (shard, left) = (world.shards[0].clone(), Rc::clone(&left));
        let device = Arc::clone(array).open(&shard).unwrap();
        let sets = IoSets::new(&shard);
        world.shards[0].spawn(async move {
            for offset in offsets {
                let request = Request::read(offset, shard.pool().get(len));
                let outcome = sets.one(&*device, request).await;
                outcome.result.unwrap();
                let Op::Read(bufs) = outcome.op else { panic!("a read came back as another") };
                let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
                assert!(bytes == pattern(offset, len), "wrong bytes at {offset}");
            }
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        world.step();
    }
}

/// A running array full of the pattern, and what has been read of its members up to here.
fn filled(
    world: &World,
    members: &[Arc<TestMember>],
    options: CreateOptions,
) -> (Arc<Array>, Vec<u64>) {
    world.create(members, options);
    let (array, control) = world.assemble(members);
    let size = array.info().device.size;
    for at in (0..size).step_by(MIB as usize) {
        let len = MIB.min(size - at) as usize;
        world.write(&array, 0, at, &pattern(at, len)).unwrap();
    }
    world.wait_idle(&control);
    (array, so_far(members))
}

fn stream(start: u64, step: u64, count: u64) -> Vec<u64> {
    (0..count).map(|nr| start + nr * step).collect()
}

#[test]
fn a_sequential_stream_stays_on_one_member() {
    for rotational in [true, false] {
        let (world, members) = (World::new(1), slow(2, rotational));
        let (array, before) = filled(&world, &members, options(Level::Raid1, 2));
        readers(&world, &array, 64 << 10, vec![stream(3 * MIB + 8192, 64 * KIB, 128)]);
        let mut read = read(&members, &before);
        read.sort_unstable();
        assert_eq!(read, [0, 128 * 64 * KIB], "rotational {rotational}");
    }
}

#[test]
fn each_of_two_streams_has_a_member_of_its_own() {
    for rotational in [true, false] {
        let (world, members) = (World::new(1), slow(2, rotational));
        let (array, before) = filled(&world, &members, options(Level::Raid1, 2));
        let streams = vec![stream(0, 64 * KIB, 100), stream(16 * MIB, 64 * KIB, 100)];
        readers(&world, &array, 64 << 10, streams);
        let read = read(&members, &before);
        assert_eq!(read, [100 * 64 * KIB; 2], "rotational {rotational}");
    }
}

#[test]
fn streams_that_began_on_one_disk_part_when_they_meet_there() {
    let (world, members) = (World::new(1), slow(2, true));
    let (array, _) = filled(&world, &members, options(Level::Raid1, 2));
    // One after the other, the second nearer to the first one's head than to that of the idle disk.
    readers(&world, &array, 64 << 10, vec![stream(8 * MIB, 64 * KIB, 4)]);
    readers(&world, &array, 64 << 10, vec![stream(9 * MIB, 64 * KIB, 4)]);
    let before = so_far(&members);
    let on = |start: u64| stream(start + 4 * 64 * KIB, 64 * KIB, 10);
    readers(&world, &array, 64 << 10, vec![on(8 * MIB), on(9 * MIB)]);
    assert_eq!(read(&members, &before), [10 * 64 * KIB; 2]);
}

#[test]
fn reads_here_and_there_do_not_push_a_stream_off_its_disk() {
    let (world, members) = (World::new(1), slow(2, true));
    let (array, before) = filled(&world, &members, options(Level::Raid1, 2));
    // One head is far off, so that the stream takes the other disk.
    let mut offsets = vec![30 * MIB];
    for nr in 0..50 {
        offsets.push(8 * MIB + nr * 64 * KIB);
        offsets.extend((0..4).map(|k| (nr * 4 + k) * 7919 % 300 * 4096));
    }
    // These reads are far from the stream, so the other disk's head is nearer.
    let far = |offset: u64| if offset < 8 * MIB { 24 * MIB + offset } else { offset };
    for offset in offsets.into_iter().map(far) {
        let len = if offset < 24 * MIB { 64 << 10 } else { 4096 };
        readers(&world, &array, len, vec![vec![offset]]);
    }
    let mut read = read(&members, &before);
    read.sort_unstable();
    assert_eq!(read, [4096 + 50 * 4 * 4096, 50 * 64 * KIB]);
}

#[test]
fn other_reads_go_where_the_fewest_are_in_flight() {
    let (world, members) = (World::new(1), slow(2, false));
    members[1].slow.store(4 * MILLI, Ordering::Relaxed);
    let (array, before) = filled(&world, &members, options(Level::Raid1, 2));
    let anywhere = |seed: u64| (0..200).map(|nr| (nr * 8 + seed) * 7919 % 8000 * 4096).collect();
    readers(&world, &array, 4096, (0..8).map(anywhere).collect());
    let read = read(&members, &before);
    assert_eq!(read.iter().sum::<u64>(), 1600 * 4096);
    assert!(read[0] > 3 * read[1] && read[1] > read[0] / 6, "{read:?}");
}

#[test]
fn every_member_of_a_stripe_over_mirrors_gets_its_share_of_random_reads() {
    for layout in [NEAR_2, FAR_2] {
        for readers_count in [1, 8] {
            let (world, members) = (World::new(1), slow(4, false));
            let options = CreateOptions { layout: Some(layout), ..options(Level::Raid10, 4) };
            let (array, before) = filled(&world, &members, options);
            let anywhere =
                |seed: u64| (0..200).map(|nr| (nr * 8 + seed) * 7919 % 15000 * 4096).collect();
            readers(&world, &array, 4096, (0..readers_count).map(anywhere).collect());
            let read = read(&members, &before);
            let fair = readers_count * 200 * 4096 / 4;
            let near = |bytes: &u64| (fair * 8 / 10..fair * 12 / 10).contains(bytes);
            assert!(read.iter().all(near), "{layout:#x} {readers_count} {read:?}");
        }
    }
}

#[test]
fn a_stream_on_layout_far_is_read_from_all_disks_alike() {
    let (world, members) = (World::new(1), slow(4, true));
    let options = CreateOptions { layout: Some(FAR_2), ..options(Level::Raid10, 4) };
    let (array, before) = filled(&world, &members, options);
    readers(&world, &array, 1 << 20, vec![stream(0, MIB, 16)]);
    assert_eq!(read(&members, &before), [4 * MIB; 4]);
}

#[test]
fn a_large_read_reaches_a_disk_in_one_piece() {
    let (world, members) = (World::new(1), slow(2, true));
    let (array, before) = filled(&world, &members, options(Level::Raid1, 2));
    let reads = || members.iter().map(|m| m.reads.load(Ordering::Relaxed)).sum::<u64>();
    let reads_before = reads();
    readers(&world, &array, 8 << 20, vec![vec![512 * KIB, 512 * KIB + 8 * MIB]]);
    assert_eq!(reads() - reads_before, 2);
    let mut read = read(&members, &before);
    read.sort_unstable();
    assert_eq!(read, [0, 16 * MIB]);
}

#[test]
fn a_large_read_with_a_bad_block_in_it_is_made_good_from_the_other_copy() {
    for shards in [1, 3] {
        let (world, members) = (World::new(shards), slow(2, true));
        let (array, _) = filled(&world, &members, options(Level::Raid1, 2));
        let start = world.superblock(&members[0]).data_offset * 512;
        // No copy of the whole is left, and all of it is there.
        for (member, at) in members.iter().zip([5 * MIB + 4096, 7 * MIB]) {
            let bad = start + at..start + at + 512;
            member.decayed.lock().unwrap().push(bad);
        }
        for _ in 0..2 {
            readers(&world, &array, 8 << 20, vec![vec![512 * KIB]]);
            readers(&world, &array, 8 << 20, vec![vec![MIB]]);
        }
    }
}

#[test]
fn a_write_mostly_member_is_read_only_when_there_is_no_other() {
    let flags = vec![WRITE_MOSTLY];
    let (world, members) = (World::new(1), slow(3, false));
    let options = CreateOptions { flags, ..options(Level::Raid1, 3) };
    let (array, before) = filled(&world, &members, options);
    let control = crate::control::Control::find(&world.shards[0], array.id()).unwrap();
    let anywhere = |seed: u64| (0..50).map(|nr| (nr * 8 + seed) * 7919 % 8000 * 4096).collect();
    let all = |world: &World| readers(world, &array, 4096, (0..8).map(anywhere).collect());
    all(&world);
    let read_now = read(&members, &before);
    assert_eq!(read_now[0], 0);
    assert!(read_now[1] > 0 && read_now[2] > 0);
    // A block that the others have lost is there still.
    let start = world.superblock(&members[1]).data_offset * 512;
    for member in &members[1..] {
        member.decayed.lock().unwrap().push(start..start + 4096);
    }
    readers(&world, &array, 4096, vec![vec![0, 0, 0]]);
    assert_eq!(read(&members, &before)[0], 4096);
    for member in &members[1..] {
        let (control, name) =
            (Rc::clone(&control), braid_device::Opener::name(&**member).to_string());
        world
            .run(async move { control.membership().fail(&MemberSelector::Name(name)).await })
            .unwrap();
    }
    let before = so_far(&members);
    all(&world);
    assert_eq!(read(&members, &before), [400 * 4096, 0, 0]);
}

#[test]
fn level_1_reads_no_write_mostly_member_and_level_10_knows_of_none() {
    for (level, read_anyway) in [(Level::Raid1, false), (Level::Raid10, true)] {
        let (world, members) = (World::new(1), members("m", 2, 34 * MIB));
        let options = CreateOptions { flags: vec![WRITE_MOSTLY], ..options(level, 2) };
        let (array, _) = filled(&world, &members, options);
        // The copies are told apart by what they hold.
        let start = world.superblock(&members[0]).data_offset * 512;
        world.scribble(&members[0], start, &[0xee; 4 << 20]);
        let seen = (0..1024).any(|nr| {
            let at = nr * 4096;
            world.read(&array, 0, at, 4096).unwrap() != pattern(at, 4096)
        });
        assert_eq!(seen, read_anyway, "{level}");
    }
}

#[test]
fn before_a_resync_has_come_by_all_reads_take_the_first_copy_whatever_its_flags() {
    let flags = vec![WRITE_MOSTLY];
    let (world, members) = (World::new(1), slow(2, false));
    let options = CreateOptions { flags, assume_clean: false, ..options(Level::Raid1, 2) };
    world.create(&members, options);
    let read_only = crate::options::AssembleOptions { read_only: true, ..Default::default() };
    let array = world.try_assemble(&members, read_only).unwrap();
    let before = so_far(&members);
    for nr in 0..100 {
        world.read(&array, 0, nr * 300 * KIB, 4096).unwrap();
    }
    assert_eq!(read(&members, &before), [100 * 4096, 0]);
}
