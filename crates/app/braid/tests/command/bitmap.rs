//! The write-intent bitmap on the command line: made by `create`, shown by `detail`, used by `re-add`.

use crate::support::Place;

#[test]
fn a_member_that_was_away_is_re_added_and_only_what_changed_is_copied() {
    let place = Place::new();
    place.members(&["a", "b", "c", "other"]);
    let said =
        place.run("create data -l 5 -n 3 -c 64K --bitmap internal --bitmap-chunk 64K a b c").ok();
    assert!(said.contains("write-intent bitmap, 64K for each bit"), "{said}");
    let server = place.serve("a b c");
    place.run("wait data").ok();
    let data = place.data("in", 2 << 20);
    place.copy_in("in", "data");
    let text = place.run("detail data").ok();
    for words in ["Intent Bitmap : Internal", "Consistency Policy : bitmap", "bits dirty, 64K each"]
    {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert!(place.detail("data")["bitmap"]["dirty"].as_u64() > Some(0));

    place.run("fail data b").ok();
    place.run("re-add data b").refused(2, &["in use"]);
    place.run("remove data b").ok();
    place.copy_in("in", "data");
    place.run("re-add data other").refused(2, &["no superblock", "braid add data"]);
    assert!(place.run("re-add data b").ok().contains("was re-added to array data"));
    place.run("wait data").ok();
    assert_eq!(place.detail("data")["degraded"], 0);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));

    // As with mdadm, `add` takes a former member back where it can.
    place.run("fail data c").ok();
    place.run("remove data c").ok();
    assert!(place.run("add data c").ok().contains("re-added"));
    place.run("wait data").ok();
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn a_running_array_is_given_a_bitmap_and_loses_it_again() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean --bitmap none a b").ok();
    let server = place.serve("a b");
    place.run("grow data --bitmap none").refused(2, &["it has none"]);
    place.run("grow data --bitmap none --bitmap-chunk 1M").refused(2, &["contradict"]);
    place.run("grow data --bitmap internal --bitmap-chunk 3K").refused(2, &["3072"]);
    let said = place.run("grow data --bitmap internal --bitmap-chunk 64K").ok();
    assert!(said.contains("64K for each bit"), "{said}");
    assert_eq!(place.detail("data")["bitmap"]["chunk"], 64 << 10);
    place.run("grow data --bitmap=internal").refused(2, &["it has one"]);
    let data = place.data("in", 1 << 20);
    place.copy_in("in", "data");
    place.run("stop data").ok();
    server.ended().ok();
    assert!(place.run("examine a").ok().contains("Internal Bitmap : 8 sectors from superblock"));
    let server = place.serve("a b");
    assert!(place.run("grow data --bitmap none").ok().contains("no bitmap any more"));
    assert!(place.detail("data")["bitmap"].is_null());
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
    assert!(!place.run("examine a").ok().contains("Internal Bitmap"));
}

#[test]
fn an_array_with_a_partial_parity_log_says_so_and_a_running_one_is_given_one() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 --assume-clean --consistency-policy ppl a b c").ok();
    assert!(
        place.run("examine a").ok().contains("2048 sectors at offset 8 sectors from superblock")
    );
    let server = place.serve("a b c");
    assert!(place.run("detail data").ok().contains("Consistency Policy : ppl"));
    assert_eq!(place.detail("data")["has_ppl"], true);
    place.run("grow data --consistency-policy ppl").refused(2, &["it has one"]);
    place.run("grow data -k bitmap").refused(2, &["--consistency-policy resync"]);
    let data = place.data("in", 1 << 20);
    place.copy_in("in", "data");
    let said = place.run("grow data --consistency-policy resync").ok();
    assert!(said.contains("no partial parity log any more"), "{said}");
    assert!(place.run("detail data").ok().contains("Consistency Policy : resync"));
    place.run("grow data -k resync").refused(2, &["resync already"]);
    assert!(place.run("grow data -k ppl").ok().contains("has a partial parity log now"));
    place.copy_in("in", "data");
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b --run");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn what_contradicts_itself_is_refused() {
    let place = Place::new();
    place.members(&["a", "b"]);
    for (options, says) in [
        ("-l 1 -n 2 --bitmap none -k bitmap", "contradict"),
        ("-l 1 -n 2 --bitmap internal -k resync", "contradict"),
        ("-l 1 -n 2 -k resync --bitmap-chunk 64K", "--bitmap-chunk"),
        ("-l 0 -n 2 --bitmap internal", "no redundancy"),
        ("-l 1 -n 2 -k ppl", "only raid5 does"),
        ("-l 5 -n 2 -k ppl --bitmap internal", "contradict"),
        ("-l 5 -n 2 -k ppl -e 0.90", "use metadata 1.2"),
        ("-l 1 -n 2 --bitmap internal --bitmap-chunk 3K", "power of two"),
    ] {
        place.run(&format!("create data {options} a b")).refused(2, &[says]);
    }
    let said = place.run("create data -l 1 -n 2 -k bitmap a b").ok();
    assert!(said.contains("write-intent bitmap"), "{said}");
}
