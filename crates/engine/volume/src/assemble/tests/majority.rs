//! Metadata on three bricks: two of them decide, whichever they are.

use super::mounting::{Mounted, mount_with, restored, save};
use super::power::Power;
use super::*;
use braid_filesystem::FileSystem;
use braid_format::volume::brick_record::BrickState as BrickUse;

const DEGRADED: AssembleOptions =
    AssembleOptions { degraded: true, take_back: false, read_only: false, minority: false };
const TAKE_BACK: AssembleOptions =
    AssembleOptions { degraded: false, take_back: true, read_only: false, minority: false };
const MINORITY: AssembleOptions = AssembleOptions { minority: true, ..DEGRADED };
const ALL: std::ops::Range<u64> = 0..32 << 20;

/// Three bricks, all of which hold the metadata, with the file "a".
fn three() -> Vec<Vec<u8>> {
    let bricks = Bricks::new(&[32, 32, 32]);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    save(&bricks)
}

/// Puts some bricks together, writes the file `name`, whose bytes need not be on them all, and unmounts.
fn goes_on(bricks: &Bricks, which: &[usize], options: AssembleOptions, name: &'static str) {
    let (opened, volume) = bricks.mount(bricks.assemble_some(which, options).unwrap());
    bricks.run(async move {
        let ino = put(&volume, name).await;
        volume.fsync(ino, false).await.unwrap();
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
}

/// True if the volume on some bricks knows the file `name`.
fn knows(bricks: &Bricks, which: &[usize], options: AssembleOptions, name: &'static str) -> bool {
    let (opened, volume) = bricks.mount(bricks.assemble_some(which, options).unwrap());
    bricks.run(async move {
        let is_there = volume.lookup(ROOT, name.as_bytes()).await.is_ok();
        volume.close().await.unwrap();
        opened.close().await.unwrap();
        is_there
    })
}

/// Mounts all three with what was away, waits until all hold the metadata, and unmounts.
fn made_whole(bricks: &Bricks) {
    let (opened, volume) = bricks.mount(bricks.assemble_some(&[0, 1, 2], TAKE_BACK).unwrap());
    let shard = bricks.shard.clone();
    bricks.run(async move {
        while opened.superblocks.hold_metadata().len() < 3 {
            shard.sleep(1_000_000).await;
        }
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    let assembly = bricks.assemble().unwrap();
    assert_eq!((&assembly.metadata[..], &assembly.holders[..]), (&[0, 1, 2][..], &[0, 1, 2][..]));
    assert!(assembly.notes.is_empty(), "{:?}", assembly.notes);
}

fn refused(bricks: &Bricks, which: &[usize], options: AssembleOptions) -> String {
    bricks.assemble_some(which, options).unwrap_err().to_string()
}

#[test]
fn one_of_three_that_is_lost_at_a_mount_is_no_question_and_is_made_again() {
    let saved = three();
    for lost in 0..3 {
        let bricks = restored(&saved);
        assert_eq!(bricks.assemble().unwrap().holders, [0, 1, 2]);
        let others: Vec<usize> = (0..3).filter(|nr| *nr != lost).collect();
        goes_on(&bricks, &others, DEGRADED, "b");
        made_whole(&bricks);
        for pair in [[0, 1], [0, 2], [1, 2]] {
            assert!(knows(&restored(&save(&bricks)), &pair, DEGRADED, "b"), "{lost}, {pair:?}");
        }
    }
}

#[test]
fn one_alone_is_refused_unless_somebody_insists() {
    let bricks = restored(&three());
    for here in 0..3 {
        let text = refused(&bricks, &[here], DEGRADED);
        let told = format!("only brick {here} is current and there");
        assert!(text.contains(&told) && text.contains("--minority"), "{text}");
    }
    assert!(knows(&bricks, &[1], MINORITY, "a"));
    // It decides alone now, and the others were away.
    assert!(bricks.assemble_some(&[1], DEGRADED).unwrap().holders.is_empty());
    assert!(matches!(bricks.assemble(), Err(AssembleError::WasAway { .. })));
    made_whole(&bricks);
}

#[test]
fn one_that_missed_changes_is_never_taken_for_the_newest() {
    let bricks = restored(&three());
    goes_on(&bricks, &[0, 1], DEGRADED, "b");
    let text = refused(&bricks, &[2], DEGRADED);
    assert!(text.contains("only brick 2 is current and there"), "{text}");
    // Beside one that went on it is known as what it is.
    assert_eq!(bricks.assemble_some(&[1, 2], DEGRADED).unwrap().metadata, [1]);
    assert!(knows(&bricks, &[1, 2], DEGRADED, "b"));
    made_whole(&bricks);
}

/// Writes the file `name` and has it made durable.
fn put_durably((_, volume, _): &Mounted, bricks: &Bricks, name: &'static str) -> bool {
    let own = Rc::clone(volume);
    bricks.run(async move {
        let ino = file(&own, name).await;
        own.fsync(ino, false).await.is_ok()
    })
}

#[test]
fn of_three_that_are_lost_one_after_the_other_the_last_goes_on() {
    let bricks = restored(&three());
    let power = Power::default();
    let mounted = mount_with(&bricks, &power, 3).unwrap();
    for lost in [2u16, 0] {
        mounted.2[usize::from(lost)].refuse(ALL);
        let own = Rc::clone(&mounted.0);
        bricks.run(async move { own.brick_lost(lost).await.unwrap() });
    }
    assert_eq!(mounted.0.superblocks.hold_metadata(), [1]);
    assert_eq!(mounted.0.superblocks.stopped(), None);
    let own = Rc::clone(&mounted.0);
    bricks.run(async move { own.brick_changed(1, BrickUse::Data, 7).await.unwrap() });
    power.off();
    drop(mounted);
    assert!(knows(&bricks, &[1], DEGRADED, "a"));
    made_whole(&bricks);
}

#[test]
fn two_of_three_that_vanish_together_stop_writes_and_nothing_is_lost() {
    let saved = three();
    for last in 0..3usize {
        let bricks = restored(&saved);
        let power = Power::default();
        let mounted = mount_with(&bricks, &power, 3).unwrap();
        assert!(put_durably(&mounted, &bricks, "b"));
        for gone in (0..3).filter(|gone| *gone != last) {
            mounted.2[gone].refuse(ALL);
        }
        let own = Rc::clone(&mounted.0);
        let first = (last as u16 + 1) % 3;
        let noted = bricks.run(async move { own.brick_lost(first).await }).unwrap_err();
        assert!(noted.to_string().contains("of three with its metadata"), "{noted}");
        assert!(mounted.0.superblocks.stopped().is_some());
        power.off();
        drop(mounted);
        for pair in [[0, 1], [0, 2], [1, 2]] {
            let bricks = restored(&save(&bricks));
            let together = AssembleOptions { degraded: true, ..TAKE_BACK };
            match bricks.assemble_some(&pair, together) {
                Ok(_) => assert!(knows(&bricks, &pair, together, "b"), "{last}, {pair:?}"),
                Err(AssembleError::Minority { .. }) => {}
                Err(error) => panic!("{last}, {pair:?}: {error}"),
            }
        }
        assert!(knows(&bricks, &[0, 1, 2], TAKE_BACK, "b"));
        made_whole(&bricks);
    }
}

#[test]
fn whenever_the_power_goes_while_one_is_lost_any_two_know_what_was_durable() {
    let saved = three();
    for lost in 0..3u16 {
        for number in 0.. {
            let bricks = restored(&saved);
            // The superblocks of the mount.
            let power = Power::cut_at(12 + number);
            let mounted = mount_with(&bricks, &power, 3).unwrap();
            mounted.2[usize::from(lost)].refuse(ALL);
            let durable = put_durably(&mounted, &bricks, "b");
            let over = !power.is_off();
            power.off();
            drop(mounted);
            for pair in [[0, 1], [0, 2], [1, 2]] {
                let bricks = restored(&save(&bricks));
                let together = AssembleOptions { degraded: true, ..TAKE_BACK };
                if bricks.assemble_some(&pair, together).is_ok() && durable {
                    let known = knows(&bricks, &pair, together, "b");
                    assert!(known, "{lost} lost, cut at {number}, {pair:?}");
                }
            }
            made_whole(&bricks);
            if over {
                break;
            }
        }
    }
}

#[test]
fn a_volume_of_two_regions_gets_a_third_at_the_next_mount_with_a_brick_that_has_room() {
    let bricks = Bricks::new(&[32, 32, 32]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    bricks.run(async move {
        opened.store.drop_leg(2).await.unwrap();
        put(&volume, "a").await;
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    let found = bricks.found(bricks.devices());
    let state = |nr: usize| found[nr].superblock.metadata_state;
    assert_eq!((state(1), state(2)), (MetadataState::InSync, MetadataState::Unused));
    // As an earlier version writes it.
    assert!(found.iter().all(|brick| brick.superblock.metadata_holders.is_empty()));
    made_whole(&bricks);
    assert!(knows(&bricks, &[1, 2], DEGRADED, "a"));
}

#[test]
fn a_brick_with_metadata_is_removed_and_a_fourth_takes_its_place() {
    let bricks = Bricks::new(&[32, 32, 32, 32]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    bricks.run(async move {
        put(&volume, "a").await;
        assert_eq!(opened.store.bricks(), [0, 1, 2]);
        volume.start_job(crate::NewJob::Remove { brick: 1 }).await.unwrap();
        volume.wait_job().await.unwrap();
        opened.brick_removed(1).await.unwrap();
        assert_eq!(opened.superblocks.hold_metadata(), [0, 2, 3]);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    let assembly = bricks.assemble_some(&[0, 2, 3], AssembleOptions::default()).unwrap();
    assert_eq!((&assembly.holders[..], assembly.metadata.len()), (&[0, 2, 3][..], 3));
    assert!(knows(&bricks, &[2, 3], DEGRADED, "a"));
}
