//! Write journals across the border: what one side has logged when it dies, the other brings to the members.
//!
//! A death is a copy of the members' files and of the journal. In the copies of an array that writes through its journal all
//! that lies in the data areas of the members is zeroed, as if none of it had come there: what is found in the array then
//! comes from the journal. One that is written back leaves rows of which data alone was logged, and that the members lack.

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{IoSets, Op, Request, Target};
use braid_interop::across::{self, content, openers, path};
use braid_interop::by_braid::own_context;
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MEMBER: u64 = 16 * MIB;
const COMPONENT: u64 = 8 * MIB;
const JOURNAL: u64 = 64 * MIB;
/// Bytes at the start of the array that are written, and compared: less than md frees space of the journal for.
const WRITTEN: usize = 4 << 20;
const BLOCK: usize = 4 << 10;
/// The last writes are of one block each, so many blocks from each other.
const EVERY: usize = 13;
/// Level and slots; the journal is one device more.
const LEVELS: [(&str, usize, usize); 3] = [("raid4", 3, 1), ("raid5", 4, 1), ("raid6", 5, 2)];

/// The first `len` bytes of a running array; none when they cannot be read.
async fn read(shard: &Shard, array: &Array, len: usize) -> Vec<u8> {
    let device = array.open(shard).expect("it runs");
    let read = Request::read(0, shard.pool().get(len));
    match IoSets::new(shard).one(&*device, read).await.op {
        Op::Read(bufs) => bufs.iter().flat_map(|buf| buf.to_vec()).collect(),
        _ => Vec::new(),
    }
}

/// What is written at first: the content, but for the blocks that are written last.
fn before() -> Vec<u8> {
    let mut bytes = content(WRITTEN);
    for block in bytes.chunks_exact_mut(BLOCK).step_by(EVERY) {
        block.iter_mut().for_each(|byte| *byte = !*byte);
    }
    bytes
}

/// Component bytes of a member file, where they begin and how many.
fn data(shard: &Shard, folder: &Path, name: &str, nr: usize) -> (u64, u64) {
    let member = FileMember::open(path(folder, name, nr), Mode::ReadOnly).expect("a member opens");
    let (own, home) = (shard.clone(), shard.clone());
    let found = home
        .block_on(async move { braid_array::metadata::superblock::examine(&own, &member).await });
    let superblock = found.expect("a member is examined").superblock.expect("it has a superblock");
    (superblock.data_offset * 512, superblock.size * 512)
}

/// Nothing has come to the members of an array.
fn forget_data(shard: &Shard, folder: &Path, name: &str, members: usize) {
    for nr in 0..members {
        let (at, len) = data(shard, folder, name, nr);
        let file = fs::File::options().write(true).open(path(folder, name, nr)).expect("it opens");
        file.write_all_at(&vec![0; len as usize], at).expect("it is zeroed");
    }
}

#[test]
fn braid_replays_what_md_has_logged_and_md_goes_on_from_there() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    fs::write(folder.join("content"), content(WRITTEN)).unwrap();
    fs::write(folder.join("before"), before()).unwrap();
    let mut script = across::preamble(400);
    let mut names = Vec::new();
    for (level, members, parities) in LEVELS {
        for mode in ["write-through", "write-back"] {
            let name = format!("{level}{}", &mode[6..]);
            for nr in 0..=members {
                let size = if nr == members { JOURNAL } else { MEMBER };
                create_sparse(path(folder, &name, nr), size).expect("there is room");
            }
            let devices = across::losetup(&mut script, &name, members);
            writeln!(
                script,
                "losetup /dev/loop{members} {name}.{members}\n\
                 yes | mdadm --create /dev/md0 --run --quiet --assume-clean --level {} -n {members} --chunk 64 \
                 --size {} --write-journal /dev/loop{members} {devices}\n\
                 dd if=before of=/dev/md0 bs=20k oflag=direct status=none\n\
                 [ {mode} = write-back ] && echo {mode} > /sys/block/md0/md/journal_mode\n\
                 echo {name}: $(cat /sys/block/md0/md/journal_mode)\n\
                 for at in $(seq 0 {EVERY} {last}); do dd if=content of=/dev/md0 bs=4k count=1 skip=$at seek=$at oflag=direct \
                 conv=notrunc status=none; done\n\
                 sync; for nr in $(seq 0 {members}); do cp {name}.$nr {name}dead.$nr; done\n\
                 mdadm --stop --quiet /dev/md0; losetup -D",
                &level[4..],
                COMPONENT / KIB,
                last = WRITTEN / BLOCK - 1,
            )
            .unwrap();
            for missing in 0..=parities {
                names.push((format!("{name}dead"), members, missing));
            }
        }
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(300));
    let said = output.expect("the guest runs").text;
    let mut script = across::preamble(400);
    let mut expected = Vec::new();
    for (dead, members, missing) in names {
        let name = format!("{dead}{missing}");
        across::die(folder, &dead, &name, members + 1);
        if dead.contains("through") {
            forget_data(&shard, folder, &name, members);
        }
        let given = openers(folder, &name, members + 1).split_off(missing);
        let (ctx, on) = (own_context(&shard), shard.clone());
        let (lacks, found) = shard.block_on(async move {
            let options = AssembleOptions { read_only: true, ..AssembleOptions::default() };
            let array = assemble(&ctx, given.clone(), options).await.expect("it is read");
            let lacks = read(&on, &array, WRITTEN).await != content(WRITTEN);
            Control::find(&on, array.id()).expect("it runs").stop().await;
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            (lacks, across::check(&on, &array, WRITTEN).await)
        });
        assert!(lacks, "{name}: the members lack nothing\n{said}");
        assert!(found.bytes == content(WRITTEN), "{name}: the content differs\n{said}");
        assert_eq!(found.mismatch_cnt, 0, "{name}\n{said}");
        if missing == 0 {
            let devices = across::losetup(&mut script, &name, members + 1);
            across::md_checks(&mut script, &name, &devices, WRITTEN);
            expected.extend(across::md_found(&name, found.size));
        }
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(300));
    let said = output.expect("the guest runs").text;
    for line in expected {
        assert!(said.contains(&line), "{line:?} is not in:\n{said}");
    }
}

/// Has braid make an array with a journal, write to it, and die: `NAMEdead`.
fn die_in_braid(shard: &Shard, folder: &Path, name: &str, level: Level, members: usize) {
    for nr in 0..=members {
        let size = if nr == members { JOURNAL } else { MEMBER };
        create_sparse(path(folder, name, nr), size).expect("there is room");
    }
    let options = CreateOptions {
        chunk_size: Some(64 * KIB),
        size: Some(COMPONENT),
        assume_clean: true,
        bitmap: CreateBitmap::None,
        write_journal: true,
        ..CreateOptions::new(name, level, members)
    };
    let (ctx, given, on) = (own_context(shard), openers(folder, name, members + 1), shard.clone());
    let (folder, name) = (folder.to_path_buf(), name.to_string());
    shard.block_on(async move {
        let all = given.iter().cloned().map(Some).collect();
        create(&ctx, all, options).await.expect("it is created");
        let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
        across::write(&on, &array, &before()).await;
        let device = array.open(&on).expect("it runs");
        let new = content(WRITTEN);
        for (nr, block) in new.chunks_exact(BLOCK).enumerate().step_by(EVERY) {
            // Half a block each: what is left alone of it is logged too.
            for half in [0, BLOCK / 2] {
                let bytes = on.pool().copy_of(&block[half..half + BLOCK / 2]).freeze();
                let request = Request::write((nr * BLOCK + half) as u64, bytes, false);
                IoSets::new(&on).one(&*device, request).await.result.expect("it is written");
            }
        }
        across::die(&folder, &name, &format!("{name}dead"), members + 1);
        drop(device);
        Control::find(&on, array.id()).expect("it runs").stop().await;
    });
}

#[test]
fn md_replays_what_braid_has_logged_whoever_is_missing() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    fs::write(folder.join("content"), content(WRITTEN)).unwrap();
    let mut script = across::preamble(400);
    let mut expected = Vec::new();
    for ((name, members, parities), level) in
        LEVELS.into_iter().zip([Level::Raid4, Level::Raid5, Level::Raid6])
    {
        die_in_braid(&shard, folder, name, level, members);
        for missing in 0..=parities {
            let dead = format!("{name}dead{missing}");
            across::die(folder, &format!("{name}dead"), &dead, members + 1);
            forget_data(&shard, folder, &dead, members);
            let devices = across::losetup(&mut script, &dead, members + 1);
            let there: Vec<&str> = devices.split(' ').skip(missing).collect();
            across::md_checks(&mut script, &dead, &there.join(" "), WRITTEN);
            expected.push(format!("{dead}: mismatch_cnt 0 degraded {missing}"));
            expected.push(format!("{dead}: same"));
        }
        // What was stopped in order is whole, and its journal empty.
        let devices = across::losetup(&mut script, name, members + 1);
        across::md_checks(&mut script, name, &devices, WRITTEN);
        expected.push(format!("{name}: mismatch_cnt 0 degraded 0"));
        expected.push(format!("{name}: same"));
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(300));
    let said = output.expect("the guest runs").text;
    for line in expected {
        assert!(said.contains(&line), "{line:?} is not in:\n{said}");
    }
}
