//! Arrays of arrays: braid and md on each other's, checked at every level.

use braid_interop::stacks;

#[test]
fn stacks_of_one_are_stacks_of_the_other() {
    let report = stacks::run().expect("the stacks run");
    let (stacks, took) = (report.stacks, report.took.as_secs_f64());
    println!("{stacks} stacks, {} wrong, {took:.0} s", report.failures.len());
    let wrong = report.failures.join("\n");
    assert!(report.failures.is_empty(), "{} are wrong:\n{wrong}", report.failures.len());
}
