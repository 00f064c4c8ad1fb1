//! A virtual machine on braid: User Mode Linux with its `virtio_blk` behind vhost-user-blk, at native speed. A file system
//! with checksummed files, through a member that fails and is rebuilt, and through servers that are killed.

use crate::common::guest::{assert_said, put_pattern};
use crate::common::{MIB, Steered, World, open_member};
use braid_array::options::CreateOptions;
use braid_export::Export;
use braid_interop::relay::Relay;
use braid_interop::uml::{self, LOAD_DISKS, SHARED};
use braid_layout::Level;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const GUEST_MIB: u32 = 512;
const LIMIT: Duration = Duration::from_secs(300);
/// Kills of a server under a guest that writes.
const KILLS: u32 = 10;

/// The beginning of both scripts: the disk, and files of many sizes whose sums are kept.
const LIBRARY: &str = r#"
set -e
LOAD_DISKS
D=/dev/vda
for wait in $(seq 100); do [ -b $D ] && break; sleep 0.05; done
write_files() { # FOLDER COUNT
  mkdir -p $1
  for nr in $(seq $2); do head -c $((nr * nr * 61 + nr)) SHARED/pattern > $1/f$nr; done
  cat $1/f* > $1/all
}
keep_sums() { (cd /tmp/mnt; find . -type f -print0 | sort -z | xargs -0 md5sum > /tmp/sums); }
check_sums() { # WHEN
  sync; echo 3 > /proc/sys/vm/drop_caches
  (cd /tmp/mnt; md5sum --check --quiet /tmp/sums) && echo "files $1: $(wc -l < /tmp/sums) right"
}
tell() { echo > SHARED/$1; }
await() { until [ -e SHARED/$1 ]; do sleep 0.05; done; }
no_errors() { ! dmesg | grep -iE "I/O error|buffer i/o|EXT4-fs (error|warning)" && echo "kernel: no errors"; }
"#;

fn script(steps: &str) -> String {
    let script = format!("{LIBRARY}{steps}");
    script.replace("LOAD_DISKS", LOAD_DISKS).replace("SHARED", SHARED)
}

fn await_file(folder: &Path, name: &str) {
    let end = Instant::now() + LIMIT;
    while !folder.join(name).exists() {
        assert!(Instant::now() < end, "the guest does not get to {name}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn tell(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "").expect("a file");
}

fn raid5(world: &World) -> (std::sync::Arc<braid_array::array::Array>, Vec<PathBuf>) {
    let names = ["m0", "m1", "m2", "m3"];
    let members: Vec<_> = names.iter().map(|name| world.new_member(name, 40 * MIB)).collect();
    let options = CreateOptions {
        chunk_size: Some(64 << 10),
        ..CreateOptions::new("vault", Level::Raid5, members.len())
    };
    let array = world.create(&members, options);
    array.sync_speed(u64::MAX);
    (array, names.iter().map(|name| world.folder().join(name)).collect())
}

const THROUGH_A_REBUILD: &str = r#"
[ "$(cat /sys/block/vda/serial)" = vault ]
[ "$(cat /sys/block/vda/queue/minimum_io_size)" = 65536 ]
[ "$(cat /sys/block/vda/queue/optimal_io_size)" = 196608 ]
[ "$(cat /sys/block/vda/queue/write_cache)" = "write back" ]
[ "$(cat /sys/block/vda/queue/write_zeroes_max_bytes)" != 0 ]
blkdiscard $D; blkdiscard -z $D; cmp -n $((32 << 20)) $D /dev/zero && echo "zeroes: right"
mkfs.ext4 -q -F $D; mkdir /tmp/mnt; mount -o discard $D /tmp/mnt
write_files /tmp/mnt/a 60; keep_sums; check_sums healthy
tell healthy; await degraded
check_sums degraded
write_files /tmp/mnt/b 60; rm -r /tmp/mnt/a; keep_sums; check_sums written-degraded
tell written; await rebuilding
write_files /tmp/mnt/c 60; keep_sums; fstrim /tmp/mnt; check_sums rebuilt
umount /tmp/mnt; e2fsck -fn $D > /dev/null && echo "filesystem: clean"
no_errors
"#;

#[test]
fn a_guest_keeps_its_files_through_a_lost_member_and_a_rebuild() {
    let world = World::new();
    put_pattern(world.folder());
    let (array, _) = raid5(&world);
    let (server, socket) = world.serve_disk(&array);
    let folder = world.folder();
    let script = script(THROUGH_A_REBUILD);
    let output = std::thread::scope(|scope| {
        let guest =
            scope.spawn(|| uml::run_with_disks(&script, folder, GUEST_MIB, LIMIT, &[&socket]));
        await_file(folder, "healthy");
        assert_eq!(server.clients().len(), 1);
        array.fail(1);
        tell(folder, "degraded");
        await_file(folder, "written");
        array.remove_faulty();
        array.add(world.new_member("new", 40 * MIB));
        tell(folder, "rebuilding");
        guest.join().expect("no panic").expect("the guest runs")
    });
    assert_said(
        &output,
        &[
            "zeroes: right",
            "files healthy:",
            "files degraded:",
            "files written-degraded:",
            "files rebuilt:",
            "filesystem: clean",
            "kernel: no errors",
        ],
    );
    server.stop();
    array.assert_redundant("after the guest");
    array.stop();
}

/// A server of the array in a process of its own.
struct Server(Child);

impl Server {
    fn start(socket: &Path, members: &[PathBuf]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_braid-interop"))
            .arg("serve")
            .arg("--vhost-user")
            .arg(socket)
            .args(members)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("asked for above");
        BufReader::new(stdout).read_line(&mut said).expect("it says something");
        assert_eq!(said.trim(), "serving vault");
        Server(child)
    }

    fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it runs");
    }

    /// Ends it in order.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it runs").success());
    }
}

const THROUGH_KILLS: &str = r#"
mkfs.ext4 -q -F $D; mkdir /tmp/mnt; mount $D /tmp/mnt
tell writing
round=0
until [ -e SHARED/enough ]; do
  round=$((round + 1))
  write_files /tmp/mnt/r$((round % 5)) 25; keep_sums; check_sums "in round $round"
done
umount /tmp/mnt; mount $D /tmp/mnt; check_sums "at the end"
umount /tmp/mnt; e2fsck -fn $D > /dev/null && echo "filesystem: clean"
no_errors
"#;

#[test]
fn a_guest_goes_on_when_its_server_is_killed_and_started_again() {
    let world = World::new();
    let folder = world.folder();
    put_pattern(folder);
    let (array, members) = raid5(&world);
    array.wait_idle();
    array.stop();
    let (front, back) = (folder.join("front.sock"), folder.join("back.sock"));
    let server = Server::start(&back, &members);
    let relay = Relay::start(&front, &back).expect("a relay");
    let script = script(THROUGH_KILLS);
    let (output, server) = std::thread::scope(|scope| {
        let guest =
            scope.spawn(|| uml::run_with_disks(&script, folder, GUEST_MIB, LIMIT, &[&front]));
        let mut server = server;
        await_file(folder, "writing");
        for kill in 1..=KILLS {
            std::thread::sleep(Duration::from_millis(150 + u64::from(kill) * 37));
            server.kill();
            server = Server::start(&back, &members);
            let end = Instant::now() + LIMIT;
            while relay.again() < kill {
                assert!(Instant::now() < end, "the relay does not connect again");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        tell(folder, "enough");
        (guest.join().expect("no panic").expect("the guest runs"), server)
    });
    assert_said(&output, &["files at the end:", "filesystem: clean", "kernel: no errors"]);
    server.end();
    let members = members.iter().map(|path| open_member(path)).collect();
    let array = world.assemble(members);
    array.assert_redundant("after the kills");
    array.stop();
}
