//! ublk in Linux 6.12 under QEMU, with the program `braid` as a user starts it: file systems and partitions on its disks, through
//! members that fail, servers that are killed, and stops.

use braid_interop::take_overs::{Door, Options, run};
use braid_interop::vm_guest::{Guest, program};

/// A guest with the driver.
fn boot() -> Guest {
    Guest::boot(
        "",
        "load ublk_drv; load ext4\n\
         braid create vault --level 5 --raid-devices 4 --chunk 64K m0 m1 m2 m3",
    )
}

/// The server is stopped first, so that requests wait when it is killed.
const KILLS: &str = r#"
serve --ublk=vault=3 --shards 2
fio --name=v --filename=/dev/braid/vault --rw=randwrite --bsrange=4k-64k --size=24M --ioengine=libaio --iodepth=16 --direct=1 \
  --verify=crc32c --do_verify=1 --verify_fatal=1 --end_fsync=1 --output=fio.out & fio=$!
writes() { local all; read -ra all < /sys/block/ublkb3/stat; echo ${all[4]}; }
waiting() { local all; read -ra all < /sys/block/ublkb3/inflight; [ $((all[0] + all[1])) -gt 0 ]; }
for round in 1 2 3; do
  from=$(writes)
  until [ $(($(writes) - from)) -ge 40 ]; do kill -0 $fio || fail "fio has ended too early: $(cat fio.out)"; done
  kill -STOP $(cat serve.pid)
  await "requests wait" waiting
  ended KILL
  kill -0 $fio && echo "round $round: fio waits"
  serve --ublk --shards 2
  grep -q '/dev/ublkb3$' serve.out || fail "the device was not taken back"
done
wait $fio || fail "fio: $(cat fio.out)"
grep -q 'err= 0' fio.out && echo "fio: verified"
braid wait vault
braid stop vault
[ ! -e /dev/ublkb3 ] && [ ! -L /dev/braid/vault ] && echo "disk: gone"
no_errors
"#;

#[test]
fn what_is_under_way_survives_servers_that_are_killed() {
    let mut guest = boot();
    let rounds = [1, 2, 3].map(|round| format!("round {round}: fio waits"));
    let mut says: Vec<&str> = rounds.iter().map(String::as_str).collect();
    says.extend(["fio: verified", "clean", "disk: gone", "kernel: no errors"]);
    guest.run(KILLS, &says);
}

/// The limits that the disk shows are the array's; whole stripes that are discarded, and what is zeroed, read as zeroes.
const LIMITS: &str = r#"
serve --ublk --shards 2
Q=/sys/block/ublkb0/queue
said() { echo "$1: $(cat $Q/$1)"; }
for name in logical_block_size minimum_io_size write_cache fua; do said $name; done
[ $(cat $Q/discard_max_bytes) -gt 0 ] && [ $(cat $Q/write_zeroes_max_bytes) -gt 0 ] && echo "discards: offered"
[ $(blockdev --getsize64 /dev/ublkb0) = $(blockdev --getsize64 /dev/braid/vault) ] && echo "link: right"
tr '\0' '\125' < /dev/zero | dd of=/dev/ublkb0 bs=1M oflag=direct iflag=fullblock count=16 status=none
stripe=$((3 * 65536))
blkdiscard -o $((8 * stripe)) -l $((16 * stripe)) /dev/ublkb0; blkdiscard -z -o 8M -l 4M /dev/ublkb0
cmp -n $((16 * stripe)) -i $((8 * stripe)):0 /dev/ublkb0 /dev/zero && echo "discarded: zeroes"
cmp -n 4194304 -i 8388608:0 /dev/ublkb0 /dev/zero && echo "zeroed: zeroes"
[ $(tr -d '\125' < /dev/ublkb0 | head -c 100M | tr -d '\0' | wc -c) = 0 ] && echo "others: as they were"
"#;

/// Partitions, a file system on one, a member that is lost and rebuilt, and stops that are refused.
const FILES: &str = r#"
blkdiscard -z /dev/ublkb0
# A table of 1983: 24 MiB from 1 MiB on, and 20 MiB behind them. Each number has its lowest byte first.
part() { printf '\0\0\0\0\203\0\0\0'"$1$2"; }
{ part '\0\10\0\0' '\0\300\0\0'; part '\0\310\0\0' '\0\240\0\0'; } | dd of=/dev/ublkb0 bs=1 seek=446 status=none
printf '\125\252' | dd of=/dev/ublkb0 bs=1 seek=510 conv=fsync status=none
blockdev --rereadpt /dev/ublkb0
await "partitions" test -b /dev/ublkb0p2
mkfs.ext4 -q -F /dev/ublkb0p1; mkdir -p mnt; mount /dev/ublkb0p1 mnt
write_files() { mkdir -p $1; for nr in $(seq 24); do head -c $((nr * nr * 211 + nr)) /bin/bash > $1/f$nr; done; }
keep_sums() { (cd mnt; find . -type f -print0 | sort -z | xargs -0 md5sum > /tmp/sums); }
check_sums() { sync; echo 3 > /proc/sys/vm/drop_caches; (cd mnt; md5sum --check --quiet /tmp/sums) && echo "files $1: right"; }
write_files mnt/a; keep_sums; check_sums healthy
braid fail vault m1; check_sums degraded
write_files mnt/b; keep_sums
braid remove vault m1; braid add vault m1; write_files mnt/c; keep_sums; braid wait vault; check_sums rebuilt
braid detail vault | grep -i 'mounted on /tmp/mnt'
! braid stop vault 2> refused && grep -o 'mounted on /tmp/mnt' refused && echo "stop while mounted: refused"
"#;

/// A server that is asked to end leaves a disk that is in use to the next one.
const LEFT: &str = r#"
! braid serve --take-over 2> refused && grep -q 'only when this one has ended' refused && echo "take-over: refused"
ended TERM
grep -o 'in use and stays' serve.out
[ -b /dev/ublkb0 ] && [ -L /dev/braid/vault ] || fail "the disk is gone"
(cd mnt; md5sum --quiet --check /tmp/sums && sync) & sums=$!
serve --ublk --shards 1
wait $sums && echo "files: waited for"
umount mnt; e2fsck -fn /dev/ublkb0p1 > /dev/null && echo "file system: clean"
exec 5< /dev/ublkb0p2
! braid stop vault 2> refused && grep -o 'process [0-9]*' refused && echo "stop while open: refused"
braid stop vault --force && echo "stop by force: done"
exec 5<&-
await "the disk is gone" test ! -e /dev/ublkb0
no_errors
braid examine m0 m1 m2 m3 | grep -c 'State : clean'
"#;

#[test]
fn a_disk_has_files_and_partitions_through_rebuild_and_restart() {
    let mut guest = boot();
    guest.run(
        LIMITS,
        &[
            "logical_block_size: 512",
            "minimum_io_size: 65536",
            "write_cache: write back",
            "fua: 1",
            "discards: offered",
            "link: right",
            "discarded: zeroes",
            "zeroed: zeroes",
            "others: as they were",
        ],
    );
    let files = ["files healthy: right", "files degraded: right", "files rebuilt: right"];
    guest.run(FILES, &[&files[..], &["stop while mounted: refused"]].concat());
    let left = [
        "take-over: refused",
        "files: waited for",
        "file system: clean",
        "stop while open: refused",
    ];
    let ends = ["stop by force: done", "kernel: no errors"];
    guest.run(LEFT, &[&left[..], &ends].concat());
}

/// `make take-overs` kills a hundred.
#[test]
fn a_client_that_compares_all_that_it_reads_notices_no_killed_server() {
    let work = tempfile::tempdir_in("/var/tmp").expect("a folder in /var/tmp");
    let own = env!("CARGO_BIN_EXE_braid-interop").into();
    let options =
        Options { braid: program(), work: work.path().to_path_buf(), times: 2, seed: 1, own };
    let outcomes = run(&options, Door::Ublk).unwrap_or_else(|error| panic!("{error:#}"));
    outcomes.iter().for_each(|outcome| println!("{outcome}"));
    assert!(outcomes.last().is_some_and(|outcome| !outcome.longest().is_zero()));
}
