//! Bricks that hold the metadata and vanish, in any order, one after the other or together.

use super::mounting::{mount_with, restored, save};
use super::power::Power;
use super::*;
use crate::tests::make;
use braid_filesystem::{Errno, FileSystem, Kind};
use braid_format::brick::{Away, BrickSuperblock};
use braid_format::volume::brick_record::BrickState;

const DEGRADED: AssembleOptions =
    AssembleOptions { degraded: true, take_back: false, read_only: false, minority: false };
const TAKE_BACK: AssembleOptions =
    AssembleOptions { degraded: false, take_back: true, read_only: false, minority: false };
const ALL: std::ops::Range<u64> = 0..32 << 20;

/// Mounts with all bricks, and finds "a" there; then the volume is as it should be.
fn mounts_whole(bricks: &Bricks, options: AssembleOptions, when: &str) {
    let assembly = bricks.assemble_some(&[0, 1, 2], options);
    let assembly = assembly.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(assembly.missing.is_empty(), "{when}");
    let (opened, volume) = bricks.mount(assembly);
    let when = when.to_string();
    bricks.run(async move {
        assert!(holds(&volume, "a").await, "{when}");
        put(&volume, "b").await;
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{when}");
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    assert!(
        bricks.with(|volume| async move { holds(&volume, "a").await && holds(&volume, "b").await })
    );
}

/// Three bricks, the first two of which hold the metadata, with the file "a".
fn three() -> Vec<Vec<u8>> {
    let bricks = Bricks::on_two(&[32, 32, 32]);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    save(&bricks)
}

#[test]
fn both_bricks_with_metadata_vanish_and_come_back() {
    let saved = three();
    for (first, second) in [(0usize, 1usize), (1, 0)] {
        let bricks = restored(&saved);
        let power = Power::default();
        let (opened, volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
        let own = Rc::clone(&opened);
        // The superblocks that note the first as lost find the second gone.
        cuts[first].refuse(ALL);
        cuts[second].refuse(ALL);
        let noted = bricks.run(async move { own.brick_lost(first as u16).await });
        let noted = noted.unwrap_err().to_string();
        assert!(noted.contains(&format!("ram{second}, the last with its metadata")), "{noted}");
        assert_eq!(opened.superblocks.stopped(), Some(noted));
        let (_, last) = opened.superblocks.brick(second as u16).unwrap();
        assert_eq!(last.metadata_state, MetadataState::InSync);
        power.off();
        drop((opened, volume));
        let when = format!("{first} first");
        // Whoever is back first: what is mounted without the others can be made whole again.
        let some = bricks.assemble_some(&[second, 2], DEGRADED);
        assert_eq!(some.unwrap().metadata, [second as u16], "{when}");
        mounts_whole(&bricks, TAKE_BACK, &when);
    }
}

#[test]
fn no_superblock_is_written_to_others_while_no_brick_with_metadata_takes_it() {
    let bricks = restored(&three());
    let power = Power::default();
    let (opened, volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
    cuts[0].refuse(0..4096);
    cuts[1].refuse(0..4096);
    let before = bricks.found(vec![bricks.rams[2].device()])[0].superblock.generation;
    let weigh = |weight| {
        let own = Rc::clone(&opened);
        bricks.run(async move { own.brick_changed(2, BrickState::Data, weight).await })
    };
    for weight in [5, 5, 6] {
        assert!(matches!(weigh(weight), Err(AssembleError::NoHolder { .. })));
        let now = bricks.found(vec![bricks.rams[2].device()])[0].superblock.generation;
        assert_eq!(now, before);
    }
    // One is back, and it goes on.
    cuts[1].refuse(0..0);
    weigh(6).unwrap();
    assert_eq!(opened.superblocks.stopped(), None);
    assert_eq!(opened.superblocks.away(), [0]);
    let own = Rc::clone(&volume);
    bricks.run(async move {
        let ino = put(&own, "c").await;
        own.fsync(ino, false).await.unwrap();
    });
    power.off();
    drop((opened, volume));
    mounts_whole(&bricks, TAKE_BACK, "after one was back");
    assert!(bricks.with(|volume| async move { holds(&volume, "c").await }));
}

#[test]
fn a_power_cut_at_any_superblock_while_the_last_holder_fails_leaves_a_whole_volume() {
    let saved = three();
    for number in 0.. {
        let bricks = restored(&saved);
        let power = Power::cut_at(12 + number);
        let (opened, volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
        let own = Rc::clone(&opened);
        cuts[0].refuse(ALL);
        // Its first superblock is written, and the second not.
        cuts[1].refuse(32 * MIB - 4096..32 * MIB);
        let noted = bricks.run(async move { own.brick_lost(0).await });
        assert!(noted.is_err());
        let over = !power.is_off();
        power.off();
        drop((opened, volume));
        mounts_whole(&bricks, TAKE_BACK, &format!("cut at {number}"));
        if over {
            break;
        }
    }
}

#[test]
fn writes_are_refused_without_metadata_and_reads_go_on() {
    let bricks = restored(&three());
    let power = Power::default();
    let (opened, volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
    let own = Rc::clone(&volume);
    bricks.run(async move {
        assert!(holds(&own, "a").await);
        let ino = put(&own, "late").await;
        cuts[0].fail_flush();
        cuts[1].fail_flush();
        assert!(own.fsync(ino, false).await.is_err());
        assert_eq!(make(&own, ROOT, "c", Kind::File).await.err(), Some(Errno::ReadOnly));
        let ino = own.lookup(ROOT, b"a").await.unwrap().attr.ino;
        assert_eq!(own.attr(ino).await.unwrap().size, 300_000);
    });
    power.off();
    drop((opened, volume));
    mounts_whole(&bricks, TAKE_BACK, "after failed flushes");
}

/// The superblocks that earlier versions wrote to the third brick when the first was lost, and then the second in the
/// same pass.
fn damaged() -> Bricks {
    let bricks = restored(&three());
    let found = bricks.found(bricks.devices());
    let generation = found[0].superblock.generation;
    let mut third = found[2].superblock.clone();
    third.generation = generation + 3;
    third.volume_state = braid_format::brick::VolumeState::Mounted;
    third.away =
        vec![Away { brick_id: 0, generation }, Away { brick_id: 1, generation: generation + 1 }];
    let memory = bricks.rams[2].memory();
    memory.write(0, &third.to_bytes());
    memory.write((32 * MIB - 4096) as usize, &third.to_bytes());
    bricks
}

#[test]
fn a_volume_all_of_whose_metadata_was_called_away_is_taken_back() {
    let bricks = damaged();
    assert!(matches!(bricks.assemble(), Err(AssembleError::WasAway { id: 0, .. })));
    let assembly = bricks.assemble_some(&[0, 1, 2], TAKE_BACK).unwrap();
    assert_eq!((&assembly.metadata[..], &assembly.metadata_behind[..]), (&[1][..], &[0][..]));
    let told = assembly.notes.iter().any(|note| note.contains("Brick 1 was the last of them"));
    assert!(told, "{:?}", assembly.notes);
    mounts_whole(&bricks, TAKE_BACK, "damaged");
    // The first may lack what was committed to the second after it went.
    let both = AssembleOptions { degraded: true, ..TAKE_BACK };
    let without = damaged().assemble_some(&[0, 2], both).unwrap_err();
    assert!(matches!(without, AssembleError::NoMetadata { .. }), "{without}");
    let with = damaged().assemble_some(&[1, 2], both).unwrap();
    assert_eq!(with.metadata, [1]);
}

#[test]
fn a_power_cut_while_bricks_are_taken_back_leaves_them_to_be_taken_back() {
    let saved = save(&damaged());
    for number in 0.. {
        let bricks = restored(&saved);
        let power = Power::cut_at(number);
        let devices = bricks.rams.iter().map(|ram| power.device(ram) as Rc<dyn Device>).collect();
        let assembly = assemble(bricks.found(devices), TAKE_BACK).unwrap();
        let shard = bricks.shard.clone();
        let opened = bricks.run(async move { open(&shard, assembly, clock(), CACHE).await });
        power.off();
        let over = opened.is_ok();
        drop(opened);
        mounts_whole(&bricks, TAKE_BACK, &format!("cut at {number}"));
        if over {
            break;
        }
    }
}

/// Takes all bricks back, until the power goes. True: it does not.
fn taken_back(bricks: &Bricks, power: &Power) -> bool {
    let devices = bricks.rams.iter().map(|ram| power.device(ram) as Rc<dyn Device>).collect();
    let assembly = assemble(bricks.found(devices), TAKE_BACK).unwrap();
    let shard = bricks.shard.clone();
    let opened = bricks.run(async move { open(&shard, assembly, clock(), CACHE).await });
    power.off();
    opened.is_ok()
}

#[test]
fn power_cuts_in_the_same_superblock_do_not_make_it_one_that_nobody_expects() {
    let bricks = Bricks::on_two(&[16, 16, 16, 16, 16]);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    for _ in 0..2 {
        let (opened, volume) = bricks.mount(bricks.assemble_some(&[0, 1], DEGRADED).unwrap());
        bricks.run(async move {
            volume.close().await.unwrap();
            opened.close().await.unwrap();
        });
    }
    let saved = save(&bricks);
    let torn_at = |number: &u32| {
        let bricks = restored(&saved);
        taken_back(&bricks, &Power::cut_with(*number, 0..512));
        // Of the last brick the first sector of a superblock got there, and not the next one.
        !bricks.found(bricks.devices())[4].notes.is_empty()
    };
    let first = (0..).find(torn_at).unwrap();
    let bricks = restored(&saved);
    taken_back(&bricks, &Power::cut_with(first, 0..512));
    // Those of bricks 2 and 3 were under way together with it, and are lost.
    let forget = || {
        for (ram, had) in bricks.rams.iter().zip(&saved).skip(2).take(2) {
            ram.memory().write(0, had);
        }
    };
    forget();
    // The next one comes when only the bricks with metadata have got theirs.
    taken_back(&bricks, &Power::cut_with(4, 0..512));
    forget();
    let saved = save(&bricks);
    for second in 0.. {
        let bricks = restored(&saved);
        let is_over = taken_back(&bricks, &Power::cut_with(second, 512..4096));
        let all = bricks.assemble_some(&[0, 1, 2, 3, 4], TAKE_BACK);
        let all = all.unwrap_or_else(|error| panic!("cut at {first} and {second}: {error}"));
        assert!(all.missing.is_empty(), "cut at {first} and {second}");
        if is_over {
            break;
        }
    }
}

#[test]
fn a_brick_that_ran_on_without_metadata_is_taken_back_after_a_mount_without_it() {
    let bricks = damaged();
    let (opened, volume) = bricks.mount(bricks.assemble_some(&[0, 1], DEGRADED).unwrap());
    bricks.run(async move {
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    mounts_whole(&bricks, TAKE_BACK, "after a mount without it");
}

/// As [`damaged`], with two bricks without metadata that went on, and then mounts without them. `change` is made to the
/// superblock of the last.
fn two_ran_on(change: impl Fn(&mut BrickSuperblock)) -> Bricks {
    let bricks = Bricks::on_two(&[32, 32, 32, 32]);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    let found = bricks.found(bricks.devices());
    let generation = found[0].superblock.generation;
    for nr in [2, 3] {
        let mut superblock = found[nr].superblock.clone();
        superblock.generation = generation + 3 + u64::from(nr == 2);
        superblock.volume_state = braid_format::brick::VolumeState::Mounted;
        superblock.away = vec![
            Away { brick_id: 0, generation },
            Away { brick_id: 1, generation: generation + 1 },
        ];
        if nr == 3 {
            change(&mut superblock);
        }
        let memory = bricks.rams[nr].memory();
        memory.write(0, &superblock.to_bytes());
        memory.write((32 * MIB - 4096) as usize, &superblock.to_bytes());
    }
    // Until their superblocks are newer by more than an interruption can explain.
    for _ in 0..3 {
        let (opened, volume) = bricks.mount(bricks.assemble_some(&[0, 1], DEGRADED).unwrap());
        bricks.run(async move {
            volume.close().await.unwrap();
            opened.close().await.unwrap();
        });
    }
    bricks
}

#[test]
fn several_bricks_that_ran_on_without_metadata_are_taken_back_together() {
    let bricks = two_ran_on(|_| {});
    assert!(matches!(bricks.assemble(), Err(AssembleError::WasAway { id: 2, .. })));
    // By itself it may have been in use with the other, which may have had metadata.
    let both = AssembleOptions { degraded: true, ..TAKE_BACK };
    let assembly = bricks.assemble_some(&[0, 1, 2], both).unwrap();
    assert_eq!(assembly.missing, [2, 3]);
    let assembly = bricks.assemble_some(&[0, 1, 2, 3], TAKE_BACK).unwrap();
    assert_eq!((assembly.missing.len(), &assembly.metadata[..]), (0, &[0, 1][..]));
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(holds(&volume, "a").await);
        put(&volume, "b").await;
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    assert!(bricks.assemble().unwrap().notes.is_empty());
}

#[test]
fn bricks_that_ran_on_with_metadata_stay_stale() {
    let with_metadata = two_ran_on(|superblock| {
        superblock.metadata = Area { offset: MIB, len: 4 * MIB };
        superblock.metadata_state = MetadataState::InSync;
        superblock.metadata_generation = superblock.generation;
    });
    // One went later, and nobody knows with what.
    let later = two_ran_on(|superblock| superblock.away[1].generation = superblock.generation);
    for bricks in [with_metadata, later] {
        let stale = bricks.assemble_some(&[0, 1, 2, 3], TAKE_BACK).unwrap_err();
        assert!(matches!(stale, AssembleError::Stale { id: 2, .. }), "{stale}");
    }
}
