//! What a mount that fails leaves.

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
