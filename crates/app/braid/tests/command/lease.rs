//! Arrays that are run under a lease of etcd (Debian: etcd-server). Fail-overs are tried with hosts, by `braid-interop fail-overs`.

use crate::support::{Place, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

/// etcd on ports of its own.
struct Etcd {
    process: Child,
    port: u16,
}

impl Etcd {
    fn start(place: &Place) -> Etcd {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (one, other) = (free(), free());
        let [port, peers] = [&one, &other].map(|socket| socket.local_addr().unwrap().port());
        drop((one, other));
        let [client, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command.args(["--heartbeat-interval", "100", "--election-timeout", "500", "--data-dir"]);
        command.arg(place.path("etcd")).args(["--listen-client-urls", &client]);
        command.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = process.spawn().unwrap_or_else(|error| {
            panic!("etcd (scripts/setup-packages test): {error}");
        });
        let etcd = Etcd { process, port };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(GLANCE);
        }
        etcd
    }

    fn place(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id() as i32).unwrap(), signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn mirror(place: &Place) {
    place.members(&["a", "b"]);
    place.run("create mirror -l 1 -n 2 --assume-clean a b").ok();
}

/// When it has one.
fn lease(place: &Place) -> (i64, u64) {
    let detail = place.detail("mirror");
    let lease = &detail["lease"];
    (lease["token"].as_i64().unwrap(), lease["left_ms"].as_u64().unwrap())
}

/// By a signal, its own; gives what it said.
fn ended_by_itself(server: Server) -> String {
    let ran = server.ended();
    assert_eq!(ran.code, -1, "{}", ran.err);
    ran.err
}

#[test]
fn a_server_with_a_lease_renews_it_shows_its_token_and_gives_it_up() {
    let place = Place::new();
    let etcd = Etcd::start(&place);
    mirror(&place);
    let words = format!("a b --lease {}/racks --lease-ttl 5", etcd.place());
    let server = place.serve(&words);
    let (token, _) = lease(&place);
    assert!(token > 0);
    let said = place.run("detail mirror").ok();
    assert!(said.contains(&format!("/racks, token {token}, ")), "{said}");
    // Longer than it lasts.
    std::thread::sleep(Duration::from_secs(6));
    assert!((1000..=4000).contains(&lease(&place).1), "{:?}", lease(&place));
    let events =
        place.tool("curl", &["-sS", "--unix-socket", "control.sock", "http://braid/v1/events"]);
    assert!(events.ok().contains("LeaseTaken"));
    let refused = place.run("serve --take-over").refused(2, &["cannot be handed over"]);
    assert!(refused.contains("standby"), "{refused}");
    // A stop lets others have it at once, in this server, too.
    place.run("stop mirror").ok();
    assert_eq!(server.ended().code, 0);
    let server = place.serve(&words);
    assert!(lease(&place).0 > token);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
}

#[test]
fn a_server_ends_by_its_own_clock_when_etcd_is_silent() {
    let place = Place::new();
    let etcd = Etcd::start(&place);
    mirror(&place);
    let server = place.serve(&format!("a b --lease {} --lease-ttl 3", etcd.place()));
    etcd.signal(Signal::STOP);
    let since = Instant::now();
    let said = ended_by_itself(server);
    let took = since.elapsed();
    assert!(said.contains("the lease was not renewed in time"), "{said}");
    assert!(took < Duration::from_secs(3), "{took:?}: another could have had it by then");
    etcd.signal(Signal::CONT);
    // Its key goes with its lease, which has to run out.
    let words = format!("a b --lease {} --lease-ttl 3 --standby", etcd.place());
    let server = place.serve(&words);
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    server.signal(Signal::CONT);
    ended_by_itself(server);
    place.run("examine a b").ok();
}

#[test]
fn without_an_answer_of_etcd_nothing_is_started() {
    let place = Place::new();
    mirror(&place);
    let before = std::fs::read(place.path("a")).unwrap();
    let words = "serve a b --nbd unix:nbd.sock --lease etcd://127.0.0.1:1";
    place.run(words).refused(2, &["etcd does not answer at 127.0.0.1:1"]);
    assert!(std::fs::read(place.path("a")).unwrap() == before);
    place.run("serve a b --nbd unix:nbd.sock --lease http://x").refused(2, &["etcd://HOST:PORT"]);
    place.run("serve a b --nbd unix:nbd.sock --standby").refused(2, &["--lease"]);
}
