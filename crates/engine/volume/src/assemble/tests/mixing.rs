//! Bricks that do not belong together, or are not what they were.

use super::power::Power;
use super::*;
use braid_filesystem::FileSystem;

const DEGRADED: AssembleOptions =
    AssembleOptions { degraded: true, take_back: false, read_only: false, minority: false };
const TAKE_BACK: AssembleOptions =
    AssembleOptions { degraded: false, take_back: true, read_only: false, minority: false };

/// The content of a device now, on another device of `size` bytes.
fn image(ram: &Ram, size: u64) -> Ram {
    let copy = Ram::new("image", size);
    let mut bytes = vec![0; size.min(ram.memory().len() as u64) as usize];
    ram.memory().read(0, &mut bytes);
    copy.memory().write(0, &bytes);
    copy
}

fn overwrite(ram: &Ram, at: u64, bytes: &[u8]) {
    ram.memory().write(at as usize, bytes);
}

fn text<T: std::fmt::Debug>(result: Result<T, AssembleError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_brick_of_another_volume_and_one_that_is_none_are_refused() {
    let bricks = Bricks::blank(&[32, 32, 32]);
    let devices = bricks.devices();
    bricks.create("one", 1, &devices[..1]).unwrap();
    bricks.create("two", 2, &devices[1..2]).unwrap();
    let mixed = text(bricks.assemble_some(&[0, 1], AssembleOptions::default()));
    assert!(mixed.starts_with("ram0 is a brick of volume \"one\""), "{mixed}");
    assert!(mixed.contains("and ram1 is a brick of volume \"two\""), "{mixed}");
    let shard = bricks.shard.clone();
    let none = bricks.run(async move { examine(&shard, Rc::clone(&devices[2])).await });
    assert!(matches!(none, Err(AssembleError::NotABrick { device }) if device == "ram2"));
    assert!(matches!(assemble(Vec::new(), DEGRADED), Err(AssembleError::NoBricks)));
}

#[test]
fn a_brick_and_its_copy_are_refused() {
    let bricks = Bricks::new(&[32, 32]);
    let copy = image(&bricks.rams[1], 32 * MIB);
    let mut found = bricks.found(bricks.devices());
    found.extend(bricks.found(vec![copy.device()]));
    let twice = text(assemble(found, DEGRADED));
    assert!(twice.starts_with("ram1 and image are the same brick"), "{twice}");
}

#[test]
fn missing_bricks_are_named_and_the_rest_can_be_used() {
    let bricks = Bricks::new(&[32, 32, 32]);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    let missing = text(bricks.assemble_some(&[0, 1], AssembleOptions::default()));
    assert!(missing.contains("of its 3 bricks, brick 2 is missing"), "{missing}");
    let assembly = bricks.assemble_some(&[0, 1], DEGRADED).unwrap();
    assert_eq!(assembly.missing, [2]);
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        let ino = volume.lookup(ROOT, b"a").await.unwrap().attr.ino;
        assert!(volume.read(ino, 0, 300_000).await.is_err(), "a part is on the missing brick");
        assert!(put(&volume, "b").await > ino);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    // It comes back.
    let away = text(bricks.assemble());
    assert!(away.starts_with("ram2: brick 2 of volume \"data\" was away"), "{away}");
    assert_eq!(bricks.assemble_some(&[0, 1, 2], DEGRADED).unwrap().missing, [2]);
    let assembly = bricks.assemble_some(&[0, 1, 2], TAKE_BACK).unwrap();
    assert!(assembly.missing.is_empty());
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(holds(&volume, "a").await && holds(&volume, "b").await);
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    assert!(bricks.assemble().unwrap().notes.is_empty());
}

#[test]
fn metadata_that_was_away_is_not_read_and_is_made_again() {
    let bricks = Bricks::new(&[32, 32]);
    let (opened, volume) = bricks.mount(bricks.assemble_some(&[0], DEGRADED).unwrap());
    bricks.run(async move {
        put(&volume, "late").await;
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    let assembly = bricks.assemble_some(&[0, 1], TAKE_BACK).unwrap();
    assert_eq!((&assembly.metadata[..], &assembly.metadata_behind[..]), (&[0][..], &[1][..]));
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(holds(&volume, "late").await);
        while opened.superblocks.brick(1).unwrap().1.metadata_state
            != braid_format::brick::MetadataState::InSync
        {
            volume.shard.sleep(1_000_000).await;
        }
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
    let assembly = bricks.assemble_some(&[1], DEGRADED).unwrap();
    assert_eq!(assembly.metadata, [1]);
    let (opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        assert!(volume.lookup(ROOT, b"late").await.is_ok());
        volume.close().await.unwrap();
        opened.close().await.unwrap();
    });
}

#[test]
fn without_current_metadata_nothing_can_be_used() {
    let bricks = Bricks::on_two(&[32, 32, 32]);
    let none = text(bricks.assemble_some(&[2], DEGRADED));
    assert!(none.contains("bring a brick that holds it (bricks 0 and 1 are missing)"), "{none}");
}

#[test]
fn an_image_of_before_is_stale() {
    let bricks = Bricks::new(&[32, 32, 32]);
    let old = image(&bricks.rams[2], 32 * MIB);
    bricks.with(|volume| async move {
        put(&volume, "a").await;
    });
    let found = || {
        let mut found = bricks.found(bricks.devices()[..2].to_vec());
        found.extend(bricks.found(vec![old.device()]));
        found
    };
    for options in [AssembleOptions::default(), TAKE_BACK] {
        let stale = text(assemble(found(), options));
        assert!(stale.starts_with("image: brick 2 of volume \"data\" is stale"), "{stale}");
    }
    let assembly = assemble(found(), DEGRADED).unwrap();
    assert_eq!(assembly.missing, [2]);
    assert!(assembly.notes[0].contains("image"), "{:?}", assembly.notes);
}

#[test]
fn two_halves_that_were_used_apart_are_not_put_together() {
    let bricks = Bricks::new(&[32, 32]);
    for alone in 0..2 {
        let (opened, volume) = bricks.mount(bricks.assemble_some(&[alone], DEGRADED).unwrap());
        bricks.run(async move {
            put(&volume, if alone == 0 { "a" } else { "b" }).await;
            volume.close().await.unwrap();
            opened.close().await.unwrap();
        });
    }
    let found = bricks.found(bricks.devices());
    assert_eq!(found[0].superblock.generation, found[1].superblock.generation);
    for options in [AssembleOptions::default(), TAKE_BACK] {
        let refused = text(bricks.assemble_some(&[0, 1], options));
        assert!(refused.contains("used apart from the others"), "{refused}");
    }
    let assembly = bricks.assemble_some(&[0, 1], DEGRADED).unwrap();
    assert_eq!(assembly.bricks.len(), 1);
}

#[test]
fn an_image_of_before_a_crash_is_stale() {
    let bricks = Bricks::new(&[32, 32]);
    let old = image(&bricks.rams[1], 32 * MIB);
    let power = Power::default();
    let devices = bricks.rams.iter().map(|ram| power.device(ram) as Rc<dyn Device>).collect();
    let assembly = assemble(bricks.found(devices), AssembleOptions::default()).unwrap();
    let (_opened, volume) = bricks.mount(assembly);
    bricks.run(async move {
        put(&volume, "a").await;
        volume.sync().await.unwrap();
    });
    power.off();
    let mut found = bricks.found(vec![bricks.rams[0].device()]);
    found.extend(bricks.found(vec![old.device()]));
    assert!(matches!(
        assemble(found, AssembleOptions::default()),
        Err(AssembleError::Stale { .. })
    ));
    assert!(bricks.with(|volume| async move { holds(&volume, "a").await }));
}

#[test]
fn one_damaged_superblock_is_mended_and_two_are_refused() {
    for at in [0, 32 * MIB - 4096] {
        let bricks = Bricks::new(&[32, 32]);
        overwrite(&bricks.rams[1], at + 100, b"damage");
        let assembly = bricks.assemble().unwrap();
        assert!(assembly.notes[0].starts_with("ram1: one of its two superblocks"), "{assembly:?}");
        bricks.with(|_| async {});
        assert!(bricks.assemble().unwrap().notes.is_empty());
        overwrite(&bricks.rams[1], 100, b"damage");
        overwrite(&bricks.rams[1], 32 * MIB - 3996, b"damage");
        let shard = bricks.shard.clone();
        let device = bricks.rams[1].device();
        let damaged = bricks.run(async move { examine(&shard, device).await });
        assert!(
            matches!(damaged, Err(AssembleError::Superblock { device, .. }) if device == "ram1")
        );
    }
}

#[test]
fn a_brick_that_shrank_is_refused_and_one_that_grew_is_not() {
    let bricks = Bricks::new(&[32]);
    let shard = bricks.shard.clone();
    let less = image(&bricks.rams[0], 32 * MIB - 4096).device();
    let shrank = text(bricks.run(async move { examine(&shard, less).await }));
    assert!(shrank.starts_with("image: brick superblock at byte 0"), "{shrank}");
    assert!(shrank.contains("33554432 bytes and the device 33550336"), "{shrank}");
    let more = image(&bricks.rams[0], 40 * MIB);
    overwrite(&more, 0, &[0; 10]);
    // Its first superblock is damaged, and the second is not at the end.
    let shard = bricks.shard.clone();
    let device = more.device();
    assert!(bricks.run(async move { examine(&shard, device).await }).is_err());
    let more = image(&bricks.rams[0], 40 * MIB);
    let assembly = assemble(bricks.found(vec![more.device()]), AssembleOptions::default()).unwrap();
    assert!(assembly.notes.is_empty());
}

#[test]
fn a_volume_whose_making_was_interrupted_is_none() {
    let mut number = 0;
    loop {
        let bricks = Bricks::blank(&[24, 24]);
        let power = Power::cut_at(number);
        let devices: Vec<_> =
            bricks.rams.iter().map(|ram| power.device(ram) as Rc<dyn Device>).collect();
        let made = bricks.create("data", 1, &devices);
        assert_eq!(made.is_ok(), !power.is_off());
        let (shard, all) = (bricks.shard.clone(), bricks.devices());
        let found = bricks.run(async move {
            let mut found = Vec::new();
            for device in all {
                found.extend(examine(&shard, device).await.ok());
            }
            found
        });
        match assemble(found, AssembleOptions::default()) {
            Ok(assembly) => {
                // From the first superblock on that says so.
                assert!(number > 4, "cut at {number}");
                let opened = bricks.open(assembly);
                bricks.run(async move { opened.close().await.unwrap() });
            }
            Err(AssembleError::Unfinished { .. } | AssembleError::NoBricks) => {
                assert!(number <= 4, "cut at {number}");
                bricks.create("data", 1, &bricks.devices()).unwrap();
                assert!(bricks.assemble().is_ok());
            }
            Err(error) => panic!("cut at {number}: {error}"),
        }
        if !power.is_off() {
            assert_eq!(number, 12, "two copies on two bricks, once and in two passes");
            break;
        }
        number += 1;
    }
}
