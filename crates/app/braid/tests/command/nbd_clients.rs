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
