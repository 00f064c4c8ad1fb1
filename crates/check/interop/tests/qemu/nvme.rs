//! NVMe over TCP with the initiator of Linux 6.12 under QEMU and Debian's nvme-cli, against the program `braid` as a user
//! starts it: discovery, file systems, servers that are killed, arrays that grow, hosts that may not connect, and a network
//! that is cut.

use braid_interop::vm_guest::Guest;

/// Functions of the scripts beside those of every guest: `connect OPTION...` connects as the host of the test and waits
/// for the disk.
const LIBRARY: &str = r#"
HOST=nqn.2026-01.org.example:host
UUID=9a3e956d-c297-4823-a61e-af12985fb029
DISK=/dev/nvme-vault
ADDRESS=127.0.0.1
DOOR="--nvme tcp:$ADDRESS:4420 --shards 2"
fabrics() { # VERB OPTION...
  local verb=$1; shift
  nvme $verb -t tcp -a $ADDRESS -s 4420 -q $HOST -I $UUID "$@"
}
subsystem() { fabrics discover | awk '$1 == "subnqn:" && $2 ~ /uuid/ { print $2 }'; }
disk() { DISK=$(ls /dev/nvme*n1) && [ -b $DISK ]; }
connect() {
  fabrics connect -n $(cat subsystem) -i 2 -k 5 -c 1 -l 600 "$@" || return
  await "the disk" disk
}
"#;

/// A guest with the initiator.
fn boot() -> Guest {
    Guest::boot(
        LIBRARY,
        "load nvme-tcp; load ext4\n\
         braid create vault --level 5 --raid-devices 4 --chunk 64K --size 16M m0 m1 m2 m3",
    )
}

/// A host that is not on the list is refused, before and after discovery; one that is finds the array under its name, with its limits.
const DISCOVERY: &str = r#"
serve --nvme-allow nqn.2026-01.org.example:other
! fabrics discover 2> refused && cat refused
grep -c "not on the list of hosts" serve.out
ended TERM
serve --nvme-allow $HOST
subsystem | tee subsystem
connect
nvme list
Q=/sys/block/${DISK#/dev/}/queue
said() { echo "$1: $(cat $Q/$1)"; }
for name in logical_block_size write_cache fua; do said $name; done
[ $(cat $Q/discard_max_bytes) -gt 0 ] && [ $(cat $Q/write_zeroes_max_bytes) -gt 0 ] && echo "discards: offered"
nvme ana-log $DISK
[ $(blockdev --getsize64 $DISK) = $((48 << 20)) ] && echo "size: right"
"#;

/// A file system through a member that is lost and rebuilt, and an array that grows under it.
const FILES: &str = r#"
disk
mkfs.ext4 -q -F $DISK; mkdir -p mnt; mount $DISK mnt
write_files() { mkdir -p $1; for nr in $(seq 24); do head -c $((nr * nr * 211 + nr)) /bin/bash > $1/f$nr; done; }
keep_sums() { (cd mnt; find . -type f -print0 | sort -z | xargs -0 md5sum > /tmp/sums); }
check_sums() { sync; echo 3 > /proc/sys/vm/drop_caches; (cd mnt; md5sum --check --quiet /tmp/sums) && echo "files $1: right"; }
write_files mnt/a; keep_sums; check_sums healthy
braid fail vault m1; write_files mnt/b; keep_sums; check_sums degraded
braid remove vault m1; braid add vault m1; write_files mnt/c; keep_sums; braid wait vault; check_sums rebuilt
braid grow vault --size max; braid wait vault
is_larger() { [ $(blockdev --getsize64 $DISK) -gt $((48 << 20)) ]; }
await "the disk has grown" is_larger && echo "larger: seen"
umount mnt; e2fsck -fp $DISK > /dev/null; resize2fs -p $DISK 2>&1; mount $DISK mnt; check_sums grown
[ $(stat -f -c %b mnt) -gt 12000 ] && echo "file system: larger"
umount mnt; e2fsck -fn $DISK > /dev/null && echo "file system: clean"
"#;

/// The server is stopped first, so that requests wait when it is killed.
const KILLS: &str = r#"
disk
fio --name=v --filename=$DISK --rw=randwrite --bsrange=4k-64k --size=24M --ioengine=libaio --iodepth=16 --direct=1 \
  --verify=crc32c --do_verify=1 --verify_fatal=1 --end_fsync=1 --output=fio.out & fio=$!
block=/sys/block/${DISK#/dev/}
writes() { local all; read -ra all < $block/stat; echo ${all[4]}; }
waiting() { local all; read -ra all < $block/inflight; [ $((all[0] + all[1])) -gt 0 ]; }
for round in 1 2; do
  from=$(writes)
  until [ $(($(writes) - from)) -ge 40 ]; do kill -0 $fio || fail "fio has ended too early: $(cat fio.out)"; done
  kill -STOP $(cat serve.pid)
  await "requests wait" waiting
  ended KILL
  kill -0 $fio && echo "round $round: fio waits"
  serve --nvme-allow $HOST
done
wait $fio || fail "fio: $(cat fio.out)"
grep -q 'err= 0' fio.out && echo "fio: verified"
braid wait vault
nvme disconnect -n $(cat subsystem)
no_errors
ended TERM
braid examine m0 m1 m2 m3 | grep -c 'State : clean'
"#;

/// Secrets, with Diffie-Hellman: none, a wrong one and a controller with a wrong one are refused; the right ones of both sides are not.
const SECRETS: &str = r#"
umask 077
nvme gen-dhchap-key -m 1 -n $HOST > host.secret
nvme gen-dhchap-key -m 3 -l 64 -n $(cat subsystem) > ours.secret
nvme gen-dhchap-key -m 2 -l 48 -n $HOST > other.secret
serve --nvme-secret $HOST=host.secret --nvme-controller-secret $HOST=ours.secret
subsystem | grep -qFx $(cat subsystem) && echo "discovery: without a secret"
refused() { grep -c "NVMe host is refused" serve.out || true; }
! connect 2> said && [ $(refused) = 1 ] && echo "no secret: refused"
! connect -S "$(cat other.secret)" 2> said && [ $(refused) = 2 ] && echo "wrong secret: refused"
! connect -S "$(cat host.secret)" -C "$(cat other.secret)" 2> said && [ $(refused) = 3 ] && echo "wrong controller: refused"
connect -S "$(cat host.secret)"
nvme disconnect -n $(cat subsystem)
connect -S "$(cat host.secret)" -C "$(cat ours.secret)"
dmesg | grep -F 'dhgroup ffdhe3072' | tail -1
[ $(refused) = 3 ] && dd if=$DISK of=/dev/null bs=1M count=4 iflag=direct status=none && echo "right secrets: let in"
nvme disconnect -n $(cat subsystem)
ended TERM
"#;

/// The server in a network namespace of its own, and the cable between the two without a carrier for 20 s under fio's verification.
const CUT: &str = r#"
load veth
unshare --net sleep 100000 & there=$!
is_apart() { [ $(readlink /proc/$there/ns/net) != $(readlink /proc/self/ns/net) ]; }
await "a namespace" is_apart
INSIDE="nsenter --target $there --net"
busybox ip link add here type veth
busybox ip link set veth0 netns $there
busybox ip addr add 10.77.0.1/24 dev here
$INSIDE busybox ip addr add 10.77.0.2/24 dev veth0
busybox ip link set here up; $INSIDE busybox ip link set veth0 up
ADDRESS=10.77.0.2
DOOR="--nvme tcp:$ADDRESS:4420 --shards 2"
serve --nvme-allow $HOST
connect
# Slow enough to be under way before and after.
fio --name=v --filename=$DISK --rw=randwrite --bsrange=4k-64k --size=24M --ioengine=libaio --iodepth=16 --direct=1 --rate=1500k \
  --verify=crc32c --do_verify=1 --verify_fatal=1 --end_fsync=1 --output=fio.out & fio=$!
block=/sys/block/${DISK#/dev/}
writes() { local all; read -ra all < $block/stat; echo ${all[4]}; }
has_written() { [ $(writes) -ge $1 ]; }
from=$(writes)
await "fio writes" has_written $((from + 40))
$INSIDE busybox ip link set veth0 down
# What is cancelled when the host gives the connection up counts as completed, and is repeated.
sleep 12; quiet=$(writes); sleep 8
[ $(writes) = $quiet ] && kill -0 $fio && echo "cut: fio waits"
$INSIDE busybox ip link set veth0 up
await "fio goes on" has_written $((quiet + 1)) && echo "back: fio goes on"
wait $fio || fail "fio: $(cat fio.out)"
grep -q 'err= 0' fio.out && echo "fio: verified"
dmesg | grep -c "Reconnecting in"
nvme disconnect -n $(cat subsystem)
no_errors
ended TERM
braid examine m0 m1 m2 m3 | grep -c 'State : clean'
kill $there
"#;

#[test]
fn linux_finds_an_array_uses_it_and_waits_for_servers_that_are_killed() {
    let mut guest = boot();
    guest.run(
        DISCOVERY,
        &[
            "uuid:",
            "braid vault",
            "logical_block_size: 512",
            "write_cache: write back",
            "fua: 1",
            "discards: offered",
            "size: right",
        ],
    );
    let files = ["files healthy: right", "files degraded: right", "files rebuilt: right"];
    let ends = ["larger: seen", "files grown: right", "file system: larger", "file system: clean"];
    guest.run(FILES, &[&files[..], &ends].concat());
    let rounds = ["round 1: fio waits", "round 2: fio waits"];
    guest.run(KILLS, &[&rounds[..], &["fio: verified", "kernel: no errors"]].concat());
    let cut = ["cut: fio waits", "back: fio goes on", "fio: verified", "kernel: no errors"];
    guest.run(CUT, &cut);
    let secrets = [
        "discovery: without a secret",
        "no secret: refused",
        "wrong secret: refused",
        "wrong controller: refused",
        "authenticated with hash hmac(sha512) dhgroup ffdhe3072",
        "right secrets: let in",
    ];
    guest.run(SECRETS, &secrets);
}
