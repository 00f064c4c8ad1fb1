//! The map of extents, with no files around it but their numbers.

#![allow(clippy::unwrap_used)]

use super::{Avoid, Relief, Replaced, Wants, Work};
use crate::tests::rig::{Rig, STRIPE};
use braid_filesystem::Errno;
use braid_format::volume::extent::Extent;
use braid_format::volume::keys;
use std::cell::Cell;
use std::rc::Rc;

const FILE: u64 = 1000;
const BLOCKS: u64 = STRIPE / 4096;

fn stripe(stripe: u64) -> Wants {
    Wants { ino: FILE, stripe, brick: None, avoid: Avoid::new() }
}

#[test]
fn a_reservation_is_free_again_unless_it_becomes_an_extent() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let brick = rig.bricks.get(0).unwrap();
        let free = brick.space.free_now();
        let reserved = rig.extents.reserve(stripe(0), BLOCKS).await.unwrap();
        assert_eq!((brick.space.free_now(), brick.space.used()), (free - BLOCKS, 0));
        drop(reserved);
        assert_eq!(brick.space.free_now(), free);
        let file = rig.extents.file(FILE, true, 0);
        let (group, hole) = rig.extents.get(&file, 3).await.unwrap();
        assert!(hole.is_hole());
        let reserved = rig.extents.reserve(stripe(3), BLOCKS).await.unwrap();
        let replaced = rig.extents.publish(&group, 3, &reserved, 0b101);
        assert_eq!(replaced, Replaced { before: 0, after: BLOCKS });
        drop(reserved);
        assert_eq!((brick.space.free_now(), brick.space.used()), (free - BLOCKS, BLOCKS));
        assert_eq!((group.get(3).written, group.get(3).blocks), (0b101, BLOCKS as u16));
    });
}

#[test]
fn what_is_freed_is_given_out_again_once_that_is_durable_and_not_before() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let file = rig.extents.file(FILE, true, 0);
        let brick = rig.bricks.get(0).unwrap();
        let (group, _) = rig.extents.get(&file, 0).await.unwrap();
        let reserved = rig.extents.reserve(stripe(0), BLOCKS).await.unwrap();
        let _ = rig.extents.publish(&group, 0, &reserved, 1);
        rig.commits.sync_all().await.unwrap();
        assert!(rig.store.snapshot().pairs().contains_key(&keys::extents(FILE, 0)));
        let first = group.get(0).start;
        rig.extents.prepare_free(group.get(0)).await.unwrap();
        let _ = rig.extents.clear(&group, 0);
        assert_eq!((brick.space.used(), brick.space.settling()), (0, BLOCKS));
        let other = rig.extents.reserve(stripe(0), BLOCKS).await.unwrap();
        assert_ne!(other.start(), first);
        drop(other);
        rig.commits.sync_all().await.unwrap();
        assert_eq!(brick.space.settling(), 0);
        assert!(!rig.store.snapshot().pairs().contains_key(&keys::extents(FILE, 0)));
    });
}

#[test]
fn an_extent_grows_where_it_is_as_long_as_the_blocks_behind_it_are_free() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let file = rig.extents.file(FILE, true, 0);
        let (group, _) = rig.extents.get(&file, 0).await.unwrap();
        let brick = rig.bricks.get(0).unwrap();
        let whole = rig.extents.reserve_on(&brick, BLOCKS).await.unwrap().unwrap();
        let _ = rig.extents.publish(&group, 0, &whole, 0);
        rig.extents.prepare_free(group.get(0)).await.unwrap();
        let cut = rig.extents.shorten(&group, 0, 4, 0b1111);
        assert_eq!(cut, Replaced { before: BLOCKS, after: 4 });
        let grown = rig.extents.extend(&group, 0, (8, 5), |_| true).await.unwrap();
        assert_eq!(grown, None, "the blocks behind it are not free before a commit");
        rig.commits.sync_all().await.unwrap();
        let grown = rig.extents.extend(&group, 0, (8, 5), |_| true).await.unwrap();
        assert_eq!(grown, Some(Replaced { before: 4, after: 8 }));
        let wanted = Extent { start: whole.start(), written: 0b1111, blocks: 8, ..Extent::HOLE };
        assert_eq!(group.get(0), wanted);
    });
}

struct Counted {
    work: Work,
    asked: Rc<Cell<u32>>,
}

impl Relief for Counted {
    fn is_freeing(&self) -> bool {
        false
    }

    fn work(&self) -> Work {
        self.work
    }

    fn defragment(&self) {
        self.asked.set(self.asked.get() + 1);
    }
}

#[test]
fn free_space_is_put_together_once_until_something_is_freed() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let asked = Rc::new(Cell::new(0));
        let relief = Counted { work: Work::None, asked: Rc::clone(&asked) };
        rig.extents.ask_for_room(Rc::new(relief));
        let brick = rig.bricks.get(0).unwrap();
        // One block of each stripe is taken: no whole stripe is left.
        let mut held = Vec::new();
        while let Some(run) = rig.extents.reserve_on(&brick, 1).await.unwrap() {
            held.push(run);
        }
        held.retain(|run| run.start() % BLOCKS == 0);
        held.iter().for_each(|run| run.lose());
        assert_eq!(rig.extents.reserve(stripe(0), BLOCKS).await.err(), Some(Errno::NoSpace));
        assert_eq!(asked.get(), 1);
        assert_eq!(rig.extents.reserve(stripe(0), BLOCKS).await.err(), Some(Errno::NoSpace));
        assert_eq!(asked.get(), 1, "it was put together, and nothing was freed since");
        let small = rig.extents.reserve_about(stripe(0), BLOCKS, 2).await.unwrap();
        assert_eq!(small.extent(0).blocks, 2);
    });
}
