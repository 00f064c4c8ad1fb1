//! What a kernel and the server of a file system could wait for each other over, for ever: pages that are locked while
//! they are read, written out, cut off or invalidated, and calls that end in the thread that ends them.
//!
//! Threads, of several processes, do all of it at random on a few files that they share. Nothing is compared but that
//! every step ends; where one does not, not even SIGKILL would end the process, so that is told by another thread.

use crate::bytes::Aligned;
use crate::raw::aio::{Aio, Memory};
use crate::raw::{Mapping, Sharing};
use crate::scene::{name_of, plain};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Advice, FallocateFlags, OFlags, SeekFrom, fallocate};
use rustix::io::Errno;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides the steps.
    pub seed: u64,
    /// How long.
    pub time: Duration,
    /// Threads of each process.
    pub threads: usize,
    /// Processes.
    pub processes: u64,
    /// A step that takes longer has wedged.
    pub patience: Duration,
    /// Pause of each thread between two steps.
    pub pause: Duration,
    /// Another thread calls sync(2), for all of the machine, once a second.
    pub sync: bool,
    /// It also has the kernel forget what it holds of all files; only root may.
    pub drop_caches: bool,
    /// This program, for the other processes.
    pub program: PathBuf,
}

/// What was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Steps of this process's threads.
    pub steps: u64,
    /// The same by kind.
    pub kinds: Vec<(&'static str, u64)>,
    /// Calls of sync(2).
    pub syncs: u64,
}

const PAGE: usize = 4096;
/// Sizes of the files: most end within a page.
const SIZES: [usize; 6] = [5000, 4097, 8192, 12_000, 70_001, 300_000];
/// Files that all share.
const FILES: u64 = 4;

/// One thread's means.
struct Hand {
    home: PathBuf,
    rng: fastrand::Rng,
}

type Step = fn(&mut Hand) -> rustix::io::Result<()>;

/// The deadlock that was found first, and what is like it.
const STEPS: &[(&str, Step)] = &[
    ("touch the last, partial page of a map, opened for direct I/O", touch_direct),
    ("the same by a write", write_direct_map),
    ("the same of a private map", touch_private),
    ("the same by a write to a private map", write_private),
    ("touch a map while its file is cut and grows", touch_cut),
    ("touch a map while holes are punched", touch_punched),
    ("touch a map that is forgotten", touch_evicted),
    ("read directly under a map", read_under_map),
    ("write directly under a map", write_under_map),
    ("read into a map of the same file", read_into_itself),
    ("read asynchronously before what is cached only", read_before_cached),
    ("close a file before its asynchronous write ends", close_before_end),
    ("read asynchronously into a map of another file", read_into_other),
    ("write asynchronously from a map of the same file", write_from_itself),
    ("look for data of a map that was written to", seek_written),
    ("unlink what is mapped and written to", unlink_mapped),
    ("msync beside direct writes", sync_map),
];

impl Hand {
    fn path(&mut self) -> PathBuf {
        self.home.join(format!("f{}", self.rng.u64(0..FILES)))
    }

    fn open(&self, path: &Path, direct: bool) -> rustix::io::Result<File> {
        let flags = if direct { OFlags::DIRECT.bits().cast_signed() } else { 0 };
        let mut open = OpenOptions::new();
        plain(
            open.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path),
        )
    }

    fn some(&mut self, direct: bool) -> rustix::io::Result<File> {
        let path = self.path();
        self.open(&path, direct)
    }

    fn size(&mut self) -> usize {
        SIZES[self.rng.usize(0..SIZES.len())]
    }

    /// A file that has a new size, opened for direct I/O, and a map of it.
    fn mapped(&mut self, sharing: Sharing) -> rustix::io::Result<(File, Mapping, usize)> {
        let (file, size) = (self.some(true)?, self.size());
        if self.rng.bool() {
            plain(file.set_len(0))?;
        }
        plain(file.set_len(size as u64))?;
        let map = Mapping::new(&file, 0, size, sharing, true)?;
        Ok((file, map, size))
    }

    fn block(&mut self, size: usize) -> u64 {
        (self.rng.usize(0..size.div_ceil(PAGE)) * PAGE) as u64
    }
}

/// Another thread has cut the file: that is no wonder here.
fn touched(map: &Mapping, at: usize, len: usize, write: bool) -> rustix::io::Result<()> {
    match map.touch(at, len, write) {
        Err(Errno::FAULT) => Ok(()),
        other => other,
    }
}

fn touch_direct(hand: &mut Hand) -> rustix::io::Result<()> {
    let (_file, map, size) = hand.mapped(Sharing::Shared)?;
    touched(&map, size - 1, 1, false)
}

fn write_direct_map(hand: &mut Hand) -> rustix::io::Result<()> {
    let (_file, map, size) = hand.mapped(Sharing::Shared)?;
    touched(&map, size - 1, 1, true)
}

fn touch_private(hand: &mut Hand) -> rustix::io::Result<()> {
    let (_file, map, size) = hand.mapped(Sharing::Private)?;
    touched(&map, size - 1, 1, false)
}

fn write_private(hand: &mut Hand) -> rustix::io::Result<()> {
    let (_file, map, size) = hand.mapped(Sharing::Private)?;
    touched(&map, size - 1, 1, true)
}

fn touch_cut(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            for cut in [size / 2, size, PAGE + 1, size] {
                plain(file.set_len(cut as u64))?;
            }
            Ok(())
        });
        let write = hand.rng.bool();
        (0..4).try_for_each(|_| touched(&map, 0, size, write))?;
        cutter.join().unwrap_or(Ok(()))
    })
}

fn touch_punched(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    std::thread::scope(|scope| {
        let puncher = scope.spawn(|| match fallocate(&file, hole, PAGE as u64, size as u64) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => other,
        });
        touched(&map, 0, size, true)?;
        puncher.join().unwrap_or(Ok(()))
    })
}

fn touch_evicted(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            map_and_forget(&file, size)?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
        });
        touched(&map, 0, size, true)?;
        map.forget()?;
        touched(&map, 0, size, false)?;
        other.join().unwrap_or(Ok(()))
    })
}

fn map_and_forget(file: &File, size: usize) -> rustix::io::Result<()> {
    let map = Mapping::new(file, 0, size, Sharing::Shared, true)?;
    touched(&map, size - 1, 1, true)?;
    map.forget()
}

fn read_under_map(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    touched(&map, 0, size, true)?;
    let at = hand.block(size);
    let mut memory = Aligned::of(&[0; 16 * PAGE]);
    plain(file.read_at(memory.bytes(), at)).map(drop)
}

fn write_under_map(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    let at = hand.block(size);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut memory = Aligned::of(&[3; 4 * PAGE]);
            plain(file.write_at(memory.bytes(), at)).map(drop)
        });
        touched(&map, 0, size, true)?;
        writer.join().unwrap_or(Ok(()))
    })
}

fn read_into_itself(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    let at = hand.block(size);
    ended(hand.rng.bool(), |aio| aio.read(&file, at, Memory::Mapped(map)))
}

/// Does a call, and waits for it here or in the drop.
fn ended(
    wait: bool,
    begin: impl FnOnce(&mut Aio) -> rustix::io::Result<u64>,
) -> rustix::io::Result<()> {
    let mut aio = Aio::new(4)?;
    match begin(&mut aio) {
        // A map that reaches beyond the end of its file is no memory, and its length is not every file system's.
        Err(Errno::FAULT | Errno::INVAL) => return Ok(()),
        other => drop(other?),
    }
    match if wait { aio.wait()? } else { None } {
        // Too many wait for what the kernel holds back.
        Some((Err(Errno::FAULT | Errno::AGAIN | Errno::INVAL), ..)) | None => Ok(()),
        Some((result, ..)) => result.map(drop),
    }
}

fn read_before_cached(hand: &mut Hand) -> rustix::io::Result<()> {
    let path = hand.path();
    let (cached, direct) = (hand.open(&path, false)?, hand.open(&path, true)?);
    plain(cached.set_len(0))?;
    let size = hand.size();
    plain(cached.write_all_at(&[5; 100], (size + 2 * PAGE) as u64))?;
    let map = Mapping::new(&cached, 0, size, Sharing::Shared, true)?;
    let at = hand.block(size);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            ended(true, |aio| aio.read(&direct, at, Memory::Own(Aligned::of(&[0; PAGE]))))
        });
        touched(&map, 0, size, true)?;
        reader.join().unwrap_or(Ok(()))
    })
}

fn close_before_end(hand: &mut Hand) -> rustix::io::Result<()> {
    let path = hand.path();
    let cached = hand.open(&path, false)?;
    let size = hand.size().next_multiple_of(PAGE);
    plain(cached.set_len(size as u64))?;
    plain(cached.write_all_at(&[6; 10], 3))?;
    drop(cached);
    let mut aio = Aio::new(4)?;
    let direct = hand.open(&path, true)?;
    let at = hand.block(size);
    aio.write(&direct, at, Memory::Own(Aligned::of(&[8; PAGE])))?;
    aio.read(&direct, 0, Memory::Own(Aligned::of(&[0; PAGE])))?;
    // What is under way is now all that keeps it open.
    drop(direct);
    while let Some((result, ..)) = aio.wait()? {
        match result {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_into_other(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    let second = Mapping::new(&file, 0, size, Sharing::Shared, true)?;
    let from = hand.some(true)?;
    std::thread::scope(|scope| {
        let toucher = scope.spawn(move || {
            (0..3).try_for_each(|_| {
                touched(&second, 0, size, true)?;
                second.sync().or_else(|error| match error {
                    Errno::NOMEM => Ok(()),
                    error => Err(error),
                })
            })
        });
        ended(true, |aio| aio.read(&from, 0, Memory::Mapped(map)))?;
        toucher.join().unwrap_or(Ok(()))
    })
}

fn write_from_itself(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    touched(&map, 0, size, true)?;
    let at = hand.block(size);
    let whole = Mapping::new(&file, 0, size.next_multiple_of(PAGE), Sharing::Shared, true)?;
    ended(hand.rng.bool(), |aio| aio.write(&file, at, Memory::Mapped(whole)))
}

fn seek_written(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    std::thread::scope(|scope| {
        let seeker = scope.spawn(|| {
            for what in [SeekFrom::Data(0), SeekFrom::Hole(0), SeekFrom::Data(PAGE as u64)] {
                match rustix::fs::seek(&file, what) {
                    Ok(_) | Err(Errno::NXIO) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        touched(&map, 0, size, true)?;
        seeker.join().unwrap_or(Ok(()))
    })
}

fn unlink_mapped(hand: &mut Hand) -> rustix::io::Result<()> {
    let path = hand.home.join(format!("own{}-{}", std::process::id(), hand.rng.u64(..)));
    let (file, size) = (hand.open(&path, hand.rng.clone().bool())?, hand.size());
    plain(file.set_len(size as u64))?;
    let map = Mapping::new(&file, 0, size, Sharing::Shared, true)?;
    touched(&map, 0, size, true)?;
    drop(file);
    plain(std::fs::remove_file(&path))?;
    touched(&map, size - 1, 1, true)
}

fn sync_map(hand: &mut Hand) -> rustix::io::Result<()> {
    let (file, map, size) = hand.mapped(Sharing::Shared)?;
    let at = hand.block(size);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut memory = Aligned::of(&[9; 2 * PAGE]);
            plain(file.write_at(memory.bytes(), at))?;
            plain(file.sync_data())
        });
        touched(&map, 0, size, true)?;
        match map.sync() {
            Ok(()) | Err(Errno::NOMEM) => {}
            Err(error) => return Err(error),
        }
        writer.join().unwrap_or(Ok(()))
    })
}

/// Where a thread is.
#[derive(Default)]
struct At {
    steps: AtomicU64,
    kind: AtomicUsize,
}

/// Other processes, ended when this goes.
struct Others(Vec<Child>);

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            // One that has wedged cannot be ended.
            let _ = other.kill();
        }
    }
}

/// Does what the plan says in the folder `braid-posix-wedge` below `dir`, and removes it.
///
/// # Errors
///
/// When a step does not end, naming it; when one fails; or when the files cannot be made.
pub fn run(dir: &Path, plan: &Plan) -> Result<Done> {
    let home = dir.join("braid-posix-wedge");
    std::fs::create_dir_all(&home).with_context(|| format!("making {}", home.display()))?;
    let mut others = Others(Vec::new());
    for number in 1..plan.processes {
        let mut other = Command::new(&plan.program);
        let seed = plan.seed.wrapping_add(number << 32);
        other.args(["wedge", "--processes", "1"]).arg("--dir").arg(dir);
        other.args(["--seed", &seed.to_string()]);
        other.args(["--seconds", &plan.time.as_secs().to_string()]);
        other.args(["--threads", &plan.threads.to_string()]);
        other.args(["--pause-ms", &plan.pause.as_millis().to_string()]);
        other.args(["--patience", &plan.patience.as_secs().to_string(), "--json"]);
        others.0.push(other.spawn().context("starting another process")?);
    }
    let done = one_process(&home, plan)?;
    for mut other in std::mem::take(&mut others.0) {
        ensure!(other.wait()?.success(), "another process failed; what it said stands above");
    }
    if plan.processes > 1 {
        std::fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    }
    Ok(done)
}

fn one_process(home: &Path, plan: &Plan) -> Result<Done> {
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let at: std::sync::Arc<Vec<At>> =
        std::sync::Arc::new((0..plan.threads).map(|_| At::default()).collect());
    let counts: std::sync::Arc<Vec<AtomicU64>> =
        std::sync::Arc::new(STEPS.iter().map(|_| AtomicU64::new(0)).collect());
    // Not scoped: a thread that has wedged is left behind.
    let mut threads = Vec::new();
    for number in 0..plan.threads {
        let (home, pause) = (home.to_path_buf(), plan.pause);
        let (stop, at, counts) = (stop.clone(), at.clone(), counts.clone());
        let rng = fastrand::Rng::with_seed(plan.seed.wrapping_add(number as u64));
        threads.push(std::thread::spawn(move || -> Result<()> {
            let mut hand = Hand { home, rng };
            while !stop.load(Ordering::Relaxed) {
                let kind = hand.rng.usize(0..STEPS.len());
                at[number].kind.store(kind, Ordering::Relaxed);
                let (name, step) = STEPS[kind];
                match step(&mut hand) {
                    // What Linux says where direct writes meet a page that a map holds.
                    Ok(()) | Err(Errno::IO) => {}
                    Err(error) => bail!("{name}: {}", name_of(error)),
                }
                counts[kind].fetch_add(1, Ordering::Relaxed);
                at[number].steps.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(pause);
            }
            Ok(())
        }));
    }
    let (sync, drop_caches) = (plan.sync, plan.drop_caches);
    let syncs = std::sync::Arc::new(At::default());
    let syncer = {
        let (stop, syncs) = (stop.clone(), syncs.clone());
        std::thread::spawn(move || {
            while sync && !stop.load(Ordering::Relaxed) {
                rustix::fs::sync();
                if drop_caches {
                    // Without it the load is only the easier.
                    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
                }
                syncs.steps.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_secs(1));
            }
        })
    };
    let started = Instant::now();
    let mut seen: Vec<(u64, Instant)> = vec![(0, started); plan.threads + 1];
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let over = started.elapsed() >= plan.time || threads.iter().any(|one| one.is_finished());
        stop.store(over, Ordering::Relaxed);
        let ended = |number: usize| match threads.get(number) {
            Some(thread) => thread.is_finished(),
            None => !sync || syncer.is_finished(),
        };
        for (number, seen) in seen.iter_mut().enumerate() {
            let (steps, what) = match at.get(number) {
                Some(at) => (&at.steps, STEPS[at.kind.load(Ordering::Relaxed)].0),
                None => (&syncs.steps, "sync(2)"),
            };
            let steps = steps.load(Ordering::Relaxed);
            if steps != seen.0 {
                *seen = (steps, Instant::now());
            }
            if !ended(number) && seen.1.elapsed() > plan.patience {
                bail!(
                    "WEDGED: not back after {:?}: {what}; the mount must be aborted (/sys/fs/fuse/connections)",
                    plan.patience
                );
            }
        }
        if over && (0..seen.len()).all(ended) {
            break;
        }
    }
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    let kinds: Vec<(&'static str, u64)> = STEPS
        .iter()
        .zip(counts.iter())
        .map(|((name, _), count)| (*name, count.load(Ordering::Relaxed)))
        .collect();
    let steps = kinds.iter().map(|(_, count)| count).sum();
    Ok(Done { steps, kinds, syncs: syncs.steps.load(Ordering::Relaxed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_ends_where_nothing_wedges() {
        let dir = tempfile::tempdir().unwrap();
        let mut hand = Hand { home: dir.path().to_path_buf(), rng: fastrand::Rng::with_seed(1) };
        for (name, step) in STEPS {
            for _ in 0..3 {
                match step(&mut hand) {
                    // No direct I/O, as on older tmpfs; and what Linux says where direct writes meet a page that a map holds.
                    Ok(()) | Err(Errno::INVAL | Errno::IO) => {}
                    Err(error) => panic!("{name}: {}", name_of(error)),
                }
            }
        }
    }
}
