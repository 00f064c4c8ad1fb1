//! The file member on real files of the machine's temporary folder.

use super::{FileMember, Mode, create_sparse};
use crate::device::Device;
use crate::error::IoErrorKind;
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::target::Opener;
use crate::{IoSets, Outcome};
use braid_shard::Shard;
use std::path::PathBuf;
use std::rc::Rc;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Bench {
    dir: TempDir,
    shard: Shard,
}

impl Bench {
    fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap(), shard: Shard::with_ring(0).unwrap() }
    }

    fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.dir.path().join(name);
        create_sparse(&path, size).unwrap();
        path
    }

    fn open(&self, name: &str, size: u64) -> (PathBuf, Rc<dyn Device>) {
        let path = self.file(name, size);
        let device = self.device(&path);
        (path, device)
    }

    fn device(&self, path: &PathBuf) -> Rc<dyn Device> {
        FileMember::open(path, Mode::ReadWrite).unwrap().open(&self.shard).unwrap()
    }

    fn ask(&self, device: &Rc<dyn Device>, request: Request) -> Outcome {
        let (device, sets) = (Rc::clone(device), IoSets::new(&self.shard));
        self.shard.block_on(async move { sets.one(&*device, request).await })
    }

    fn write(&self, device: &Rc<dyn Device>, offset: u64, bytes: &[u8], fua: bool) -> Outcome {
        let buf = self.shard.pool().copy_of(bytes).freeze();
        self.ask(device, Request::write(offset, buf, fua))
    }

    fn read(&self, device: &Rc<dyn Device>, offset: u64, len: usize) -> Vec<u8> {
        let outcome = self.ask(device, Request::read(offset, self.shard.pool().get(len)));
        outcome.result.unwrap();
        let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
        bufs.iter().flat_map(|buf| buf.iter().copied()).collect()
    }

    fn error(&self, device: &Rc<dyn Device>, request: Request) -> IoErrorKind {
        self.ask(device, request).result.unwrap_err().kind
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 512) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

#[test]
fn what_is_written_is_read_back_at_every_alignment() {
    let bench = Bench::new();
    let (_, device) = bench.open("member", 4 * MIB);
    let block = u64::from(device.info().logical_block);
    for (at, blocks) in [(0, 1), (1, 1), (3, 5), (8, 64), (4 * MIB / block - 1, 1)] {
        let bytes = pattern((blocks * block) as usize, at as u8);
        for fua in [false, true] {
            bench.write(&device, at * block, &bytes, fua).result.unwrap();
            assert_eq!(bench.read(&device, at * block, bytes.len()), bytes, "block {at}");
        }
    }
    bench.ask(&device, Request::flush()).result.unwrap();
}

#[test]
fn a_size_that_is_not_whole_blocks_is_rounded_down() {
    let bench = Bench::new();
    let (_, device) = bench.open("member", MIB + 100);
    assert_eq!(device.info().size, MIB);
}

fn list(shard: &Shard, bytes: &[u8], sizes: &[usize]) -> crate::Bufs {
    let mut at = 0;
    let cut = |len: &usize| {
        at += len;
        shard.pool().copy_of(&bytes[at - len..at]).freeze()
    };
    sizes.iter().map(cut).collect()
}

#[test]
fn vectored_requests_move_every_buffer_in_order() {
    let bench = Bench::new();
    let (_, device) = bench.open("member", MIB);
    let sizes = [4096, 8192, 4096, 16384];
    let bytes = pattern(sizes.iter().sum(), 7);
    let bufs = list(&bench.shard, &bytes, &sizes);
    let request = Request { offset: 8192, op: Op::Write { bufs, fua: false } };
    let outcome = bench.ask(&device, request);
    outcome.result.unwrap();
    let Op::Write { bufs, .. } = outcome.op else { panic!("not the write back") };
    assert_eq!(bufs.len(), sizes.len());
    let bufs = sizes.iter().map(|len| bench.shard.pool().get(*len)).collect();
    let outcome = bench.ask(&device, Request { offset: 8192, op: Op::Read(bufs) });
    outcome.result.unwrap();
    let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
    assert_eq!(bufs.iter().flat_map(|buf| buf.to_vec()).collect::<Vec<u8>>(), bytes);
}

fn zeroes_and_discards(device: Rc<dyn Device>, bench: &Bench) {
    let bytes = pattern(MIB as usize, 3);
    for (unmap, fua) in [(false, false), (true, false), (false, true), (true, true)] {
        bench.write(&device, 0, &bytes, false).result.unwrap();
        let len = MIB - 8192;
        let op = Op::WriteZeroes { len, unmap, fua };
        bench.ask(&device, Request { offset: 4096, op }).result.unwrap();
        let mut expected = bytes.clone();
        expected[4096..(MIB - 4096) as usize].fill(0);
        assert!(bench.read(&device, 0, MIB as usize) == expected, "unmap {unmap}, fua {fua}");
    }
    bench.write(&device, 0, &bytes, false).result.unwrap();
    let discard = Request { offset: 0, op: Op::Discard { len: MIB } };
    bench.ask(&device, discard).result.unwrap();
}

#[test]
fn zeroed_ranges_read_as_zero() {
    let bench = Bench::new();
    let (_, device) = bench.open("member", 2 * MIB);
    zeroes_and_discards(device, &bench);
}

#[test]
fn files_in_memory_complete_at_submit_and_zero_without_the_kernels_help() {
    let bench = Bench::new();
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = dir.path().join("member");
    create_sparse(&path, 8 * MIB).unwrap();
    let device = bench.device(&path);
    if device.info().wants_plug {
        // Not a tmpfs on this machine.
        return;
    }
    assert!(device.info().direct);
    zeroes_and_discards(Rc::clone(&device), &bench);
    // More than one write of zeroes.
    let bytes = pattern(8 * MIB as usize, 9);
    bench.write(&device, 0, &bytes, false).result.unwrap();
    let op = Op::WriteZeroes { len: 8 * MIB - 512, unmap: false, fua: false };
    bench.ask(&device, Request { offset: 512, op }).result.unwrap();
    let found = bench.read(&device, 0, 8 * MIB as usize);
    assert_eq!(found[..512], bytes[..512]);
    assert!(found[512..].iter().all(|byte| *byte == 0));
}

fn truncate(path: &PathBuf, size: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
}

#[test]
fn a_file_that_has_grown_is_larger_for_who_opens_it_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    create_sparse(&path, 1 << 20).unwrap();
    let member = FileMember::open(&path, Mode::ReadWrite).unwrap();
    let shard = Shard::with_ring(0).unwrap();
    let before = member.open(&shard).unwrap();
    truncate(&path, 3 << 20);
    let after = member.open(&shard).unwrap();
    assert_eq!((before.info().size, after.info().size), (1 << 20, 3 << 20));
}

#[test]
fn a_truncated_file_is_gone_for_reads_and_stays_gone() {
    let bench = Bench::new();
    let (path, device) = bench.open("member", MIB);
    truncate(&path, 0);
    let read = || Request::read(4096, bench.shard.pool().get(4096));
    assert_eq!(bench.error(&device, read()), IoErrorKind::Gone);
    truncate(&path, MIB);
    assert_eq!(bench.error(&device, read()), IoErrorKind::Gone);
}

#[test]
fn zeroes_that_a_write_has_left_below_it_in_a_truncated_file_are_not_read_as_data() {
    let bench = Bench::new();
    let (path, device) = bench.open("member", MIB);
    let written = pattern(4096, 1);
    bench.write(&device, 4096, &written, false).result.unwrap();
    assert!(bench.read(&device, 4096, 4096) == written);
    truncate(&path, 0);
    // As a write does that was with the kernel already.
    truncate(&path, MIB / 2);
    let read = Request::read(4096, bench.shard.pool().get(4096));
    assert_eq!(bench.error(&device, read), IoErrorKind::Gone);
}

#[test]
fn a_flush_finds_a_truncated_file() {
    let bench = Bench::new();
    let (path, device) = bench.open("member", MIB);
    truncate(&path, MIB / 2);
    assert_eq!(bench.error(&device, Request::flush()), IoErrorKind::Gone);
}

#[test]
fn a_write_of_the_last_block_does_not_make_a_truncated_file_grow_again() {
    let bench = Bench::new();
    let (path, device) = bench.open("member", MIB);
    bench.write(&device, 0, &pattern(4096, 1), false).result.unwrap();
    truncate(&path, 0);
    let outcome = bench.write(&device, MIB - 4096, &pattern(4096, 1), false);
    assert_eq!(outcome.result.unwrap_err().kind, IoErrorKind::Gone);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn a_read_across_a_new_end_of_file_is_gone_not_garbage() {
    let bench = Bench::new();
    let (path, device) = bench.open("member", MIB);
    truncate(&path, MIB / 2);
    let across = Request::read(MIB / 2 - 8192, bench.shard.pool().get(16384));
    assert_eq!(bench.error(&device, across), IoErrorKind::Gone);
}

#[test]
fn shards_share_one_lock_and_a_second_opener_is_refused() {
    let bench = Bench::new();
    let path = bench.file("member", MIB);
    let member = FileMember::open(&path, Mode::ReadWrite).unwrap();
    let (first, second) = (member.open(&bench.shard).unwrap(), member.open(&bench.shard).unwrap());
    for mode in [Mode::ReadWrite, Mode::ReadOnly] {
        let refused = FileMember::open(&path, mode).unwrap_err();
        assert!(refused.to_string().contains("in use by another process"), "{refused}");
    }
    FileMember::open(&path, Mode::Examine).unwrap();
    drop(member);
    drop(first);
    FileMember::open(&path, Mode::ReadWrite).unwrap_err();
    drop(second);
    FileMember::open(&path, Mode::ReadWrite).unwrap();
}

#[test]
fn readers_share_a_file_and_cannot_write_it() {
    let bench = Bench::new();
    let path = bench.file("member", MIB);
    let one = FileMember::open(&path, Mode::ReadOnly).unwrap();
    let other = FileMember::open(&path, Mode::ReadOnly).unwrap();
    FileMember::open(&path, Mode::ReadWrite).unwrap_err();
    for member in [one, other] {
        let device = member.open(&bench.shard).unwrap();
        assert_eq!(bench.read(&device, 0, 4096), vec![0; 4096]);
        let outcome = bench.write(&device, 0, &[1; 4096], false);
        assert_eq!(outcome.result.unwrap_err().kind, IoErrorKind::Refused);
    }
}

#[test]
fn what_cannot_be_a_member_is_refused_with_its_name() {
    let bench = Bench::new();
    let dir = bench.dir.path().to_path_buf();
    let empty = bench.file("empty", 0);
    for (path, why) in [
        (dir.join("nothing"), "check the path"),
        (dir, "directory"),
        (empty, "less than one block"),
        (PathBuf::from("/dev/null"), "neither a regular file nor a block device"),
    ] {
        let refused = FileMember::open(&path, Mode::ReadWrite).unwrap_err();
        assert_eq!(refused.name, path.display().to_string());
        assert!(refused.why.contains(why), "{refused}");
    }
}

#[test]
fn many_requests_in_flight_all_complete() {
    let bench = Bench::new();
    let (_, device) = bench.open("member", 4 * MIB);
    let (shard, sets) = (bench.shard.clone(), IoSets::new(&bench.shard));
    bench.shard.block_on(async move {
        for round in 0..3u8 {
            let mut set = sets.start();
            for tag in 0..1000u32 {
                let buf = shard.pool().copy_of(&[tag as u8 ^ round; 4096]).freeze();
                set.submit(tag, &*device, Request::write(u64::from(tag) * 4096, buf, false));
            }
            let outcomes = set.finish().await;
            assert_eq!(outcomes.len(), 1000);
            let mut set = sets.start();
            for tag in 0..1000u32 {
                let buf = shard.pool().get(4096);
                set.submit(tag, &*device, Request::read(u64::from(tag) * 4096, buf));
            }
            for (tag, outcome) in set.finish().await {
                outcome.result.unwrap();
                let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
                assert!(bufs[0].iter().all(|byte| *byte == tag as u8 ^ round));
            }
        }
    });
}

#[test]
fn a_buffered_file_says_so() {
    let bench = Bench::new();
    let path = bench.file("member", MIB);
    let member = FileMember::open(&path, Mode::ReadWrite).unwrap();
    let info: &DeviceInfo = member.info();
    // Either the filesystem takes O_DIRECT, or a note explains why there is none.
    assert_eq!(info.direct, member.notes().is_empty(), "{:?}", member.notes());
}

#[test]
fn a_file_that_its_user_leaves_a_moment_later_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left");
    create_sparse(&path, 1 << 20).unwrap();
    let user = FileMember::open(&path, Mode::ReadWrite).unwrap();
    let leaves = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(user);
    });
    FileMember::open(&path, Mode::ReadWrite).unwrap();
    leaves.join().unwrap();
}
