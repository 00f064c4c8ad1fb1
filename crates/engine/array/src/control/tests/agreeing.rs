//! Bytes of members that rot: a user of the array who knows their checksum has them looked for, and put right.

use crate::array::Array;
use crate::control::tests::latent_errors::{LEVELS, options};
use crate::control::tests::world::{TestMember, World, members, pattern};
use braid_device::{Sought, Target};
use braid_layout::Level;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn sum_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(7, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

/// A byte in the middle of a block at this component byte of a member changes.
fn rot(world: &World, member: &Arc<TestMember>, component: u64) {
    let at = world.superblock(member).data_offset * 512 + component + 100;
    let byte = world.contents(member)[at as usize];
    world.scribble(member, at, &[byte ^ 0x20]);
}

/// Looks for what was written at this byte of the array, on a shard.
fn find(world: &World, array: &Arc<Array>, on: usize, at: u64) -> Option<Vec<u8>> {
    let device = array.open(&world.shards[on]).unwrap();
    let sum = sum_of(&pattern(at, BLOCK));
    let found = device.find_agreeing(Sought { offset: at, len: BLOCK, sum, sum_of });
    let slot = Rc::new(RefCell::new(None));
    let told = Rc::clone(&slot);
    world.shards[on].spawn(async move {
        *told.borrow_mut() = Some(found.await.map(|bytes| bytes.to_vec()));
    });
    loop {
        if let Some(found) = slot.borrow_mut().take() {
            return found;
        }
        world.step();
    }
}

/// The blocks of the array that do not read as they were written.
fn wrong(world: &World, array: &Array) -> Vec<u64> {
    let size = array.info().device.size / BLOCK as u64 * BLOCK as u64;
    let is_wrong = |at: &u64| world.read(array, 0, *at, BLOCK).unwrap() != pattern(*at, BLOCK);
    (0..size).step_by(BLOCK).filter(is_wrong).collect()
}

#[test]
fn what_has_rotten_is_found_in_the_rest_and_put_right() {
    for (level, disks) in LEVELS {
        for shards in [1, 2] {
            let (world, members) = (World::new(shards), members("m", disks, 3 * MIB));
            world.create(&members, options(level, disks));
            let (array, control) = world.assemble(&members);
            let size = array.info().device.size as usize;
            world.write(&array, 0, 0, &pattern(0, size)).unwrap();
            let before: Vec<Vec<u8>> =
                members.iter().map(|member| world.contents(member)).collect();
            for (nr, member) in members.iter().enumerate() {
                rot(&world, member, nr as u64 * 128 * KIB + 20 * KIB);
            }
            // The stripe cache has nothing of it then.
            world.stop(&control);
            drop((array, control));
            let (array, control) = world.assemble(&members);
            let mut found = 0;
            for at in (0..size as u64 / BLOCK as u64).map(|block| block * BLOCK as u64) {
                let rotten = world.read(&array, 0, at, BLOCK).unwrap() != pattern(at, BLOCK);
                if rotten || level == Level::Raid1 || level == Level::Raid10 {
                    let on = (at / BLOCK as u64) as usize % usize::from(shards);
                    let good = find(&world, &array, on, at);
                    assert_eq!(good, Some(pattern(at, BLOCK)), "{level}, at {at}");
                    found += u32::from(rotten);
                }
            }
            assert!(found > 0, "{level}");
            assert_eq!(wrong(&world, &array), [0; 0], "{level}");
            for (nr, (member, before)) in members.iter().zip(&before).enumerate() {
                let start = world.superblock(member).data_offset * 512;
                let at = (start + nr as u64 * 128 * KIB + 20 * KIB) as usize;
                let now = &world.contents(member)[at..at + BLOCK];
                // Parity that has rotten is for a check of the array.
                let is_right = now == &before[at..at + BLOCK];
                let has_parity = matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6);
                assert!(is_right || has_parity, "{level}: member {nr}");
            }
            world.stop(&control);
        }
    }
}

#[test]
fn with_two_parities_another_member_may_have_rotten_too() {
    let (world, members) = (World::new(1), members("m", 5, 3 * MIB));
    world.create(&members, options(Level::Raid6, 5));
    let (array, control) = world.assemble(&members);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    world.stop(&control);
    drop((array, control));
    // Any two members of one stripe.
    for (row, pair) in (0..).step_by(4).zip((0..5).flat_map(|a| (0..a).map(move |b| (a, b)))) {
        for nr in [pair.0, pair.1] {
            rot(&world, &members[nr], 64 * KIB * 3 + row * KIB);
        }
    }
    let (array, control) = world.assemble(&members);
    let rotten = wrong(&world, &array);
    assert!(rotten.len() >= 10, "{rotten:?}");
    for at in &rotten {
        assert_eq!(find(&world, &array, 0, *at), Some(pattern(*at, BLOCK)), "at {at}");
    }
    assert_eq!(wrong(&world, &array), [0; 0]);
    world.stop(&control);
}

#[test]
fn what_agrees_nowhere_is_not_found_and_nothing_is_written() {
    let (level, disks) = (Level::Raid1, 2);
    let (world, members) = (World::new(1), members("m", disks, 3 * MIB));
    world.create(&members, options(level, disks));
    let (array, control) = world.assemble(&members);
    let size = array.info().device.size as usize;
    world.write(&array, 0, 0, &pattern(0, size)).unwrap();
    for member in &members {
        rot(&world, member, 20 * KIB);
    }
    world.sleep(20_000_000_000);
    let before: Vec<Vec<u8>> = members.iter().map(|member| world.contents(member)).collect();
    assert_eq!(find(&world, &array, 0, 20 * KIB), None, "{level}");
    assert_eq!(find(&world, &array, 0, size as u64), None, "{level}: beyond the end");
    for (member, before) in members.iter().zip(&before) {
        let start = (world.superblock(member).data_offset * 512) as usize;
        assert!(world.contents(member)[start..] == before[start..], "{level}");
    }
    world.stop(&control);
}
