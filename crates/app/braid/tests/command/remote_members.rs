//! Arrays over exports of other servers: lost with their connections, and brought up to date when they are there again.
//!
//! Needs qemu-nbd (Debian: qemu-utils), nbdcopy and fio.

use crate::support::{MEMBER, Place, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Looks at the state of things this often; nothing depends on it.
const GLANCE: Duration = Duration::from_millis(50);
/// Whatever is waited for has come by then, or does not.
const LONG: Duration = Duration::from_secs(90);

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not after {LONG:?}");
        sleep(GLANCE);
    }
}

/// Another host with one disk, which braid exports: a mirror of two files.
struct Far {
    place: Place,
    server: Option<Server>,
}

impl Far {
    fn new() -> Far {
        let place = Place::new();
        place.members(&["x", "y"]);
        place.run("create disk -l 1 -n 2 --assume-clean x y").ok();
        let mut far = Far { place, server: None };
        far.start();
        far
    }

    fn uri(&self) -> String {
        self.place.uri("disk")
    }

    fn signal(&self, signal: Signal) {
        self.server.as_ref().unwrap().signal(signal);
    }

    /// The process is gone from one moment to the next.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.server.take().unwrap().ended();
    }

    fn start(&mut self) {
        // It is another host's, which does not look for what this one has put there.
        self.server = Some(self.place.serve("x y --stack never"));
    }

    /// Bytes that were written to it since it was started.
    fn written(&self) -> u64 {
        self.place.detail("disk")["counters"]["written_bytes"].as_u64().unwrap()
    }
}

fn far(count: usize) -> (Vec<Far>, Vec<String>) {
    let far: Vec<Far> = (0..count).map(|_| Far::new()).collect();
    let uris = far.iter().map(Far::uri).collect();
    (far, uris)
}

fn state_of(place: &Place, array: &str, member: &str) -> String {
    let detail = place.detail(array);
    let members = detail["members"].as_array().unwrap();
    let found = members.iter().find(|known| known["name"] == member);
    found.map_or_else(String::new, |known| known["state"].as_str().unwrap().to_string())
}

#[track_caller]
fn assert_checked(place: &Place, array: &str) {
    let said = place.run(&format!("check --wait {array}")).ok();
    assert!(said.contains("0 sectors mismatched"), "{said}");
}

#[track_caller]
fn wait_whole(place: &Place, array: &str) {
    wait_for("the array is whole", || place.detail(array)["degraded"] == 0);
    place.run(&format!("wait {array}")).ok();
    assert_eq!(place.detail(array)["degraded"], 0);
}

#[test]
fn a_member_whose_server_dies_is_lost_and_comes_back_with_what_it_missed() {
    let (mut far, uris) = far(3);
    let place = Place::new();
    let all = uris.join(" ");
    let created = place.run(&format!("create far -l 5 -n 3 -c 64K --bitmap-chunk 64K {all}")).ok();
    assert!(created.contains(&uris[1]), "{created}");
    for words in ["", "--json ", "--brief ", "--export ", "--bitmap ", "--badblocks "] {
        place.run(&format!("examine {words}{all}")).ok();
    }
    assert!(place.run(&format!("examine --assemble {all}")).ok().contains("it starts"));
    let server = place.serve(&all);
    let detail = place.detail("far");
    // Other hosts reach its members, too.
    assert!(detail["heartbeat"]["interval_ms"].as_u64().unwrap() > 0, "{detail}");
    place.run("wait far").ok();
    let mut expected = place.data("content", 16 << 20);
    place.copy_in("content", "far");
    wait_for("all bits are cleared", || place.detail("far")["bitmap"]["dirty"] == 0);

    far[1].kill();
    let more: Vec<u8> = expected[..1 << 20].iter().map(|byte| !byte).collect();
    fs::write(place.path("more"), &more).unwrap();
    place.copy_in("more", "far");
    expected[..1 << 20].copy_from_slice(&more);
    assert_eq!(place.detail("far")["degraded"], 1);
    assert_eq!(state_of(&place, "far", &uris[1]), "faulty");
    assert!(place.copy_out("far")[..16 << 20] == expected[..]);

    far[1].start();
    wait_whole(&place, "far");
    let copied = far[1].written();
    assert!(copied < 4 << 20, "{copied} bytes were copied for 1 MiB that was written");
    assert_eq!(state_of(&place, "far", &uris[1]), "active sync");
    assert_checked(&place, "far");
    // Its content is right: without another one it is needed.
    far[0].kill();
    // Nobody reads or writes, but the heartbeat.
    wait_for("the member fails", || state_of(&place, "far", &uris[0]) == "faulty");
    assert!(place.copy_out("far")[..16 << 20] == expected[..]);
    far[0].start();
    wait_whole(&place, "far");
    assert_checked(&place, "far");
    place.run("stop far").ok();
    let said = server.ended().err;
    assert!(said.contains("is there again and was re-added to array far"), "{said}");
    assert!(place.run(&format!("examine {all}")).ok().contains("clean"));
}

#[test]
fn a_server_that_hangs_is_given_up_and_comes_back_when_it_answers() {
    let (far, uris) = far(3);
    let place = Place::new();
    let all = uris.join(" ");
    place.run(&format!("create far -l 5 -n 3 -c 64K --bitmap-chunk 64K --assume-clean {all}")).ok();
    let server = place.serve(&format!("{all} --set member_timeout=2"));
    let expected = place.data("content", 4 << 20);
    far[2].signal(Signal::STOP);
    place.copy_in("content", "far");
    assert_eq!(state_of(&place, "far", &uris[2]), "faulty");
    assert!(place.copy_out("far")[..4 << 20] == expected[..]);
    far[2].signal(Signal::CONT);
    wait_whole(&place, "far");
    assert_checked(&place, "far");
    place.run(&format!("fail far {}", uris[2])).ok();
    place.run(&format!("remove far {}", uris[2])).ok();
    place.run("re-add far missing").ok();
    wait_whole(&place, "far");
    place.run("stop far").ok();
    server.ended().ok();
}

#[test]
fn exports_are_added_and_replace_members_and_go_to_a_successor() {
    let (far, uris) = far(4);
    let place = Place::new();
    place.members(&["a"]);
    place.run(&format!("create far -l 1 -n 2 --assume-clean a {}", uris[0])).ok();
    let server = place.serve(&format!("a {}", uris[0]));
    let expected = place.data("content", 4 << 20);
    place.copy_in("content", "far");
    // The same export by another path of its socket.
    let link = place.path("link");
    std::os::unix::fs::symlink(far[0].place.path("nbd.sock"), &link).unwrap();
    let again = format!("nbd+unix:///disk?socket={}", link.display());
    place.run(&format!("add far {again}")).refused(2, &["is a member"]);
    place.run(&format!("add far {}", uris[1])).ok();
    assert_eq!(state_of(&place, "far", &uris[1]), "spare");
    place.run(&format!("replace far a --with {}", uris[1])).ok();
    place.run("wait far").ok();
    assert_eq!(state_of(&place, "far", &uris[1]), "active sync");
    place.run("remove far a").ok();
    place.run(&format!("replace far {} --with {}", uris[0], uris[2])).ok();
    place.run("wait far").ok();

    let said = File::create(place.path("successor")).unwrap();
    let mut successor = place.command(&["serve", "--take-over"]);
    let mut successor = successor.stdout(said).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the successor serves", || {
        assert!(successor.try_wait().unwrap().is_none(), "it ended");
        fs::read_to_string(place.path("successor")).unwrap().contains("control socket")
    });
    assert!(server.ended().err.contains("another process has taken over"));
    assert!(place.copy_out("far")[..4 << 20] == expected[..]);
    for uri in [&uris[1], &uris[2]] {
        assert_eq!(state_of(&place, "far", uri), "active sync");
    }
    place.run("stop far").ok();
    assert_eq!(successor.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_a_member_is_refused_before_anything_is_written() {
    let (far, uris) = far(2);
    let place = Place::new();
    let link = place.path("link");
    std::os::unix::fs::symlink(far[0].place.path("nbd.sock"), &link).unwrap();
    let again = format!("nbd+unix:///disk?socket={}", link.display());
    place
        .run(&format!("create far -l 1 -n 2 {} {again}", uris[0]))
        .refused(2, &["are the same device"]);
    place
        .run(&format!("create far -l 1 -n 2 {} {}/nothing", uris[0], "nbd://127.0.0.1:1"))
        .refused(2, &["check that a server listens there"]);
    place.run(&format!("examine {}", uris[0])).refused(2, &["no md superblock"]);
    place.run("examine nbd://127.0.0.1:1/x").refused(4, &["nbd://127.0.0.1:1/x"]);
    place.run("create far -l 1 -n 2 nbd:/x a").refused(2, &["begins with nbd://"]);
    // One export by two host names.
    drop(far);
    let tcp = Place::new();
    tcp.members(&["x"]);
    tcp.run("create disk -l linear -n 1 --force x").ok();
    let mut command = tcp.command(&["serve", "x", "--nbd", "tcp:127.0.0.1:0", "--shards", "1"]);
    let said = tcp.path("said");
    let mut server = command.stdout(File::create(&said).unwrap()).spawn().unwrap();
    wait_for("the server serves", || fs::read_to_string(&said).unwrap().contains("control socket"));
    let text = fs::read_to_string(&said).unwrap();
    let at = text.find("nbd://127.0.0.1:").unwrap();
    let one = text[at..].split_whitespace().next().unwrap().to_string();
    let other = one.replace("127.0.0.1", "localhost");
    place
        .run(&format!("create far -l 1 -n 2 --assume-clean {one} {other}"))
        .refused(2, &["two of the members are the same device"]);
    tcp.run("stop disk").ok();
    server.wait().unwrap();
}

/// qemu-nbd over a file: one connection at a time, and none says that a flush covers the writes of others.
struct Qemu {
    child: Child,
    disk: PathBuf,
    socket: PathBuf,
}

impl Qemu {
    fn new(place: &Place, name: &str) -> Qemu {
        let (disk, socket) = (place.path(name), place.path(&format!("{name}.sock")));
        File::create_new(&disk).unwrap().set_len(MEMBER).unwrap();
        let child = Qemu::spawn(&disk, &socket);
        Qemu { child, disk, socket }
    }

    fn spawn(disk: &PathBuf, socket: &PathBuf) -> Child {
        // One that was killed left its socket.
        let _ = fs::remove_file(socket);
        let mut child = Command::new("qemu-nbd")
            .args([
                "--persistent",
                "--format=raw",
                "--discard=unmap",
                "--export-name=disk",
                "--socket",
            ])
            .args([socket, disk])
            .spawn()
            .expect("qemu-nbd (scripts/setup-packages test)");
        wait_for("qemu-nbd listens", || {
            assert!(child.try_wait().unwrap().is_none(), "qemu-nbd ended");
            socket.exists()
        });
        child
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket.display())
    }

    fn kill(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    fn start(&mut self) {
        self.child = Qemu::spawn(&self.disk, &self.socket);
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// fio writes over 12 MiB of an array, reads all of it back and compares.
fn start_verifying(place: &Place, array: &str) -> Child {
    let job = format!(
        "[global]\nioengine=nbd\nuri={}\nthread=1\niodepth=16\nverify_state_save=0\nfsync=50\n\
         [write]\nsize=12m\nloops=2\nrate_iops=400\nrw=randwrite\nbsrange=4k-64k\nverify=crc32c\nverify_fatal=1\ndo_verify=1\n",
        place.uri(array)
    );
    fs::write(place.path("fio"), job).unwrap();
    let mut command = Command::new("fio");
    command.args(["--eta=never", "fio"]).current_dir(place.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("fio (scripts/setup-packages test)")
}

#[test]
fn a_second_server_of_this_host_is_kept_off_until_the_first_has_ended() {
    let (_far, uris) = far(2);
    let members = uris.join(" ");
    let place = Place::new();
    place.run(&format!("create mirror -l 1 -n 2 --assume-clean {members}")).ok();
    let first = place.serve(&members);
    let other = Place::new();
    let refused = other.run(&format!("serve {members} --nbd unix:nbd.sock --strict"));
    refused.refused(2, &["another server on this host uses it", "by its heartbeat on nbd+unix://"]);
    assert_eq!(place.detail("mirror")["heartbeat"]["lost"], serde_json::Value::Null);
    first.signal(Signal::KILL);
    first.ended();
    let second = other.serve(&members);
    second.signal(Signal::TERM);
    let ran = second.ended();
    assert!(!ran.err.contains("waiting"), "its process has ended: {}", ran.err);
}

#[test]
fn servers_that_take_one_connection_are_members_of_an_array_on_two_shards() {
    let place = Place::new();
    let mut far: Vec<Qemu> = ["x", "y", "z"].iter().map(|name| Qemu::new(&place, name)).collect();
    let uris: Vec<String> = far.iter().map(Qemu::uri).collect();
    let all = uris.join(" ");
    place.run(&format!("create far -l 5 -n 3 -c 64K --bitmap-chunk 64K --assume-clean {all}")).ok();
    let server = place.serve(&all);
    let fio = start_verifying(&place, "far");
    wait_for("fio writes", || {
        place.detail("far")["counters"]["written_bytes"].as_u64().unwrap() > 1 << 20
    });
    far[1].kill();
    wait_for("the member is lost", || place.detail("far")["degraded"] == 1);
    far[1].start();
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("err= 0"), "fio failed: {said}");
    wait_whole(&place, "far");
    assert_checked(&place, "far");
    let expected = place.copy_out("far");
    far[0].kill();
    assert!(place.copy_out("far") == expected);
    far[0].start();
    wait_whole(&place, "far");
    place.run("stop far").ok();
    server.ended().ok();
    assert!(place.run(&format!("examine {}", far[2].disk.display())).ok().contains("clean"));
}
