//! Settings of arrays: changed while requests go on, kept across restarts, refused where they cannot be; and
//! the figures that show what they do.

use crate::support::Place;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Three members named a to c, chunk 64K; with more options.
fn raid5(place: &Place, more: &str) {
    place.members(&["a", "b", "c"]);
    place.run(&format!("create data -l 5 -n 3 -c 64K --assume-clean {more} a b c")).ok();
}

/// The file that keeps the settings of the array that `a` is a member of.
fn kept(place: &Place) -> PathBuf {
    let uuid = place.examined("a")["array_uuid"].as_str().unwrap().to_string();
    place.path("state").join(format!("{uuid}.settings"))
}

/// A setting, as `get --json` shows it.
fn setting(place: &Place, name: &str) -> Value {
    let text = place.braid(&["get", "data", name, "--json"]).ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["settings"].as_array().unwrap().len(), 1, "{text}");
    report["settings"][0].clone()
}

/// Ends the load, also when the test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn stat(place: &Place) -> Value {
    serde_json::from_str(&place.run("stat data --json").ok()).unwrap()
}

#[test]
fn settings_change_under_load_and_no_byte_is_wrong() {
    let place = Place::new();
    raid5(&place, "");
    let server = place.serve("a b c");
    let data = place.data("in", 4 << 20);
    let end = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _end = AtEnd(&end);
        threads.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                place.copy_in("in", "data");
            }
        });
        for line in [
            "stripe_size=16384 stripe_cache_size=512 shards=1",
            "stripe_size=64K rmw_level=2 preread_bypass_threshold=0",
            "stripe_size=4096 stripe_cache_size=1M shards=2",
            "stripe_cache_size=0 rmw_level=0",
            "sync_speed_min=10 sync_speed_max=20 stripe_size=auto",
        ] {
            place.run(&format!("set data {line}")).ok();
            let shown = place.run("get data").ok();
            for pair in line.split(' ') {
                let pair = pair.replace("64K", "65536").replace("1M", "1024K");
                assert!(shown.contains(&pair), "{pair} is not in {shown}");
            }
        }
    });
    let detail = place.detail("data");
    assert_eq!(detail["sync_speed_max"], 20);
    assert_eq!(detail["settings"]["rmw_level"], "0");
    assert!(place.run("detail data").ok().contains("Settings : "));
    place.run("set data sync_speed_min=auto sync_speed_max=none").ok();
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn auto_says_what_it_means_at_the_moment() {
    let place = Place::new();
    raid5(&place, "");
    let _server = place.serve("a b c");
    let shown = place.run("get").ok();
    for line in ["stripe_size=auto (lines of 4096 bytes)\n", "shards=auto (2)\n"] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert_eq!(setting(&place, "stripe_size")["now"]["line_bytes"], 4096);
    assert_eq!(setting(&place, "shards")["now"]["shards"], 2);
    let cache = setting(&place, "stripe_cache_size");
    let lines = cache["now"]["lines"].as_u64().unwrap();
    assert_eq!(cache["now"]["bytes"], lines * 3 * 4096);
    assert_eq!((&cache["value"], &cache["kept"]), (&"auto".into(), &"auto".into()));
    place.run("set data stripe_cache_size=100 --once").ok();
    let shown = place.run("get data stripe_cache_size shards").ok();
    assert_eq!(shown, "stripe_cache_size=100 (kept: auto)\nshards=auto (2)\n");
    assert!(!kept(&place).exists());
}

#[test]
fn settings_are_kept_for_the_next_start_and_no_longer_than_wanted() {
    let place = Place::new();
    raid5(&place, "--stripe-size 16K");
    let file = kept(&place);
    assert!(fs::read_to_string(&file).unwrap().ends_with("\nstripe_size=16384\n"));
    let server = place.serve("a b c --set stripe_size=8K");
    assert_eq!(setting(&place, "stripe_size")["value"], "8192");
    assert_eq!(setting(&place, "stripe_size")["kept"], "16384");
    place.run("set data shards=1 sync_speed_max=5000").ok();
    place.run("set data stripe_cache_size=64 --once").ok();
    place.run("stop data").ok();
    server.ended().ok();

    let server = place.serve("a b c --read-only");
    assert_eq!(setting(&place, "shards")["value"], "1");
    place.run("stop data").ok();
    server.ended().ok();

    let server = place.serve("a b c");
    let values: Vec<String> = ["stripe_size", "stripe_cache_size", "shards", "sync_speed_max"]
        .iter()
        .map(|name| setting(&place, name)["value"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(values, ["16384", "auto", "1", "5000"]);
    place.run("set data stripe_size=auto shards=auto sync_speed_max=auto").ok();
    assert!(!file.exists());
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn what_does_not_suit_is_refused_and_nothing_changes() {
    let place = Place::new();
    raid5(&place, "");
    let server = place.serve("a b c");
    place.run("set data stripe_size=16384").ok();
    let before = place.run("get data").ok();
    let kept_before = fs::read(kept(&place)).unwrap();
    for (words, says) in [
        ("stripe_size=5000", "power of two"),
        ("stripe_size=2048", "4096"),
        ("stripe_size=128K", "chunk"),
        ("stripe_cache_size=16777217", "MiB"),
        ("stripe_cache_size=100000G", "MiB"),
        ("shards=3", "--shards"),
        ("shards=0", "--shards"),
        ("stripe_size=8192 shards=3", "--shards"),
        ("shards=1 sync_speed_min=9 sync_speed_max=8", "above sync_speed_max"),
        ("rmw_level=3", "0 (never)"),
        ("shards=1 shards=2", "twice"),
        ("chunk=4", "stripe_cache_size"),
        ("stripe_siz=4096", "'stripe_size'"),
        ("stripe_size", "NAME=VALUE"),
    ] {
        place.run(&format!("set data {words}")).refused(2, &[says]);
        assert_eq!(place.run("get data").ok(), before, "{words}");
        assert_eq!(fs::read(kept(&place)).unwrap(), kept_before, "{words}");
    }
    place.run("set other shards=1").refused(4, &["no array \"other\""]);
    place.run("get data chunk").refused(2, &["stripe_size"]);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn a_start_or_a_creation_with_settings_that_do_not_suit_writes_nothing() {
    let place = Place::new();
    raid5(&place, "");
    let before: Vec<Vec<u8>> =
        ["a", "b", "c"].map(|name| fs::read(place.path(name)).unwrap()).into();
    for (words, says) in [
        ("stripe_size=128K", "chunk"),
        ("shards=2", "--shards"),
        ("stripe_cache_size=16777217", "MiB"),
    ] {
        let line = format!("serve a b c --shards 1 --nbd unix:nbd.sock --set {words}");
        place.run(&line).refused(2, &["data", says]);
    }
    let force = "create data -l 5 -n 3 -c 64K --force a b c";
    place.run(&format!("{force} --stripe-size 128K")).refused(2, &["chunk"]);
    place.run(&format!("{force} --stripe-size many")).refused(2, &["bytes"]);
    place.run(&format!("{force} --stripe-size 8K --state-dir a")).refused(2, &["--state-dir"]);
    place.run("create data -l 0 -n 3 --force a b c --stripe-size 8K").refused(2, &["raid0"]);
    let dry = place.run(&format!("{force} --stripe-size 8K --dry-run")).ok();
    assert!(dry.contains("stripe_size=8K"), "{dry}");
    for (name, bytes) in ["a", "b", "c"].iter().zip(before) {
        assert!(fs::read(place.path(name)).unwrap() == bytes, "{name} was written to");
    }
    assert!(!place.path("state").exists());
    let ram = "serve --create fast -l 5 -n 3 ram:8M ram:8M ram:8M --nbd unix:s --set";
    place.run(&format!("{ram} stripe_size=1M")).refused(2, &["fast", "chunk"]);
    place.run(&format!("{ram} sync_speed_max=9")).refused(2, &["sync_speed_min=1000"]);
}

#[test]
fn a_damaged_file_warns_and_the_array_is_served() {
    let place = Place::new();
    raid5(&place, "--stripe-size 16K");
    let file = kept(&place);
    // The last suits no array with this chunk, as of another day.
    for (bytes, says) in [
        (&b"\xff\xfe\0garbage"[..], "no text"),
        (b"stripe_size=16384\x1b[2J", "line 1"),
        (b"stripe_size=1048576\nshards=77", "auto"),
    ] {
        fs::write(&file, bytes).unwrap();
        let server = place.serve("a b c");
        let shown = place.run("get data stripe_size shards").ok();
        assert!(shown.contains("stripe_size=auto (lines"), "{shown}");
        assert!(shown.contains("shards=auto (2"), "{shown}");
        place.data("in", 1 << 20);
        place.copy_in("in", "data");
        place.run("set data shards=1").ok();
        place.run("stop data").ok();
        let err = server.ended();
        assert_eq!(err.code, 0);
        assert!(err.err.contains("warning: array data") && err.err.contains(says), "{}", err.err);
        assert!(!err.err.contains('\x1b'));
        assert!(fs::read_to_string(&file).unwrap().contains("shards=1\n"));
    }
}

#[test]
fn settings_that_cannot_be_kept_are_not_set() {
    let place = Place::new();
    raid5(&place, "");
    let server = place.serve("a b c --state-dir a");
    place.run("set data stripe_size=16384").refused(2, &["nothing was set", "--once"]);
    assert_eq!(setting(&place, "stripe_size")["value"], "auto");
    place.run("set data stripe_size=16384 --once").ok();
    assert_eq!(setting(&place, "stripe_size")["value"], "16384");
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn what_would_move_stripes_under_a_job_waits_for_its_end() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K a b c").ok();
    // So slow that the first resync does not end before the test does.
    let server = place.serve("a b c --set sync_speed_min=1 --set sync_speed_max=1");
    let before = place.run("get data").ok();
    let words = "set data sync_speed_min=2 sync_speed_max=2 rmw_level=0";
    for more in ["stripe_size=8192", "shards=1"] {
        place.run(&format!("{words} {more}")).refused(2, &["resync", "braid wait data"]);
        assert_eq!(place.run("get data").ok(), before);
    }
    assert!(!kept(&place).exists());
    place.run(words).ok();
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn levels_without_parity_have_few_settings() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let _server = place.serve("a b");
    place.run("set data stripe_size=4096").refused(2, &["raid1"]);
    place.run("set data shards=1 sync_speed_max=5000").ok();
    let shown = place.run("get data").ok();
    assert!(shown.contains("stripe_size=auto (not used at level raid1)"), "{shown}");
    assert!(shown.contains("shards=1\n"), "{shown}");
    assert!(place.run("stat data").ok().contains("Shards"));
}

#[test]
fn figures_add_up() {
    let place = Place::new();
    raid5(&place, "");
    let _server = place.serve("a b c");
    let write = |command: &str| {
        let words = ["-f", "raw", "-t", "none", "-c", command, &place.uri("data")];
        place.tool("qemu-io", &words).ok();
    };
    write("write -P 1 128k 128k");
    let full = stat(&place);
    let counters = &full["counters"];
    for (name, count) in [
        ("writes", 1),
        ("written_bytes", 128 << 10),
        ("pieces", 1),
        ("batches", 1),
        ("full_stripes", 1),
        ("read_modify_writes", 0),
        ("reconstruct_writes", 0),
        ("member_reads", 0),
        ("member_writes", 3),
    ] {
        assert_eq!(counters[name], count, "{name}: {full}");
    }
    assert_eq!(full["member_writes_per_write"], 3.0);
    assert_eq!(full["members"].as_array().unwrap().len(), 3);
    write("write -P 2 256k 4k");
    write("write -P 3 256k 4k");
    let part = stat(&place);
    let counters = &part["counters"];
    assert_eq!(counters["full_stripes"], 1);
    let plans = counters["read_modify_writes"].as_u64().unwrap()
        + counters["reconstruct_writes"].as_u64().unwrap();
    assert_eq!(plans, 2, "{part}");
    assert_eq!(counters["member_writes"], 3 + 2 + 2);
    // What the first of the two read, the second finds.
    assert_eq!(
        (&part["cache"]["hits"], &counters["member_reads"]),
        (&1.into(), &1.into()),
        "{part}"
    );
    assert_eq!(part["reads_avoided"], part["cache"]["hits"]);

    let text = place.run("stat data").ok();
    for words in ["Full stripes", "Blocks found in the cache", "Merged"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    let lines = place.run("stat data --interval 0.1 --count 2 --json").ok();
    assert_eq!(lines.lines().count(), 2);
    for line in lines.lines() {
        let idle: Value = serde_json::from_str(line).unwrap();
        assert_eq!(idle["counters"]["writes"], 0);
        assert_eq!(idle["per_second"]["writes"], 0.0);
        assert!(idle["seconds"].as_f64().unwrap() > 0.0);
    }
    assert!(place.run("stat --interval 0.1 --count 1").ok().contains("Full stripes"));
}
