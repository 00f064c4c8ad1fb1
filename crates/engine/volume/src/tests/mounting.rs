//! The state that a failed mount leaves.

use super::*;
use crate::VolumeError;
use braid_format::volume::keys;

#[test]
fn a_mount_that_fails_lets_its_bricks_go() {
    let (world, store) = World::new(16 << 10, &[8]);
    let commit = store.commit(vec![(keys::JOB.to_vec(), Some(b"no job".to_vec()))]);
    world.shard.block_on(commit).unwrap();
    let from = world.mount_of(&store);
    let device = Rc::clone(&from.devices[0].device);
    let shard = world.shard.clone();
    let failed = world.shard.block_on(async move {
        let failed = Volume::mount(&shard, from).await;
        // Whatever it had started comes to its end.
        shard.sleep(1_000_000).await;
        failed.err()
    });
    assert!(matches!(failed, Some(VolumeError::Record(_))), "{failed:?}");
    assert_eq!(Rc::strong_count(&device), 1);
}

#[test]
fn a_check_takes_no_memory_for_the_empty_part_of_a_large_brick() {
    use braid_format::volume::brick_record::{BrickRecord, BrickState};
    let (world, store) = World::new(16 << 10, &[8, 8]);
    // A bit for each block would be 32 GiB.
    let record = BrickRecord {
        domain: String::new(),
        uuid: Uuid::from_u128(77),
        state: BrickState::Data,
        weight: 8,
        blocks: 1 << 38,
    };
    let commit = store.commit(vec![(keys::brick(1), Some(record.encode()))]);
    world.shard.block_on(commit).unwrap();
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let report = volume.check(true).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        volume.close().await.unwrap();
    });
}
