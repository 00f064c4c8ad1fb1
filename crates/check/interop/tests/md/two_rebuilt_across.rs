//! Two members of a RAID6 array that are filled in one pass, across the border: what one side has half filled when it stops,
//! or is killed, the other fills to the end. (Killed under writes, either side would ask for --force: nothing is left then by
//! which what was being written could be made to match.)

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_array::status::MemberState;
use braid_device::file::create_sparse;
use braid_device::{Opener, Target};
use braid_interop::across::{self, content, opener, openers, path};
use braid_interop::by_braid::{own_context, superblock_at};
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const MEMBER: u64 = 48 * MIB;
/// The content of each array, from its start.
const FILLED: usize = 32 << 20;
const SLOTS: usize = 5;
/// The first so many members have slots 0, 2 and 4; the two behind them are for 1 and 3.
const WHOLE: usize = 3;
/// A pass takes seconds at this rate, in KiB per second.
const SLOW: u64 = 4096;
/// Sectors of each member after which it is stopped.
const BEGUN: u64 = 8192;
/// Looks at md, twenty in a second.
const LOOKS: u32 = 600;
const NAME: &str = "two";
/// The array that is left by a kill.
const KILLED: &str = "two-killed";

fn guest(folder: &Path, script: &str) -> String {
    let script = format!("{}{script}", across::preamble(LOOKS));
    uml::run(&script, folder, 512, Duration::from_secs(240)).expect("the guest runs").text
}

/// Both superblocks say how much is filled: the same, and not all.
fn are_half_filled(shard: &Shard, folder: &Path, name: &str) {
    let at = |nr| superblock_at(shard, &path(folder, name, nr));
    let (one, other) = (at(WHOLE), at(WHOLE + 1));
    let filled = one.recovery_offset.expect("some of it is filled");
    assert!(filled > 0 && filled < one.size, "{name}: {filled}");
    assert_eq!(one.recovery_offset, other.recovery_offset, "{name}");
    assert!(one.is_clean(), "{name}");
}

/// Creates an array without slots 1 and 3, fills it, adds a member for each, and stops half-way. Gives its size.
fn begin_in_braid(shard: &Shard, folder: &Path) -> u64 {
    for nr in 0..SLOTS {
        create_sparse(path(folder, NAME, nr), MEMBER).expect("there is room");
    }
    let options = CreateOptions {
        assume_clean: true,
        chunk_size: Some(64 << 10),
        bitmap: CreateBitmap::Internal { chunk: None },
        ..CreateOptions::new(NAME, Level::Raid6, SLOTS)
    };
    let (ctx, whole) = (own_context(shard), openers(folder, NAME, WHOLE));
    let new: Vec<Arc<dyn Opener>> = (WHOLE..SLOTS).map(|nr| opener(folder, NAME, nr)).collect();
    let some = |nr: usize| Some(Arc::clone(&whole[nr]));
    let given = vec![some(0), None, some(1), None, some(2)];
    let (home, shard, folder) = (shard.clone(), shard.clone(), folder.to_path_buf());
    home.block_on(async move {
        create(&ctx, given, options).await.expect("it is created");
        let array = assemble(&ctx, whole, AssembleOptions::default()).await;
        let array = array.expect("it is assembled");
        let control = Control::find(&shard, array.id()).expect("it runs");
        across::write(&shard, &array, &content(FILLED)).await;
        control.jobs().set_sync_speed(1, SLOW).expect("a speed");
        for opener in new {
            control.membership().add(opener, false).await.expect("it is added");
        }
        loop {
            shard.sleep(50_000_000).await;
            let status = control.status().await;
            if status.job.is_some_and(|job| job.done > job.total / 3) {
                break;
            }
        }
        across::die(&folder, NAME, KILLED, SLOTS);
        control.stop().await;
        array.info().device.size
    })
}

fn finish_in_braid(shard: &Shard, folder: &Path, name: &str) {
    let (ctx, all) = (own_context(shard), openers(folder, name, SLOTS));
    let (home, shard, name) = (shard.clone(), shard.clone(), name.to_string());
    home.block_on(async move {
        let array = assemble(&ctx, all, AssembleOptions::default()).await;
        let array = array.expect("it is assembled");
        let control = Control::find(&shard, array.id()).expect("it runs");
        control.jobs().wait_idle().await;
        let status = control.status().await;
        let in_sync = status.members.iter().filter(|m| m.state == MemberState::InSync).count();
        assert_eq!((status.degraded, in_sync), (0, SLOTS), "{name}");
        let found = across::check(&shard, &array, FILLED).await;
        assert_eq!(found.mismatch_cnt, 0, "{name}");
        assert!(found.bytes == content(FILLED), "{name}: wrong bytes");
    });
}

#[test]
fn what_md_has_half_filled_of_two_braid_fills_to_the_end() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    fs::write(folder.join("content"), content(FILLED)).unwrap();
    (0..SLOTS).for_each(|nr| create_sparse(path(folder, NAME, nr), MEMBER).unwrap());
    let mut script = String::new();
    across::losetup(&mut script, NAME, SLOTS);
    // Frozen, so that both are there when the pass begins.
    script.push_str(&format!(
        "yes | mdadm --create /dev/md0 --run --quiet --assume-clean --level 6 -n {SLOTS} --chunk 64 --bitmap none \
         /dev/loop0 missing /dev/loop1 missing /dev/loop2\n\
         dd if=content of=/dev/md0 bs=1M oflag=direct conv=notrunc status=none\n\
         echo {SLOW} > /sys/block/md0/md/sync_speed_max; echo 1 > /sys/block/md0/md/sync_speed_min\n\
         echo frozen > /sys/block/md0/md/sync_action\n\
         mdadm /dev/md0 --quiet --add /dev/loop3 /dev/loop4\n\
         echo idle > /sys/block/md0/md/sync_action\n\
         await synced {BEGUN}; cat /proc/mdstat\n\
         freeze\n\
         for nr in 0 1 2 3 4; do cp {NAME}.$nr {KILLED}.$nr; done\n\
         sync; mdadm --stop --quiet /dev/md0; losetup -D\n"
    ));
    let said = guest(folder, &script);
    println!("{said}");
    let shard = Shard::with_ring(0).unwrap();
    for name in [NAME, KILLED] {
        are_half_filled(&shard, folder, name);
        finish_in_braid(&shard, folder, name);
    }
}

#[test]
fn what_braid_has_half_filled_of_two_md_fills_to_the_end() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    fs::write(folder.join("content"), content(FILLED)).unwrap();
    let shard = Shard::with_ring(0).unwrap();
    let size = begin_in_braid(&shard, folder);
    let (mut script, mut expected) = (String::new(), Vec::new());
    for name in [NAME, KILLED] {
        are_half_filled(&shard, folder, name);
        let devices = across::losetup(&mut script, name, SLOTS);
        across::md_checks(&mut script, name, &devices, FILLED);
        expected.extend(across::md_found(name, size));
    }
    let said = guest(folder, &script);
    for line in expected {
        assert!(said.contains(&line), "{line}: {said}");
    }
}
