//! An array that grows under Linux's own NBD client, in Linux 6.12 under QEMU. No server can tell an NBD client of a new size; its
//! user can (`NBD_SET_SIZE_BLOCKS`), and goes on without connecting again.

use braid_interop::vm_guest::Guest;

const SCRIPT: &str = r#"
serve --nbd unix:/tmp/nbd.sock --shards 2
nbd-client -nonetlink -unix /tmp/nbd.sock -N vault /dev/nbd0 > /dev/null
size() { blockdev --getsize64 /dev/nbd0; }
# The client ends before its child has told the kernel to begin, and until then the disk has no size.
has_a_size() { [ $(size) -gt 0 ]; }
await "the disk has a size" has_a_size
[ $(size) = $((48 << 20)) ] && echo "size: as it was connected"
mkfs.ext4 -q -F /dev/nbd0; mkdir -p mnt; mount /dev/nbd0 mnt
head -c 20M /dev/urandom > mnt/a; md5sum mnt/a > sums
braid grow vault --size max > said; cat said
braid wait vault
grown=$(braid detail vault --json | tr -d ' \n' | grep -o '"array_size":[0-9]*' | head -n 1 | cut -d : -f 2)
[ $grown -gt $((48 << 20)) ] || fail "it has not grown: $grown"
[ $(size) = $((48 << 20)) ] && echo "size: nobody has told"
# NBD_SET_SIZE_BLOCKS, in blocks of 512 bytes.
block=$(cat /sys/block/nbd0/queue/logical_block_size)
perl -e 'open(my $nbd, "+<", "/dev/nbd0") or die "open: $!"; ioctl($nbd, 0xab07, 0 + $ARGV[0]) or die "ioctl: $!"' $((grown / block))
[ $(size) = $grown ] && echo "size: told"
resize2fs /dev/nbd0 2>&1
head -c 12M /dev/urandom > mnt/b; head -c 12M /dev/urandom > mnt/c; md5sum mnt/b mnt/c >> sums
sync; echo 3 > /proc/sys/vm/drop_caches; md5sum --check --quiet sums && echo "files: right"
tail -c 1M /dev/nbd0 | wc -c
umount mnt; e2fsck -fn /dev/nbd0 > /dev/null && echo "file system: clean"
nbd-client -d /dev/nbd0 > /dev/null
no_errors
"#;

#[test]
fn a_connected_linux_uses_what_an_array_has_gained_once_it_is_told() {
    let mut guest = Guest::boot(
        "",
        "load nbd; load ext4\n\
         braid create vault --level 5 --raid-devices 4 --chunk 64K --size 16M m0 m1 m2 m3",
    );
    let sizes = ["size: as it was connected", "size: nobody has told", "size: told"];
    let ends = ["files: right", "1048576", "file system: clean", "kernel: no errors"];
    guest.run(SCRIPT, &[&sizes[..], &ends].concat());
}
