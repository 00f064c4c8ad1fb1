//! Arrays that braid or md leave dirty, and that the other resyncs, reads and rebuilds.

use braid_interop::states;
use std::path::Path;

#[test]
fn what_a_crash_of_one_leaves_the_other_takes_over() {
    let program = Path::new(env!("CARGO_BIN_EXE_braid-interop"));
    let failures = states::run(program).expect("the states run");
    assert!(failures.is_empty(), "{} arrays are wrong:\n{}", failures.len(), failures.join("\n"));
}
