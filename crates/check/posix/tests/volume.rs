//! The suites against a volume of braid, mounted through FUSE in this process, over bricks in memory.
//!
//! Without /dev/fuse, or the right to mount, it says that it did not run; and so it does of FUSE over io_uring where the
//! kernel does not have that.

#![allow(clippy::unwrap_used)]

#[path = "../../../export/fuse/tests/mounted/support/enabled.rs"]
mod enabled;

use braid_device::ram::Ram;
use braid_filesystem::{Caller, Leases, Time};
use braid_fuse::{Front, Mount, MountOptions};
use braid_kv::Store;
use braid_kv::model::ModelStore;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::threads::Shards;
use braid_volume::{
    BrickDevice, Format, LeaseReader, MountOf, NewBrick, Volume, first_records, noted_nowhere,
};
use enabled::Enabled;
use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_braid-posix");
/// MiB of each brick.
const BRICKS: [u64; 3] = [192, 256, 128];

/// The volume between its start and its mount.
#[derive(Default)]
struct Ready(RefCell<Option<Rc<Volume>>>, RefCell<Vec<Arc<Ram>>>);

/// A further shard, which reads the bricks by itself.
fn front(remote: Remote, bricks: Vec<Arc<Ram>>) -> Front {
    let open = move |shard: &Shard| {
        let brick = move |_: &Shard, uuid: Uuid| {
            bricks.get(uuid.as_u128() as usize - 1).map(|ram| ram.device())
        };
        let reader = LeaseReader::new(shard, Box::new(brick), Arc::default());
        shard.local::<Readers>().0.borrow_mut().push(Rc::clone(&reader));
        reader as Rc<dyn Leases>
    };
    Front { remote, open: Box::new(open) }
}

/// Those of a shard.
#[derive(Default)]
struct Readers(RefCell<Vec<Rc<LeaseReader>>>);

/// A volume that is mounted while this value is.
struct Mounted {
    mount: Option<Mount>,
    dir: tempfile::TempDir,
    // After the mount: it needs the shard to its end.
    shards: Shards,
    _enabled: Option<Enabled>,
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

async fn start(shard: &Shard) {
    let ram = |size: &u64| Arc::new(Ram::new("ram", size << 20));
    let bricks: Vec<Arc<Ram>> = BRICKS.iter().map(ram).collect();
    let of = |(size, id): (&u64, u128)| NewBrick {
        uuid: Uuid::from_u128(id),
        weight: *size,
        blocks: (size << 20) / 4096,
        domain: String::new(),
    };
    let new: Vec<NewBrick> = BRICKS.iter().zip(1..).map(of).collect();
    let store = ModelStore::new(shard);
    let format = Format { stripe: 128 << 10, checksums: true, copies: 1 };
    let records =
        first_records(Uuid::from_u128(9), format, &new, Caller::default(), now()).unwrap();
    store.commit(records).await.unwrap();
    let devices = bricks.iter().zip(1..).map(|(ram, id)| BrickDevice {
        uuid: Uuid::from_u128(id),
        device: ram.device(),
        data_offset: 0,
    });
    let from = MountOf {
        devices: devices.collect(),
        store: Rc::new(store),
        note_lost: noted_nowhere(),
        clock: Rc::new(now),
        read_only: false,
    };
    let volume = Volume::mount(shard, from).await.unwrap();
    *shard.local::<Ready>().0.borrow_mut() = Some(volume);
    *shard.local::<Ready>().1.borrow_mut() = bricks;
}

impl Mounted {
    /// `None` where nothing can be mounted, or not so that requests come over io_uring.
    fn new(over_io_uring: bool) -> Option<Mounted> {
        Mounted::on(1, over_io_uring)
    }

    /// The same, served by so many shards.
    fn on(count: usize, over_io_uring: bool) -> Option<Mounted> {
        let enabled = if over_io_uring { Some(Enabled::new()?) } else { None };
        let shards = braid_shard::threads::start(count).unwrap();
        let remote = shards.remotes()[0].clone();
        let started = remote.call_async(move |shard, done| {
            let on = shard.clone();
            shard.spawn(async move {
                start(&on).await;
                done(());
            });
        });
        started.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new(dir.path(), "posix");
        options.io_uring = over_io_uring;
        options.access_lists = true;
        // Further shards take part in everything.
        options.share_from = 0;
        // What wedges is ended, so that a failed test leaves nothing behind that cannot be.
        options.patience = std::time::Duration::from_secs(36);
        let rams = remote.call(|shard| shard.local::<Ready>().1.borrow().clone()).unwrap();
        let others = shards.remotes()[1..].iter().map(|remote| front(remote.clone(), rams.clone()));
        let mounted = Mount::start_on(
            options,
            remote,
            others.collect(),
            |shard| shard.local::<Ready>().0.borrow_mut().take().unwrap(),
            |_| (),
        );
        match mounted {
            Ok(mount) => {
                assert_eq!(mount.is_over_io_uring(), over_io_uring);
                Some(Mounted { mount: Some(mount), dir, shards, _enabled: enabled })
            }
            Err(error) => {
                eprintln!("not run: {error}");
                None
            }
        }
    }

    /// Runs the program on the volume, and gives the cases that did not arise there.
    fn passes(&self, words: &[&str]) -> Vec<String> {
        let output =
            Command::new(PROGRAM).args(words).arg("--dir").arg(self.dir.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("FAILED")).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {failed:#?}\n{said}");
        let skipped = text.lines().filter_map(|line| line.strip_prefix("skipped"));
        skipped.map(|line| line.trim().to_owned()).collect()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(Err((error, _))) = self.mount.take().map(Mount::unmount) {
            eprintln!("{error}");
        }
    }
}

fn passes_every_case(mounted: Option<Mounted>) {
    let Some(mounted) = mounted else { return };
    let skipped = mounted.passes(&[]);
    // A mount that may not be written to was not given, and Linux refuses the other for all of FUSE.
    let known = |case: &str| case.contains("/erofs") || case.starts_with("fallocate/collapse");
    let unmet: Vec<&String> = skipped.iter().filter(|case| !known(case)).collect();
    assert!(unmet.is_empty(), "a volume has all that is asked for: {unmet:#?}");
}

/// Files below an overlay whose upper layer is the volume are made, changed, renamed and removed, and whiteouts hide what the
/// lower layer has.
#[test]
fn an_overlay_lies_over_a_volume() {
    let Some(mounted) = Mounted::new(false) else { return };
    let lower = tempfile::tempdir().unwrap();
    let volume = mounted.dir.path();
    let merged = tempfile::tempdir().unwrap();
    for name in ["a", "b", "dir/c", "dir/d"] {
        let path = lower.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    for name in ["upper", "work"] {
        std::fs::create_dir(volume.join(name)).unwrap();
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.path().display(),
        volume.join("upper").display(),
        volume.join("work").display()
    );
    let mount = |words: &[&str]| Command::new(words[0]).args(&words[1..]).output().unwrap();
    let at = merged.path().to_str().unwrap();
    let said = mount(&["mount", "-t", "overlay", "overlay", "-o", &layers, at]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let changed = std::panic::catch_unwind(|| {
        let path = |name: &str| merged.path().join(name);
        std::fs::remove_file(path("a")).unwrap();
        std::fs::write(path("b"), "changed").unwrap();
        std::fs::rename(path("dir/c"), path("moved")).unwrap();
        std::fs::remove_dir_all(path("dir")).unwrap();
        std::fs::create_dir(path("dir")).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(merged.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["b", "dir", "moved"]);
        assert_eq!(std::fs::read_dir(path("dir")).unwrap().count(), 0);
        assert_eq!(std::fs::read(path("moved")).unwrap(), b"dir/c");
    });
    let said = mount(&["umount", at]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    changed.unwrap();
    let hidden = std::fs::symlink_metadata(volume.join("upper/a")).unwrap();
    let kind = std::os::unix::fs::FileTypeExt::is_char_device(&hidden.file_type());
    assert!(kind && std::os::unix::fs::MetadataExt::rdev(&hidden) == 0, "a whiteout");
}

fn holds_and_survives(mounted: Option<Mounted>) {
    let Some(mounted) = mounted else { return };
    mounted.passes(&["fsx", "--seed", "1", "--files", "2", "--operations", "1500"]);
    mounted.passes(&["stress", "--seed", "1", "--operations", "1500"]);
    mounted.passes(&["fill"]);
}

fn does_not_wedge(mounted: Option<Mounted>) {
    let Some(mounted) = mounted else { return };
    let limits = ["--seconds", "5", "--threads", "2", "--patience", "20"];
    mounted.passes(&[&["wedge"][..], &limits].concat());
}

#[test]
fn a_volume_does_not_wedge() {
    does_not_wedge(Mounted::new(false));
}

#[test]
fn a_volume_over_io_uring_does_not_wedge() {
    does_not_wedge(Mounted::new(true));
}

#[test]
fn a_volume_passes_every_case() {
    passes_every_case(Mounted::new(false));
}

#[test]
fn a_volume_over_io_uring_passes_every_case() {
    passes_every_case(Mounted::new(true));
}

#[test]
fn a_volume_holds_what_random_operations_write_and_survives_being_full() {
    holds_and_survives(Mounted::new(false));
}

#[test]
fn a_volume_over_io_uring_holds_what_random_operations_write_and_survives_being_full() {
    holds_and_survives(Mounted::new(true));
}

#[test]
fn a_volume_on_two_shards_does_not_wedge() {
    does_not_wedge(Mounted::on(2, false));
}

#[test]
fn a_volume_on_two_shards_passes_every_case() {
    passes_every_case(Mounted::on(2, false));
}

#[test]
fn a_volume_on_three_shards_holds_what_random_operations_write_and_survives_being_full() {
    holds_and_survives(Mounted::on(3, false));
}

/// The reads by leases of the second shard.
fn leased_reads(mounted: &Mounted) -> u64 {
    let shards = mounted.shards.remotes();
    let reads = |shard: &Shard| {
        shard.local::<Readers>().0.borrow().iter().map(|reader| reader.reads()).sum::<u64>()
    };
    shards[1].call(reads).unwrap()
}

/// Reads past the page cache, `by` a program such as dd, are right, and some of them are the second shard's.
fn second_shard_reads(mounted: Option<Mounted>, by: &[&str]) {
    let Some(mounted) = mounted else { return };
    let path = mounted.dir.path().join("file");
    let bytes: Vec<u8> = (0..20u32 << 20).map(|nr| (nr / 4096 * 7 + nr % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    // The second reading finds leases.
    for round in 0..4 {
        let dd = Command::new(by[0])
            .args(&by[1..])
            .arg(format!("if={}", path.display()))
            .args(["iflag=direct", "bs=64k", "status=none"])
            .output()
            .unwrap();
        assert!(dd.status.success(), "{}", String::from_utf8_lossy(&dd.stderr));
        assert!(dd.stdout == bytes, "reading number {round}");
    }
    let read = leased_reads(&mounted);
    assert!(read > 0, "none was");
}

#[test]
fn the_second_shard_answers_reads_by_itself() {
    second_shard_reads(Mounted::on(2, false), &["dd"]);
}

#[test]
fn the_second_shard_answers_reads_of_its_processor_over_io_uring() {
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!(processors >= 2, "this test needs two processors, for a shard each");
    second_shard_reads(Mounted::on(2, true), &["taskset", "-c", "1", "dd"]);
}

#[test]
fn a_volume_on_two_shards_over_io_uring_does_not_wedge() {
    does_not_wedge(Mounted::on(2, true));
}

#[test]
fn a_volume_on_two_shards_over_io_uring_passes_every_case() {
    passes_every_case(Mounted::on(2, true));
}

#[test]
fn a_volume_on_two_shards_over_io_uring_holds_what_random_operations_write_and_survives_being_full()
{
    holds_and_survives(Mounted::on(2, true));
}
