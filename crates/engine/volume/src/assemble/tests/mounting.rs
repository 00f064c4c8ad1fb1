//! The state of bricks after mounts, crashes and changes of bricks.

use super::power::{Cut, Power};
use super::*;
use crate::tests::make;
use crate::{BrickToAdd, NewJob};
use braid_filesystem::{Errno, FileSystem, Kind, ROOT};
use std::cell::Cell;

/// The content of the bricks.
pub(super) fn save(bricks: &Bricks) -> Vec<Vec<u8>> {
    let save = |ram: &Ram| {
        let mut bytes = vec![0; ram.memory().len()];
        ram.memory().read(0, &mut bytes);
        bytes
    };
    bricks.rams.iter().map(save).collect()
}

/// Bricks that hold this.
pub(super) fn restored(saved: &[Vec<u8>]) -> Bricks {
    let sizes: Vec<u64> = saved.iter().map(|bytes| bytes.len() as u64 / MIB).collect();
    let bricks = Bricks::blank(&sizes);
    for (ram, bytes) in bricks.rams.iter().zip(saved) {
        ram.memory().write(0, bytes);
    }
    bricks
}

/// A mounted volume and its devices.
pub(super) type Mounted = (Rc<Opened>, Rc<Volume>, Vec<Rc<Cut>>);

/// Mounts the first `count` bricks, with such power.
pub(super) fn mount_with(bricks: &Bricks, power: &Power, count: usize) -> Result<Mounted, String> {
    let cuts: Vec<Rc<Cut>> = bricks.rams.iter().map(|ram| power.device(ram)).collect();
    let devices = cuts[..count].iter().map(|cut| Rc::clone(cut) as Rc<dyn Device>).collect();
    let found = bricks.found(devices);
    let assembly = assemble(found, AssembleOptions::default()).unwrap();
    let shard = bricks.shard.clone();
    let opened = bricks.run(async move { open(&shard, assembly, clock(), CACHE).await });
    let opened = Rc::new(opened.map_err(|error| error.to_string())?);
    let from = opened.mount_of();
    let shard = bricks.shard.clone();
    let volume = bricks.run(async move { Volume::mount(&shard, from).await });
    Ok((opened, volume.map_err(|error| error.to_string())?, cuts))
}

/// All bricks that are one.
fn found_all(bricks: &Bricks) -> Vec<FoundBrick> {
    let (shard, devices) = (bricks.shard.clone(), bricks.devices());
    bricks.run(async move {
        let mut found = Vec::new();
        for device in devices {
            match examine(&shard, device).await {
                Ok(brick) => found.push(brick),
                Err(AssembleError::NotABrick { .. } | AssembleError::Superblock { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        found
    })
}

#[test]
fn files_are_there_again_after_an_unmount() {
    let bricks = Bricks::new(&[32, 48, 32]);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    let assembly = bricks.assemble().unwrap();
    assert_eq!((assembly.name.as_str(), assembly.unclean), ("data", false));
    assert_eq!(assembly.metadata, [0, 1, 2]);
    assert!(assembly.notes.is_empty(), "{:?}", assembly.notes);
    let right = bricks.with(|volume| async move { holds(&volume, "a").await });
    assert!(right);
}

#[test]
fn what_was_synced_is_there_after_a_crash() {
    let bricks = Bricks::new(&[32, 32]);
    let power = Power::default();
    let (_opened, volume, _) = mount_with(&bricks, &power, 2).unwrap();
    bricks.run(async move {
        let ino = put(&volume, "a").await;
        volume.fsync(ino, false).await.unwrap();
    });
    power.off();
    assert!(bricks.assemble().unwrap().unclean);
    assert!(bricks.with(|volume| async move { holds(&volume, "a").await }));
    assert!(!bricks.assemble().unwrap().unclean);
}

/// Mounts, writes, adds a brick, removes one, unmounts. Sets `synced` when "b" has been.
async fn busy(
    opened: &Opened,
    volume: &Rc<Volume>,
    new: Rc<dyn Device>,
    synced: &Cell<bool>,
) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let ino = file(volume, "b").await;
    write(volume, ino, 0, &content("b")).await.map_err(|error| said(&error))?;
    volume.fsync(ino, false).await.map_err(|error| said(&error))?;
    synced.set(true);
    let plan = BrickPlan {
        uuid: Uuid::from_u128(77),
        weight: None,
        domain: String::new(),
        info: new.info().clone(),
    };
    let superblock = opened.plan_add(&plan).await.map_err(|error| said(&error))?;
    opened.begin_add(&superblock, Rc::clone(&new)).await.map_err(|error| said(&error))?;
    let brick = BrickToAdd {
        uuid: plan.uuid,
        device: new,
        data_offset: superblock.data.offset,
        weight: superblock.weight,
        blocks: superblock.data.len / 4096,
        proxy: false,
        domain: String::new(),
        in_place_of: None,
    };
    let id = volume.add_brick(brick).await.map_err(|error| said(&error))?;
    assert_eq!(id, superblock.brick_id);
    opened.can_remove(0).map_err(|error| said(&error))?;
    volume.start_job(NewJob::Remove { brick: 0 }).await.map_err(|error| said(&error))?;
    volume.wait_job().await.map_err(|error| said(&error))?;
    opened.brick_removed(0).await.map_err(|error| said(&error))?;
    volume.close().await.map_err(|error| said(&error))?;
    opened.close().await.map_err(|error| said(&error))
}

#[test]
fn a_power_cut_at_any_superblock_leaves_a_volume_that_can_be_used() {
    let first = Bricks::new(&[16, 16, 16]);
    first.with(|volume| async move {
        put(&volume, "a").await;
    });
    let mut saved = save(&first);
    saved.push(vec![0; 16 << 20]);
    let mut number = 0;
    loop {
        let bricks = restored(&saved);
        let power = Power::cut_at(number);
        let synced = Rc::new(Cell::new(false));
        let ended = mount_with(&bricks, &power, 3).and_then(|(opened, volume, cuts)| {
            let (new, synced) = (Rc::clone(&cuts[3]) as Rc<dyn Device>, Rc::clone(&synced));
            bricks.run(async move { busy(&opened, &volume, new, &synced).await })
        });
        assert_eq!(ended.is_ok(), !power.is_off(), "cut at {number}: {ended:?}");
        power.off();
        let assembly = assemble(found_all(&bricks), AssembleOptions::default());
        let assembly = assembly.unwrap_or_else(|error| panic!("cut at {number}: {error}"));
        let (opened, volume) = bricks.mount(assembly);
        let was_synced = synced.get();
        bricks.run(async move {
            assert!(holds(&volume, "a").await, "cut at {number}");
            assert!(!was_synced || holds(&volume, "b").await, "cut at {number}");
            let report = volume.check(false).await.unwrap();
            assert_eq!(report.problems, Vec::<String>::new(), "cut at {number}");
            put(&volume, "c").await;
            volume.close().await.unwrap();
            opened.close().await.unwrap();
        });
        let assembly = assemble(found_all(&bricks), AssembleOptions::default()).unwrap();
        assert!(!assembly.unclean);
        assert_eq!(assembly.notes, Vec::<String>::new(), "cut at {number}");
        if ended.is_ok() {
            assert_eq!(assembly.bricks.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
            assert_eq!(assembly.metadata.len(), 3);
            break;
        }
        number += 1;
    }
    assert!(number > 40, "{number} superblocks");
}

#[test]
fn a_commit_that_one_copy_of_the_metadata_missed_is_answered_when_the_superblocks_say_so() {
    let bricks = Bricks::new(&[32, 32]);
    let power = Power::default();
    let (opened, volume, cuts) = mount_with(&bricks, &power, 2).unwrap();
    let area = opened.superblocks.brick(0).unwrap().1.metadata;
    cuts[0].refuse(area.offset..area.offset + area.len);
    let before = opened.superblocks.generation();
    let own = Rc::clone(&opened);
    bricks.run(async move {
        let ino = put(&volume, "a").await;
        volume.fsync(ino, false).await.unwrap();
        assert_eq!(own.store.bricks(), [1]);
    });
    assert!(opened.superblocks.generation() >= before + 2);
    power.off();
    let assembly = bricks.assemble().unwrap();
    assert_eq!((&assembly.metadata[..], &assembly.metadata_behind[..]), (&[1][..], &[0][..]));
    assert!(bricks.with(|volume| async move { holds(&volume, "a").await }));
}

#[test]
fn a_brick_that_is_lost_is_known_to_the_others_at_any_moment() {
    let first = Bricks::on_two(&[16, 16, 16]);
    let saved = save(&first);
    for number in 0.. {
        let bricks = restored(&saved);
        // Mounting writes two copies of three superblocks, in two passes.
        let power = Power::cut_at(12 + number);
        let (opened, _volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
        cuts[2].refuse(0..16 << 20);
        let lost = bricks.run(async move { opened.brick_lost(2).await });
        assert_eq!(lost.is_ok(), !power.is_off());
        power.off();
        let missing = bricks.assemble_some(&[0, 1], AssembleOptions::default());
        assert!(matches!(missing, Err(AssembleError::Missing { .. })), "cut at {number}");
        let degraded = AssembleOptions { degraded: true, ..AssembleOptions::default() };
        assert_eq!(bricks.assemble_some(&[0, 1], degraded).unwrap().missing, [2]);
        let all = bricks.assemble();
        let known = matches!(all, Err(AssembleError::WasAway { id: 2, .. }));
        // A superblock must be whole before it can say so.
        assert_eq!(known, number > 0, "cut at {number}: {all:?}");
        let take_back = AssembleOptions { take_back: true, ..AssembleOptions::default() };
        let assembly = bricks.assemble_some(&[0, 1, 2], take_back).unwrap();
        let opened = bricks.open(assembly);
        bricks.run(async move { opened.close().await.unwrap() });
        assert!(bricks.assemble().is_ok());
        if lost.is_ok() {
            assert_eq!(number, 8);
            break;
        }
    }
}

#[test]
fn a_commit_that_may_name_what_a_brick_has_lost_is_not_found_with_that_brick_after_a_crash() {
    // Of three bricks the first two hold the metadata, or all.
    for (fails, on_two) in [0, 1, 2].into_iter().flat_map(|nr| [(nr, false), (nr, true)]) {
        let new = if on_two { Bricks::on_two } else { Bricks::new };
        let bricks = new(&[32, 32, 32]);
        let power = Power::default();
        let (opened, volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
        let (cut, own) = (Rc::clone(&cuts[fails]), Rc::clone(&volume));
        let synced = bricks.run(async move {
            let ino = file(&own, "a").await;
            write(&own, ino, 0, &vec![7; 3 << 20]).await.unwrap();
            cut.fail_flush();
            own.fsync(ino, false).await
        });
        assert!(synced.is_err());
        power.off();
        let id = fails as u16;
        let away = bricks.assemble().unwrap_err();
        assert!(matches!(away, AssembleError::WasAway { id: away, .. } if away == id), "{away}");
        drop((opened, volume));
    }
}

#[test]
fn a_flush_that_the_only_brick_with_metadata_fails_ends_the_commits() {
    let bricks = Bricks::new(&[64, 16]);
    let power = Power::default();
    let (opened, volume, cuts) = mount_with(&bricks, &power, 2).unwrap();
    assert_eq!(opened.store.bricks(), [0]);
    let own = Rc::clone(&volume);
    bricks.run(async move {
        let ino = put(&own, "a").await;
        own.fsync(ino, false).await.unwrap();
        let late = file(&own, "b").await;
        write(&own, late, 0, &vec![7; 3 << 20]).await.unwrap();
        cuts[0].fail_flush();
        assert!(own.fsync(late, false).await.is_err());
        assert_eq!(make(&own, ROOT, "c", Kind::File).await.err(), Some(Errno::ReadOnly));
    });
    power.off();
    drop((opened, volume));
    assert!(bricks.with(|volume| async move {
        holds(&volume, "a").await && volume.lookup(ROOT, b"b").await.is_err()
    }));
}

#[test]
fn a_brick_whose_superblock_cannot_be_written_is_lost_and_the_others_go_on() {
    let bricks = Bricks::new(&[32, 32, 32]);
    let power = Power::default();
    let cuts: Vec<Rc<Cut>> = bricks.rams.iter().map(|ram| power.device(ram)).collect();
    cuts[2].refuse(0..4096);
    let devices = cuts.iter().map(|cut| Rc::clone(cut) as Rc<dyn Device>).collect();
    let assembly = assemble(bricks.found(devices), AssembleOptions::default()).unwrap();
    let opened = bricks.open(assembly);
    assert_eq!(opened.superblocks.away(), [2]);
    assert_eq!(opened.devices().len(), 2);
    bricks.run(async move { opened.close().await.unwrap() });
    let away = bricks.assemble().unwrap_err();
    assert!(matches!(away, AssembleError::WasAway { id: 2, .. }), "{away}");
}

#[test]
fn the_last_copy_of_the_metadata_does_not_go() {
    let bricks = Bricks::new(&[64, 16]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    assert_eq!(opened.store.bricks(), [0]);
    bricks.run(async move {
        let refused = opened.can_remove(0).unwrap_err().to_string();
        assert!(refused.starts_with("ram0 holds the volume's metadata"), "{refused}");
        assert!(opened.can_remove(1).is_ok());
        let refused = opened.brick_removed(0).await;
        assert!(matches!(refused, Err(AssembleError::LastMetadata { .. })));
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    assert_eq!(bricks.assemble().unwrap().metadata, [0]);
}

#[test]
fn the_only_brick_with_metadata_is_not_noted_as_lost() {
    let bricks = Bricks::new(&[64, 16]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    bricks.run(async move {
        opened.brick_lost(0).await.unwrap();
        let ino = put(&volume, "a").await;
        volume.fsync(ino, false).await.unwrap();
    });
    assert_eq!(bricks.assemble().unwrap().metadata, [0]);
    assert!(bricks.with(|volume| async move { holds(&volume, "a").await }));
}

#[test]
fn a_commit_that_only_a_brick_that_is_away_has_is_not_acknowledged() {
    for noted in [false, true] {
        let bricks = Bricks::on_two(&[32, 32, 32]);
        let power = Power::default();
        let (opened, volume, cuts) = mount_with(&bricks, &power, 3).unwrap();
        let area = opened.superblocks.brick(1).unwrap().1.metadata;
        let own = Rc::clone(&opened);
        bricks.run(async move {
            match noted {
                true => own.brick_lost(0).await.unwrap(),
                // As when its superblock could not be written.
                false => own.superblocks.lost(0).await.unwrap(),
            }
        });
        cuts[1].refuse(area.offset..area.offset + area.len);
        let synced = bricks.run(async move {
            let ino = put(&volume, "a").await;
            volume.fsync(ino, false).await
        });
        assert!(synced.is_err(), "noted: {noted}");
    }
}

#[test]
fn a_brick_that_is_removed_while_it_is_given_the_metadata_is_not_written_any_more() {
    let bricks = Bricks::new(&[32, 32, 32]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    let memory = std::sync::Arc::clone(bricks.rams[2].memory());
    let shard = bricks.shard.clone();
    bricks.run(async move {
        opened.store.drop_leg(1).await.unwrap();
        volume.start_job(NewJob::Remove { brick: 2 }).await.unwrap();
        volume.wait_job().await.unwrap();
        let store = Rc::clone(&opened.store);
        shard.spawn(async move {
            // It may be let go before it is whole.
            let _ = store.add_leg(2).await;
        });
        while !opened.store.bricks().contains(&2) {
            shard.sleep(1000).await;
        }
        opened.brick_removed(2).await.unwrap();
        let size = memory.len();
        memory.write(0, &vec![0x5a; size]);
        let ino = put(&volume, "a").await;
        volume.fsync(ino, false).await.unwrap();
        let mut bytes = vec![0; size];
        memory.read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0x5a));
        assert_eq!(opened.store.bricks(), [0, 1]);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
}

#[test]
fn a_power_cut_while_a_volume_is_made_leaves_one_that_is_whole_or_unfinished() {
    for one_copy_fails in [false, true] {
        for number in 0.. {
            let bricks = Bricks::blank(&[16, 16]);
            let power = Power::cut_at_write(number);
            let cuts: Vec<Rc<Cut>> = bricks.rams.iter().map(|ram| power.device(ram)).collect();
            if one_copy_fails {
                cuts[0].refuse(1 << 20..2 << 20);
            }
            let devices: Vec<Rc<dyn Device>> =
                cuts.iter().map(|cut| Rc::clone(cut) as Rc<dyn Device>).collect();
            let made = bricks.create("data", 1, &devices);
            assert_eq!(made.is_ok(), !power.is_off(), "cut at {number}: {made:?}");
            match assemble(found_all(&bricks), AssembleOptions::default()) {
                Ok(assembly) => {
                    let (opened, volume) = bricks.mount(assembly);
                    bricks.run(async move {
                        put(&volume, "a").await;
                        volume.close().await.unwrap();
                        opened.close().await.unwrap();
                    });
                }
                Err(AssembleError::NoBricks | AssembleError::Unfinished { .. }) => {
                    assert!(made.is_err(), "cut at {number}");
                }
                Err(error) => panic!("cut at {number}: {error}"),
            }
            if made.is_ok() {
                assert!(number > 20, "{number} writes");
                break;
            }
        }
    }
}

/// Mounts what there is to be read only, looks at the files, and unmounts.
fn read_only(bricks: &Bricks, which: &[usize], degraded: bool) -> bool {
    let options = AssembleOptions { degraded, read_only: true, ..AssembleOptions::default() };
    let assembly = bricks.assemble_some(which, options).unwrap();
    let opened = Rc::new(bricks.open(assembly));
    let (shard, own) = (bricks.shard.clone(), Rc::clone(&opened));
    bricks.run(async move {
        let volume = Volume::mount(&shard, own.mount_of()).await.unwrap();
        let right = degraded || holds(&volume, "a").await;
        assert_eq!(make(&volume, ROOT, "b", Kind::File).await.err(), Some(Errno::ReadOnly));
        // Background work gets its time.
        shard.sleep(20_000_000).await;
        volume.close().await.unwrap();
        own.close().await.unwrap();
        right
    })
}

#[test]
fn a_mount_that_only_reads_leaves_every_byte_as_it_is() {
    for (crash, which) in [(false, 0..3), (true, 0..3), (false, 1..3), (true, 1..3)] {
        let bricks = Bricks::new(&[32, 48, 32]);
        let saved = match crash {
            false => {
                bricks.with(|volume| async move { put(&volume, "a").await });
                save(&bricks)
            }
            true => {
                let (_opened, volume) = bricks.mount(bricks.assemble().unwrap());
                bricks.run(async move {
                    put(&volume, "a").await;
                    volume.sync_all().await.unwrap();
                    put(&volume, "not durable").await;
                });
                save(&bricks)
            }
        };
        let bricks = restored(&saved);
        let which: Vec<usize> = which.collect();
        let whole = which.len() == 3;
        for _ in 0..2 {
            assert!(read_only(&bricks, &which, !whole), "{crash}, {which:?}");
            let now = save(&bricks);
            let same = now.iter().zip(&saved).all(|(now, saved)| now == saved);
            assert!(same, "{crash}, {which:?}");
        }
        let right = bricks.with(|volume| async move { holds(&volume, "a").await });
        assert!(right, "{crash}, {which:?}");
    }
}

#[test]
fn a_brick_stays_when_no_other_holds_the_metadata_any_more() {
    let bricks = Bricks::new(&[32, 32, 32]);
    let (opened, volume) = bricks.mount(bricks.assemble().unwrap());
    bricks.run(async move {
        let superblocks = &opened.superblocks;
        let held = superblocks.hold_metadata();
        // All of them lost it while a failure of one waited for its turn.
        held.iter().for_each(|id| superblocks.note_metadata(*id, MetadataState::Unused));
        let refused = superblocks.lost(held[0]).await;
        assert!(matches!(refused, Err(AssembleError::NoHolder { .. })), "{refused:?}");
        assert!(superblocks.present().contains(&held[0]));
        drop(volume);
    });
}
