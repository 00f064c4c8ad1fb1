//! Write journals by command: made, refused, lost and given anew, replayed after the server was killed.

use crate::support::{Place, write_sparse};

const MIB: u64 = 1 << 20;

#[test]
fn an_array_with_a_journal_loses_it_gets_another_and_is_whole_after_a_kill_without_a_member() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    write_sparse(&place.path("small"), &[], Some(256 << 10));
    for name in ["j", "k"] {
        write_sparse(&place.path(name), &[], Some(16 * MIB));
    }
    let shape = "-l 6 -n 4 -c 64K --assume-clean";
    let small = place.run(&format!("create data {shape} --write-journal small a b c d"));
    small.refused(2, &["small", "one stripe of this array takes"]);
    let level = place.run("create data -l 1 -n 2 --write-journal j a b");
    level.refused(2, &["no parity"]);
    let said = place.run(&format!("create data {shape} --write-journal j a b c d")).ok();
    assert!(said.contains("write journal of") && said.contains("/j\n"), "{said}");
    assert!(place.run("examine j").ok().contains("Journal"));

    let server = place.serve("a b c d j");
    place.data("old", 2 * MIB as usize);
    place.copy_in("old", "data");
    let shown = place.run("detail data").ok();
    assert!(shown.contains("Consistency Policy : journal"), "{shown}");
    place.run("remove data j").refused(2, &["journal"]);
    place.run("fail data j").ok();
    assert!(place.run("detail data").ok().contains("read-only"));
    let refused = place.tool("nbdcopy", &["old", &place.uri("data")]);
    assert_ne!(refused.code, 0, "a write was taken without a journal");
    place.run("remove data j").ok();
    place.run("add data --journal small").refused(2, &["small"]);
    place.run("add data --journal k a").refused(2, &["one journal"]);
    let said = place.run("add data --journal k").ok();
    assert!(said.contains("k is the journal of array data now"), "{said}");
    let new: Vec<u8> = place.data("new", 2 * MIB as usize).iter().map(|byte| !byte).collect();
    std::fs::write(place.path("new"), &new).unwrap();
    place.copy_in("new", "data");
    server.signal(rustix::process::Signal::KILL);
    server.ended();

    // Two members fewer, and no word about force.
    let server = place.serve("a c k --run");
    assert!(place.copy_out("data").starts_with(&new));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended().code, 0);
    // Without its journal.
    let server = place.serve("a c --run");
    let shown = place.run("detail data").ok();
    assert!(shown.contains("read-only") && shown.contains("--force"), "{shown}");
    assert!(place.copy_out("data").starts_with(&new));
    server.signal(rustix::process::Signal::TERM);
    server.ended();
}

#[test]
fn a_mirror_is_the_journal_of_an_array_and_what_it_has_is_replayed_after_a_kill() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    for name in ["x", "y"] {
        write_sparse(&place.path(name), &[], Some(24 * MIB));
    }
    place.run("create log -l 1 -n 2 --assume-clean x y").ok();
    let server = place.serve("x y");
    let shape = "-l 6 -n 4 -c 64K --assume-clean";
    let said = place.run(&format!("create data {shape} --write-journal array:log a b c d")).ok();
    assert!(said.contains("write journal of") && said.contains("array:log"), "{said}");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended().code, 0);

    let server = place.serve("a b c d x y");
    let new = place.data("new", 2 * MIB as usize);
    place.copy_in("new", "data");
    assert!(place.run("detail data").ok().contains("Consistency Policy : journal"));
    server.signal(rustix::process::Signal::KILL);
    server.ended();

    // A copy of the journal fewer, and two members.
    let server = place.serve("a c x --run");
    assert!(place.copy_out("data").starts_with(&new));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended().code, 0);
}
