//! The bytes of files, without a volume around them.

#![allow(clippy::unwrap_used)]

use crate::tests::rig::{Rig, STRIPE};

#[test]
fn a_write_looks_the_extent_of_a_stripe_up_once() {
    let rig = Rig::new(&[16, 16]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let file = rig.file(b"f").await;
        let looked_up = async |offset: u64, len: usize| {
            let before = rig.extents.asked.get();
            rig.write(file, offset, &vec![7; len]).await;
            rig.extents.asked.get() - before
        };
        assert_eq!(looked_up(0, STRIPE as usize).await, 1, "a new stripe");
        assert_eq!(looked_up(0, STRIPE as usize).await, 1, "the same again");
        assert_eq!(looked_up(8192, 4096).await, 1, "a part of it");
        assert_eq!(looked_up(STRIPE, 4 * STRIPE as usize).await, 4, "four stripes");
        assert_eq!(rig.read(file, 0, 5 * STRIPE as usize).await, vec![7; 5 * STRIPE as usize]);
    });
}

#[test]
fn an_unaligned_write_keeps_what_is_around_it() {
    let rig = Rig::new(&[16]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let file = rig.file(b"f").await;
        rig.write(file, 0, &[1; 20_000]).await;
        rig.write(file, 5_000, &[2; 6_000]).await;
        let mut wanted = vec![1; 20_000];
        wanted[5_000..11_000].fill(2);
        assert_eq!(rig.read(file, 0, 30_000).await, wanted);
        let inode = rig.inodes.get(file).await.unwrap();
        rig.files.set_size(&inode, 7_000).await.unwrap();
        rig.files.set_size(&inode, 9_000).await.unwrap();
        wanted.truncate(7_000);
        wanted.resize(9_000, 0);
        assert_eq!(rig.read(file, 0, 30_000).await, wanted);
    });
}
