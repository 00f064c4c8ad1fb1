//! `braid serve --tls`, with certificates made as docs/cli.md shows.

use crate::support::Place;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The commands of docs/cli.md that make certificates, run in this folder.
pub fn certificates(place: &Place) {
    let page = include_str!("../../../../../docs/cli.md");
    let block =
        page.split("```text\n").find(|block| block.starts_with("printf 'cn = storage")).unwrap();
    let script = block.split("```").next().unwrap();
    place.tool("bash", &["-e", "-c", script]).ok();
}

#[test]
fn an_array_is_served_to_clients_with_a_certificate_and_to_nobody_else() {
    let place = Place::new();
    certificates(&place);
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let tls = "--tls require --tls-certificates . --tls-verify-peer --nbd tcp:127.0.0.1:0";
    let server = place.serve(&format!("a b {tls}"));
    let place_of = |scheme: &str| {
        let found = server.said.split_whitespace().find(|word| word.starts_with(scheme));
        found.unwrap_or_else(|| panic!("no {scheme} in {}", server.said)).to_owned()
    };
    let uri = place_of("nbds://");
    assert!(place_of("nbds+unix://").contains("nbd.sock"));
    let with = format!("{uri}?tls-certificates={}", place.path("").display());
    let info = place.tool("nbdinfo", &[&with]).ok();
    assert!(info.contains("with TLS"), "{info}");
    assert_ne!(place.tool("nbdinfo", &[&uri.replace("nbds", "nbd")]).code, 0);
    // It knows the authority, and has no certificate.
    fs::create_dir(place.path("bare")).unwrap();
    fs::copy(place.path("ca-cert.pem"), place.path("bare/ca-cert.pem")).unwrap();
    let bare = format!("{uri}?tls-certificates={}", place.path("bare").display());
    assert_ne!(place.tool("nbdinfo", &[&bare]).code, 0);
    place.run("stop data").ok();
    let ended = server.ended();
    let refusals: Vec<&str> = ended.err.lines().filter(|line| line.contains("refused")).collect();
    assert_eq!(refusals.len(), 1, "{}", ended.err);
    assert!(refusals[0].contains("127.0.0.1:") && refusals[0].contains("no certificates"));
    ended.ok();
}

/// libnbd's client; its authority is ours each time, so that it is the server who refuses.
#[test]
fn strangers_and_clients_with_keys_only_are_refused_by_one_line_each() {
    let (place, other) = (Place::new(), Place::new());
    certificates(&place);
    certificates(&other);
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let tls = "--tls require --tls-certificates . --tls-verify-peer --nbd tcp:127.0.0.1:0";
    let server = place.serve(&format!("a b {tls}"));
    let found = server.said.split_whitespace().find(|word| word.starts_with("nbds://"));
    let uri = found.unwrap_or_else(|| panic!("no nbds:// in {}", server.said)).to_owned();
    // A certificate of another authority.
    fs::create_dir(place.path("stranger")).unwrap();
    for (from, name) in [
        (place.path("ca-cert.pem"), "ca-cert.pem"),
        (other.path("client-cert.pem"), "client-cert.pem"),
        (other.path("client-key.pem"), "client-key.pem"),
    ] {
        fs::copy(from, place.path("stranger").join(name)).unwrap();
    }
    let stranger = format!("{uri}?tls-certificates={}", place.path("stranger").display());
    let refused = place.tool("nbdinfo", &[&stranger]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("alert"), "{}", refused.err);
    // A key, and no certificates at all.
    fs::write(place.path("keys.psk"), format!("alice:{}\n", "5a".repeat(32))).unwrap();
    let keys = format!(
        "{}?tls-psk-file={}",
        uri.replace("nbds://", "nbds://alice@"),
        place.path("keys.psk").display()
    );
    // It speaks TLS 1.3, where it is shown a certificate and leaves.
    assert_ne!(place.tool("nbdinfo", &[&keys]).code, 0);
    // In TLS 1.2 there is no cipher that suits.
    let port = uri.strip_prefix("nbds://").and_then(|rest| rest.split(['/', ':']).nth(1));
    let said = keys_alone(&place, port.unwrap());
    assert!(said.contains("Received alert [40]: Handshake failed"), "{said}");
    place.run("stop data").ok();
    let ended = server.ended();
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ended.err);
    for line in &lines {
        assert!(line.contains("NBD client refused") && line.contains("127.0.0.1:"), "{line}");
    }
    // The server may hear of a client that left after the next one came: the order is open.
    for why in ["invalid peer certificate", "NoCipherSuitesInCommon"] {
        assert_eq!(lines.iter().filter(|line| line.contains(why)).count(), 1, "{}", ended.err);
    }
    ended.ok();
}

/// The words of gnutls-cli at an NBD server when it knows TLS 1.2 with pre-shared keys and nothing else.
fn keys_alone(place: &Place, port: &str) -> String {
    let mut client = Command::new("gnutls-cli")
        .args(["--starttls", "--port", port, "--pskusername", "alice", "--pskkey", "5a5a5a5a"])
        .args(["--priority", "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK:+DHE-PSK:+PSK"])
        .arg("127.0.0.1")
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gnutls-cli; install it with: apt-get install gnutls-bin (make test does)");
    // Fixed newstyle without zeroes, and the option that begins TLS.
    let start = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &5u32.to_be_bytes(), &[0; 4]].concat();
    client.stdin.as_mut().unwrap().write_all(&start).unwrap();
    // Until it shows the server's agreement; it begins when it is told by a signal.
    let agreed = [5u32, 1, 0].map(u32::to_be_bytes).concat();
    let (mut said, mut stdout) = (Vec::new(), client.stdout.take().unwrap());
    while !said.ends_with(&agreed) {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    let pid = rustix::process::Pid::from_child(&client);
    rustix::process::kill_process(pid, rustix::process::Signal::ALARM).unwrap();
    stdout.read_to_end(&mut said).unwrap();
    assert!(!client.wait().unwrap().success());
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn certificates_that_cannot_be_used_are_named_before_anything_listens() {
    let place = Place::new();
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    let serve = "serve a b --nbd unix:nbd.sock --tls require --tls-certificates .";
    place.run(serve).refused(2, &["server-cert.pem", "folder of TLS certificates"]);
    assert!(!place.path("nbd.sock").exists());
    assert_eq!(place.examined("a")["state"], "clean");
}

#[test]
fn an_array_has_members_over_tls_and_takes_them_back() {
    let (far, place) = (Place::new(), Place::new());
    certificates(&far);
    far.members(&["a", "b"]);
    far.run("create disk -l 1 -n 2 --assume-clean a b").ok();
    let serve = "a b --stack never --tls require --tls-certificates . --tls-verify-peer";
    let server = far.serve(serve);
    let socket = far.path("nbd.sock");
    let plain = format!("nbd+unix:///disk?socket={}", socket.display());
    place.members(&["c"]);
    place.run(&format!("create near -l 1 -n 2 c {plain}")).refused(2, &["TLS"]);
    let folder = far.path("");
    let uri = format!(
        "nbds+unix:///disk?socket={}&tls-certificates={}",
        socket.display(),
        folder.display()
    );
    place.run(&format!("create near -l 1 -n 2 --assume-clean --bitmap-chunk 64K c {uri}")).ok();
    let near = place.serve(&format!("c {uri}"));
    let expected = place.data("content", 4 << 20);
    place.copy_in("content", "near");
    server.signal(rustix::process::Signal::KILL);
    server.ended();
    place.copy_in("content", "near");
    assert_eq!(place.detail("near")["degraded"], 1);
    let again = far.serve(serve);
    let end = Instant::now() + Duration::from_secs(60);
    while place.detail("near")["degraded"] != 0 {
        assert!(Instant::now() < end, "it does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    place.run("wait near").ok();
    assert!(place.run("check --wait near").ok().contains("0 sectors mismatched"));
    place.run("fail near c").ok();
    assert!(place.copy_out("near")[..4 << 20] == expected[..]);
    place.run("stop near").ok();
    near.ended();
    far.run("stop disk").ok();
    again.ended().ok();
}
