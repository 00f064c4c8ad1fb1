//! File operations through a real mount: what user space sees is what POSIX and the file system say.

use crate::support::{mounted, mounted_with};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

/// `len` bytes that differ from block to block.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let word = |at: usize| (at as u64 / 8 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..len).map(|at| (word(at) >> (at % 8 * 8)) as u8).collect()
}

fn code<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.expect_err("it must fail").raw_os_error()
}

fn is(errno: Errno) -> Option<i32> {
    Some(errno.raw_os_error())
}

#[test]
fn files_directories_and_links_come_and_go() {
    let Some(m) = mounted() else { return };
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/f"), "content").unwrap();
    assert_eq!(fs::read(m.path("d/f")).unwrap(), b"content");
    fs::hard_link(m.path("d/f"), m.path("l")).unwrap();
    assert_eq!(fs::metadata(m.path("l")).unwrap().nlink(), 2);
    symlink("d/f", m.path("s")).unwrap();
    assert_eq!(fs::read_link(m.path("s")).unwrap().to_str(), Some("d/f"));
    assert_eq!(fs::read(m.path("s")).unwrap(), b"content");
    assert_eq!(fs::symlink_metadata(m.path("s")).unwrap().mode() & 0o170000, 0o120000);
    assert_eq!(code(fs::remove_dir(m.path("d"))), is(Errno::NOTEMPTY));
    fs::remove_file(m.path("d/f")).unwrap();
    assert_eq!(fs::metadata(m.path("l")).unwrap().nlink(), 1);
    fs::remove_dir(m.path("d")).unwrap();
    assert_eq!(code(fs::metadata(m.path("d"))), is(Errno::NOENT));
    assert_eq!(code(fs::write(m.path(&"n".repeat(256)), "")), is(Errno::NAMETOOLONG));
    fs::write(m.path(&"n".repeat(255)), "").unwrap();
    assert_eq!(code(fs::read(m.path("l/x"))), is(Errno::NOTDIR));
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, m.path("p"), fifo, 0o600.into(), 0).unwrap();
    assert_eq!(fs::metadata(m.path("p")).unwrap().mode(), 0o010600);
}

#[test]
fn attributes_are_kept_to_the_nanosecond_before_1970_too() {
    let Some(m) = mounted() else { return };
    fs::write(m.path("f"), "x").unwrap();
    fs::set_permissions(m.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(m.path("f"), Some(11), Some(12)).unwrap();
    let spec = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
    let times = rustix::fs::Timestamps {
        last_access: spec(1_000_000_007, 123_456_789),
        last_modification: spec(-2, 800_000_001),
    };
    rustix::fs::utimensat(CWD, m.path("f"), &times, AtFlags::empty()).unwrap();
    let shown = fs::metadata(m.path("f")).unwrap();
    assert_eq!((shown.mode() & 0o7777, shown.uid(), shown.gid()), (0o640, 11, 12));
    assert_eq!((shown.atime(), shown.atime_nsec()), (1_000_000_007, 123_456_789));
    assert_eq!((shown.mtime(), shown.mtime_nsec()), (-2, 800_000_001));
    // Not only in the kernel's memory.
    let held = m.look(|fs| fs.counts());
    assert_eq!(held.0, 2);
}

#[test]
fn large_and_small_writes_are_read_back_with_and_without_the_page_cache() {
    let Some(m) = mounted() else { return };
    for direct in [0, rustix::fs::OFlags::DIRECT.bits() as i32] {
        let path = m.path(&format!("f{direct}"));
        let mut open = OpenOptions::new();
        let file = open.read(true).write(true).create(true).custom_flags(direct).open(&path);
        let file = file.unwrap();
        let mut expected = pattern(8 << 20, 1);
        for (at, part) in expected.chunks(1 << 20).enumerate() {
            file.write_all_at(part, (at as u64) << 20).unwrap();
        }
        for at in [0usize, 4096, 3 << 20, (5 << 20) - 4096, (8 << 20) - 4096] {
            let part = pattern(4096, 7 + at as u64);
            file.write_all_at(&part, at as u64).unwrap();
            expected[at..at + 4096].copy_from_slice(&part);
        }
        if direct == 0 {
            // Across the end, and not on a border of anything.
            file.write_all_at(b"0123456789", (8 << 20) - 5).unwrap();
            expected.truncate((8 << 20) - 5);
            expected.extend_from_slice(b"0123456789");
        }
        file.sync_all().unwrap();
        let mut back = vec![0; expected.len()];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back == expected, "through the same file");
        assert!(fs::read(&path).unwrap() == expected, "through another");
        let mut block = vec![0; 4096];
        file.read_exact_at(&mut block, 3 << 20).unwrap();
        assert!(block == expected[3 << 20..][..4096]);
        assert_eq!(file.read_at(&mut block, 9 << 20).unwrap(), 0, "behind the end");
    }
}

#[test]
fn appending_truncating_and_exclusive_creation_follow_open_flags() {
    let Some(m) = mounted() else { return };
    let path = m.path("f");
    fs::write(&path, "one").unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b" two").unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"one two");
    let exclusive = OpenOptions::new().write(true).create_new(true).open(&path);
    assert_eq!(code(exclusive), is(Errno::EXIST));
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(10 << 20).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 5]);
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let Some(m) = mounted() else { return };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).open(m.path("f")).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(m.path("f")).unwrap();
    assert_eq!(code(fs::metadata(m.path("f"))), is(Errno::NOENT));
    file.write_all_at(b"STILL", 0).unwrap();
    file.sync_all().unwrap();
    let mut back = [0; 10];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"STILL here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(m.look(|fs| fs.counts().0), 2);
    drop(file);
    let mut m = m;
    m.mount.take().unwrap().unmount().map_err(|(error, _)| error).unwrap();
    assert_eq!(m.look(|fs| fs.counts()), (1, 0), "nothing is left, and nothing is held");
}

#[test]
fn rename_obeys_its_flags() {
    let Some(m) = mounted() else { return };
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, m.path(from), CWD, m.path(to), flags)
    };
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("a"), "a").unwrap();
    fs::write(m.path("d/b"), "b").unwrap();
    assert_eq!(rename("a", "d/b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "d/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("a")).unwrap(), b"b");
    assert_eq!(fs::read(m.path("d/b")).unwrap(), b"a");
    assert_eq!(rename("a", "x", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    assert_eq!(rename("a", "x", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    rename("a", "x", RenameFlags::NOREPLACE).unwrap();
    rename("d/b", "x", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(m.path("x")).unwrap(), b"a");
    rename("d", "e", RenameFlags::empty()).unwrap();
    let names: Vec<_> = fs::read_dir(m.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_directory_of_10000_names_is_read_whole_and_once_each() {
    let Some(m) = mounted() else { return };
    fs::create_dir(m.path("d")).unwrap();
    let name = |at: usize| format!("{at:05}-{}", "x".repeat(at % 60));
    for at in 0..10_000 {
        File::create(m.path("d").join(name(at))).unwrap();
    }
    // The second time out of the kernel's memory.
    for _ in 0..2 {
        let read = fs::read_dir(m.path("d")).unwrap();
        let names: Vec<String> =
            read.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names.len(), 10_000);
        let all: BTreeSet<String> = names.into_iter().collect();
        assert!(all == (0..10_000).map(name).collect());
    }
    let inos: BTreeSet<u64> = fs::read_dir(m.path("d"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().ino())
        .collect();
    assert_eq!(inos.len(), 10_000);
    let d = File::open(m.path("d")).unwrap();
    let raw = rustix::fs::Dir::read_from(&d).unwrap();
    let dots = raw.map(Result::unwrap).filter(|entry| entry.file_name().to_bytes()[0] == b'.');
    assert_eq!(dots.count(), 2);
    fs::remove_dir_all(m.path("d")).unwrap();
    d.sync_all().unwrap();
    drop(d);
    let mut m = m;
    m.mount.take().unwrap().unmount().map_err(|(error, _)| error).unwrap();
    assert_eq!(m.look(|fs| fs.counts()), (1, 0), "every look-up was given back");
}

#[test]
fn extended_attributes_tell_their_size_and_refuse_what_does_not_fit() {
    let Some(m) = mounted() else { return };
    let path = m.path("f");
    fs::write(&path, "").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let mut room = vec![0u8; 65536];
    set("user.a", b"value", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5));
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut room[..4]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut room[..5]), Ok(5));
    assert_eq!(&room[..5], b"value");
    assert_eq!(set("user.a", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    let long = pattern(65536, 3);
    set("user.long", &long, XattrFlags::CREATE).unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut room), Ok(65536));
    assert!(room == long);
    assert_eq!(rustix::fs::listxattr_query(&path), Ok(17));
    assert_eq!(rustix::fs::listxattr(&path, &mut room[..16]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&path, &mut room), Ok(17));
    assert_eq!(&room[..17], b"user.a\0user.long\0");
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut room), Err(Errno::NODATA));
}

#[test]
fn holes_are_found_made_and_filled() {
    let Some(m) = mounted() else { return };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).open(m.path("f")).unwrap();
    const PIECE: u64 = 128 << 10;
    file.set_len(10 * PIECE).unwrap();
    file.write_all_at(&[1; 4096], 3 * PIECE).unwrap();
    file.sync_all().unwrap();
    let seek = |to| rustix::fs::seek(&file, to);
    assert_eq!(seek(SeekFrom::Data(0)), Ok(3 * PIECE));
    assert_eq!(seek(SeekFrom::Hole(3 * PIECE)), Ok(4 * PIECE));
    assert_eq!(seek(SeekFrom::Data(4 * PIECE)), Err(Errno::NXIO));
    assert_eq!(seek(SeekFrom::Hole(10 * PIECE)), Err(Errno::NXIO));
    let allocate = |mode, at, len| rustix::fs::fallocate(&file, mode, at, len);
    let keep = FallocateFlags::KEEP_SIZE;
    allocate(FallocateFlags::PUNCH_HOLE | keep, 3 * PIECE, PIECE).unwrap();
    assert_eq!(seek(SeekFrom::Data(0)), Err(Errno::NXIO));
    let mut back = [9; 4096];
    file.read_exact_at(&mut back, 3 * PIECE).unwrap();
    assert_eq!(back, [0; 4096]);
    allocate(FallocateFlags::empty(), 10 * PIECE, PIECE).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 11 * PIECE);
    allocate(keep, 11 * PIECE, PIECE).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 11 * PIECE);
    assert_eq!(allocate(FallocateFlags::COLLAPSE_RANGE, 0, PIECE), Err(Errno::OPNOTSUPP));
    assert_eq!(allocate(FallocateFlags::INSERT_RANGE, 0, PIECE), Err(Errno::OPNOTSUPP));
}

#[test]
fn what_the_kernel_does_itself_works() {
    let Some(m) = mounted() else { return };
    let content = pattern(3 << 20, 5);
    fs::write(m.path("a"), &content).unwrap();
    // copy_file_range, done by the kernel through its cache.
    fs::copy(m.path("a"), m.path("b")).unwrap();
    assert!(fs::read(m.path("b")).unwrap() == content);
    let (one, two) = (File::open(m.path("a")).unwrap(), File::open(m.path("a")).unwrap());
    one.try_lock().unwrap();
    assert!(two.try_lock().is_err(), "locked by the other");
    drop(one);
    two.try_lock().unwrap();
    let space = rustix::fs::statvfs(m.dir()).unwrap();
    assert_eq!((space.f_bsize, space.f_namemax, space.f_blocks), (4096, 255, 1 << 30));
    let tty = rustix::termios::tcgetattr(&two).err();
    assert!(matches!(tty, Some(Errno::NOTTY | Errno::NOSYS)), "{tty:?}");
    let unnamed = OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32)
        .open(m.dir());
    assert_eq!(code(unnamed), is(Errno::OPNOTSUPP));
}

#[test]
fn nearly_full_writers_are_told_at_once_and_maps_still_work() {
    let Some(m) = mounted() else { return };
    m.look(|fs| {
        fs.nearly_full.set(true);
        fs.room.set(1 << 20);
    });
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).open(m.path("f")).unwrap();
    file.write_all(&pattern(1 << 20, 1)).unwrap();
    assert_eq!(code(file.write_all(&[1; 4096])), is(Errno::NOSPC));
    // A shared, writable map of a file that bypasses the cache: through dd, which needs none of our unsafe code.
    file.rewind().unwrap();
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    assert!(back == pattern(1 << 20, 1));
    let fio = std::process::Command::new("fio")
        .args(["--name=map", "--ioengine=mmap", "--rw=randrw", "--bs=4k", "--size=512k"])
        .args(["--verify=crc32c", "--minimal"])
        .arg(format!("--filename={}", m.path("f").display()))
        .current_dir(std::env::temp_dir())
        .output();
    match fio {
        Ok(fio) => assert!(fio.status.success(), "{}", String::from_utf8_lossy(&fio.stderr)),
        Err(error) => eprintln!("not mapped: fio: {error}"),
    }
}

#[test]
fn direct_writes_change_times_at_once_with_little_space_left() {
    let Some(m) = mounted() else { return };
    m.look(|fs| fs.nearly_full.set(true));
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).custom_flags(direct);
    let file = options.open(m.path("f")).unwrap();
    let bytes = pattern(8192, 1);
    let times = || {
        let facts = fs::metadata(m.path("f")).unwrap();
        ((facts.mtime(), facts.mtime_nsec()), (facts.ctime(), facts.ctime_nsec()))
    };
    let mut before = times();
    for at in 0..4 {
        // Linux counts the time of files in ticks of up to 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(30));
        file.write_all_at(&bytes, at * 8192).unwrap();
        let after = times();
        assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
        before = after;
    }
}

#[test]
fn many_threads_work_side_by_side() {
    let Some(m) = mounted() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let dir = m.path(&format!("d{thread}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for round in 0..20u64 {
                    let content = pattern(50_000 + 7000 * round as usize, thread * 100 + round);
                    let (new, old) = (dir.join("new"), dir.join("old"));
                    fs::write(&new, &content).unwrap();
                    fs::rename(&new, &old).unwrap();
                    assert!(fs::read(&old).unwrap() == content);
                }
                fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(m.dir()).unwrap().count(), 0);
}

#[test]
fn more_wait_for_what_the_kernel_holds_back_than_may_be_under_way() {
    let Some(m) = mounted() else { return };
    let data = |nr: u64| (nr % 7 + 1) << 20;
    let files: Vec<File> = (0..200u64)
        .map(|nr| {
            let mut open = OpenOptions::new();
            let path = m.path(&format!("f{nr}"));
            let file = open.read(true).write(true).create(true).open(path).unwrap();
            file.write_all_at(&pattern(8192, nr), data(nr)).unwrap();
            file
        })
        .collect();
    let all = std::sync::Barrier::new(files.len());
    std::thread::scope(|scope| {
        for (nr, file) in (0u64..).zip(&files) {
            let all = &all;
            scope.spawn(move || {
                all.wait();
                let found = rustix::fs::seek(file, SeekFrom::Data(0)).unwrap();
                // Over io_uring only so many can wait; when there are more Linux takes all for data.
                assert!(found == data(nr) || crate::OVER_IO_URING && found == 0, "{found}");
            });
        }
    });
}

#[test]
fn what_a_slow_device_holds_does_not_change() {
    let Some(m) = mounted() else { return };
    m.look(|fs| fs.holds.set(1_000_000));
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let path = m.path(&format!("f{thread}"));
            scope.spawn(move || {
                let mut open = OpenOptions::new();
                let open = open.read(true).write(true).create(true).custom_flags(direct);
                let file = open.open(path).unwrap();
                for round in 0..20 {
                    let bytes = pattern(20_480, thread << 32 | round);
                    file.write_all_at(&bytes, round * 20_480).unwrap();
                    let mut read = vec![0; bytes.len()];
                    file.read_exact_at(&mut read, round * 20_480).unwrap();
                    assert!(read == bytes, "round {round}");
                }
            });
        }
    });
}

#[test]
fn little_memory_makes_requests_wait_not_fail() {
    let tiny = mounted_with(|options| options.memory = 1 << 20);
    let Some(m) = tiny else { return };
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let path = m.path(&format!("f{thread}"));
            scope.spawn(move || {
                let content = pattern(6 << 20, thread);
                fs::write(&path, &content).unwrap();
                File::open(&path).unwrap().sync_all().unwrap();
                assert!(fs::read(&path).unwrap() == content);
            });
        }
    });
}

#[test]
fn a_write_by_another_takes_the_setuid_bit_away() {
    let Some(m) = mounted() else { return };
    for (name, by) in [("w", "printf x >>"), ("t", "printf '' >")] {
        let path = m.path(name);
        fs::write(&path, "#!").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        fs::set_permissions(m.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        let command = format!("{by} {}", path.display());
        let shell = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &command])
            .status();
        let shell =
            shell.expect("setpriv is there: scripts/setup-packages test installs util-linux");
        assert!(shell.success(), "{command}");
        assert_eq!(m.look(move |fs| fs.mode_of(name.as_bytes())), 0o777, "{by}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{by}");
    }
}

#[test]
fn synchronous_writes_are_durable_before_they_are_answered() {
    let Some(m) = mounted() else { return };
    // 1: little space left, where every file is written past the cache. Linux then leaves it to us.
    for nearly_full in [false, true] {
        m.look(move |fs| fs.nearly_full.set(nearly_full));
        for flag in [rustix::fs::OFlags::SYNC, rustix::fs::OFlags::DSYNC] {
            for more in [rustix::fs::OFlags::empty(), rustix::fs::OFlags::DIRECT] {
                let path = m.path(&format!("f{nearly_full}{flag:?}{more:?}").replace('|', "-"));
                let flags = (flag | more).bits().cast_signed();
                let mut open = OpenOptions::new();
                let file = open.write(true).create(true).custom_flags(flags).open(path).unwrap();
                m.look(|fs| fs.fsyncs.borrow_mut().clear());
                file.write_all_at(&[1; 4096], 0).unwrap();
                let synced = m.look(|fs| fs.fsyncs.borrow().len());
                assert!(synced > 0, "{nearly_full} {flag:?} {more:?}");
            }
        }
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).open(m.path("plain")).unwrap();
        m.look(|fs| fs.fsyncs.borrow_mut().clear());
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert_eq!(m.look(|fs| fs.fsyncs.borrow().len()), 0);
    }
}
