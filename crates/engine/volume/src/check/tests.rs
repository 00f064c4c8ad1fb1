//! A check over the parts that it looks at.

#![allow(clippy::unwrap_used)]

use super::Checks;
use crate::tests::rig::Rig;
use std::rc::Rc;

#[test]
fn what_the_parts_hold_is_clean_and_damage_is_found_and_repaired() {
    let rig = Rig::new(&[16]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let checks = Rc::new(Checks::new(rig.parts.clone(), Rc::clone(&rig.files)));
        for at in 0..20u64 {
            let file = rig.file(format!("f{at}").as_bytes()).await;
            rig.write(file, 0, &vec![1; 3000 * (at as usize + 1)]).await;
        }
        let report = checks.check(false).await.unwrap();
        assert_eq!((report.files, report.problems), (21, Vec::new()));
        let brick = rig.bricks.get(0).unwrap();
        rig.extents.reserve_on(&brick, 3).await.unwrap().unwrap().lose();
        let inode = rig.inodes.get(rig.namespace.resolve(b"f7").await.unwrap()).await.unwrap();
        rig.inodes.edit(&inode, true, |record| record.nlink = 5);
        let report = checks.check(true).await.unwrap();
        assert_eq!((report.found, report.repaired, report.leaked_blocks), (2, 2, 3));
        assert!(checks.check(false).await.unwrap().is_clean());
    });
}
