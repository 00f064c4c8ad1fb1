//! Every level and layout of md: the real driver on arrays that braid made, and the other way round.

use braid_interop::{cell, matrix};

#[test]
fn braid_and_md_read_check_and_write_each_others_arrays() {
    // One array of each level first: what is wrong everywhere shows soon.
    for cells in [cell::quick(), cell::all()] {
        let report = matrix::run(&cells).expect("the matrix runs");
        let failures = report.failures();
        assert!(
            failures.is_empty(),
            "{} arrays are wrong:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
}
