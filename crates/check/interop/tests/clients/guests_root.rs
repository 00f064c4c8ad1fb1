//! A guest whose root file system is on a RAID5 array, over vhost-user-blk, served by the program `braid` as a user starts it: it
//! boots from it, writes through a member that fails and is rebuilt, through a server that is killed and one that is taken
//! over from, and its file system is clean afterwards.

use crate::common::guest::assert_said;
use braid_interop::relay::Relay;
use braid_interop::uml::{self, LOAD_DISKS, ROOT_INIT, SHARED};
use braid_interop::vm_guest::program;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const GUEST_MIB: u32 = 512;
const LIMIT: Duration = Duration::from_secs(300);
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// Makes the root file system: the programs that the guest needs and what they are linked with, from this machine.
const INSTALL: &str = r#"
set -e
LOAD_DISKS
for wait in $(seq 100); do [ -b /dev/vda ] && break; sleep 0.05; done
mkfs.ext4 -q -F /dev/vda; mkdir /tmp/new; mount /dev/vda /tmp/new
mkdir -p /tmp/new/{bin,sbin,usr,dev,proc,sys,run,tmp,root,home,lib64}
for name in bash busybox md5sum find xargs sort head cat mkdir rm mv ls sync dmesg grep sleep seq wc; do
  from=$(command -v $name) || from=/usr/bin/$name
  cp -L $from /tmp/new/bin/$name
  { ldd $from 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p /tmp/new$(dirname $library); cp -L -n $library /tmp/new$library
  done
done
cp SHARED/init /tmp/new/sbin/init; chmod 755 /tmp/new/sbin/init
umount /tmp/new; e2fsck -fn /dev/vda > /dev/null && echo "installed: clean"
"#;

const BOOTED: &str = r#"
set -e
D=$(while read -r what where rest; do [ $where = / ] && echo $what; done < /proc/mounts | grep vda)
[ $D = /dev/vda ] && echo "root: on the array"
tell() { echo > SHARED/$1; }
await() { until [ -e SHARED/$1 ]; do sleep 0.05; done; }
write_files() { mkdir -p /home/$1; for nr in $(seq 60); do head -c $((nr * nr * 61 + nr)) /bin/busybox > /home/$1/f$nr; done; }
keep_sums() { find /home /bin /sbin /lib* -xdev -type f -print0 | sort -z | xargs -0 md5sum > /tmp/sums; }
check_sums() { sync; echo 3 > /proc/sys/vm/drop_caches; md5sum --check --quiet /tmp/sums && echo "files $1: $(wc -l < /tmp/sums) right"; }
write_files a; keep_sums; check_sums healthy
tell healthy; await degraded
check_sums degraded; write_files b; rm -r /home/a; keep_sums; check_sums written-degraded
tell written
write_on() { # UNTIL
  until [ -e SHARED/$1 ]; do write_files c; mv /home/c /home/d; rm -r /home/d; done
  write_files $1; keep_sums; check_sums $1
}
write_on rebuilt; tell after-rebuilt
write_on killed; tell after-killed
write_on taken-over
! dmesg | grep -iE "I/O error|buffer i/o|EXT4-fs (error|warning)" && echo "kernel: no errors"
"#;

const AFTERWARDS: &str = r#"
set -e
LOAD_DISKS
for wait in $(seq 100); do [ -b /dev/vda ] && break; sleep 0.05; done
e2fsck -fn /dev/vda > /dev/null && echo "root: clean"
"#;

fn script(text: &str) -> String {
    text.replace("LOAD_DISKS", LOAD_DISKS).replace("SHARED", SHARED)
}

/// The folder of members, sockets and state, and the program.
struct Place(tempfile::TempDir);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("BRAID_CONTROL", self.path("control.sock"))
            .env("BRAID_STATE_DIR", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    fn braid(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "braid {arguments:?}: {said}{errors}");
        said
    }

    /// Starts a server of these members, and waits until it serves.
    fn serve(&self, members: &[&str], more: &[&str]) -> Child {
        let disk = format!("vault={}", self.path("back.sock").display());
        let options = [&["serve", "--vhost-user", &disk][..], more, members].concat();
        let said = std::fs::File::create(self.path("said")).expect("a log");
        let errors = said.try_clone().expect("a log");
        let mut command = self.command(&options);
        let mut child = command.stdout(said).stderr(errors).spawn().expect("a server");
        await_that("the server listens", || {
            let ended = child.try_wait().expect("a child");
            let said = std::fs::read_to_string(self.path("said")).unwrap_or_default();
            assert!(ended.is_none(), "the server has ended, {ended:?}: {said}");
            said.lines().any(|line| line.starts_with("control socket"))
        });
        child
    }

    fn tell(&self, name: &str) {
        std::fs::write(self.path(name), "").expect("a file");
    }

    fn await_file(&self, name: &str) {
        await_that(name, || self.path(name).exists());
    }
}

fn await_that(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn guest_with_disk(place: &Place, text: &str) -> uml::Output {
    let (folder, back) = (place.0.path(), place.path("back.sock"));
    uml::run_with_disks(&script(text), folder, GUEST_MIB, LIMIT, &[&back]).expect("the guest runs")
}

fn kill(mut server: Child) {
    server.kill().expect("it runs");
    server.wait().expect("it runs");
}

/// Fails, rebuilds and moves the array while the guest runs from it.
fn disturb(place: &Place, server: Child, relay: &Relay) -> Child {
    place.await_file("healthy");
    place.braid(&["fail", "vault", "m1"]);
    place.tell("degraded");
    place.await_file("written");
    place.braid(&["remove", "vault", "m1"]);
    place.braid(&["add", "vault", "m1"]);
    place.braid(&["wait", "vault"]);
    place.tell("rebuilt");
    place.await_file("after-rebuilt");
    kill(server);
    let mut killed = place.serve(&MEMBERS, &[]);
    await_that("the guest's disk is back", || relay.again() >= 1);
    place.tell("killed");
    place.await_file("after-killed");
    let server = place.serve(&MEMBERS, &["--take-over"]);
    assert!(killed.wait().expect("it ends").success());
    await_that("the guest's disk is back again", || relay.again() >= 2);
    place.tell("taken-over");
    server
}

#[test]
fn a_guest_boots_from_an_array_and_lives_through_what_happens_to_it() {
    let folder = tempfile::Builder::new().prefix("braid-root.").tempdir_in("/var/tmp");
    let place = Place(folder.expect("a folder in /var/tmp"));
    std::fs::write(place.path("init"), ROOT_INIT).expect("room");
    for member in MEMBERS {
        let file = std::fs::File::create(place.path(member)).expect("room for a member");
        file.set_len(48 << 20).expect("room for a sparse member");
    }
    let create = ["create", "vault", "--level", "5", "--raid-devices", "4", "--chunk", "64K"];
    place.braid(&[&create[..], &MEMBERS].concat());
    let server = place.serve(&MEMBERS, &[]);
    assert_said(&guest_with_disk(&place, INSTALL), &["installed: clean"]);
    let (front, back) = (place.path("front.sock"), place.path("back.sock"));
    let relay = Relay::start(&front, &back).expect("a relay");
    let booted = script(BOOTED);
    let (output, server) = std::thread::scope(|scope| {
        let shared: &Path = place.0.path();
        let guest = scope.spawn(|| uml::run_from_disk(&booted, shared, GUEST_MIB, LIMIT, &front));
        let server = disturb(&place, server, &relay);
        (guest.join().expect("no panic").expect("the guest runs"), server)
    });
    let files = ["files healthy:", "files degraded:", "files written-degraded:", "files killed:"];
    let rest = ["root: on the array", "files taken-over:", "files rebuilt:", "kernel: no errors"];
    assert_said(&output, &[&files[..], &rest].concat());
    assert_said(&guest_with_disk(&place, AFTERWARDS), &["root: clean"]);
    place.braid(&["check", "vault"]);
    place.braid(&["wait", "vault"]);
    let detail = place.braid(&["detail", "vault"]);
    assert!(detail.contains("State : clean"), "{detail}");
    place.braid(&["stop", "vault"]);
    kill(server);
}
