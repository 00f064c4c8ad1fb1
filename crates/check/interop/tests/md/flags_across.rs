//! Write-mostly and failfast across the border: flags that mdadm gives members are honoured and kept by braid, and
//! those that braid gives and takes by md.
//!
//! Write-mostly members hold other bytes than they should, put there behind the arrays' backs: who reads
//! them although there is another copy is seen.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateOptions, MemberSelector};
use braid_array::state::flags::MemberFlags;
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_format::superblock::Version;
use braid_interop::across::path;
use braid_interop::by_braid::{own_context, superblock_at};
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const MEMBER: u64 = 24 * MIB;
/// What each array is filled with, from its start.
const FILLED: usize = 4 << 20;
const MEMBERS: usize = 3;

const NONE: MemberFlags = MemberFlags { write_mostly: false, failfast: false };
const SLOW: MemberFlags = MemberFlags { write_mostly: true, failfast: false };
const FAST: MemberFlags = MemberFlags { write_mostly: false, failfast: true };
const BOTH: MemberFlags = MemberFlags { write_mostly: true, failfast: true };

/// Arrays of both sides, with the version of their superblocks.
const BY_MDADM: [(&str, Version); 2] = [("md12", Version::V1_2), ("md090", Version::V0_90)];
const BY_BRAID: [(&str, Version); 2] = [("own12", Version::V1_2), ("own090", Version::V0_90)];

fn openers(folder: &Path, name: &str) -> Vec<Arc<dyn Opener>> {
    let open = |nr| {
        let member = FileMember::open(path(folder, name, nr), Mode::ReadWrite);
        Arc::new(member.expect("a member opens")) as Arc<dyn Opener>
    };
    (0..MEMBERS).map(open).collect()
}

fn flags(shard: &Shard, folder: &Path, name: &str) -> Vec<MemberFlags> {
    (0..MEMBERS).map(|nr| MemberFlags::of(&superblock_at(shard, &path(folder, name, nr)))).collect()
}

/// Puts other bytes where a member has data.
fn spoil(shard: &Shard, folder: &Path, name: &str, nr: usize) {
    let at = superblock_at(shard, &path(folder, name, nr)).data_offset * 512;
    let file = fs::File::options().write(true).open(path(folder, name, nr)).expect("it opens");
    file.write_all_at(&vec![0x5a; FILLED], at).expect("it is spoiled");
}

fn pattern() -> Vec<u8> {
    let at = |i: u64| (i * 8 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..FILLED as u64 / 8).flat_map(at).collect()
}

/// Assembles the array, reads it in pieces several times, changes the flags of members, writes it anew.
fn go_on_in_braid(
    shard: &Shard,
    folder: &Path,
    name: &str,
    expected: &[MemberFlags],
    change: &[(usize, MemberFlags)],
) {
    let (ctx, openers) = (own_context(shard), openers(folder, name));
    let (home, shard) = (shard.clone(), shard.clone());
    let (expected, change) = (expected.to_vec(), change.to_vec());
    let name = name.to_string();
    home.block_on(async move {
        let array = assemble(&ctx, openers, AssembleOptions::default()).await;
        let array = array.expect("it is assembled");
        let control = Control::find(&shard, array.id()).expect("it runs");
        let mut members = control.status().await.members;
        members.sort_by_key(|member| member.slot);
        let flags: Vec<MemberFlags> = members.iter().map(|member| member.flags).collect();
        assert_eq!(flags, expected, "{name}");
        let device = Arc::clone(&array).open(&shard).expect("it opens");
        let sets = IoSets::new(&shard);
        let content = pattern();
        for at in (0..FILLED).step_by(64 << 10).chain((0..FILLED).step_by(64 << 10).rev()) {
            let request = Request::read(at as u64, shard.pool().get(64 << 10));
            let outcome = sets.one(&*device, request).await;
            outcome.result.expect("it is read");
            let Op::Read(bufs) = outcome.op else { panic!("a read gives its buffers back") };
            let read: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
            assert!(read == content[at..at + (64 << 10)], "{name}: wrong bytes at {at}");
        }
        for (slot, to) in change {
            let member = MemberSelector::Nr(members[slot].nr);
            control
                .membership()
                .set_flags(&member, |flags| *flags = to)
                .await
                .expect("flags are changed");
        }
        for (nr, piece) in content.chunks(256 << 10).enumerate() {
            let buf = shard.pool().copy_of(piece).freeze();
            let request = Request::write((nr as u64) * (256 << 10), buf, false);
            sets.one(&*device, request).await.result.expect("it is written");
        }
        assert_eq!(control.status().await.degraded, 0);
        control.stop().await;
    });
}

fn create_in_braid(shard: &Shard, folder: &Path, name: &str, version: Version) {
    for nr in 0..MEMBERS {
        create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
    }
    let flags = vec![NONE, SLOW, FAST];
    let options = CreateOptions {
        flags,
        version,
        assume_clean: true,
        ..CreateOptions::new(name, Level::Raid1, MEMBERS)
    };
    let (ctx, whole) = (own_context(shard), openers(folder, name));
    let (home, shard) = (shard.clone(), shard.clone());
    let given = whole.iter().cloned().map(Some).collect();
    home.block_on(async move {
        create(&ctx, given, options).await.expect("it is created");
        let array = assemble(&ctx, whole, AssembleOptions::default()).await;
        let array = array.expect("it is assembled");
        let device = Arc::clone(&array).open(&shard).expect("it opens");
        for (nr, piece) in pattern().chunks(256 << 10).enumerate() {
            let buf = shard.pool().copy_of(piece).freeze();
            let request = Request::write((nr as u64) * (256 << 10), buf, false);
            IoSets::new(&shard).one(&*device, request).await.result.expect("it is written");
        }
        Control::find(&shard, array.id()).expect("it runs").stop().await;
    });
}

const ATTACH: &str = "attach() { for nr in 0 1 2; do losetup /dev/loop$nr $1.$nr; done; }\n";
const DEVICES: &str = "/dev/loop0 /dev/loop1 /dev/loop2";

fn create_in_guest(folder: &Path) -> String {
    let mut script = format!("cd {}\n{ATTACH}", uml::SHARED);
    for (name, version) in BY_MDADM {
        for nr in 0..MEMBERS {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
        }
        script.push_str(&format!(
            "attach {name}\n\
             yes | mdadm --create /dev/md0 --run --quiet --metadata {version} --assume-clean --level 1 -n 3 \
             --bitmap none /dev/loop0 --write-mostly /dev/loop1 --failfast /dev/loop2\n\
             state=/sys/block/md0/md/dev-loop\n\
             echo {name} made as $(cat ${{state}}0/state ${{state}}1/state ${{state}}2/state)\n\
             echo writemostly > ${{state}}1/state; echo writemostly > ${{state}}2/state; echo failfast > ${{state}}2/state\n\
             dd if=content of=/dev/md0 bs=1M oflag=direct conv=notrunc status=none\n\
             sync; mdadm --stop --quiet /dev/md0; losetup -D\n"
        ));
    }
    uml::run(&script, folder, 512, Duration::from_secs(120)).expect("the guest runs").text
}

/// What md and mdadm say of the flags, whether md reads what it should, and changes of flags there.
fn look_in_guest(folder: &Path, names: &[&str]) -> String {
    let mut script = format!("cd {}\n{ATTACH}", uml::SHARED);
    for name in names {
        script.push_str(&format!(
            "attach {name}\nmdadm --assemble --run --quiet /dev/md0 {DEVICES}\n\
             for nr in 0 1 2; do\n\
             echo {name} state $nr $(cat /sys/block/md0/md/dev-loop$nr/state)\n\
             echo {name} detail $nr $(mdadm --detail /dev/md0 | grep loop$nr)\n\
             done\n\
             for time in 1 2 3 4; do\n\
             dd if=/dev/md0 bs=64k count=64 iflag=direct status=none | cmp - content && echo {name} read $time\n\
             done\n\
             mdadm --readwrite --quiet /dev/md0\n\
             echo -writemostly > /sys/block/md0/md/dev-loop1/state\n\
             echo writemostly > /sys/block/md0/md/dev-loop0/state\n\
             echo failfast > /sys/block/md0/md/dev-loop0/state\n\
             dd if=content of=/dev/md0 bs=1M oflag=direct conv=notrunc status=none\n\
             sync; mdadm --stop --quiet /dev/md0; losetup -D\n"
        ));
    }
    uml::run(&script, folder, 512, Duration::from_secs(120)).expect("the guest runs").text
}

#[test]
fn flags_that_one_side_gives_are_honoured_and_kept_by_the_other() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    fs::write(folder.join("content"), pattern()).unwrap();
    let said = create_in_guest(folder);
    let shard = Shard::with_ring(0).unwrap();
    for (name, _) in BY_MDADM {
        // With mdadm a flag is for all devices after it; in 0.90 it makes none, and md is told.
        assert_eq!(flags(&shard, folder, name), [NONE, SLOW, BOTH], "{name}: {said}");
        spoil(&shard, folder, name, 1);
        spoil(&shard, folder, name, 2);
        go_on_in_braid(&shard, folder, name, &[NONE, SLOW, BOTH], &[(2, FAST)]);
    }
    for (name, version) in BY_BRAID {
        create_in_braid(&shard, folder, name, version);
    }
    let names: Vec<&str> = BY_MDADM.iter().chain(&BY_BRAID).map(|(name, _)| *name).collect();
    for name in &names {
        assert_eq!(flags(&shard, folder, name), [NONE, SLOW, FAST], "{name}");
        spoil(&shard, folder, name, 1);
    }
    let said = look_in_guest(folder, &names);
    for name in &names {
        for (nr, state, detail) in [
            (0, "in_sync", "active sync /dev/loop0"),
            (1, "in_sync,write_mostly", "active sync writemostly /dev/loop1"),
            (2, "in_sync,failfast", "active sync failfast /dev/loop2"),
        ] {
            assert!(said.contains(&format!("{name} state {nr} {state}\n")), "{name} {nr}: {said}");
            assert!(said.contains(detail), "{name}: {said}");
        }
        for time in 1..=4 {
            assert!(said.contains(&format!("{name} read {time}")), "{name}: {said}");
        }
        spoil(&shard, folder, name, 0);
        go_on_in_braid(&shard, folder, name, &[BOTH, NONE, FAST], &[]);
    }
}
