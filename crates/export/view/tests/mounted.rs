//! A mounted view of disks in memory, as processes see it. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used)]

use braid_device::ram::Ram;
use braid_device::{Device, DeviceInfo, OpenError, Target, TargetInfo};
use braid_export::Export;
use braid_filesystem::Errno;
use braid_shard::Shard;
use braid_shard::threads::{Shards, start};
use braid_view::{Door, Limits, Listed, Node, Rights, Texts};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SIZE: u64 = 1 << 20;

struct Memory {
    name: &'static str,
    ram: Ram,
}

impl Target for Memory {
    fn info(&self) -> TargetInfo {
        let device = DeviceInfo::plain(self.name, SIZE);
        TargetInfo { name: self.name.into(), description: String::new(), device, read_only: false }
    }

    fn open(&self, _: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(self.ram.device())
    }
}

fn memory(name: &'static str) -> Arc<dyn Target> {
    Arc::new(Memory { name, ram: Ram::new(name, SIZE) })
}

/// A folder `notes` with one text of each kind and a link, and a text in the folder of target `a`.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

fn listed(name: &str, node: Node) -> Listed {
    Listed { name: name.into(), node }
}

impl Texts for Notes {
    fn list(&self, folder: &str) -> Result<Vec<Listed>, Errno> {
        match folder {
            "" => Ok(vec![listed("notes", Node::Folder)]),
            "notes" => Ok(vec![
                listed("both", Node::Text(Rights::Both)),
                listed("long", Node::Text(Rights::Read)),
                listed("orders", Node::Text(Rights::Write)),
                listed("link", Node::Link("both".into())),
            ]),
            "a" => Ok(vec![listed("size", Node::Text(Rights::Read))]),
            _ => Err(Errno::NotFound),
        }
    }

    fn read(&self, path: &str) -> Result<String, Errno> {
        let written = self.0.lock().unwrap();
        match path {
            "notes/both" => Ok(format!("{}\n", written.last().map_or("", String::as_str))),
            "notes/long" => Ok("0123456789abcdef".repeat(1 << 14)),
            "a/size" => Ok("2048\n".into()),
            _ => Err(Errno::Access),
        }
    }

    fn write(&self, _: &str, text: &str) -> Result<(), Errno> {
        let order = text.trim_end();
        match order {
            "no" => return Err(Errno::Invalid),
            "later" => return Err(Errno::Busy),
            "slow" => {
                self.0.lock().unwrap().push(order.to_string());
                std::thread::sleep(Duration::from_millis(200));
            }
            _ => self.0.lock().unwrap().push(order.to_string()),
        }
        Ok(())
    }
}

struct World {
    door: Door,
    dir: tempfile::TempDir,
    // After the door.
    _shards: Shards,
}

impl World {
    fn new() -> World {
        let (shards, dir) = (start(1).unwrap(), tempfile::tempdir().unwrap());
        let texts: Arc<dyn Texts> = Arc::new(Notes::default());
        let home = shards.remotes().first().unwrap();
        let targets = [memory("a"), memory("b")];
        let door = Door::start(&Limits::default(), home, dir.path(), &texts, &targets);
        World { door: door.expect("a mount; it takes root and /dev/fuse"), dir, _shards: shards }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn open(&self, path: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.path(path)).unwrap()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn targets_and_texts_share_one_tree() {
    let world = World::new();
    assert_eq!(names(&world.path("")), ["a", "b", "notes"]);
    assert_eq!(names(&world.path("a")), ["data", "size"]);
    assert_eq!(names(&world.path("b")), ["data"]);
    assert_eq!(names(&world.path("notes")), ["both", "link", "long", "orders"]);
    assert_eq!(fs::read_to_string(world.path("a/size")).unwrap(), "2048\n");
    assert_eq!(fs::read_link(world.path("notes/link")).unwrap(), Path::new("both"));
    assert_eq!(fs::read_to_string(world.path("notes/link")).unwrap(), "\n");
    for missing in ["c", "a/md", "b/size", "notes/other", "a/data/x"] {
        assert!(fs::metadata(world.path(missing)).is_err(), "{missing}");
    }
    let made = File::create(world.path("new")).unwrap_err();
    assert_eq!(made.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_file_of_a_target_has_its_size_and_takes_any_bytes() {
    let world = World::new();
    let file = world.open("a/data");
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    // Over the middle of many blocks, inside of one, and over a border of two.
    for (offset, length) in [(700, 300_000), (512, 512), (513, 1), (1000, 100)] {
        let data: Vec<u8> = (0..length).map(|at| (at * 7 + offset) as u8).collect();
        file.write_all_at(&data, offset as u64).unwrap();
        let mut found = vec![0; length];
        file.read_exact_at(&mut found, offset as u64).unwrap();
        assert!(found == data, "{length} bytes at {offset}");
    }
    let mut around = [1; 700];
    file.read_exact_at(&mut around[..512], 0).unwrap();
    assert_eq!(around[..512], [0; 512]);
    file.sync_all().unwrap();
    let mut other = [0; 8];
    world.open("b/data").read_exact_at(&mut other, 512).unwrap();
    assert_eq!(other, [0; 8]);
}

#[test]
fn a_file_of_a_target_ends_where_the_target_ends() {
    let world = World::new();
    let mut file = world.open("a/data");
    assert_eq!(file.seek(SeekFrom::End(-100)).unwrap(), SIZE - 100);
    assert_eq!(file.write(&[5; 300]).unwrap_err().raw_os_error(), Some(28));
    let mut end = Vec::new();
    file.seek(SeekFrom::End(-101)).unwrap();
    file.read_to_end(&mut end).unwrap();
    assert_eq!(end, [&[0][..], &[5; 100]].concat());
    assert!(file.set_len(SIZE + 1).is_err() && file.set_len(4096).is_err());
    // As cp and dd open their target.
    let file = OpenOptions::new().write(true).truncate(true).open(world.path("a/data")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
}

#[test]
fn a_text_is_made_anew_by_each_reader_and_whole() {
    let world = World::new();
    let mut file = world.open("notes/both");
    let mut text = String::new();
    for order in ["one", "two"] {
        file.write_all(format!("{order}\n").as_bytes()).unwrap();
        file.rewind().unwrap();
        text.clear();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("{order}\n"));
    }
    let long = fs::read(world.path("notes/long")).unwrap();
    assert_eq!(long, "0123456789abcdef".repeat(1 << 14).into_bytes());
    let rights = |path: &str| fs::metadata(world.path(path)).unwrap().mode() & 0o777;
    assert_eq!(
        [rights("notes/both"), rights("notes/long"), rights("notes/orders")],
        [0o644, 0o444, 0o200]
    );
}

#[test]
fn a_refused_order_is_an_error_of_its_write() {
    let world = World::new();
    let write = |text: &[u8]| {
        let result = world.open("notes/both").write(text);
        result.map_err(|error| error.raw_os_error().unwrap())
    };
    assert_eq!(write(b"no\n"), Err(22));
    assert_eq!(write(b"later\n"), Err(16));
    assert_eq!(write(&[0xff, 0xfe]), Err(22));
    assert_eq!(write(&vec![b'x'; 4097]), Err(7));
    assert_eq!(write(b"yes\n"), Ok(4));
    assert_eq!(fs::read_to_string(world.path("notes/both")).unwrap(), "yes\n");
}

#[test]
fn a_target_that_comes_again_is_another_file() {
    let world = World::new();
    let old = world.open("a/data");
    old.write_all_at(b"old", 0).unwrap();
    world.door.withdraw("a");
    assert_eq!(names(&world.path("")), ["b", "notes"]);
    world.door.offer(memory("a")).unwrap();
    let new = world.open("a/data");
    let mut start = [1; 3];
    assert!(old.read_at(&mut start, 0).is_err() && old.write_at(b"x", 0).is_err());
    new.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(start, [0; 3]);
    drop(old);
    new.write_all_at(b"new", 0).unwrap();
    assert_eq!(world.door.withdraw_unused("a"), Err(1));
}

#[test]
fn a_stop_ends_the_mount_though_a_file_is_open() {
    let world = World::new();
    let file = world.open("a/data");
    world.door.stop();
    assert!(names(world.dir.path()).is_empty());
    assert!(file.read_at(&mut [0; 8], 0).is_err());
    assert!(world.door.locations("a").is_empty());
    drop(file);
    world.door.stop();
}

#[test]
fn an_order_that_is_under_way_when_the_view_ends_is_answered() {
    let world = World::new();
    let path = world.path("notes/both");
    let ordered = std::thread::spawn(move || {
        OpenOptions::new().write(true).open(path).and_then(|mut text| text.write_all(b"slow"))
    });
    while fs::read_to_string(world.path("notes/both")).unwrap() != "slow\n" {
        std::thread::yield_now();
    }
    // As a server that ends: the view first, then the threads that serve it.
    drop(world);
    ordered.join().unwrap().unwrap();
}
