//! What a running array tells of its layers: `stat`, `iostat`, metrics.

use crate::support::Place;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Sums a field of all members.
fn sum(members: &Value, of: impl Fn(&Value) -> u64) -> u64 {
    members.as_array().unwrap().iter().map(of).sum()
}

pub fn scrape(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: braid\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a metric whose line holds all of these words.
pub fn metric(text: &str, words: &[&str]) -> f64 {
    let holds =
        |line: &&str| !line.starts_with('#') && words.iter().all(|word| line.contains(word));
    let line = text.lines().find(holds).unwrap_or_else(|| panic!("{words:?} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn every_layer_tells_what_came_and_what_went_on() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean --bitmap none a b").ok();
    let server = place.serve("a b --metrics unix:metrics.sock");
    assert!(server.said.contains("metrics: unix:"), "{}", server.said);
    place.data("in", 4 << 20);
    place.copy_in("in", "data");
    place.copy_out("data");

    let stat = json(&place.run("stat data --json").ok());
    let io = &stat["io"];
    assert_eq!(io["write"]["bytes"].as_u64(), Some(4 * MIB));
    assert!(io["read"]["bytes"].as_u64() >= Some(4 * MIB), "{io}");
    let (writes, sizes) = (&io["write"]["requests"], &io["write"]["sizes"]);
    assert_eq!(writes.as_u64(), Some(sum(sizes, |bucket| bucket[1].as_u64().unwrap())));
    let latency = &io["write"]["latency"];
    assert_eq!(latency["requests"], *writes);
    let times: Vec<u64> = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"]
        .map(|name| latency[name].as_u64().unwrap())
        .to_vec();
    assert!(times.is_sorted() && times[0] > 0, "{latency}");
    let busy = io["busy_ns"].as_u64().unwrap();
    assert!(busy > 0 && busy as f64 <= stat["seconds"].as_f64().unwrap() * 2e9, "{busy}");
    // Both copies, and nothing is lost on the way through the plug.
    let members = &stat["members"];
    assert_eq!(sum(members, |m| m["io"]["write"]["bytes"].as_u64().unwrap()), 8 * MIB);
    for member in members.as_array().unwrap() {
        let flow = &member["io"]["write"];
        let (requests, merged) = (&flow["requests"], &flow["merged"]);
        let came = sum(&flow["sizes_in"], |bucket| bucket[1].as_u64().unwrap());
        assert_eq!(requests.as_u64().unwrap() + merged.as_u64().unwrap(), came);
        assert_eq!(flow["latency"]["requests"], *requests);
    }
    let text = place.run("stat --sizes").ok();
    for words in ["data raid1", "├─ ", "└─ ", "aqu-sz", "p99.9", "write in", "write out", "≤ "]
    {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }

    let answer = scrape(UnixStream::connect(place.path("metrics.sock")).unwrap());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("application/openmetrics-text") && answer.ends_with("# EOF\n"));
    let of_array = ["array=\"data\"", "direction=\"write\""];
    let named = |name| [&[name], &of_array[..]].concat();
    assert_eq!(metric(&answer, &named("braid_array_bytes_total")), (4 * MIB) as f64);
    let count = metric(&answer, &named("braid_array_latency_seconds_count"));
    assert_eq!(Some(count as u64), writes.as_u64());
    let slot = ["braid_member_bytes_total", "slot=\"1\"", "direction=\"write\""];
    assert_eq!(metric(&answer, &slot), (4 * MIB) as f64);
    assert_eq!(metric(&answer, &["braid_array_degraded"]), 0.0);
    place.run("fail data b").ok();
    let answer = scrape(UnixStream::connect(place.path("metrics.sock")).unwrap());
    assert_eq!(metric(&answer, &["braid_array_degraded"]), 1.0);
    place.run("stop --all").ok();
    server.ended().ok();
    assert!(!place.path("metrics.sock").exists());
}

#[test]
fn iostat_reports_since_the_start_and_then_each_interval() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    let _server = place.serve("a b c");
    place.data("in", 4 << 20);
    place.copy_in("in", "data");
    let lines = place.run("iostat data 0.1 3 --json").ok();
    let reports: Vec<Value> = lines.lines().map(json).collect();
    assert_eq!(reports.len(), 3);
    let written = |report: &Value| {
        let seconds = report["seconds"].as_f64().unwrap();
        report["arrays"][0]["wkB/s"].as_f64().unwrap() * seconds
    };
    assert_eq!(written(&reports[0]).round(), 4096.0);
    assert_eq!(written(&reports[2]), 0.0);
    let members = reports[0]["arrays"][0]["members"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    for member in members {
        assert!(member["w/s"].as_f64() > Some(0.0) && member["w_await"].as_f64() > Some(0.0));
        assert!(member["%util"].as_f64() <= Some(100.0), "{member}");
    }
    let text = place.run("iostat 0.1 2").ok();
    assert_eq!(text.matches("aqu-sz").count(), 2);
    assert_eq!(text.matches("└─ ").count(), 2);
    assert!(text.starts_with("Device ") && text.contains("\ndata raid5 "), "{text}");
    for (words, code, says) in [
        ("iostat nothing", 4, "no array \"nothing\""),
        ("iostat data x", 2, "seconds from 0.1"),
        ("iostat data 1 0", 2, "from 1"),
    ] {
        place.run(words).refused(code, &[says]);
    }
}

#[test]
fn an_interrupt_ends_iostat_well() {
    let place = Place::new();
    let _server = place.serve("--create fast -l 1 -n 2 --assume-clean ram:8M ram:8M");
    let mut child =
        place.command(&["iostat", "fast", "600"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 6];
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"Device");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_in_memory_is_counted_and_not_timed() {
    let place = Place::new();
    let server = place
        .serve("--create fast -l 5 -n 3 --assume-clean ram:8M ram:8M ram:8M --metrics 127.0.0.1:0");
    place.data("in", 4 << 20);
    place.copy_in("in", "fast");
    let stat = json(&place.run("stat fast --json").ok());
    assert_eq!(stat["io"]["write"]["bytes"].as_u64(), Some(4 * MIB));
    let member = &stat["members"][0]["io"];
    assert_eq!((&stat["io"]["timed"], &member["timed"]), (&false.into(), &false.into()));
    assert_eq!(member["write"]["bytes"].as_u64(), Some(2 * MIB), "half of the data, or parity");
    assert_eq!(member["write"]["latency"], Value::Null);
    let text = place.run("stat fast").ok();
    assert!(text.contains("ram:8M#0[0]  write "), "{text}");
    let address = server
        .said
        .lines()
        .find_map(|line| line.strip_prefix("metrics: http://")?.strip_suffix("/metrics"));
    let answer = scrape(TcpStream::connect(address.unwrap()).unwrap());
    let written = metric(&answer, &["braid_array_bytes_total", "direction=\"write\""]);
    assert_eq!(written, (4 * MIB) as f64);
    assert!(!answer.contains("braid_array_latency_seconds_count"), "{answer}");
    // Nothing that a client sends there harms the server.
    for garbage in [&b"\x00\xff\xfe\r\n\r\n"[..], b"", b"GET /metrics"] {
        let mut stream = TcpStream::connect(address.unwrap()).unwrap();
        stream.write_all(garbage).unwrap();
    }
    place
        .run("serve --create x -l 1 -n 2 ram:8M ram:8M --nbd unix:x --control c --metrics here")
        .refused(2, &["ADDR:PORT"]);
    place.run("stop --all").ok();
    server.ended().ok();
}

#[test]
fn a_stack_is_shown_as_a_tree_and_sequential_writes_stay_whole_through_it() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create m0 -l 1 -n 2 --assume-clean --bitmap none a b").ok();
    place.run("create m1 -l 1 -n 2 --assume-clean --bitmap none c d").ok();
    let _server = place.serve("a b c d --metrics unix:metrics.sock");
    place.run("create top -l 0 -n 2 -c 64K array:m0 array:m1").ok();
    place.data("in", 4 << 20);
    place.copy_in("in", "top");

    let stat = json(&place.run("stat --json").ok());
    assert_eq!(stat["name"], "top", "only the array that is not below another");
    let below = &stat["members"][1];
    assert_eq!(
        (&below["array"]["name"], &below["array"]["level"]),
        (&"m1".into(), &"raid1".into())
    );
    // What the stripe asks of its member is what the mirror was asked, but for superblocks of the stripe.
    assert_eq!(below["io"]["write"]["bytes"].as_u64(), Some(2 * MIB));
    assert!(below["array"]["io"]["write"]["bytes"].as_u64() >= Some(2 * MIB));
    assert!(below["array"]["members"][0]["io"]["write"]["bytes"].as_u64() >= Some(2 * MIB));
    let text = place.run("stat top --sizes").ok();
    let tree = ["top raid0", "├─ array:m0[0] raid1", "│  └─ ", "└─ array:m1[1] raid1", "   └─ "];
    for words in tree {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let text = place.run("iostat").ok();
    assert_eq!(text.trim_end().lines().count(), 1 + 7, "{text}");
    tree.iter().for_each(|words| assert!(text.contains(words), "{words:?} is not in {text}"));
    let report = json(&place.run("iostat --json").ok());
    assert_eq!(report["arrays"].as_array().unwrap().len(), 1);
    let answer = scrape(UnixStream::connect(place.path("metrics.sock")).unwrap());
    assert_eq!(metric(&answer, &["braid_array_degraded", "array=\"m1\"", "layer=\"1\""]), 0.0);
    let words = ["braid_member_bytes_total", "member=\"array:m1\"", "layer=\"0\"", "\"write\""];
    assert_eq!(metric(&answer, &words), (2 * MIB) as f64);
}

/// The names of metrics in a text, without the endings that belong to kinds of them.
fn metrics_in(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words
        .filter(|word| ["braid_array_", "braid_member_"].iter().any(|kind| word.starts_with(kind)));
    let plain = |name: &str| {
        let endings = ["_total", "_bucket", "_sum", "_count", "_info"];
        let ending = endings.iter().find_map(|ending| name.strip_suffix(ending));
        // One that ends like that by itself is no counter of a histogram.
        if name == "braid_array_mismatch_count" {
            name.to_string()
        } else {
            ending.unwrap_or(name).to_string()
        }
    };
    names.map(plain).collect()
}

#[test]
fn alerts_and_the_dashboard_ask_for_metrics_that_there_are() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 --assume-clean a b c").ok();
    let _server = place.serve("a b c --metrics unix:metrics.sock");
    let there = scrape(UnixStream::connect(place.path("metrics.sock")).unwrap());
    let there = metrics_in(&there);
    let asked = [
        include_str!("../../../../../contrib/prometheus/braid.rules.yml"),
        include_str!("../../../../../contrib/grafana/braid.json"),
    ];
    serde_json::from_str::<serde_json::Value>(asked[1]).unwrap();
    let asked: Vec<String> = asked.iter().flat_map(|text| metrics_in(text)).collect();
    assert!(asked.len() > 12, "{asked:?}");
    for name in asked {
        assert!(there.contains(&name), "{name} is not in {there:?}");
    }
}
