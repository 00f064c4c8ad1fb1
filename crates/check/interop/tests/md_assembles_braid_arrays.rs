//! Arrays that braid makes and fills are assembled, checked, read and written by the real md, and
//! what md wrote is read back by braid.

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateOptions};
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;
const MEMBER_SIZE: u64 = 24 << 20;

struct Case {
    name: &'static str,
    level: Level,
    members: usize,
}

const CASES: [Case; 7] = [
    Case { name: "r0", level: Level::Raid0, members: 3 },
    Case { name: "r1", level: Level::Raid1, members: 2 },
    Case { name: "r4", level: Level::Raid4, members: 3 },
    Case { name: "r5", level: Level::Raid5, members: 4 },
    Case { name: "r6", level: Level::Raid6, members: 5 },
    Case { name: "r10", level: Level::Raid10, members: 4 },
    Case { name: "r10odd", level: Level::Raid10, members: 3 },
];

fn openers(dir: &Path, case: &Case) -> Vec<Arc<dyn Opener>> {
    let path = |nr: usize| dir.join(format!("{}.{nr}", case.name));
    (0..case.members)
        .map(|nr| {
            let member =
                braid_device::file::FileMember::open(path(nr), braid_device::file::Mode::ReadWrite);
            Arc::new(member.expect("the member was made by this test")) as Arc<dyn Opener>
        })
        .collect()
}

fn context(shard: &Shard) -> Context {
    Context {
        shard: shard.clone(),
        remotes: vec![shard.remote()],
        wall_clock: Arc::new(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |since| since.as_secs())
        }),
        new_uuid: Arc::new(|| uuid::Uuid::new_v4().into_bytes()),
    }
}

/// Bytes that differ from block to block and from seed to seed.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

async fn stop(shard: &Shard, array: &Array) {
    let control = Control::find(shard, array.id()).expect("the array runs");
    control.wait_idle().await;
    control.stop().await;
}

/// Creates the array, writes a pattern all over it, and stops it; gives the array's size.
fn make(shard: &Shard, dir: &Path, case: &Case, seed: u64) -> usize {
    let (context, openers) = (context(shard), openers(dir, case));
    let options = CreateOptions::new(case.name, case.level, case.members);
    let shard_of_task = shard.clone();
    shard.block_on(async move {
        let shard = shard_of_task;
        create(&context, openers.iter().cloned().map(Some).collect(), options)
            .await
            .expect("create");
        let array =
            assemble(&context, openers, AssembleOptions::default()).await.expect("assemble");
        let device = array.open(&shard).expect("open");
        let size = device.info().size as usize;
        let sets = IoSets::new(&shard);
        let content = pattern(seed, size);
        // Odd sizes, so that full stripes, parts and spans over stripes all occur.
        let steps = [64 * 1024, 4096, 3 * MIB + 512, 512, MIB, 20 * 512];
        let (mut at, mut step) = (0, 0);
        while at < size {
            let len = steps[step % steps.len()].min(size - at);
            let buf = shard.pool().copy_of(&content[at..at + len]).freeze();
            let outcome = sets.one(&*device, Request::write(at as u64, buf, false)).await;
            outcome.result.expect("write");
            at += len;
            step += 1;
        }
        stop(&shard, &array).await;
        size
    })
}

/// Assembles the array and reads all of it.
fn read_back(shard: &Shard, dir: &Path, case: &Case) -> Vec<u8> {
    let (context, openers) = (context(shard), openers(dir, case));
    let shard_of_task = shard.clone();
    shard.block_on(async move {
        let shard = shard_of_task;
        let array =
            assemble(&context, openers, AssembleOptions::default()).await.expect("assemble");
        let device = array.open(&shard).expect("open");
        let sets = IoSets::new(&shard);
        let mut content = Vec::new();
        let size = device.info().size as usize;
        while content.len() < size {
            let buf = shard.pool().get(MIB.min(size - content.len()));
            let request = Request::read(content.len() as u64, buf);
            let outcome = sets.one(&*device, request).await;
            outcome.result.expect("read");
            let Op::Read(bufs) = outcome.op else { panic!("a read gives its buffers back") };
            bufs.iter().for_each(|buf| content.extend_from_slice(buf));
        }
        stop(&shard, &array).await;
        content
    })
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum is in coreutils");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().next().expect("sha256sum prints a sum").to_string()
}

#[test]
fn the_real_md_reads_checks_and_writes_arrays_that_braid_made() {
    let dir = tempfile::Builder::new()
        .prefix("braid-interop.")
        .tempdir_in("/var/tmp")
        .expect("a folder in /var/tmp");
    let dir: PathBuf = dir.path().to_path_buf();
    let shard = Shard::with_ring(0).expect("io_uring");
    let mut script = String::from("set -e\n");
    for (nr, case) in CASES.iter().enumerate() {
        for member in 0..case.members {
            let path = dir.join(format!("{}.{member}", case.name));
            std::fs::File::create(&path)
                .and_then(|file| file.set_len(MEMBER_SIZE))
                .expect("member");
        }
        let size = make(&shard, &dir, case, nr as u64 + 1);
        std::fs::write(dir.join(format!("{}.new", case.name)), pattern(nr as u64 + 100, size))
            .expect("write");
        std::fs::write(dir.join(format!("{}.old", case.name)), pattern(nr as u64 + 1, size))
            .expect("write");
        let redundant = case.level.has_redundancy();
        script += &format!(
            "loops=; for i in $(seq 0 {last}); do l=$(losetup -f); losetup $l {shared}/{name}.$i; loops=\"$loops $l\"; done\n\
             mdadm --assemble --quiet /dev/md{nr} $loops\n\
             echo \"{name} size $(blockdev --getsize64 /dev/md{nr})\"\n\
             echo \"{name} resync_start $(cat /sys/block/md{nr}/md/resync_start 2>/dev/null || echo none)\"\n\
             echo \"{name} sum $(sha256sum < /dev/md{nr} | cut -d' ' -f1)\"\n",
            last = case.members - 1,
            shared = uml::SHARED,
            name = case.name,
        );
        if redundant {
            script += &format!(
                "echo check > /sys/block/md{nr}/md/sync_action; mdadm --wait --quiet /dev/md{nr} || true\n\
                 echo \"{name} mismatch $(cat /sys/block/md{nr}/md/mismatch_cnt)\"\n\
                 echo \"{name} degraded $(cat /sys/block/md{nr}/md/degraded)\"\n",
                name = case.name,
            );
        }
        script += &format!(
            "dd if={shared}/{name}.new of=/dev/md{nr} bs=192k status=none conv=fsync\n\
             mdadm --stop --quiet /dev/md{nr}\n\
             for l in $loops; do losetup -d $l; done\n",
            shared = uml::SHARED,
            name = case.name,
        );
    }
    let output = uml::run(&script, &dir, 1024, Duration::from_secs(240)).expect("the guest runs");
    assert_eq!(output.status, 0, "the script failed:\n{}", output.text);
    let said = |line: String| {
        assert!(output.text.lines().any(|l| l == line), "no line {line:?} in\n{}", output.text);
    };
    for case in &CASES {
        let name = case.name;
        let old = dir.join(format!("{name}.old"));
        let size = std::fs::metadata(&old).expect("made above").len();
        said(format!("{name} size {size}"));
        said(format!("{name} sum {}", sha256(&old)));
        if case.level.has_redundancy() {
            said(format!("{name} resync_start none"));
            said(format!("{name} mismatch 0"));
            said(format!("{name} degraded 0"));
        }
        let new = std::fs::read(dir.join(format!("{name}.new"))).expect("made above");
        assert!(read_back(&shard, &dir, case) == new, "{name}: braid reads what md wrote");
    }
}
