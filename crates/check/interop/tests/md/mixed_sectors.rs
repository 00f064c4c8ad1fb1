//! Arrays whose members have sectors of 512 and of 4096 bytes, with bitmaps: the real driver on those that
//! braid made, and the other way round. In the guest such members are loop devices with that block; here
//! they are files that refuse what such a disk would.

use braid_format::superblock::Version;
use braid_interop::cell::{self, Cell};
use braid_interop::guest::Setting;
use braid_interop::matrix;

#[test]
fn arrays_of_both_kinds_of_disks_go_from_one_to_the_other() {
    // Each level with the superblock before the data, and at one of the other places.
    let mut cells: Vec<Cell> = Vec::new();
    for (nr, cell) in cell::quick().into_iter().enumerate() {
        let other = [Version::V0_90, Version::V1_0, Version::V1_1][nr % 3];
        cells.extend([Version::V1_2, other].map(|version| Cell { version, ..cell.clone() }));
    }
    let setting = Setting { blocks: &[512, 4096], bitmap: true };
    let report = matrix::run_with(&cells, setting).expect("the matrix runs");
    let failures = report.failures();
    println!("{} arrays in {:?}", cells.len() * 2, report.took);
    assert!(failures.is_empty(), "{} are wrong:\n{}", failures.len(), failures.join("\n"));
}
