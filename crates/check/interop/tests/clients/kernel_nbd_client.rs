//! The kernel's own NBD client on braid: a filesystem with checksummed files, which the kernel's md then
//! finds on the same members.

use crate::common::guest::{assert_said, put_pattern};
use braid_interop::uml::{self, SHARED};
use std::time::Duration;

/// The guest keeps no AVX registers, so braid computes without them there.
const SCRIPT: &str = r#"
set -e
export BRAID_SIMD=scalar
cd SHARED
for nr in 0 1 2 3; do truncate -s 24M member.$nr; losetup /dev/loop$nr member.$nr; done
M="/dev/loop0 /dev/loop1 /dev/loop2 /dev/loop3"
mdadm --create /dev/md7 --run --quiet --metadata 1.2 --level 5 --raid-devices 4 --chunk 64 --name vault $M
while [ "$(cat /sys/block/md7/md/sync_action)" != idle ]; do sleep 0.05; done
mdadm --stop --quiet /dev/md7

mkfifo /tmp/stdin; exec 8<> /tmp/stdin
PROGRAM serve /tmp/nbd.sock $M < /tmp/stdin > /tmp/said 2>&1 8>&- &
for wait in $(seq 200); do grep -q serving /tmp/said && break; sleep 0.05; done
cat /tmp/said
NAME=$(sed -n "s/serving //p" /tmp/said)
nbd-client -unix /tmp/nbd.sock -N "$NAME" /dev/nbd0 > /dev/null
mkfs.ext4 -q -F /dev/nbd0
mkdir /tmp/mnt; mount /dev/nbd0 /tmp/mnt

# Files of many sizes, some overwritten and removed again on the way.
cd /tmp/mnt
for nr in $(seq 60); do
  mkdir -p d$((nr % 7))
  head -c $((nr * nr * 97 + nr)) SHARED/pattern > d$((nr % 7))/f$nr
  [ $((nr % 5)) != 0 ] || rm d$((nr % 7))/f$nr
done
cp -r d1 copy; cat d*/f* > all; head -c 100000 SHARED/pattern | dd of=all bs=1000 seek=37 conv=notrunc status=none
find . -type f -print0 | sort -z | xargs -0 md5sum > /tmp/sums
fstrim /tmp/mnt 2> /dev/null || true
cd /; umount /tmp/mnt; mount /dev/nbd0 /tmp/mnt
(cd /tmp/mnt; md5sum --check --quiet /tmp/sums) && echo "files through nbd: $(wc -l < /tmp/sums) right"
umount /tmp/mnt; e2fsck -fn /dev/nbd0 > /dev/null && echo "filesystem through nbd: clean"
nbd-client -d /dev/nbd0 > /dev/null
exec 8>&-; wait
mdadm --assemble --quiet /dev/md7 $M
mount -o ro /dev/md7 /tmp/mnt
(cd /tmp/mnt; md5sum --check --quiet /tmp/sums) && echo "files through md: $(wc -l < /tmp/sums) right"
umount /tmp/mnt
mdadm --readwrite /dev/md7
echo check > /sys/block/md7/md/sync_action; while [ "$(cat /sys/block/md7/md/sync_action)" != idle ]; do sleep 0.05; done
echo "mismatch_cnt: $(cat /sys/block/md7/md/mismatch_cnt)"
mdadm --stop --quiet /dev/md7
"#;

#[test]
fn a_filesystem_made_through_the_kernels_nbd_client_is_found_by_md() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    put_pattern(folder.path());
    // The guest has a /tmp of its own: what lies there is copied to where it looks.
    std::fs::copy(env!("CARGO_BIN_EXE_braid-interop"), folder.path().join("program"))
        .expect("room for a copy of the program");
    let script = SCRIPT.replace("SHARED", SHARED).replace("PROGRAM", &format!("{SHARED}/program"));
    let output =
        uml::run(&script, folder.path(), 1024, Duration::from_secs(300)).expect("the guest runs");
    let all = [
        "files through nbd:",
        "filesystem through nbd: clean",
        "files through md:",
        "mismatch_cnt: 0",
    ];
    assert_said(&output, &all);
}
