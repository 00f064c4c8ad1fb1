//! Whom `braid serve` lets in over NBD, and what it says of them.

use crate::support::Place;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn clients_are_let_in_by_group_and_network_and_their_visits_are_logged() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let group = rustix::process::getegid().as_raw();
    let rights = format!("--nbd-mode 660 --nbd-group {group}");
    let networks = "--nbd tcp:127.0.0.1:0 --nbd-allow 10.1.0.0/16,fd00::/8";
    let server = place.serve_logging(&format!("a b {rights} {networks}"), "warn,clients=info");
    let socket = std::fs::metadata(place.path("nbd.sock")).unwrap();
    assert_eq!((socket.gid(), socket.permissions().mode() & 0o777), (group, 0o660));
    // Over TCP it is none of these networks; a unix socket has its permissions.
    let uri = server.said.split_whitespace().find(|word| word.starts_with("nbd://")).unwrap();
    assert_ne!(place.tool("nbdinfo", &["--size", uri]).code, 0);
    place.data("content", 1 << 20);
    place.copy_in("content", "data");
    place.run("stop data").ok();
    let ended = server.ended();
    let lines = |word: &str| -> Vec<&str> {
        ended.err.lines().filter(|line| line.contains(word)).collect()
    };
    let refused = lines("refused");
    assert_eq!(refused.len(), 1, "{}", ended.err);
    assert!(refused[0].contains("127.0.0.1:") && refused[0].contains("--nbd-allow"));
    let (came, left) = (lines("client came"), lines("client left"));
    assert!(!came.is_empty(), "{}", ended.err);
    assert_eq!(came.len(), left.len(), "{}", ended.err);
    for word in ["process ", "export=\"data\"", "tls=false"] {
        assert!(came.iter().all(|line| line.contains(word)), "{word}: {came:?}");
    }
    let written = |line: &&str| -> u64 {
        let figure = line.split("written_bytes=").nth(1).unwrap();
        figure.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert_eq!(left.iter().map(written).sum::<u64>(), 1 << 20, "{left:?}");
    ended.ok();
}

#[test]
fn a_socket_that_was_passed_is_served_and_without_one_that_is_said() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    // nbdinfo starts the server as systemd would, and ends it.
    let braid = env!("CARGO_BIN_EXE_braid");
    let control = place.path("control.sock");
    let serve = ["serve", "a", "b", "--nbd", "systemd", "--nbd-read-only", "data", "--control"];
    let words = [&["--", "[", braid], &serve[..], &[control.to_str().unwrap(), "]"]].concat();
    let info = place.tool("nbdinfo", &words).ok();
    assert!(info.contains("export=\"data\""), "{info}");
    assert!(info.contains("is_read_only: true"), "{info}");
    place.run("serve a b --nbd systemd").refused(2, &["LISTEN_FDS"]);
    assert_eq!(place.examined("a")["state"], "clean");
}

/// The map of an export: offset, length, and whether it is a hole, one line after the other.
fn map(place: &Place) -> Vec<(u64, u64, bool)> {
    let said = place.tool("nbdinfo", &["--map", &place.uri("data")]).ok();
    let extent = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match number(2) {
            0 => (number(0), number(1), false),
            3 => (number(0), number(1), true),
            other => panic!("state {other} in {said}"),
        }
    };
    said.lines().map(extent).collect()
}

fn qemu_io(place: &Place, commands: &[&str]) -> String {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let words: Vec<&str> = ["-f", "raw"].into_iter().chain(commands).collect();
    let said = place.tool("qemu-io", &[&words[..], &[&place.uri("data")]].concat()).ok();
    assert!(!said.contains("failed"), "{said}");
    said
}

#[test]
fn holes_of_all_members_are_holes_of_the_array_with_and_without_one_of_them() {
    const MB: u64 = 1 << 20;
    for (level, members) in [("5", "a b c"), ("6", "a b c d"), ("1", "a b"), ("10", "a b c d")] {
        let place = Place::new();
        let names: Vec<&str> = members.split_whitespace().collect();
        place.members(&names);
        let count = names.len();
        let shape = format!("-l {level} -n {count} --assume-clean");
        let chunk = if level == "1" { "" } else { "--chunk 64K" };
        place.run(&format!("create data {shape} {chunk} {members}")).ok();
        let server = place.serve(members);
        let size = map(&place).iter().map(|(_, length, _)| length).sum::<u64>();
        assert_eq!(map(&place), [(0, size, true)], "level {level}: nothing was written");
        qemu_io(&place, &["write -P 7 4M 1M", "flush"]);
        let expected = [(0, 4 * MB, true), (4 * MB, MB, false), (5 * MB, size - 5 * MB, true)];
        assert_eq!(map(&place), expected, "level {level}");
        let content = ["read -P 0 0 4M", "read -P 7 4M 1M", "read -P 0 5M 4M"];
        qemu_io(&place, &content);
        place.run("fail data b").ok();
        assert_eq!(map(&place), expected, "level {level}, without a member");
        qemu_io(&place, &content);
        // Given back, also while a member is away.
        qemu_io(&place, &["write -z -u 4M 1M", "flush", "read -P 0 0 8M"]);
        assert_eq!(map(&place), [(0, size, true)], "level {level}: zeroed");
        place.run("stop data").ok();
        server.ended().ok();
    }
}

#[test]
fn what_one_member_has_is_data_whatever_the_others_have() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let start = place.examined("b")["data_offset"].as_u64().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(place.path("b")).unwrap();
    // Behind the array's back, as after a write that one copy got.
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 64 << 10], start + (2 << 20)).unwrap();
    file.sync_all().unwrap();
    let server = place.serve("a b");
    let map = map(&place);
    assert_eq!(map[..2], [(0, 2 << 20, true), (2 << 20, 64 << 10, false)], "{map:?}");
    place.run("stop data").ok();
    server.ended().ok();
}
