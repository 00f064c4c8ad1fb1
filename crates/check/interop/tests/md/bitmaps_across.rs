//! Write-intent bitmaps across the border: what one side was writing when it died is all that the other
//! resyncs, and a member that one side was bringing up to date is brought up to date by the other.
//!
//! A member that was away while md wrote is re-added by braid, which copies what changed and little else.
//!
//! A death is a copy of the members' files while the array runs. Each copy is damaged in two places of one
//! member: under a set bit, where a resync must mend it, and elsewhere, where a check must still find it
//! afterwards: then nothing else was resynced.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{IoSets, Request, Target};
use braid_format::bitmap::BitmapSuperblock;
use braid_interop::across::{self, die, openers, path};
use braid_interop::by_braid::own_context;
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const MEMBER: u64 = 32 * MIB;
const BIT: u64 = 64 << 10;
/// Array bytes that were being written, and member bytes under the same bit and elsewhere, from the start
/// of the data.
const WRITTEN: u64 = 0;
const NEAR: u64 = 8192;
const FAR: u64 = 5 * MIB;
const LEVELS: [(&str, Level, usize); 3] =
    [("raid1", Level::Raid1, 2), ("raid5", Level::Raid5, 3), ("raid10", Level::Raid10, 4)];

fn damage(folder: &Path, name: &str, nr: usize, data: u64, places: &[u64]) {
    let file = fs::File::options().write(true).open(path(folder, name, nr)).expect("a copy opens");
    for at in places {
        file.write_all_at(&[0x5a; 4096], data + at).expect("a copy is damaged");
    }
}

/// Where the data of a member starts.
fn data_offset(shard: &Shard, folder: &Path, name: &str) -> u64 {
    let member = FileMember::open(path(folder, name, 0), Mode::ReadOnly).expect("a member opens");
    let shard = shard.clone();
    let home = shard.clone();
    let found = home
        .block_on(async move { braid_array::metadata::superblock::examine(&shard, &member).await });
    found.expect("a member is examined").superblock.expect("it has a superblock").data_offset * 512
}

/// Arrays that die in braid's hands: `NAME` in the middle of a write, `NAMEback` while a member comes back.
fn die_in_braid(shard: &Shard, folder: &Path) {
    for (name, level, members) in LEVELS {
        for nr in 0..members {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
        }
        let options = CreateOptions {
            chunk_size: (level != Level::Raid1).then_some(64 << 10),
            assume_clean: true,
            bitmap: CreateBitmap::Internal { chunk: Some(BIT) },
            ..CreateOptions::new(name, level, members)
        };
        let (ctx, openers) = (own_context(shard), openers(folder, name, members));
        let (folder, shard) = (folder.to_path_buf(), shard.clone());
        let home = shard.clone();
        home.block_on(async move {
            create(&ctx, openers.iter().cloned().map(Some).collect(), options)
                .await
                .expect("it is created");
            // A stop clears the bits that a new bitmap has.
            let array = assemble(&ctx, openers.clone(), AssembleOptions::default())
                .await
                .expect("it is assembled");
            Control::find(&shard, array.id()).expect("it runs").stop().await;
            let array = assemble(&ctx, openers.clone(), AssembleOptions::default())
                .await
                .expect("it is assembled");
            let control = Control::find(&shard, array.id()).expect("it runs");
            let device = array.open(&shard).expect("it runs");
            let write = async |fill: u8| {
                let mut buf = shard.pool().zeroed(BIT as usize);
                buf.fill(fill);
                let request = Request::write(WRITTEN, buf.freeze(), true);
                IoSets::new(&shard).one(&*device, request).await.result.expect("it is written");
            };
            write(1).await;
            die(&folder, name, &format!("{name}dead"), members);
            control.jobs().pause_jobs(true);
            let selector = MemberSelector::Name(openers[1].name().to_string());
            control.membership().fail(&selector).await.expect("it is failed");
            control.membership().remove(&selector).await.expect("it is removed");
            write(2).await;
            control.membership().re_add(Arc::clone(&openers[1])).await.expect("it is re-added");
            die(&folder, name, &format!("{name}back"), members);
            control.jobs().pause_jobs(false);
            control.stop().await;
        });
    }
}

/// Lines `NAME: mismatch_cnt N degraded N` of a guest that assembles each array, waits and checks; with
/// `content`, a file of the folder, also `NAME: same` when the array begins with that.
fn check_in_guest(folder: &Path, names: &[(String, usize)], content: Option<&str>) -> String {
    let compare = |name: &str| {
        content.map_or(String::new(), |content| {
            format!("cmp -n $(stat -c %s {content}) /dev/md0 {content} && echo {name}: same\n")
        })
    };
    let mut script = across::preamble(500);
    for (name, members) in names {
        let devices = across::losetup(&mut script, name, *members);
        script.push_str(&format!(
            "mdadm --assemble --run --force --quiet /dev/md0 {}\nmdadm --readwrite --quiet /dev/md0\nawait whole; check\n\
             echo {name}: mismatch_cnt $(cat /sys/block/md0/md/mismatch_cnt) degraded $(cat /sys/block/md0/md/degraded)\n\
             {}echo {name}: bitmap of $(mdadm -X /dev/loop0 | grep 'bits (chunks)')\n\
             mdadm --stop --quiet /dev/md0; losetup -D\n",
            devices,
            compare(name)
        ));
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(180));
    output.expect("the guest runs").text
}

#[test]
fn the_kernel_goes_on_from_braids_bitmap() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    let shard = Shard::with_ring(0).unwrap();
    die_in_braid(&shard, folder);
    let mut names = Vec::new();
    for (name, _, members) in LEVELS {
        let data = data_offset(&shard, folder, name);
        let dead = format!("{name}dead");
        damage(folder, &dead, 1, data, &[NEAR]);
        names.push((dead.clone(), members));
        let far = format!("{name}far");
        die(folder, &dead, &far, members);
        damage(folder, &far, 1, data, &[FAR]);
        names.push((far, members));
        if name != "raid5" {
            // A level with parity that is dirty and lacks a member is refused, or resynced as a whole.
            names.push((format!("{name}back"), members));
        }
    }
    let said = check_in_guest(folder, &names, None);
    for (name, _, _) in LEVELS {
        assert!(said.contains(&format!("{name}dead: mismatch_cnt 0 degraded 0")), "{said}");
        assert!(!said.contains(&format!("{name}far: mismatch_cnt 0 ")), "{said}");
        assert!(said.contains(&format!("{name}far: mismatch_cnt ")), "{said}");
        if name != "raid5" {
            assert!(said.contains(&format!("{name}back: mismatch_cnt 0 degraded 0")), "{said}");
        }
    }
}

#[test]
fn braid_goes_on_from_the_kernels_bitmap() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    let shard = Shard::with_ring(0).unwrap();
    let mut script = format!("cd {}\n", uml::SHARED);
    for (name, _, members) in LEVELS {
        let mut devices = String::new();
        for nr in 0..members {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
            script.push_str(&format!("losetup /dev/loop{nr} {name}.{nr}\n"));
            devices.push_str(&format!(" /dev/loop{nr}"));
        }
        let chunk = if name == "raid1" { "" } else { "--chunk 64" };
        let level = name.trim_start_matches("raid");
        script.push_str(&format!(
            "yes | mdadm --create /dev/md0 --run --quiet --assume-clean --level {level} -n {members} {chunk} \
             --bitmap internal --bitmap-chunk 64K --delay 1 {devices}\n\
             dd if=/dev/zero of=/dev/md0 bs=64k count=1 oflag=direct status=none\n\
             for i in $(seq 200); do mdadm -X /dev/loop0 | grep -q ' 0 dirty' && break; sleep 0.1; done\n\
             echo 1000 > /sys/block/md0/md/bitmap/time_base; echo 1000 > /sys/block/md0/md/safe_mode_delay\n\
             dd if=/dev/zero of=/dev/md0 bs=64k count=1 oflag=direct status=none; sync\n\
             for nr in $(seq 0 {}); do cp {name}.$nr {name}dead.$nr; done\n\
             mdadm -X /dev/loop0 | grep dirty; mdadm --stop --quiet /dev/md0; losetup -D\n",
            members - 1
        ));
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(180)).unwrap();
    for (name, _, members) in LEVELS {
        let (near, far) = (format!("{name}dead"), format!("{name}far"));
        let data = data_offset(&shard, folder, name);
        damage(folder, &near, 1, data, &[NEAR]);
        die(folder, &near, &far, members);
        damage(folder, &far, 1, data, &[FAR]);
        for (which, clean) in [(&near, true), (&far, false)] {
            let (ctx, openers) = (own_context(&shard), openers(folder, which, members));
            let home = shard.clone();
            let ran = Rc::new(shard.clone());
            let status = home.block_on(async move {
                let array = assemble(&ctx, openers, AssembleOptions::default()).await.unwrap();
                let control = Control::find(&ran, array.id()).unwrap();
                control.jobs().wait_idle().await;
                let resync = control.status().await.last_job;
                control.jobs().start_check().unwrap();
                control.jobs().wait_idle().await;
                let status = control.status().await;
                control.stop().await;
                assert!(resync.is_some(), "nothing was resynced");
                status
            });
            assert_eq!(status.degraded, 0);
            assert_eq!(
                status.mismatch_cnt == 0,
                clean,
                "{which}: {}\n{}",
                status.mismatch_cnt,
                output.text
            );
        }
    }
}

/// Array bytes that the kernel writes while a member is away: where they start, and how many.
const CHANGES: [u64; 3] = [200 << 10, 9 * MIB + 4096, 20 * MIB];
const CHANGED: usize = 100 << 10;
/// What each array is filled with, from its start: less than the smallest has.
const FILLED: usize = 24 << 20;

/// Ways for member 1 to leave an array of the kernel's: failed and removed while it runs, or not there when
/// it is assembled.
const LEAVINGS: [(&str, &str); 2] = [
    ("failed", "mdadm --quiet $MD --fail $LOST --remove $LOST"),
    ("away", "mdadm --stop --quiet $MD; mdadm --assemble --quiet --run $MD $OTHERS"),
];

/// Arrays that lose a member: name, level, members, version of their superblocks.
const LOSING: [(&str, &str, usize, &str); 4] = [
    ("raid1", "raid1", 2, "1.2"),
    ("raid5", "raid5", 3, "1.2"),
    ("raid10", "raid10", 4, "1.2"),
    ("old", "raid5", 3, "0.90"),
];

/// mdadm makes the arrays `NAMEleaving`, all at once; the kernel fills each with `old`, loses member 1,
/// and writes parts of `new`.
fn leave_in_guest(folder: &Path) -> String {
    let mut script = format!("cd {}\n", uml::SHARED);
    let cases = LOSING.iter().flat_map(|array| LEAVINGS.iter().map(move |way| (array, way)));
    for (case, ((name, level, members, version), (leaving, leave))) in cases.enumerate() {
        let name = format!("{name}{leaving}");
        let mut devices = Vec::new();
        script.push_str("(\n");
        for nr in 0..*members {
            create_sparse(path(folder, &name, nr), MEMBER).expect("there is room");
            let device = format!("/dev/loop{}", case * 8 + nr);
            script.push_str(&format!("losetup {device} {name}.{nr}\n"));
            devices.push(device);
        }
        let all = devices.join(" ");
        let lost = devices.remove(1);
        let chunk = if *level == "raid1" { "" } else { "--chunk 64" };
        script.push_str(&format!(
            "MD=/dev/md{case} LOST={lost} OTHERS=\"{others}\"\n\
             yes | mdadm --create $MD --run --quiet --assume-clean --metadata {version} --level {level} \
             -n {members} {chunk} --bitmap internal --bitmap-chunk 64K --delay 1 {all}\n\
             dd if=old of=$MD bs=1M oflag=direct status=none\n\
             for i in $(seq 200); do mdadm -X {first} | grep -q ' 0 dirty' && break; sleep 0.1; done\n\
             {leave}\necho {name}: degraded $(cat /sys/block/md{case}/md/degraded)\n",
            others = devices.join(" "),
            first = devices[0],
        ));
        for at in CHANGES {
            script.push_str(&format!(
                "dd if=new of=$MD bs=4k iflag=skip_bytes,count_bytes oflag=seek_bytes skip={at} \
                 seek={at} count={CHANGED} conv=notrunc status=none\n"
            ));
        }
        script.push_str("sync; mdadm --stop --quiet $MD) &\n");
    }
    script.push_str("wait; losetup -D\n");
    uml::run(&script, folder, 512, Duration::from_secs(180)).expect("the guest runs").text
}

#[test]
fn braid_copies_to_a_member_that_was_away_what_the_kernel_wrote_meanwhile() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    let pattern = |seed: u64| -> Vec<u8> {
        let at = |i: u64| (i * 8 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        (0..FILLED as u64 / 8).flat_map(at).collect()
    };
    let (mut now, new) = (pattern(1), pattern(2));
    fs::write(folder.join("old"), &now).unwrap();
    fs::write(folder.join("new"), &new).unwrap();
    for at in CHANGES {
        let range = at as usize..at as usize + CHANGED;
        now[range.clone()].copy_from_slice(&new[range]);
    }
    fs::write(folder.join("now"), &now).unwrap();
    let said = leave_in_guest(folder);
    let shard = Shard::with_ring(0).unwrap();
    let mut names = Vec::new();
    for (name, _, members, _) in LOSING {
        for (leaving, _) in LEAVINGS {
            let name = format!("{name}{leaving}");
            assert!(said.contains(&format!("{name}: degraded 1")), "{said}");
            let (ctx, openers) = (own_context(&shard), openers(folder, &name, members));
            let (home, ran) = (shard.clone(), shard.clone());
            let status = home.block_on(async move {
                let options =
                    AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
                let array = assemble(&ctx, openers.clone(), options).await.unwrap();
                let control = Control::find(&ran, array.id()).unwrap();
                assert_eq!(control.status().await.left_out.len(), 1);
                control.membership().re_add(Arc::clone(&openers[1])).await.expect("it is re-added");
                control.jobs().wait_idle().await;
                let status = control.status().await;
                control.stop().await;
                status
            });
            assert_eq!(status.degraded, 0);
            let member = status.members.iter().find(|member| member.slot == Some(1)).unwrap();
            let copied = member.io.bytes;
            println!("{name}: {copied} bytes copied to a member of {}", member.data_size);
            let bits = CHANGES.len() as u64 * (CHANGED as u64 / BIT + 2);
            assert!(copied > 0 && copied <= bits * BIT, "{name}: {copied}");
            assert!(copied * 20 < member.data_size, "{name}: {copied} of {}", member.data_size);
            names.push((name, members));
        }
    }
    let said = check_in_guest(folder, &names, Some("now"));
    for (name, _) in names {
        assert!(said.contains(&format!("{name}: mismatch_cnt 0 degraded 0")), "{said}");
        assert!(said.contains(&format!("{name}: same")), "{said}");
    }
}

/// Arrays without a bitmap, made by mdadm: name, level, members, version of their superblocks.
const GROWING: [(&str, &str, usize, &str); 5] = [
    ("old", "raid1", 2, "0.90"),
    ("end", "raid5", 3, "1.0"),
    ("start", "raid6", 4, "1.1"),
    ("usual", "raid10", 4, "1.2"),
    ("default", "raid5", 3, "1.2"),
];

#[test]
fn a_bitmap_that_braid_adds_is_where_mdadm_puts_it_and_md_goes_on_with_it() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let folder = folder.path();
    let chunk = |name: &str| if name == "default" { None } else { Some(BIT) };
    // `NAMEmd` is given its bitmap by mdadm, `NAME` by braid; up to then they are the same.
    let mut script = format!("cd {}\n", uml::SHARED);
    for (name, level, members, version) in GROWING {
        let mut devices = String::new();
        for nr in 0..members {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
            script.push_str(&format!("losetup /dev/loop{nr} {name}.{nr}\n"));
            devices.push_str(&format!(" /dev/loop{nr}"));
        }
        let bits = chunk(name).map_or(String::new(), |_| "--bitmap-chunk 64K".to_string());
        let striped = if level == "raid1" { "" } else { "--chunk 64" };
        script.push_str(&format!(
            "yes | mdadm --create /dev/md0 --run --quiet --assume-clean --metadata {version} --level {level} \
             -n {members} {striped} --bitmap none {devices}\n\
             mdadm --stop --quiet /dev/md0\n\
             for nr in $(seq 0 {last}); do cp {name}.$nr {name}md.$nr; losetup -d /dev/loop$nr; \
             losetup /dev/loop$nr {name}md.$nr; done\n\
             mdadm --assemble --quiet /dev/md0 {devices}; mdadm --readwrite --quiet /dev/md0\n\
             for i in $(seq 100); do mdadm --grow /dev/md0 --bitmap=internal {bits} && break; sleep 0.1; done\n\
             mdadm --stop --quiet /dev/md0; losetup -D\n",
            last = members - 1
        ));
    }
    let made = uml::run(&script, folder, 512, Duration::from_secs(180)).unwrap().text;

    let shard = Shard::with_ring(0).unwrap();
    let examined = |name: &str| {
        let member = FileMember::open(path(folder, name, 0), Mode::ReadOnly).unwrap();
        let (shard, home) = (shard.clone(), shard.clone());
        let found = home.block_on(async move {
            braid_array::metadata::superblock::examine(&shard, &member).await
        });
        found.unwrap().superblock.unwrap()
    };
    let bitmap_of = |name: &str| {
        let at = examined(name).bitmap_sector().unwrap_or_else(|| panic!("{name}: {made}")) * 512;
        let file = fs::File::open(path(folder, name, 0)).unwrap();
        let mut head = vec![0; 512];
        file.read_exact_at(&mut head, at).unwrap();
        BitmapSuperblock::parse(&head).unwrap()
    };
    let mut names = Vec::new();
    for (name, _, members, _) in GROWING {
        let (ctx, openers) = (own_context(&shard), openers(folder, name, members));
        let (home, ran, at) = (shard.clone(), shard.clone(), folder.to_path_buf());
        home.block_on(async move {
            let array = assemble(&ctx, openers, AssembleOptions::default()).await.unwrap();
            let control = Control::find(&ran, array.id()).unwrap();
            control.bitmap().add(chunk(name)).await.expect("there is room for a bitmap");
            let mut buf = ran.pool().zeroed(BIT as usize);
            buf.fill(7);
            let device = array.open(&ran).unwrap();
            let request = Request::write(WRITTEN, buf.freeze(), true);
            IoSets::new(&ran).one(&*device, request).await.result.expect("it is written");
            die(&at, name, &format!("{name}dead"), members);
            control.stop().await;
        });
        let (ours, theirs) = (examined(name), examined(&format!("{name}md")));
        assert_eq!(ours.bitmap_offset, theirs.bitmap_offset, "{name}: {made}");
        let (ours, theirs) = (bitmap_of(name), bitmap_of(&format!("{name}md")));
        let shape = |it: &BitmapSuperblock| {
            (it.uuid == theirs.uuid, it.chunk_bytes, it.sync_size, it.daemon_sleep)
        };
        assert_eq!(shape(&ours), (true, theirs.chunk_bytes, theirs.sync_size, 5), "{name}");
        let dead = format!("{name}dead");
        damage(folder, &dead, 1, examined(name).data_offset * 512, &[NEAR]);
        names.extend([(name.to_string(), members), (dead, members)]);
    }
    let said = check_in_guest(folder, &names, None);
    for (name, _) in names {
        assert!(said.contains(&format!("{name}: mismatch_cnt 0 degraded 0")), "{said}");
        assert!(said.contains(&format!("{name}: bitmap of ")), "{said}");
    }
}
