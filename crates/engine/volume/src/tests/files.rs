//! The content of files: random operations against a plain vector, before and after remounts.

use super::*;
use braid_filesystem::{Allocate, Opening, Seek, SetAttr};

pub(super) const LONGEST: u64 = 700_000;

/// One random operation on the file and on what it should hold.
pub(super) async fn step(
    volume: &Volume,
    ino: Ino,
    model: &mut Vec<u8>,
    random: &mut fastrand::Rng,
) {
    let offset = random.u64(..LONGEST);
    let align = if random.bool() { !4095 } else { !0 };
    let (offset, len) = (offset & align, random.u64(1..200_000) & align | 1);
    let len = if align == !0 { len } else { len - 1 }.max(1);
    let (from, to) = (offset as usize, (offset + len) as usize);
    let grow = |model: &mut Vec<u8>, to: usize| {
        let size = model.len().max(to);
        model.resize(size, 0);
    };
    match random.u32(..12) {
        0..5 => {
            let fill = random.u8(1..);
            let bytes = vec![fill; len as usize];
            write(volume, ino, offset, &bytes).await.unwrap();
            grow(model, to);
            model[from..to].copy_from_slice(&bytes);
        }
        5..7 => {
            let set = SetAttr { size: Some(offset), ..SetAttr::default() };
            volume.set_attr(ME, ino, set).await.unwrap();
            model.resize(from, 0);
        }
        7 => {
            volume.allocate(ino, Allocate::PunchHole, offset, len).await.unwrap();
            let to = to.min(model.len());
            if from < to {
                model[from..to].fill(0);
            }
        }
        8 => {
            let keep_size = random.bool();
            volume.allocate(ino, Allocate::ZeroRange { keep_size }, offset, len).await.unwrap();
            if !keep_size {
                grow(model, to);
            }
            let to = to.min(model.len());
            if from < to {
                model[from..to].fill(0);
            }
        }
        9 => {
            let keep_size = random.bool();
            volume.allocate(ino, Allocate::Reserve { keep_size }, offset, len).await.unwrap();
            if !keep_size {
                grow(model, to);
            }
        }
        10 => {
            let found = volume.read(ino, offset, len as usize).await.unwrap();
            let to = to.min(model.len());
            assert!(found[..] == *if from < to { &model[from..to] } else { &[] });
        }
        _ => match volume.seek(ino, offset, Seek::Data).await {
            Ok(data) => assert!(model[from..data as usize].iter().all(|byte| *byte == 0)),
            Err(error) => {
                assert_eq!(error, Errno::Nxio);
                assert!(from >= model.len() || model[from..].iter().all(|byte| *byte == 0));
            }
        },
    }
}

#[test]
fn random_operations_leave_what_a_vector_would_hold() {
    for seed in 0..24 {
        let stripe = [16 << 10, 128 << 10, 1 << 20][seed as usize % 3];
        let (world, mut store) = World::new(stripe, &[8, 16, 8]);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Vec::new();
        let volume = world.mount(&store);
        let own = Rc::clone(&volume);
        let ino = world.shard.block_on(async move { file(&own, "a").await });
        for life in 0..3 {
            let volume = world.mount(&store);
            let mut held = std::mem::take(&mut model);
            let mut rng = random.fork();
            if life == 0 {
                // The file was made by the mount before, which has not committed it.
                let own = Rc::clone(&volume);
                let made = world.shard.block_on(async move { file(&own, "a").await });
                assert_eq!(made, ino);
            }
            model = world.shard.block_on(async move {
                for number in 0..40 {
                    step(&volume, ino, &mut held, &mut rng).await;
                    let is_right = read_all(&volume, ino).await == held;
                    assert!(is_right, "seed {seed}, life {life}, step {number}");
                    assert_eq!(volume.attr(ino).await.unwrap().size, held.len() as u64);
                }
                assert!(read_all(&volume, ino).await == held, "what the file holds");
                volume.fsync(ino, false).await.unwrap();
                volume.close().await.unwrap();
                held
            });
            store = world.crash(&store);
            let volume = world.mount(&store);
            let expected = model.clone();
            world.shard.block_on(async move {
                assert!(read_all(&volume, ino).await == expected, "seed {seed}: after a remount");
                volume.close().await.unwrap();
            });
        }
    }
}

#[test]
fn one_byte_at_16_tib_takes_one_stripe() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 16 << 40, b"x").await.unwrap();
        let attr = volume.attr(ino).await.unwrap();
        assert_eq!(attr.size, (16 << 40) + 1);
        assert!(attr.blocks * 512 <= 128 << 10);
        assert_eq!(volume.seek(ino, 0, Seek::Data).await.unwrap() >> 12, 16 << 40 >> 12);
        assert_eq!(&volume.read(ino, (16 << 40) - 1, 10).await.unwrap()[..], b"\0x");
    });
}

#[test]
fn what_was_cut_does_not_show_when_a_write_ends_in_the_same_granule_and_the_file_grows_later() {
    // A sub-block has four blocks.
    let (world, store) = World::new(512 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 32 << 10]).await.unwrap();
        let cut = SetAttr { size: Some(21_111), ..SetAttr::default() };
        volume.set_attr(ME, ino, cut).await.unwrap();
        write(&volume, ino, 0, &[2; 24 << 10]).await.unwrap();
        write(&volume, ino, 60_000, &[3]).await.unwrap();
        let held = read_all(&volume, ino).await;
        assert!(held[..24 << 10].iter().all(|byte| *byte == 2));
        assert!(held[24 << 10..60_000].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_file_that_is_exported_is_written_by_its_clients_only() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 8192]).await.unwrap();
        assert!(volume.begin_export(ino));
        assert!(!volume.begin_export(ino));
        let cut = SetAttr { size: Some(4096), ..SetAttr::default() };
        assert_eq!(write(&volume, ino, 0, &[2; 10]).await, Err(Errno::Busy));
        assert_eq!(volume.set_attr(ME, ino, cut).await.err(), Some(Errno::Busy));
        assert_eq!(
            volume.open(ino, Opening { truncate: true, ..Opening::WRITE }).await,
            Err(Errno::Busy)
        );
        let punched = volume.allocate(ino, Allocate::PunchHole, 0, 4096).await;
        assert_eq!(punched, Err(Errno::Busy));
        let buf = volume.shard.pool().copy_of(&[3; 4096]).freeze();
        volume.write_exported(ino, 0, buf).await.unwrap();
        volume.allocate_exported(ino, Allocate::PunchHole, 4096, 4096).await.unwrap();
        assert_eq!(read_all(&volume, ino).await, [[3; 4096], [0; 4096]].concat());
        let mode = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        volume.set_attr(ME, ino, mode).await.unwrap();
        volume.end_export(ino);
        write(&volume, ino, 0, &[2; 10]).await.unwrap();
        volume.set_attr(ME, ino, cut).await.unwrap();
    });
}
