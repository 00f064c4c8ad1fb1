//! Replacements across the border: what mdadm's --replace began braid goes on with, and the other way round. Members that
//! braid has removed or replaced are no arrays of their own to `mdadm -I`.

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use braid_array::status::MemberState;
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_format::superblock::Role;
use braid_interop::by_braid::{own_context, superblock_at};
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const MEMBER: u64 = 48 * MIB;
/// What each array is filled with, from its start.
const FILLED: usize = 32 << 20;
/// Three or four slots, and the new member.
const SHAPES: [(&str, Level, usize); 4] = [
    ("r1", Level::Raid1, 2),
    ("r5", Level::Raid5, 3),
    ("r6", Level::Raid6, 4),
    ("r10", Level::Raid10, 4),
];
/// A replacement of one of the members takes seconds at this rate, in KiB per second.
const SLOW: u64 = 4096;

fn path(folder: &Path, name: &str, nr: usize) -> PathBuf {
    folder.join(format!("{name}.{nr}"))
}

fn opener(folder: &Path, name: &str, nr: usize) -> Arc<dyn Opener> {
    let member = FileMember::open(path(folder, name, nr), Mode::ReadWrite);
    Arc::new(member.expect("a member opens"))
}

fn openers(folder: &Path, name: &str, count: usize) -> Vec<Arc<dyn Opener>> {
    (0..count).map(|nr| opener(folder, name, nr)).collect()
}

fn pattern() -> Vec<u8> {
    let at = |i: u64| (i * 8 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..FILLED as u64 / 8).flat_map(at).collect()
}

async fn holds_the_pattern(shard: &Shard, array: &Arc<Array>, name: &str) {
    let device = Arc::clone(array).open(shard).expect("it opens");
    let sets = IoSets::new(shard);
    for (nr, piece) in pattern().chunks(MIB as usize).enumerate() {
        let request = Request::read(nr as u64 * MIB, shard.pool().get(piece.len()));
        let outcome = sets.one(&*device, request).await;
        outcome.result.expect("it is read");
        let Op::Read(bufs) = outcome.op else { panic!("a read gives its buffers back") };
        let read: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
        assert!(read == piece, "{name}: wrong bytes in MiB {nr}");
    }
}

/// Creates the array and fills it.
fn create_in_braid(shard: &Shard, folder: &Path, (name, level, slots): (&str, Level, usize)) {
    for nr in 0..slots + 1 {
        create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
    }
    let options = CreateOptions {
        assume_clean: true,
        chunk_size: (level != Level::Raid1).then_some(64 << 10),
        bitmap: CreateBitmap::Internal { chunk: None },
        ..CreateOptions::new(name, level, slots)
    };
    let (ctx, whole) = (own_context(shard), openers(folder, name, slots));
    let (home, shard) = (shard.clone(), shard.clone());
    let given = whole.iter().cloned().map(Some).collect();
    home.block_on(async move {
        create(&ctx, given, options).await.expect("it is created");
        let array = assemble(&ctx, whole, AssembleOptions::default()).await;
        let array = array.expect("it is assembled");
        let device = Arc::clone(&array).open(&shard).expect("it opens");
        for (nr, piece) in pattern().chunks(MIB as usize).enumerate() {
            let buf = shard.pool().copy_of(piece).freeze();
            let request = Request::write(nr as u64 * MIB, buf, false);
            IoSets::new(&shard).one(&*device, request).await.result.expect("it is written");
        }
        Control::find(&shard, array.id()).expect("it runs").stop().await;
    });
}

/// Begins to replace member 1 by the last, and stops half-way.
fn begin_in_braid(shard: &Shard, folder: &Path, (name, _, slots): (&str, Level, usize)) {
    let (ctx, whole) = (own_context(shard), openers(folder, name, slots));
    let new = opener(folder, name, slots);
    let old = MemberSelector::Name(path(folder, name, 1).display().to_string());
    let (home, shard) = (shard.clone(), shard.clone());
    home.block_on(async move {
        let array = assemble(&ctx, whole, AssembleOptions::default()).await;
        let control = Control::find(&shard, array.expect("it is assembled").id()).expect("it runs");
        control.jobs().set_sync_speed(1, SLOW).expect("a speed");
        control.membership().add(new, false).await.expect("it is added");
        control.membership().replace(&old, None).await.expect("it is replaced");
        loop {
            shard.sleep(50_000_000).await;
            let status = control.status().await;
            if status.job.is_some_and(|job| job.done > job.total / 4) {
                break;
            }
        }
        control.stop().await;
    });
}

/// Goes on with a replacement to its end, and compares all there is.
fn finish_in_braid(shard: &Shard, folder: &Path, (name, _, slots): (&str, Level, usize)) {
    let (ctx, whole) = (own_context(shard), openers(folder, name, slots + 1));
    let new = path(folder, name, slots).display().to_string();
    let (home, shard, name) = (shard.clone(), shard.clone(), name.to_string());
    home.block_on(async move {
        let array = assemble(&ctx, whole, AssembleOptions::default()).await;
        let array = array.expect("it is assembled");
        let control: Rc<Control> = Control::find(&shard, array.id()).expect("it runs");
        control.jobs().wait_idle().await;
        let status = control.status().await;
        let member = status.members.iter().find(|member| member.name == new);
        let member = member.expect("the new member is there");
        assert_eq!((member.state, member.slot), (MemberState::InSync, Some(1)), "{name}");
        assert_eq!(status.degraded, 0, "{name}");
        control.jobs().start_check().expect("a check starts");
        control.jobs().wait_idle().await;
        assert_eq!(control.status().await.mismatch_cnt, 0, "{name}");
        holds_the_pattern(&shard, &array, &name).await;
        control.stop().await;
    });
}

fn guest(folder: &Path, script: &str) -> String {
    let script = format!(
        "cd {}\nattach() {{ nr=0; while [ -e $1.$nr ]; do losetup /dev/loop$nr $1.$nr; nr=$((nr+1)); done; }}\n\
         devices() {{ for nr in $(seq 0 $1); do echo /dev/loop$nr; done; }}\n{script}",
        uml::SHARED
    );
    uml::run(&script, folder, 512, Duration::from_secs(240)).expect("the guest runs").text
}

#[test]
fn what_mdadm_began_to_replace_braid_replaces_to_the_end() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    fs::write(folder.join("content"), pattern()).unwrap();
    let mut script = String::new();
    for (name, level, slots) in SHAPES {
        (0..slots + 1).for_each(|nr| create_sparse(path(folder, name, nr), MEMBER).unwrap());
        script.push_str(&format!(
            "attach {name}\n\
             yes | mdadm --create /dev/md0 --run --quiet --assume-clean --level {level} -n {slots} --bitmap none \
             $(devices {})\n\
             dd if=content of=/dev/md0 bs=1M oflag=direct conv=notrunc status=none\n\
             mdadm /dev/md0 --quiet --add /dev/loop{slots}\n\
             echo {SLOW} > /sys/block/md0/md/sync_speed_max; echo 1 > /sys/block/md0/md/sync_speed_min\n\
             mdadm /dev/md0 --quiet --replace /dev/loop1 --with /dev/loop{slots}\n\
             sleep 4; echo {name} $(cat /sys/block/md0/md/dev-loop{slots}/state) $(cat /proc/mdstat)\n\
             sync; mdadm --stop --quiet /dev/md0; losetup -D\n",
            slots - 1
        ));
    }
    let said = guest(folder, &script);
    let shard = Shard::with_ring(0).unwrap();
    for shape in SHAPES {
        let (name, level, slots) = shape;
        let superblock = superblock_at(&shard, &path(folder, name, slots));
        assert!(superblock.replacement, "{name}: {said}");
        let at = superblock.recovery_offset.expect("half of it is copied");
        assert!(at > 0 && at < superblock.size || level == Level::Raid10, "{name} at {at}: {said}");
        finish_in_braid(&shard, folder, shape);
    }
}

#[test]
fn what_braid_began_to_replace_md_replaces_to_the_end() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    fs::write(folder.join("content"), pattern()).unwrap();
    let shard = Shard::with_ring(0).unwrap();
    let mut script = String::new();
    for shape in SHAPES {
        let (name, level, slots) = shape;
        create_in_braid(&shard, folder, shape);
        begin_in_braid(&shard, folder, shape);
        let superblock = superblock_at(&shard, &path(folder, name, slots));
        assert!(superblock.replacement, "{name}");
        let at = superblock.recovery_offset.expect("half of it is copied");
        assert!(at > 0 && at < superblock.size || level == Level::Raid10, "{name} at {at}");
        script.push_str(&format!(
            "attach {name}\nmdadm --assemble --quiet /dev/md0 $(devices {slots})\n\
             mdadm --readwrite --quiet /dev/md0; sleep 1; mdadm --wait /dev/md0; sleep 1\n\
             echo {name} new $(cat /sys/block/md0/md/dev-loop{slots}/slot) \
             $(cat /sys/block/md0/md/dev-loop{slots}/state)\n\
             echo {name} old $(cat /sys/block/md0/md/dev-loop1/state)\n\
             echo check > /sys/block/md0/md/sync_action; mdadm --wait /dev/md0\n\
             echo {name} differ $(cat /sys/block/md0/md/mismatch_cnt)\n\
             dd if=/dev/md0 bs=1M count=32 iflag=direct status=none | cmp - content && echo {name} right\n\
             mdadm --stop --quiet /dev/md0; losetup -D\n"
        ));
    }
    let said = guest(folder, &script);
    for (name, _, _) in SHAPES {
        for line in ["new 1 in_sync", "old faulty", "differ 0", "right"] {
            assert!(said.contains(&format!("{name} {line}")), "{name} {line}: {said}");
        }
    }
}

#[test]
fn a_member_that_was_removed_or_replaced_is_no_array_of_its_own_to_mdadm() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    fs::write(folder.join("content"), pattern()).unwrap();
    let shard = Shard::with_ring(0).unwrap();
    for name in ["removed", "kept", "replaced"] {
        create_in_braid(&shard, folder, (name, Level::Raid1, 2));
        let (ctx, whole) = (own_context(&shard), openers(folder, name, 2));
        let new = opener(folder, name, 2);
        let old = MemberSelector::Name(path(folder, name, 1).display().to_string());
        let (home, shard) = (shard.clone(), shard.clone());
        home.block_on(async move {
            let array = assemble(&ctx, whole, AssembleOptions::default()).await;
            let array = array.expect("it is assembled");
            let control = Control::find(&shard, array.id()).expect("it runs");
            let membership = control.membership();
            if name == "replaced" {
                membership.add(new, false).await.expect("it is added");
                membership.replace(&old, None).await.expect("it is replaced");
                control.jobs().wait_idle().await;
            } else {
                membership.fail(&old).await.expect("it is failed");
            }
            let unmarked = membership.remove_as(&old, name == "kept").await;
            assert_eq!(unmarked.expect("it is removed"), None);
            control.stop().await;
        });
    }
    assert_eq!(superblock_at(&shard, &path(folder, "replaced", 1)).own_role(), Role::Faulty);
    let mut script = String::new();
    for name in ["removed", "kept", "replaced"] {
        // As udev's rules do for a device that is found, and later for arrays that lack some.
        script.push_str(&format!(
            "losetup /dev/loop1 {name}.1\n\
             mdadm --incremental --quiet /dev/loop1\n\
             mdadm --incremental --run --scan --quiet\n\
             grep -q 'active raid1 loop1' /proc/mdstat && echo {name} was started\n\
             cat /proc/mdstat\n\
             mdadm --stop --scan --quiet; losetup -D\n"
        ));
    }
    // By the bitmap md takes it back into the array that it was removed from.
    script.push_str(
        "losetup /dev/loop0 removed.0; losetup /dev/loop1 removed.1\n\
         mdadm --assemble --run --quiet /dev/md0 /dev/loop0\n\
         mdadm /dev/md0 --re-add /dev/loop1 && echo removed was re-added\n\
         mdadm --wait /dev/md0\n\
         echo check > /sys/block/md0/md/sync_action; mdadm --wait /dev/md0\n\
         echo removed differ $(cat /sys/block/md0/md/mismatch_cnt) $(cat /sys/block/md0/md/dev-loop1/state)\n\
         mdadm --stop --quiet /dev/md0; losetup -D\n",
    );
    let said = guest(folder, &script);
    assert!(said.contains("kept was started"), "{said}");
    for name in ["removed", "replaced"] {
        assert!(!said.contains(&format!("{name} was started")), "{said}");
    }
    assert!(said.contains("removed was re-added"), "{said}");
    assert!(said.contains("removed differ 0 in_sync"), "{said}");
}
