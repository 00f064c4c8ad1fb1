//! The layout of new volumes, and plans that are refused.

use super::*;
use braid_device::DeviceInfo;
use braid_format::brick::{Area, MetadataState, VolumeState};

fn bricks(sizes: &[u64]) -> Vec<BrickPlan> {
    let numbered = sizes.iter().zip(1..);
    numbered
        .map(|(size, nr)| BrickPlan {
            domain: String::new(),
            uuid: Uuid::from_u128(nr),
            weight: None,
            info: DeviceInfo::plain(format!("disk{nr}"), *size),
        })
        .collect()
}

fn refused(new: &NewVolume, bricks: &[BrickPlan]) -> String {
    plan_create(new, bricks).unwrap_err().to_string()
}

#[test]
fn metadata_gets_a_fiftieth_on_up_to_four_bricks_and_three_of_them_hold_it() {
    let gib = 1 << 30;
    let plan = plan_create(&new_volume("v", 1), &bricks(&[gib; 6])).unwrap();
    let region = (6 * gib / 50) >> 20 << 20;
    for (superblock, nr) in plan.superblocks.iter().zip(0..) {
        superblock.check(0, gib).unwrap();
        let len = if nr < 4 { region } else { 0 };
        let held = if nr < 3 { MetadataState::InSync } else { MetadataState::Unused };
        assert_eq!((superblock.metadata.len, superblock.metadata_state), (len, held), "{nr}");
        assert_eq!((superblock.brick_id, superblock.brick_count), (nr, 6));
        assert_eq!(superblock.data.offset % MIB, 0);
        assert_eq!(superblock.data.offset + superblock.data.len, gib - 4096);
        assert_eq!(superblock.weight, superblock.data.len / 4096);
        assert_eq!(superblock.volume_state, VolumeState::Creating);
    }
    assert_eq!(plan.metadata().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn regions_are_no_more_than_a_quarter_and_skip_bricks_that_are_too_small() {
    let plan = plan_create(&new_volume("v", 1), &bricks(&[64 * MIB])).unwrap();
    assert_eq!(plan.superblocks[0].metadata, Area { offset: MIB, len: 16 * MIB });
    let plan =
        plan_create(&new_volume("v", 1), &bricks(&[20 * MIB, 400 * MIB, 400 * MIB])).unwrap();
    let lens: Vec<u64> = plan.superblocks.iter().map(|brick| brick.metadata.len / MIB).collect();
    assert_eq!(lens, [0, 32, 32]);
    assert_eq!(plan.metadata().collect::<Vec<_>>(), [1, 2]);
    // One large brick beside small ones: rather one copy with room than two without.
    let plan = plan_create(&new_volume("v", 1), &bricks(&[64 * MIB, 64 << 30])).unwrap();
    assert_eq!(plan.metadata().collect::<Vec<_>>(), [1]);
    let chosen = NewVolume { metadata_size: Some(5 * MIB + 1), ..new_volume("v", 1) };
    let plan = plan_create(&chosen, &bricks(&[64 * MIB])).unwrap();
    assert_eq!(plan.superblocks[0].metadata.len, 6 * MIB);
}

#[test]
fn data_begins_at_the_full_stripes_of_an_array() {
    let mut array = bricks(&[1 << 30]);
    array[0].info.optimal_io = 3 * (128 << 10);
    let plan = plan_create(&new_volume("v", 1), &array).unwrap();
    assert!(plan.superblocks[0].data.offset.is_multiple_of(3 * (128 << 10)));
}

#[test]
fn what_cannot_be_a_volume_is_refused_by_name() {
    let new = new_volume("v", 1);
    let good = bricks(&[64 * MIB, 64 * MIB]);
    assert!(refused(&new, &[]).contains("at least one brick"));
    let mut weightless = good.clone();
    weightless[1].weight = Some(0);
    assert!(refused(&new, &weightless).starts_with("disk2: a weight of 0"));
    let mut twice = good.clone();
    twice[1].uuid = twice[0].uuid;
    assert!(refused(&new, &twice).starts_with("disk2 is named twice"));
    let small = refused(&new, &bricks(&[64 * MIB, 9 * MIB]));
    assert!(small.starts_with("disk2: 9437184 bytes are too small"), "{small}");
    let wide = NewVolume { stripe: 64 * MIB, ..new.clone() };
    let small = refused(&wide, &bricks(&[1 << 30, 60 * MIB]));
    assert!(small.contains("or choose a smaller stripe"), "{small}");
    assert!(refused(&new, &bricks(&[15 * MIB])).starts_with("no brick has room for metadata"));
    assert!(refused(&new, &bricks(&[0, 4095])).starts_with("no brick has room"));
    let many = refused(&new, &bricks(&vec![64 * MIB; 4097]));
    assert!(many.contains("4097 bricks, and a volume has at most 4096"), "{many}");
    for stripe in [0, 4096, 100_000, 128 * MIB, u64::MAX] {
        let odd = NewVolume { stripe, ..new.clone() };
        assert!(plan_create(&odd, &bricks(&[1 << 40])).is_err(), "{stripe}");
    }
    for size in [0, MIB, 1 << 40, u64::MAX] {
        let odd = NewVolume { metadata_size: Some(size), ..new.clone() };
        assert!(plan_create(&odd, &good).is_err(), "{size}");
    }
    assert!(refused(&new_volume("a/b", 1), &good).contains("contains '/'"));
    let mut coarse = good.clone();
    coarse[0].info.logical_block = 8192;
    assert!(refused(&new, &coarse).contains("logical blocks have 8192 bytes"));
    let huge = plan_create(&new, &bricks(&[u64::MAX, u64::MAX - 5000])).unwrap();
    huge.superblocks.iter().for_each(|brick| brick.check(0, u64::MAX).unwrap());
}

#[test]
fn a_weight_of_two_beside_default_ones_is_twice_the_share() {
    let bricks = Bricks::blank(&[64, 64, 64, 128]);
    let mut plans = plan_of(&bricks.devices(), 1);
    plans[0].weight = Some(2000);
    plans[2].weight = Some(500);
    let plan = plan_create(&new_volume("data", 1), &plans).unwrap();
    let weights: Vec<f64> = plan.superblocks.iter().map(|brick| brick.weight as f64).collect();
    let blocks: Vec<f64> =
        plan.superblocks.iter().map(|brick| (brick.data.len / 4096) as f64).collect();
    for (at, times) in [2.0, 1.0, 0.5, 1.0].iter().enumerate() {
        assert!((weights[at] / blocks[at] - times).abs() < 0.001, "{at}: {weights:?}");
    }
    assert!(weights[3] > 1.9 * weights[1], "by size otherwise");
    assert_eq!(weight_of(1, 1), 1);
    assert_eq!(weight_of(u64::MAX, 5000), u64::MAX);
}
