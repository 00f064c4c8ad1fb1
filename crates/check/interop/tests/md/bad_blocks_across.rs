//! Bad-block logs across the border: what the kernel has recorded as bad braid does not read, and clears by
//! writing over it; what braid records the kernel lists, does not read, and clears in turn.
//!
//! Blocks that are recorded hold other bytes than they should, put there behind the arrays' backs: who reads
//! them after all is seen.

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateOptions};
use braid_device::fault::{Action, Fault, Faults, OpKind, Rule};
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{Device, IoErrorKind, IoSets, Op, OpenError, Opener, Request, Target};
use braid_format::badblocks;
use braid_format::superblock::Superblock;
use braid_interop::across::{self, path};
use braid_interop::by_braid::{own_context, superblock_at};
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const MEMBER: u64 = 32 * MIB;
/// What each array is filled with, from its start.
const FILLED: usize = 4 << 20;
/// Of it, how much is written anew.
const WRITTEN: usize = 1 << 20;
/// Component bytes that are bad, on members 0 and 1; on each of them rows that are good on the other.
const BAD: [Range<u64>; 2] = [8192..16384, 20480..20992];
const LEVELS: [(&str, Level, usize); 4] = [
    ("raid1", Level::Raid1, 2),
    ("raid5", Level::Raid5, 3),
    ("raid6", Level::Raid6, 4),
    ("raid10", Level::Raid10, 4),
];

/// A member of which some bytes take no write.
struct Defective {
    member: FileMember,
    faults: Faults,
}

impl Opener for Defective {
    fn name(&self) -> &str {
        self.member.name()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(Fault::new(shard, self.member.open(shard)?, &self.faults))
    }
}

/// The members of an array; `defects` are bytes of the first ones that take no write.
fn openers(
    folder: &Path,
    name: &str,
    members: usize,
    defects: &[Range<u64>],
) -> Vec<Arc<dyn Opener>> {
    let open = |nr: usize| {
        let path = path(folder, name, nr);
        let member = FileMember::open(path, Mode::ReadWrite).expect("a member opens");
        let faults = Faults::new(0);
        if let Some(bytes) = defects.get(nr) {
            let rule = Rule::new(Action::Fail(IoErrorKind::Medium)).on(OpKind::Write);
            faults.add(rule.within(bytes.clone()));
        }
        Arc::new(Defective { member, faults }) as Arc<dyn Opener>
    };
    (0..members).map(open).collect()
}

/// Bytes of the member that hold these component bytes.
fn on_member(superblock: &Superblock, bytes: &Range<u64>) -> Range<u64> {
    let start = superblock.data_offset * 512;
    start + bytes.start..start + bytes.end
}

/// Puts other bytes where blocks are bad.
fn spoil(shard: &Shard, folder: &Path, name: &str) {
    for (nr, bad) in BAD.iter().enumerate() {
        let at = on_member(&superblock_at(shard, &path(folder, name, nr)), bad);
        let file = fs::File::options().write(true).open(path(folder, name, nr)).expect("it opens");
        let bytes = vec![0x5a; (at.end - at.start) as usize];
        file.write_all_at(&bytes, at.start).expect("blocks are spoiled");
    }
}

/// Component bytes that the member's log lists; `None` when its superblock says that there are none.
fn logged(shard: &Shard, folder: &Path, name: &str, nr: usize) -> Option<Vec<Range<u64>>> {
    let superblock = superblock_at(shard, &path(folder, name, nr));
    if !superblock.bad_blocks {
        return None;
    }
    let mut log = vec![0; usize::from(superblock.bblog_size) * 512];
    let at = superblock.bblog_sector().expect("it has a log") * 512;
    let file = fs::File::open(path(folder, name, nr)).expect("it opens");
    file.read_exact_at(&mut log, at).expect("the log is read");
    let ranges = badblocks::parse(&log, superblock.bblog_shift).expect("the log makes sense");
    let bytes = |sector: u64| (sector - superblock.data_offset) * 512;
    Some(ranges.iter().map(|range| bytes(range.start)..bytes(range.end)).collect())
}

fn pattern(seed: u64) -> Vec<u8> {
    let at = |i: u64| (i * 8 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..FILLED as u64 / 8).flat_map(at).collect()
}

async fn write(shard: &Shard, array: &Array, bytes: &[u8]) {
    let device = array.open(shard).expect("it runs");
    for (nr, piece) in bytes.chunks(256 << 10).enumerate() {
        let buf = shard.pool().copy_of(piece).freeze();
        let request = Request::write((nr as u64) * (256 << 10), buf, false);
        IoSets::new(shard).one(&*device, request).await.result.expect("it is written");
    }
}

async fn read(shard: &Shard, array: &Array, len: usize) -> Vec<u8> {
    let device = array.open(shard).expect("it runs");
    let request = Request::read(0, shard.pool().get(len));
    let outcome = IoSets::new(shard).one(&*device, request).await;
    outcome.result.expect("it is read");
    let Op::Read(bufs) = outcome.op else { panic!("a read comes back as something else") };
    bufs.iter().flat_map(|buf| buf.to_vec()).collect()
}

/// Lines of a script that makes loop devices of an array's members.
fn attach(name: &str, members: usize) -> (String, String) {
    let devices: Vec<String> = (0..members).map(|nr| format!("/dev/loop{nr}")).collect();
    let lines = (0..members).map(|nr| format!("losetup /dev/loop{nr} {name}.{nr}\n"));
    (lines.collect(), devices.join(" "))
}

/// The kernel fills arrays that mdadm makes, and is told of bad blocks.
fn record_in_guest(folder: &Path) -> String {
    let mut script = format!("cd {}\n", uml::SHARED);
    for (name, _, members) in LEVELS {
        for nr in 0..members {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
        }
        let (attach, devices) = attach(name, members);
        let chunk = if name == "raid1" { "" } else { "--chunk 64" };
        let level = name.trim_start_matches("raid");
        script.push_str(&format!(
            "{attach}yes | mdadm --create /dev/md0 --run --quiet --assume-clean --level {level} -n {members} {chunk} \
             --bitmap none {devices}\n\
             dd if=old of=/dev/md0 bs=1M oflag=direct conv=notrunc status=none\n"
        ));
        for (nr, bad) in BAD.iter().enumerate() {
            script.push_str(&format!(
                "data=$(cat /sys/block/md0/md/dev-loop{nr}/offset)\n\
                 echo $((data + {})) {} > /sys/block/md0/md/dev-loop{nr}/bad_blocks\n",
                bad.start / 512,
                (bad.end - bad.start) / 512
            ));
        }
        // The log is written with the next superblocks.
        script.push_str(
            "dd if=/dev/zero of=/dev/md0 bs=4k count=1 seek=4000 oflag=direct conv=notrunc status=none\n\
             sync; mdadm --stop --quiet /dev/md0; losetup -D\n",
        );
    }
    uml::run(&script, folder, 512, Duration::from_secs(180)).expect("the guest runs").text
}

/// What the kernel says of bad blocks of arrays before and after it has written over them.
fn look_in_guest(folder: &Path, names: &[(String, usize)]) -> String {
    let mut script = across::preamble(500);
    script.push_str(
        "list() { for d in $md/dev-loop*; do echo $2: $1 ${d##*loop}: $(cat $d/bad_blocks) of $(cat $d/offset); done; }\n\
         none_bad() { local d; for d in $md/dev-loop*; do [ -z \"$(cat $d/bad_blocks)\" ] || return 1; done; }\n\
         compare() { cmp -n $(stat -c %s $1) /dev/md0 $1 && echo $2: has $1; }\n",
    );
    for (name, members) in names {
        let (attach, devices) = attach(name, *members);
        script.push_str(&format!(
            "{attach}mdadm --assemble --run --quiet /dev/md0 {devices}\nmdadm --readwrite --quiet /dev/md0\nsettle\n\
             list first {name}\ncompare now {name}\n\
             dd if=old of=/dev/md0 bs=1M oflag=direct conv=notrunc status=none\n\
             dd if=old of=/dev/md0 bs=4k count=64 oflag=direct conv=notrunc status=none\nsync; await none_bad\n\
             list then {name}\ncompare old {name}\n\
             check\n\
             echo {name}: mismatch_cnt $(cat /sys/block/md0/md/mismatch_cnt) degraded $(cat /sys/block/md0/md/degraded)\n\
             mdadm --stop --quiet /dev/md0; losetup -D\n"
        ));
    }
    uml::run(&script, folder, 512, Duration::from_secs(180)).expect("the guest runs").text
}

/// Reads an array on which bad blocks are recorded, writes over them, and reads again.
fn go_on_in_braid(
    shard: &Shard,
    folder: &Path,
    name: &str,
    members: usize,
    old: &[u8],
    now: &[u8],
) {
    let (ctx, openers) = (own_context(shard), openers(folder, name, members, &[]));
    let (home, shard, old, now) = (shard.clone(), shard.clone(), old.to_vec(), now.to_vec());
    let degraded = home.block_on(async move {
        let array =
            assemble(&ctx, openers, AssembleOptions::default()).await.expect("it is assembled");
        let control = Control::find(&shard, array.id()).expect("it runs");
        assert!(read(&shard, &array, FILLED).await == old, "bad blocks were read");
        write(&shard, &array, &now[..WRITTEN]).await;
        assert!(read(&shard, &array, FILLED).await == now, "what was written is not there");
        let degraded = control.status().await.degraded;
        control.stop().await;
        degraded
    });
    assert_eq!(degraded, 0);
}

/// An array of braid's own, two members of which do not take some blocks.
fn record_in_braid(
    shard: &Shard,
    folder: &Path,
    name: &str,
    level: Level,
    members: usize,
    now: &[u8],
) {
    for nr in 0..members {
        create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
    }
    let options = CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        assume_clean: true,
        ..CreateOptions::new(name, level, members)
    };
    let (ctx, whole) = (own_context(shard), openers(folder, name, members, &[]));
    let (home, given) = (shard.clone(), whole.iter().cloned().map(Some).collect());
    home.block_on(async move { create(&ctx, given, options).await }).expect("it is created");
    drop(whole);
    let defects: Vec<Range<u64>> = BAD
        .iter()
        .enumerate()
        .map(|(nr, bad)| on_member(&superblock_at(shard, &path(folder, name, nr)), bad))
        .collect();
    let (ctx, openers) = (own_context(shard), openers(folder, name, members, &defects));
    let (home, shard, now) = (shard.clone(), shard.clone(), now.to_vec());
    let degraded = home.block_on(async move {
        let array =
            assemble(&ctx, openers, AssembleOptions::default()).await.expect("it is assembled");
        let control = Control::find(&shard, array.id()).expect("it runs");
        write(&shard, &array, &now).await;
        assert!(read(&shard, &array, FILLED).await == now, "what was written is not there");
        let degraded = control.status().await.degraded;
        control.stop().await;
        degraded
    });
    assert_eq!(degraded, 0);
}

#[test]
fn bad_blocks_that_one_side_has_recorded_are_honoured_and_cleared_by_the_other() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    let (old, new) = (pattern(1), pattern(2));
    let mut now = old.clone();
    now[..WRITTEN].copy_from_slice(&new[..WRITTEN]);
    fs::write(folder.join("old"), &old).unwrap();
    fs::write(folder.join("now"), &now).unwrap();
    let said = record_in_guest(folder);
    let shard = Shard::with_ring(0).unwrap();
    let mut names = Vec::new();
    for (name, level, members) in LEVELS {
        for (nr, bad) in BAD.iter().enumerate() {
            let list = logged(&shard, folder, name, nr);
            assert_eq!(list.as_deref(), Some(std::slice::from_ref(bad)), "{name}.{nr}: {said}");
        }
        spoil(&shard, folder, name);
        go_on_in_braid(&shard, folder, name, members, &old, &now);
        for nr in 0..members {
            assert_eq!(logged(&shard, folder, name, nr), None, "{name}.{nr}");
        }
        names.push((name.to_string(), members));

        let own = format!("{name}own");
        record_in_braid(&shard, folder, &own, level, members, &now);
        // Recorded in pieces of 4096 bytes.
        assert_eq!(logged(&shard, folder, &own, 0).as_deref(), Some(&BAD[..1]), "{own}");
        let piece = 20480..24576;
        let list = logged(&shard, folder, &own, 1);
        assert_eq!(list.as_deref(), Some(std::slice::from_ref(&piece)), "{own}");
        spoil(&shard, folder, &own);
        names.push((own, members));
    }
    let said = look_in_guest(folder, &names);
    for (name, members) in &names {
        for at in ["now", "old"] {
            assert!(said.contains(&format!("{name}: has {at}")), "{name} {at}: {said}");
        }
        assert!(said.contains(&format!("{name}: mismatch_cnt 0 degraded 0")), "{name}: {said}");
        for nr in 0..*members {
            let offset = superblock_at(&shard, &path(folder, name, nr)).data_offset;
            let first = match (name.ends_with("own"), nr) {
                (true, 0) => format!("{} 16 ", offset + 16),
                (true, 1) => format!("{} 8 ", offset + 40),
                _ => String::new(),
            };
            assert!(said.contains(&format!("{name}: first {nr}: {first}of {offset}")), "{said}");
            assert!(said.contains(&format!("{name}: then {nr}: of {offset}")), "{said}");
            assert_eq!(logged(&shard, folder, name, nr), None, "{name}.{nr}");
        }
    }
}
