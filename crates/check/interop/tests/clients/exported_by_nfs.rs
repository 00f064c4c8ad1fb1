//! A volume that the kernel's own NFS server exports, and the kernel's own client: files, locks, snapshots, and handles that are found
//! again after the volume was mounted anew.

use crate::common::guest::{assert_said, put_pattern};
use braid_interop::uml::{self, SHARED};
use braid_interop::vm_guest::program;
use std::time::Duration;

const GUEST_MIB: u32 = 1024;
const LIMIT: Duration = Duration::from_secs(300);

/// The guest keeps no AVX registers, so braid computes without them there. Without an upcall helper the server would remember
/// clients nowhere, so it gets a folder for that.
const SCRIPT: &str = r#"
set -e
export BRAID_SIMD=scalar BRAID_CONTROL=/tmp/control.sock BRAID_STATE_DIR=/tmp/state
cp SHARED/braid /tmp/braid; B=/tmp/braid
for module in fuse nfsd nfs nfsv4; do modprobe -d /run/rig/modroot $module; done
ip link set lo up
mount -t tmpfs tmpfs /var/lib
mkdir -p /var/lib/nfs/v4recovery; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mkdir /tmp/volume /tmp/nfs
cd SHARED
for nr in 0 1; do truncate -s 64M brick.$nr; losetup /dev/loop$nr brick.$nr; done
BRICKS="/dev/loop0 /dev/loop1"
$B volume create exported $BRICKS --yes > /dev/null
start() {
  $B volume mount exported /tmp/volume $BRICKS > /dev/null
  exportfs -o rw,fsid=0,no_root_squash,no_subtree_check 127.0.0.1:/tmp/volume
  rpc.nfsd -N 3 -V 4.2 2
}
stop() { rpc.nfsd 0; exportfs -ua; exportfs -f; $B volume unmount exported > /dev/null; }
keep_sums() { (cd /tmp/nfs; find . -type f -print0 | sort -z | xargs -0 md5sum > /tmp/sums); }
check_sums() { (cd $2; md5sum --check --quiet /tmp/sums) && echo "$1: $(wc -l < /tmp/sums) right"; }
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 > /proc/fs/nfsd/nfsv4gracetime
rpc.mountd -N 3 2> /dev/null
start
mount -t nfs4 -o vers=4.2,soft,timeo=100 127.0.0.1:/ /tmp/nfs

cd /tmp/nfs
for nr in $(seq 40); do
  mkdir -p d$((nr % 5)); head -c $((nr * nr * 97 + nr)) SHARED/pattern > d$((nr % 5))/f$nr
done
ln d1/f1 hard; ln -s d1/f1 soft; mv d2/f2 d3/moved; rm d4/f4; mkdir empty; rmdir empty
echo locked | flock d1/f1 tee locked > /dev/null
keep_sums; check_sums "files on the volume" /tmp/volume
[ "$(stat -c %h /tmp/volume/hard)" = 2 ] && [ "$(readlink /tmp/volume/soft)" = d1/f1 ] && echo "links: right"

$B volume snapshot /tmp/volume before > /dev/null
echo more >> d1/f1; rm -r d0
check_sums "files in the snapshot" /tmp/nfs/.snapshots/before
! touch .snapshots/before/new 2> /tmp/refused; grep -q "Read-only file system" /tmp/refused && echo "the snapshot: read-only"

exec 7< d3/moved; cd /
stop; start
cmp - /tmp/volume/d3/moved <&7 && echo "an open file: found again"
exec 7<&-
keep_sums; check_sums "files after a new mount" /tmp/volume
umount -l /tmp/nfs
stop
$B volume check exported $BRICKS --offline | grep -q "no problems" && echo "check: no problems"
"#;

#[test]
fn a_volume_is_exported_by_the_kernels_nfs_server() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    put_pattern(folder.path());
    // The guest has folders of its own where the program may lie here.
    std::fs::copy(program(), folder.path().join("braid")).expect("the program");
    let script = SCRIPT.replace("SHARED", SHARED);
    let output = uml::run(&script, folder.path(), GUEST_MIB, LIMIT).expect("the guest runs");
    let all = [
        "files on the volume: 41 right",
        "links: right",
        "files in the snapshot: 41 right",
        "the snapshot: read-only",
        "an open file: found again",
        "files after a new mount: 33 right",
        "check: no problems",
    ];
    assert_said(&output, &all);
}
