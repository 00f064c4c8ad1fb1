//! QEMU as the front end of vhost-user-blk, with a guest of Linux 6.12 behind it: the program `braid` as a user starts it serves
//! the disk, outside.

use braid_interop::session::Session;
use braid_interop::vm::Vm;
use braid_interop::vm_guest::program;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time that the guest may live.
const LIMIT: Duration = Duration::from_secs(600);

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn braid(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(program());
    command
        .args(words.split_whitespace())
        .current_dir(folder)
        .env("BRAID_CONTROL", folder.join("control.sock"))
        .env("BRAID_STATE_DIR", folder.join("state"))
        .stdin(Stdio::null());
    command
}

fn run(folder: &Path, words: &str) -> String {
    let output = braid(folder, words).output().expect("braid");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "braid {words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn serve(folder: &Path) -> Server {
    let log = std::fs::File::create(folder.join("log")).expect("a log");
    let words = "serve m0 m1 m2 m3 --vhost-user disk.sock --shards 2";
    let child = braid(folder, words).stdout(log).spawn().expect("braid");
    let mut server = Server(child);
    let end = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_to_string(folder.join("log")).expect("a log").contains("control socket") {
        let ended = server.0.try_wait().expect("our own child");
        assert!(ended.is_none() && Instant::now() < end, "the server does not come up: {ended:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

const DISK: &str = r#"
set -e
load virtio_blk; load ext4
D=/dev/vda
for try in $(seq 400); do [ -b $D ] && break; sleep 0.05; done
Q=/sys/block/vda/queue
for name in write_cache minimum_io_size optimal_io_size; do echo "$name: $(cat $Q/$name)"; done
echo "serial: $(cat /sys/block/vda/serial)"
echo "queues: $(ls /sys/block/vda/mq | wc -l)"
fio --name=v --filename=$D --rw=randwrite --bsrange=4k-128k --size=24M --ioengine=libaio --iodepth=16 --direct=1 --fsync=64 \
  --verify=crc32c --do_verify=1 --verify_fatal=1 --end_fsync=1 --output=/tmp/fio.out
grep -q 'err= 0' /tmp/fio.out && echo "fio: verified"
blkdiscard -z -o 8M -l 4M $D; cmp -n 4194304 -i 8388608:0 $D /dev/zero && echo "zeroed: zeroes"
blkdiscard $D
mkfs.ext4 -q -F $D; mkdir -p /tmp/mnt; mount $D /tmp/mnt
for nr in $(seq 24); do head -c $((nr * nr * 211 + nr)) /bin/bash > /tmp/mnt/f$nr; done
(cd /tmp/mnt; md5sum f* > /tmp/sums); sync
"#;

const DEGRADED: &str = r#"
set -e
echo 3 > /proc/sys/vm/drop_caches
cd /tmp/mnt; md5sum --check --quiet /tmp/sums && echo "files degraded: right"; cd /
umount /tmp/mnt; e2fsck -fn /dev/vda > /dev/null && echo "file system: clean"
"#;

const GROWN: &str = r#"
set -e
for try in $(seq 200); do [ $(blockdev --getsize64 /dev/vda) -gt $((48 << 20)) ] && break; sleep 0.05; done
[ $(blockdev --getsize64 /dev/vda) -gt $((48 << 20)) ] && echo "larger: seen"
dd if=/bin/bash of=/dev/vda bs=64K count=8 seek=$((52 << 4)) oflag=direct conv=fsync status=none
cmp -n 524288 -i 0:$((52 << 20)) /bin/bash /dev/vda && echo "behind the old end: right"
! dmesg | grep -iE "I/O error|buffer i/o|EXT4-fs (error|warning)|Oops:|BUG:" && echo "kernel: no errors"
"#;

#[test]
fn a_guest_under_qemu_uses_an_array_as_its_disk() {
    let folder = tempfile::Builder::new().prefix("braid-qemu.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    let place = folder.path();
    for nr in 0..4 {
        let file = std::fs::File::create(place.join(format!("m{nr}"))).expect("a member");
        file.set_len(24 << 20).expect("room for a sparse file");
    }
    run(place, "create vault --level 5 --raid-devices 4 --chunk 64K --size 16M m0 m1 m2 m3");
    let server = serve(place);
    let vm = Vm { limit: LIMIT, disks: vec![place.join("disk.sock")], ..Vm::default() };
    let mut session = Session::boot_vm(vm).expect("a guest");
    let mut guest = |script: &str, says: &[&str]| {
        let output = session.run(script, LIMIT).expect("the guest runs");
        for said in says {
            assert!(output.text.contains(said), "no {said:?} in what it said:\n{}", output.text);
        }
        assert_eq!(output.status, 0, "{}", output.text);
    };
    let disk = ["write_cache: write back", "minimum_io_size: 65536", "serial: vault", "queues: 2"];
    guest(DISK, &[&disk[..], &["fio: verified", "zeroed: zeroes"]].concat());
    run(place, "fail vault m1");
    guest(DEGRADED, &["files degraded: right", "file system: clean"]);
    run(place, "remove vault m1");
    run(place, "add vault m1");
    run(place, "wait vault");
    run(place, "grow vault --size max");
    run(place, "wait vault");
    guest(GROWN, &["larger: seen", "behind the old end: right", "kernel: no errors"]);
    drop(session);
    run(place, "check vault --wait");
    run(place, "stop vault");
    drop(server);
}
