//! A member that does not answer, on a real server: its file lies on a mounted volume whose process is stopped.
//!
//! `member_timeout` is a day throughout: whatever answers does not wait for the member.
//!
//! Needs /dev/fuse and the right to mount.

use crate::support::{MEMBER, Place, Ran, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Looks at the state of things this often; nothing depends on it.
const GLANCE: Duration = Duration::from_millis(20);

/// A file system that can be made to hang.
struct Below {
    place: Place,
    server: Pid,
}

impl Below {
    fn new() -> Below {
        let place = Place::new();
        File::create_new(place.path("brick")).unwrap().set_len(256 << 20).unwrap();
        fs::create_dir(place.path("mnt")).unwrap();
        place.run("volume create pool brick").ok();
        place.run("volume mount pool mnt").ok();
        let server = place.server_pid();
        Below { place, server }
    }

    /// A new file of [`MEMBER`] bytes.
    fn member(&self, name: &str) -> String {
        let path = self.place.path("mnt").join(name);
        File::create_new(&path).unwrap().set_len(MEMBER).unwrap();
        path.display().to_string()
    }

    fn hang(&self) {
        kill_process(self.server, Signal::STOP).unwrap();
    }

    fn answer_again(&self) {
        kill_process(self.server, Signal::CONT).unwrap();
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        // Nobody who has a file there ends before.
        let _ = kill_process(self.server, Signal::CONT);
        self.place.run("volume unmount pool --lazy");
    }
}

/// fio writes over 12 MiB of an array, reads all of it back and compares.
fn start_verifying(place: &Place, array: &str, seed: u32) -> Child {
    let job = format!(
        "[global]\nioengine=nbd\nuri={}\nthread=1\niodepth=16\nrandseed={seed}\nverify_state_save=0\nfsync=50\n\
         [write]\nsize=12m\nrw=randwrite\nbsrange=4k-64k\nverify=crc32c\nverify_fatal=1\ndo_verify=1\n",
        place.uri(array)
    );
    let file = place.path(&format!("{array}.fio"));
    fs::write(&file, job).unwrap();
    let mut command = std::process::Command::new("fio");
    command.args(["--eta=never"]).arg(file).current_dir(place.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("fio (scripts/setup-packages test)")
}

#[track_caller]
fn verified(fio: Child) {
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("err= 0"), "fio failed: {said}");
}

fn serve(place: &Place, members: &[&str], arrays: &[&str]) -> Server {
    let server = place.serve(&members.join(" "));
    for array in arrays {
        place.run(&format!("set {array} member_timeout=86400 --once")).ok();
    }
    server
}

/// Waits until clients have written something to an array.
fn wait_written(place: &Place, array: &str) {
    let written = || {
        let stat = place.braid(&["detail", "--json", array]).ok();
        let detail: serde_json::Value = serde_json::from_str(&stat).unwrap();
        detail["counters"]["written_bytes"].as_u64().unwrap()
    };
    while written() == 0 {
        sleep(GLANCE);
    }
}

#[test]
fn fail_and_remove_of_a_hung_member_answer_and_its_array_and_others_go_on() {
    let (below, place) = (Below::new(), Place::new());
    place.members(&["a", "b", "c", "d"]);
    let hung = below.member("m");
    place.run(&format!("create hit -l 5 -n 3 -c 64K --assume-clean a b {hung}")).ok();
    place.run("create other -l 1 -n 2 --assume-clean c d").ok();
    let server = serve(&place, &["a", "b", "c", "d", &hung], &["hit", "other"]);
    let on_hit = start_verifying(&place, "hit", 1);
    wait_written(&place, "hit");
    below.hang();
    verified(start_verifying(&place, "other", 2));
    assert!(place.run(&format!("fail hit {hung}")).ok().contains("faulty"));
    verified(on_hit);
    place.run(&format!("remove hit {hung}")).ok();
    verified(start_verifying(&place, "hit", 3));
    place.run("stop hit").ok();
    verified(start_verifying(&place, "other", 4));
    below.answer_again();
    place.run("stop other").ok();
    server.ended().ok();
}

#[test]
fn a_stop_beside_a_hung_member_answers_and_other_arrays_go_on() {
    let (below, place) = (Below::new(), Place::new());
    place.members(&["a", "b", "c", "d"]);
    let (one, two) = (below.member("one"), below.member("two"));
    place.run(&format!("create hit -l 5 -n 3 -c 64K --assume-clean a b {one}")).ok();
    place.run(&format!("create other -l 1 -n 3 --assume-clean c d {two}")).ok();
    let server = serve(&place, &["a", "b", "c", "d", &one, &two], &["hit", "other"]);
    verified(start_verifying(&place, "hit", 1));
    below.hang();
    let stopped = place.run("stop hit").refused(2, &["not all is well", &one, "read back from 2"]);
    assert!(stopped.contains("array hit: clean"), "{stopped}");
    for member in ["a", "b"] {
        assert_eq!(place.examined(member)["state"], "clean", "{member}");
    }
    place.run(&format!("fail other {two}")).ok();
    verified(start_verifying(&place, "other", 2));
    below.answer_again();
    place.run("stop other").ok();
    drop(server);

    // The next start goes on from the superblocks that the stop has written.
    let server = serve(&place, &["a", "b", &one], &["hit"]);
    assert_eq!(place.detail("hit")["degraded"], 1);
    place.run(&format!("add hit {one}")).ok();
    place.run("wait hit").ok();
    assert!(place.run("check --wait hit").ok().contains("0 sectors mismatched"));
    place.run("stop hit").ok();
    drop(server);
}

#[test]
fn a_signal_ends_the_server_beside_a_hung_member() {
    let (below, place) = (Below::new(), Place::new());
    place.members(&["a", "b"]);
    let hung = below.member("m");
    place.run(&format!("create hit -l 1 -n 3 --assume-clean a b {hung}")).ok();
    let server = serve(&place, &["a", "b", &hung], &["hit"]);
    verified(start_verifying(&place, "hit", 1));
    below.hang();
    server.signal(Signal::TERM);
    // The superblocks say how it ended, while the member hangs.
    while place.path("control.sock").exists() {
        sleep(GLANCE);
    }
    for member in ["a", "b"] {
        assert_eq!(place.examined(member)["state"], "clean", "{member}");
    }
    below.answer_again();
    let Ran { err, .. } = server.ended();
    assert!(err.contains(&hung) && err.contains("clean, as read back from 2"), "{err}");
}
