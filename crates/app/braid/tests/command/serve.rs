//! `braid serve` and the commands that reach it: end to end, with clients that are not ours.

use crate::support::{Place, damage};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// Three members and a spare, named a to d.
fn raid5(place: &Place) {
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 5 -n 3 -x 1 -c 64K a b c d").ok();
}

#[test]
fn what_was_written_survives_a_failed_member_a_rebuild_and_a_restart() {
    let place = Place::new();
    raid5(&place);
    let server = place.serve("a b c d");
    assert!(
        server.said.contains("array data: raid5")
            && server.said.contains("nbd+unix:///data?socket=")
    );
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");

    assert!(place.run("fail data b").ok().contains("faulty"));
    assert!(place.run("wait data").ok().contains("idle"));
    let detail = place.detail("data");
    assert_eq!((&detail["degraded"], &detail["last_job"]["outcome"]), (&0.into(), &"done".into()));
    let text = place.run("detail data").ok();
    for words in
        ["Raid Level : raid5", "Failed Devices : 1", "faulty", "Consistency Policy : resync"]
    {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    place.run("remove data b").ok();
    place.run("add data b").ok();
    assert_eq!(place.detail("data")["members"].as_array().unwrap().len(), 4);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    assert!(place.run("repair --wait data").ok().contains("0 sectors mismatched"));
    assert_eq!(place.run("detail --test data").code, 0);
    assert_eq!(&place.copy_out("data")[..data.len()], &data);

    assert!(place.run("stop data").ok().contains("stopped: data"));
    server.ended().ok();
    assert!(!place.path("control.sock").exists() && !place.path("nbd.sock").exists());
    for member in ["a", "b", "c", "d"] {
        assert_eq!(place.examined(member)["state"], "clean", "{member}");
    }

    let server = place.serve("d c b a");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    server.signal(Signal::TERM);
    server.ended().ok();
    assert_eq!(place.examined("a")["state"], "clean");
}

#[test]
fn a_member_that_vanishes_degrades_its_array_and_no_other() {
    let place = Place::new();
    place.members(&["a", "b", "c", "e", "f"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    place.run("create mirror -l 1 -n 2 --assume-clean e f").ok();
    let _server = place.serve("a e b f c");
    let data = place.data("in", 4 << 20);
    place.copy_in("in", "data");
    place.copy_in("in", "mirror");
    fs::File::options().write(true).open(place.path("b")).unwrap().set_len(0).unwrap();
    place.copy_in("in", "data");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert_eq!(&place.copy_out("mirror")[..data.len()], &data);
    let detail = place.detail("data");
    assert_eq!(detail["degraded"], 1);
    let faulty = detail["members"].as_array().unwrap().iter().find(|m| m["state"] == "faulty");
    assert!(faulty.unwrap()["fault"].as_str().unwrap().contains("gone"), "{detail}");
    assert_eq!(place.run("detail --test data").code, 1);
    assert_eq!(place.run("detail --test mirror").code, 0);
    assert_eq!(place.run("detail --test").code, 1);
    place.run("fail data").refused(2, &["MEMBER"]);
    place.run("fail data a").refused(2, &["would lose data"]);
    place.run("stop mirror").ok();
    place.run("detail mirror").refused(4, &["no array \"mirror\"", "data"]);
    assert_eq!(place.detail("data")["degraded"], 1);
    place.run("stop --all").ok();
}

#[test]
fn members_that_make_no_array_are_refused_with_what_to_do() {
    let place = Place::new();
    raid5(&place);
    place.members(&["none", "e", "f"]);
    place.run("create mirror -l 1 -n 2 --assume-clean e f").ok();
    fs::copy(place.path("a"), place.path("copy")).unwrap();
    fs::copy(place.path("c"), place.path("bad")).unwrap();
    damage(&place.path("bad"), 4096 + 60);
    for (members, says) in [
        ("a b none", "none: no md superblock"),
        ("none", "none: no md superblock"),
        ("a b gone", "No such file"),
        ("a b c none --strict", "none: no md superblock"),
        ("a b c gone --strict", "No such file"),
        ("a b c a", "given twice"),
        ("a b c copy", "the same member"),
        ("a b bad d", "checksum"),
        ("a --run", "1 of 3 members"),
        ("a b", "--run"),
        ("a missing c", "leave out"),
    ] {
        place.run(&format!("serve {members} --nbd unix:nbd.sock")).refused(2, &[says]);
    }
    place.run("serve a b --nbd nonsense").refused(2, &["unix:PATH"]);
    place.run("serve e --nbd tcp:127.0.0.1:0 --uuid 0").refused(2, &["uuid"]);
    assert!(!place.path("control.sock").exists());
}

#[test]
fn a_degraded_start_needs_to_be_asked_for_when_a_member_was_forgotten() {
    let place = Place::new();
    raid5(&place);
    let server = place.serve("a b d --run");
    place.run("wait data").ok();
    assert_eq!(place.detail("data")["degraded"], 0);
    place.run("stop data").ok();
    server.ended().ok();
    // It was left like this, so nothing is forgotten now; c is out of date.
    let server = place.serve("a b c d");
    let detail = place.detail("data");
    assert_eq!(detail["degraded"], 0);
    assert!(detail["left_out"][0].as_str().unwrap().contains("/c"), "{detail}");
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn garbage_on_the_sockets_harms_nobody() {
    let place = Place::new();
    raid5(&place);
    let _server = place.serve("a b c d");
    for socket in ["control.sock", "nbd.sock"] {
        let mut stream = UnixStream::connect(place.path(socket)).unwrap();
        // The server may hang up before all of it is sent.
        let _ = stream.write_all(&[0xa5; 100_000]);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    assert_eq!(place.detail("data")["level"], "raid5");
    place.tool("nbdinfo", &["--size", &place.uri("data")]).ok();
}

#[test]
fn an_array_is_a_disk_of_virtual_machines_at_a_socket_of_its_own() {
    let place = Place::new();
    raid5(&place);
    place.members(&["x", "y"]);
    place.run("create other -l 1 -n 2 --assume-clean x y").ok();
    let two = "serve a b c d x y --vhost-user vm.sock";
    place.run(two).refused(2, &["a socket is for one array", "NAME=PATH", "data", "other"]);
    let server = place.serve("a b c d x y --vhost-user data=vm.sock --vhost-user-mode 660");
    let socket = place.path("vm.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(server.said.contains("vhost-user:"), "{}", server.said);
    let exports = |name: &str| place.detail(name)["exports"].as_array().unwrap().len();
    assert_eq!((exports("data"), exports("other")), (2, 1));
    let client = UnixStream::connect(&socket).unwrap();
    while place.detail("data")["clients"].as_array().unwrap().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let listed = &place.detail("data")["clients"][0];
    assert_eq!(listed["protocol"], "vhost-user");
    assert_eq!(listed["address"], format!("process {}", std::process::id()));
    place.run("stop data").refused(2, &["vhost-user export data", "--force"]);
    drop(client);
    place.run("stop --all --force").ok();
    server.ended().ok();
    assert!(!socket.exists());
}

#[test]
fn sockets_that_exist_are_replaced_only_when_nobody_listens() {
    let place = Place::new();
    raid5(&place);
    fs::write(place.path("file"), "precious").unwrap();
    place.run("serve a b c d --nbd unix:file").refused(2, &["not a socket"]);
    assert_eq!(fs::read(place.path("file")).unwrap(), b"precious");
    let live = UnixListener::bind(place.path("live")).unwrap();
    place.run("serve a b c d --nbd unix:live").refused(2, &["in use"]);
    drop(live);
    drop(UnixListener::bind(place.path("nbd.sock")).unwrap());
    drop(UnixListener::bind(place.path("control.sock")).unwrap());
    let server = place.serve("a b c d");
    place.run("serve a b c d --nbd unix:other").refused(2, &["running already", "--control"]);
    place.run("serve a b c d --nbd unix:other --control second.sock").refused(2, &["in use"]);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn members_in_memory_are_created_and_served_in_one_go() {
    let place = Place::new();
    let server = place
        .serve("--create fast -l 6 -n 4 -x 1 --assume-clean ram:8M ram:8M ram:8M ram:8M ram:8M");
    let data = place.data("in", 4 << 20);
    place.copy_in("in", "fast");
    place.run("fail fast ram:8M#2").ok();
    place.run("fail fast 0").ok();
    place.run("wait fast").ok();
    assert_eq!(place.detail("fast")["degraded"], 1);
    place.run("add fast ram:8M").ok();
    place.run("wait --test fast").ok();
    assert_eq!(&place.copy_out("fast")[..data.len()], &data);
    place.run("stop --all").ok();
    server.ended().ok();
}

#[test]
fn a_read_only_array_is_served_and_no_byte_of_it_changes() {
    let place = Place::new();
    raid5(&place);
    let before = fs::read(place.path("a")).unwrap();
    let server = place.serve("a b c d --read-only");
    place.data("in", 1 << 20);
    assert_ne!(place.tool("nbdcopy", &["in", &place.uri("data")]).code, 0);
    place.copy_out("data");
    place.run("check data").refused(2, &["read-only"]);
    place.run("stop data").ok();
    server.ended().ok();
    assert!(fs::read(place.path("a")).unwrap() == before);
}

#[test]
fn commands_refuse_what_cannot_be_and_say_what_can() {
    let place = Place::new();
    place.run("detail").refused(4, &["no server is running", "braid serve"]);
    place.run("fail data a").refused(4, &["--control"]);
    raid5(&place);
    place.members(&["fs", "small"]);
    place.tool("mkfs.ext4", &["-q", "-F", "fs"]).ok();
    fs::File::options().write(true).open(place.path("small")).unwrap().set_len(2 << 20).unwrap();
    let _server = place.serve("a b c d");
    place.run("wait data").ok();
    place.run("fail data nosuch").refused(2, &["no member", "/a"]);
    place.run("remove data a").refused(2, &["braid fail data"]);
    place.run("add data fs").refused(2, &["ext4", "--force"]);
    place.run("add data small").refused(2, &["small"]);
    place.run("add data a").refused(2, &["is a member of array data already"]);
    place.run("add data gone").refused(2, &["gone"]);
    place.run("check --cancel data").refused(2, &["no check or repair"]);
    place.run("speed data").refused(2, &["--min"]);
    place.run("speed data --max 0").refused(2, &["maximum"]);
    place.run("speed --min 10 --max 20").ok();
    assert_eq!(place.detail("data")["sync_speed_max"], 20);
    place.run("detail other").refused(4, &["no array \"other\""]);
    place.run("add data fs --force").ok();
}

/// A client that has chosen an export and stays.
fn stay_connected(place: &Place, export: &str) -> UnixStream {
    let mut client = UnixStream::connect(place.path("nbd.sock")).unwrap();
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting).unwrap();
    // Fixed newstyle, no zeroes; then NBD_OPT_EXPORT_NAME.
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT");
    hello.extend(1u32.to_be_bytes());
    hello.extend((export.len() as u32).to_be_bytes());
    hello.extend(export.as_bytes());
    client.write_all(&hello).unwrap();
    // Size and flags: the export is in use from here on.
    client.read_exact(&mut [0; 10]).unwrap();
    client
}

#[test]
fn a_stop_names_the_clients_that_it_would_cut_off_and_needs_to_be_forced() {
    let place = Place::new();
    raid5(&place);
    let server = place.serve("a b c d");
    let client = stay_connected(&place, "data");
    let process = format!("process {}", std::process::id());
    for line in ["stop data", "stop --all"] {
        place.run(line).refused(2, &[&process, "export data", "--force"]);
    }
    drop(client);
    let client = stay_connected(&place, "data");
    let said = place.run("stop data --force").ok();
    assert!(
        said.contains("stopped: data; array data: clean, as read back from 4 members"),
        "{said}"
    );
    server.ended().ok();
    drop(client);
    let server = place.serve("a b c d");
    drop(stay_connected(&place, "data"));
    // Who is gone is no client any more.
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn two_signals_at_once_are_one_and_the_end_says_what_was_read_back() {
    let place = Place::new();
    raid5(&place);
    let server = place.serve("a b c d");
    place.data("in", 1 << 20);
    place.copy_in("in", "data");
    server.signal(Signal::TERM);
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    let ended = server.ended();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("array data: clean, as read back from 4 members"), "{}", ended.err);
    assert_eq!(place.examined("a")["state"], "clean");
}
