//! Two servers and one array on disks that both reach, each by a path of its own: LIO's tcm_loop, with persistent reservations of
//! SCSI. The first hangs, the second takes over, the first wakes up and goes on writing: the disks refuse it. Then a third takes
//! over from the second, on the same host. In the guest.

use braid_interop::uml::{self, SHARED};
use std::path::Path;
use std::time::Duration;

/// Lines `STEP WORDS`. Each disk has two paths; a server under another boot id is one on another host.
const SCRIPT: &str = r#"
set -e
for module in target_core_mod target_core_iblock sd_mod; do modprobe -d /run/rig/modroot $module; done
cd /tmp; export BRAID_SIMD=scalar HOME=/tmp
exec 9<> <(:)
pause() { read -r -t 0.05 -u 9 || true; }
# await COMMAND...: until it succeeds, for 30 seconds
await() { local look; for ((look = 0; look < 600; look++)); do "$@" && return; pause; done; echo "waited in vain: $*"; return 1; }
config=/sys/kernel/config; mountpoint -q $config || mount -t configfs none $config
# Where registrations are kept over a loss of power.
mkdir -p /tmp/target/pr; echo /tmp/target > $config/target/dbroot
modprobe -d /run/rig/modroot tcm_loop
for disk in 0 1; do
  truncate -s 32M disk$disk; losetup /dev/loop$disk disk$disk
  core=$config/target/core/iblock_$disk/disk; mkdir -p $core
  echo udev_path=/dev/loop$disk > $core/control; echo 1 > $core/enable
  echo braid-disk-$disk > $core/wwn/vpd_unit_serial
done
# path NR: all disks once more
path() {
  local target=$config/target/loopback/naa.600140500000000$1/tpgt_0 disk
  mkdir -p $target; echo naa.60014050000000a$1 > $target/nexus
  for disk in 0 1; do mkdir $target/lun/lun_$disk; ln -s $config/target/core/iblock_$disk/disk $target/lun/lun_$disk/disk; done
}
path 1; await test -b /dev/sdb
path 2; await test -b /dev/sdd
echo "paths $(blockdev --getsz /dev/sda /dev/sdb /dev/sdc /dev/sdd | tr '\n' ' ')"
serve() { # NAME DISK...
  local name=$1; shift; mkdir -p $name
  exec env BRAID_CONTROL=$name/control $BRAID serve --heartbeat 1 --nbd unix:$name/nbd --state-dir $name/state "$@" > $name/said 2>&1
}
ready() { grep -q '^control socket' $1/said; }
detail() { BRAID_CONTROL=$1/control $BRAID detail mirror; }
put() { dd if=$1 of=$2 bs=64k seek=$3 count=4 oflag=direct conv=notrunc status=none; }
head -c 262144 /dev/zero | tr '\0' 1 > ones; head -c 262144 /dev/zero | tr '\0' 2 > twos; head -c 262144 /dev/zero | tr '\0' 3 > threes
$BRAID create mirror --level 1 --raid-devices 2 --assume-clean /dev/sda /dev/sdb

serve first /dev/sda /dev/sdb & first=$!
await ready first
nbd-client -unix first/nbd -N mirror /dev/nbd0 > /dev/null
put ones /dev/nbd0 0 && echo "first-writes yes"
dd if=/dev/zero of=/dev/sdc bs=4k count=1 seek=1000 oflag=direct conv=notrunc status=none 2>&1 || echo "unregistered-writes refused"
kill -STOP $first
put threes /dev/nbd0 4 > late 2>&1 && echo "late-write taken" > late.status || echo "late-write refused" > late.status & late=$!

cat /proc/sys/kernel/random/uuid > boot
export BRAID SHARED; export -f serve
since=$SECONDS
unshare --mount bash -c 'mount --bind boot /proc/sys/kernel/random/boot_id; serve second /dev/sdc /dev/sdd' & second=$!
await ready second
echo "second-waited $((SECONDS - since)) $(grep -c 'waiting 3 s' second/said)"
nbd-client -unix second/nbd -N mirror /dev/nbd1 > /dev/null
put twos /dev/nbd1 8 && echo "second-writes yes"
clean() { [ "$($BRAID examine /dev/sdc 2>&1 | grep -c 'State : clean')" = 1 ]; }
await clean
for disk in 0 1; do cp disk$disk kept$disk; done

kill -CONT $first
wait $late || true; cat late.status
lost() { detail first | grep -q LOST; }
await lost; echo "first-says $(detail first | grep Heartbeat)"
put threes /dev/nbd0 4 > again 2>&1 && echo "write-again taken" || echo "write-again refused"
# The first 4096 bytes of each disk are the heartbeat of the second.
for disk in 0 1; do cmp -i 4096 disk$disk kept$disk && echo "unchanged disk$disk"; done
kill -TERM $first; status=0; wait $first || status=$?; echo "first-ends $status"
for disk in 0 1; do cmp -i 4096 disk$disk kept$disk && echo "unchanged-after disk$disk"; done
dd if=/dev/nbd1 bs=64k count=12 iflag=direct status=none | cmp - <(cat ones; head -c 262144 /dev/zero; cat twos) && echo "second-reads right"
put ones /dev/nbd1 4 && echo "second-goes-on yes"

# A successor of the second has what that one has reserved, with no moment in between.
stranger() { dd if=/dev/zero of=/dev/sda bs=4k count=1 seek=5000 oflag=direct conv=notrunc status=none 2> /dev/null; }
strangers() { local tries=0; until [ -e third/serves ]; do ! stranger || echo taken >> gaps; tries=$((tries + 1)); pause; done; echo $tries > tries; }
key() { grep -o 'Key: 0x[0-9a-f]*' $config/target/core/iblock_0/disk/pr/res_pr_registered_i_pts; }
before=$(key); mkdir third; strangers & strangers=$!
unshare --mount bash -c 'mount --bind boot /proc/sys/kernel/random/boot_id; exec env BRAID_CONTROL=second/control $BRAID serve --take-over > third/said 2>&1' & third=$!
await ready third; touch third/serves; wait $strangers
status=0; wait $second || status=$?; echo "second-ends $status"
[ $(cat tries) -gt 3 ] && [ ! -e gaps ] && echo "strangers refused"
[ "$(key)" = "$before" ] && echo "same-key yes"
put twos /dev/nbd1 12 && echo "third-writes yes"
nbd-client -d /dev/nbd1 > /dev/null
BRAID_CONTROL=second/control $BRAID stop mirror; status=0; wait $third || status=$?; echo "third-ends $status"
# Reservations end with the server.
put ones /dev/sda 200 && echo "after-the-end anybody"
"#;

/// The program, which cargo builds beside the tests.
fn program() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(Path::parent).expect("it is in target/PROFILE/deps");
    let program = folder.join("braid");
    assert!(program.exists(), "{} is missing: cargo build -p braid first", program.display());
    program
}

#[test]
fn disks_refuse_the_writes_of_a_server_that_was_taken_over_from() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    std::fs::copy(program(), folder.path().join("braid")).expect("room for the program");
    let script = format!("BRAID={SHARED}/braid\n{SCRIPT}");
    let limit = Duration::from_secs(180);
    let output = uml::run(&script, folder.path(), 512, limit).expect("the guest runs");
    let said = &output.text;
    for line in [
        "first-writes yes",
        "unregistered-writes refused",
        "second-writes yes",
        "late-write refused",
        "write-again refused",
        "unchanged disk0",
        "unchanged disk1",
        "unchanged-after disk0",
        "unchanged-after disk1",
        "first-ends 2",
        "second-reads right",
        "second-goes-on yes",
        "second-ends 0",
        "strangers refused",
        "same-key yes",
        "third-writes yes",
        "third-ends 0",
        "after-the-end anybody",
    ] {
        assert!(said.lines().any(|known| known == line), "{line:?} is not in:\n{said}");
    }
    let lost = |line: &str| line.starts_with("first-says") && line.contains("LOST");
    assert!(said.lines().any(lost), "{said}");
    assert_eq!(output.status, 0, "{said}");
}
