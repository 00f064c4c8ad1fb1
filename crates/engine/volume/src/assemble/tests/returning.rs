//! Bricks that are taken back while the volume is mounted: what superblocks say at any moment of it.

use super::mounting::{Mounted, mount_with, restored, save};
use super::power::Power;
use super::*;
use crate::take_back;
use braid_filesystem::FileSystem;
use braid_format::brick::MetadataState;

const TAKE_BACK: AssembleOptions =
    AssembleOptions { degraded: false, take_back: true, read_only: false, minority: false };
const DEGRADED: AssembleOptions =
    AssembleOptions { degraded: true, take_back: false, read_only: false, minority: false };

/// Bricks that hold file "a".
fn written(sizes: &[u64]) -> Vec<Vec<u8>> {
    let bricks = Bricks::new(sizes);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    save(&bricks)
}

/// Has brick `id` fail a flush, and the superblocks say so.
fn lose(bricks: &Bricks, (opened, volume, cuts): &Mounted, id: u16) {
    let (opened, volume, cut) =
        (Rc::clone(opened), Rc::clone(volume), Rc::clone(&cuts[usize::from(id)]));
    bricks.run(async move {
        let ino = put(&volume, "b").await;
        cut.fail_flush();
        let _ = volume.fsync(ino, false).await;
        assert!(!volume.brick(id).unwrap().is_there());
        opened.brick_lost(id).await.unwrap();
    });
}

/// Takes brick `nr` back, as it is.
fn back(
    bricks: &Bricks,
    (opened, volume, _): &Mounted,
    power: &Power,
    nr: usize,
) -> Result<u16, String> {
    let (opened, volume, shard) = (Rc::clone(opened), Rc::clone(volume), bricks.shard.clone());
    let device = power.device(&bricks.rams[nr]);
    bricks.run(async move {
        let found = examine(&shard, device).await.map_err(|error| error.to_string())?;
        take_back(&opened, &volume, found).await.map_err(|error| error.to_string())
    })
}

/// All make up a volume, in which "a" is as it was.
fn is_well(bricks: &Bricks, options: AssembleOptions) {
    let assembly = bricks.assemble_some(&[0, 1, 2], options).unwrap();
    assert!(assembly.missing.is_empty(), "{:?}", assembly.missing);
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(holds(&volume, "a").await);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
}

#[test]
fn a_brick_that_was_lost_is_one_like_the_others_again() {
    let bricks = restored(&written(&[16, 16, 16]));
    let power = Power::default();
    let mounted = mount_with(&bricks, &power, 3).unwrap();
    lose(&bricks, &mounted, 0);
    let (opened, volume) = (Rc::clone(&mounted.0), Rc::clone(&mounted.1));
    assert_eq!(opened.superblocks.away(), [0]);
    assert_eq!(back(&bricks, &mounted, &power, 0), Ok(0));
    assert!(opened.superblocks.away().is_empty());
    bricks.run(async move {
        assert!(holds(&volume, "a").await);
        for name in ["c", "d"] {
            let ino = put(&volume, name).await;
            volume.fsync(ino, false).await.unwrap();
        }
        // It has its copy of the metadata again.
        assert_eq!(opened.store.settled_bricks().await.len(), 3);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    drop(mounted);
    let assembly = bricks.assemble().unwrap();
    assert!(!assembly.unclean && assembly.notes.is_empty(), "{:?}", assembly.notes);
    is_well(&bricks, AssembleOptions::default());
}

#[test]
fn a_power_cut_at_any_superblock_of_a_return_leaves_all_bricks_usable() {
    let saved = written(&[16, 16, 16]);
    // With a brick that has missed mounts, too.
    for missed in [0, 5] {
        let mut cuts = 0;
        for number in 0.. {
            let bricks = restored(&saved);
            for _ in 0..missed {
                let assembly = bricks.assemble_some(&[0, 1], DEGRADED).unwrap();
                let opened = bricks.open(assembly);
                bricks.run(async move { opened.close().await.unwrap() });
            }
            let power = Power::default();
            let mounted = match missed {
                0 => {
                    let mounted = mount_with(&bricks, &power, 3).unwrap();
                    lose(&bricks, &mounted, 2);
                    mounted
                }
                _ => {
                    let devices = [0, 1].map(|nr| power.device(&bricks.rams[nr]) as Rc<dyn Device>);
                    let found = bricks.found(devices.to_vec());
                    let (opened, volume) = bricks.mount(assemble(found, DEGRADED).unwrap());
                    (opened, volume, Vec::new())
                }
            };
            power.cut_in(number);
            let done = back(&bricks, &mounted, &power, 2);
            let is_cut = power.is_off();
            power.off();
            assert!(is_cut || done == Ok(2), "{done:?}");
            is_well(&bricks, if done.is_ok() { AssembleOptions::default() } else { TAKE_BACK });
            if !is_cut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 12 + 2 * missed, "{cuts}");
    }
}

#[test]
fn a_return_that_its_brick_does_not_take_can_be_tried_again_and_after_a_mount() {
    let saved = written(&[16, 16, 16]);
    for number in 0.. {
        for again in [true, false] {
            let bricks = restored(&saved);
            let power = Power::default();
            let mounted = mount_with(&bricks, &power, 3).unwrap();
            lose(&bricks, &mounted, 2);
            // Only the brick that returns fails.
            let own = Power::cut_at(number);
            let first = back(&bricks, &mounted, &own, 2);
            let (opened, volume) = (Rc::clone(&mounted.0), Rc::clone(&mounted.1));
            if first.is_ok() && !own.is_off() {
                assert!(number > 4);
                return;
            }
            // Others come and go meanwhile.
            let own = Rc::clone(&opened);
            bricks.run(async move {
                for weight in 5..9 {
                    use braid_format::brick::BrickState;
                    own.superblocks.changed(1, BrickState::Data, weight).await.unwrap();
                }
            });
            if again {
                assert_eq!(back(&bricks, &mounted, &power, 2), Ok(2), "after {number}: {first:?}");
            }
            bricks.run(async move {
                volume.close().await.unwrap();
                opened.close().await.unwrap();
            });
            is_well(&bricks, if again { AssembleOptions::default() } else { TAKE_BACK });
        }
    }
}

#[test]
fn an_image_another_volume_and_a_removed_brick_are_refused() {
    let saved = written(&[16, 16, 16]);
    let bricks = restored(&saved);
    // The images are of before this mount.
    bricks.with(|volume| async move {
        put(&volume, "c").await;
    });
    let power = Power::default();
    let mounted = mount_with(&bricks, &power, 3).unwrap();
    let refused = |nr: usize| back(&bricks, &mounted, &power, nr).unwrap_err();
    assert!(refused(2).contains("in use"), "{}", refused(2));
    lose(&bricks, &mounted, 2);
    let now = save(&bricks);
    bricks.rams[2].memory().write(0, &saved[2]);
    assert!(refused(2).contains("not as it was when it was lost"), "{}", refused(2));
    let other = Bricks::blank(&[16]);
    other.create("other", 9, &other.devices()).unwrap();
    bricks.rams[2].memory().write(0, &save(&other)[0]);
    assert!(refused(2).contains("\"other\""), "{}", refused(2));
    bricks.rams[2].memory().write(0, &[0; 4096]);
    bricks.rams[2].memory().write((16 << 20) - 4096, &[0; 4096]);
    assert!(refused(2).contains("not a brick"), "{}", refused(2));
    bricks.rams[2].memory().write(0, &now[2]);
    let opened = Rc::clone(&mounted.0);
    bricks.run(async move { opened.brick_removed(2).await.unwrap() });
    assert!(refused(2).contains("has been removed"), "{}", refused(2));
}

#[test]
fn what_a_brick_has_of_the_metadata_does_not_count_when_it_is_back() {
    let bricks = restored(&written(&[16, 16]));
    let power = Power::default();
    let mounted = mount_with(&bricks, &power, 2).unwrap();
    lose(&bricks, &mounted, 1);
    assert_eq!(back(&bricks, &mounted, &power, 1), Ok(1));
    let (opened, volume) = (Rc::clone(&mounted.0), Rc::clone(&mounted.1));
    bricks.run(async move {
        let ino = put(&volume, "c").await;
        volume.fsync(ino, false).await.unwrap();
        assert_eq!(opened.store.settled_bricks().await, [0, 1]);
        let (_, superblock) = opened.superblocks.brick(1).unwrap();
        assert_eq!(superblock.metadata_state, MetadataState::InSync);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    let assembly = bricks.assemble_some(&[1], DEGRADED).unwrap();
    let (_opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(volume.resolve(b"/c").await.is_ok(), "the copy that was made is whole");
    });
}
