//! The metadata region grows while the volume is used.

use super::full::fill;
use super::power::Power;
use super::*;
use crate::grow_metadata;
use braid_filesystem::{Errno, FileSystem};

/// Bricks of so many MiB with regions of 4 MiB.
fn small_regions(sizes: &[u64]) -> Bricks {
    let bricks = Bricks::blank(sizes);
    let new = NewVolume { metadata_size: Some(4 * MIB), ..new_volume("data", 1) };
    let plan = plan_create(&new, &plan_of(&bricks.devices(), 1)).unwrap();
    let (shard, devices) = (bricks.shard.clone(), bricks.devices());
    bricks.run(async move { create(&shard, plan, &devices, clock()).await }).unwrap();
    bricks
}

async fn problems(volume: &Rc<Volume>) -> Vec<String> {
    volume.check(false).await.unwrap().problems
}

/// Fills the end of the first brick with the ends of files.
async fn put_small(volume: &Rc<Volume>, count: usize) {
    for number in 0..count {
        let ino = file(volume, &format!("small{number}")).await;
        write(volume, ino, 0, &vec![number as u8; 40_000]).await.unwrap();
        volume.forget(ino, 1);
    }
    volume.sync().await.unwrap();
}

async fn small_are_whole(volume: &Volume, count: usize) -> bool {
    for number in 0..count {
        let entry = volume.lookup(ROOT, format!("small{number}").as_bytes()).await.unwrap();
        if read_all(volume, entry.attr.ino).await != vec![number as u8; 40_000] {
            return false;
        }
        volume.forget(entry.attr.ino, 1);
    }
    true
}

fn full_then_grown(sizes: &[u64], grown_on: &'static [u16]) {
    let bricks = small_regions(sizes);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    let (own, shut) = (Rc::clone(&volume), Rc::clone(&opened));
    let made = bricks.run(async move {
        let (opened, volume) = (shut, own);
        put_small(&volume, 30).await;
        put(&volume, "large").await;
        let (made, ends) = fill(&volume, 8, 0).await;
        assert!(ends.iter().all(|error| *error == Errno::NoSpace), "{ends:?}");
        assert!(made.len() > 1000, "{}", made.len());
        let before = volume.status();
        let grown = grow_metadata(&opened, &volume, 12 * MIB).await.unwrap();
        assert_eq!(grown, grown_on);
        let after = volume.status();
        assert!(after.metadata.capacity > before.metadata.capacity + 6 * MIB);
        let (first, second) = (&before.bricks[0], &after.bricks[0]);
        assert_eq!(first.blocks - second.blocks, 8 * MIB / 4096);
        assert!(second.weight < first.weight, "{} {}", second.weight, first.weight);
        assert_eq!(problems(&volume).await, Vec::<String>::new());
        let more = fill(&volume, 8, 1 << 20).await.0;
        assert!(more.len() > made.len(), "{} after {}", more.len(), made.len());
        let error = grow_metadata(&opened, &volume, 12 * MIB).await.unwrap_err().to_string();
        assert!(error.contains("larger size"), "{error}");
        let error = grow_metadata(&opened, &volume, 1 << 40).await.unwrap_err().to_string();
        assert!(error.contains("choose a smaller size"), "{error}");
        assert!(small_are_whole(&volume, 30).await && holds(&volume, "large").await);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
        made.into_iter().chain(more).collect::<Vec<u64>>()
    });
    let assembly = bricks.assemble().unwrap();
    assert_eq!(assembly.bricks[&0].superblock.metadata_size(), 12 * MIB);
    bricks.with(move |volume| async move {
        for number in made {
            let entry = volume.lookup(ROOT, format!("f{number}").as_bytes()).await.unwrap();
            volume.forget(entry.attr.ino, 1);
        }
        assert!(small_are_whole(&volume, 30).await && holds(&volume, "large").await);
        assert_eq!(problems(&volume).await, Vec::<String>::new());
    });
}

#[test]
fn a_full_region_grows_on_both_bricks_that_hold_it_and_on_one_that_could() {
    full_then_grown(&[40, 40, 40], &[0, 1, 2]);
}

#[test]
fn a_full_region_grows_on_the_only_brick_that_holds_it() {
    full_then_grown(&[40], &[0]);
}

#[test]
fn what_lies_at_the_end_of_a_brick_moves_and_without_room_for_it_nothing_changes() {
    let bricks = small_regions(&[40]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    bricks.run(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &vec![1; 30 << 20]).await.unwrap();
        put_small(&volume, 5).await;
        let before = volume.status();
        let error = grow_metadata(&opened, &volume, 12 * MIB).await.unwrap_err().to_string();
        assert!(error.contains("add a brick, remove files"), "{error}");
        let after = volume.status();
        assert_eq!(after.bricks[0].blocks, before.bricks[0].blocks);
        // There is room for this, if what is at the end makes way.
        grow_metadata(&opened, &volume, 6 * MIB).await.unwrap();
        assert_eq!(read_all(&volume, ino).await, vec![1; 30 << 20]);
        assert!(small_are_whole(&volume, 5).await);
        assert_eq!(problems(&volume).await, Vec::<String>::new());
        // All free blocks can be had, to the last.
        let other = file(&volume, "b").await;
        let mut at = 0;
        while write(&volume, other, at, &[2; 65536]).await.is_ok() {
            at += 65536;
        }
        assert!(at > 1 << 20, "{at}");
        volume.sync().await.unwrap();
        assert_eq!(problems(&volume).await, Vec::<String>::new());
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
}

/// The region grows, and the power goes instead of write `cut`. False: it did not go.
fn survives(cut: u32, sizes: &[u64]) -> bool {
    let bricks = small_regions(sizes);
    bricks.with(|volume| async move {
        put_small(&volume, 12).await;
        put(&volume, "large").await;
    });
    let power = Power::cut_at_write(cut);
    let devices: Vec<Rc<dyn Device>> =
        bricks.rams.iter().map(|ram| power.device(ram) as Rc<dyn Device>).collect();
    let assembly = assemble(bricks.found(devices), AssembleOptions::default()).unwrap();
    let shard = bricks.shard.clone();
    let went = bricks.run(async move {
        let Ok(opened) = open(&shard, assembly, clock(), CACHE).await else { return true };
        let Ok(volume) = Volume::mount(&shard, opened.mount_of()).await else { return true };
        let grown = grow_metadata(&opened, &volume, 12 * MIB).await;
        if power.is_off() {
            volume.transactions.end();
            return true;
        }
        grown.unwrap();
        power.stays_on();
        // Without an end in order.
        put(&volume, "after").await;
        volume.sync().await.unwrap();
        power.off();
        volume.transactions.end();
        false
    });
    let assembly = bricks.assemble().unwrap_or_else(|error| panic!("{cut}: {error}"));
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(small_are_whole(&volume, 12).await, "{cut}");
        assert!(holds(&volume, "large").await, "{cut}");
        assert_eq!(went, !holds(&volume, "after").await, "{cut}");
        assert_eq!(problems(&volume).await, Vec::<String>::new(), "{cut}");
        let regions = opened.superblocks.regions();
        if regions.iter().any(|(_, _, len)| *len < 12 * MIB) {
            grow_metadata(&opened, &volume, 12 * MIB).await.unwrap();
        }
        put(&volume, "again").await;
        assert!(volume.status().metadata.capacity > 8 * MIB, "{cut}");
        assert_eq!(problems(&volume).await, Vec::<String>::new(), "{cut}");
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    bricks.with(move |volume| async move {
        assert!(small_are_whole(&volume, 12).await && holds(&volume, "again").await, "{cut}");
        let blocks = volume.status().bricks[0].blocks;
        assert!(blocks <= (40 - 1 - 12) * MIB / 4096, "{cut}: {blocks}");
    });
    went
}

#[test]
fn a_power_cut_at_any_write_leaves_a_volume_that_grows_after_all() {
    let cuts = (0..).take_while(|cut| survives(*cut, &[40, 40])).count();
    assert!(cuts > 40, "{cuts}");
}
