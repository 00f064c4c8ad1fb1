//! A guest's folder, and what it has said.

use braid_interop::uml::Output;
use std::path::Path;

/// Puts bytes that look random into the file `pattern` of a guest's folder.
pub fn put_pattern(folder: &Path) {
    let pattern: Vec<u8> =
        (0..600_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(folder.join("pattern"), pattern).expect("room for a pattern");
}

/// The guest has said all of this, and ended well.
#[track_caller]
pub fn assert_said(output: &Output, all: &[&str]) {
    for said in all {
        assert!(output.text.contains(said), "no {said:?} in what the guest said:\n{}", output.text);
    }
    assert_eq!(output.status, 0, "{}", output.text);
}
