//! Random operations on one file, compared byte by byte with the same operations on memory: buffered, mapped, direct and
//! asynchronous ones beside each other.
//!
//! A run is decided by its seed, up to what the kernel writes when. What failed is told with the operations before it
//! that touched the place.

mod kinds;
mod under_way;

use crate::background::drop_caches_if;
use crate::bytes::{Aligned, pattern};
use crate::raw::{Mapping, Sharing};
use crate::scene::{equal, name_of, same_bytes, works};
use anyhow::{Context, Result, bail};
use kinds::{KINDS, Kind};
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use under_way::{Touch, UnderWay};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides all of it; file `n` has the seed plus `n`.
    pub seed: u64,
    /// Operations for each file.
    pub operations: u64,
    /// The largest size of a file, in bytes.
    pub size: usize,
    /// Files, each with a thread.
    pub files: u64,
    /// Whether the kernel is told to forget all files now and then; only root may.
    pub drop_caches: bool,
    /// Also opens the file for direct I/O, where that is to be had, and reads and writes it asynchronously so.
    pub direct: bool,
}

/// What was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Operations on all files.
    pub operations: u64,
    /// Bytes that were compared.
    pub compared: u64,
    /// Asynchronous requests that began while another of the same file was under way.
    pub side_by_side: u64,
    /// Kinds of operations that the file system does not have.
    pub missing: Vec<String>,
}

#[derive(Clone, Debug)]
struct Step {
    number: u64,
    kind: Kind,
    at: usize,
    len: usize,
    size_before: usize,
}

struct Subject {
    path: PathBuf,
    file: File,
    /// The same file, opened for direct I/O where there is such a thing.
    direct: Option<OwnedFd>,
    wants_direct: bool,
    /// Asynchronous requests; none where there is no such thing.
    under_way: Option<UnderWay>,
    want: Vec<u8>,
    rng: fastrand::Rng,
    log: VecDeque<Step>,
    done: Done,
}

/// Does what the plan says in a folder below `dir`, and removes it unless something failed.
///
/// # Errors
///
/// The first difference, with the seed and the operations that led to it; or what refused to work.
pub fn run(dir: &Path, plan: &Plan) -> Result<Done> {
    let home = dir.join(format!("braid-posix-fsx-{}", std::process::id()));
    std::fs::create_dir(&home).with_context(|| format!("making {}", home.display()))?;
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.files)
            .map(|number| {
                let (path, plan) = (home.join(format!("{number}")), plan.clone());
                scope.spawn(move || one(path, &plan, number))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut total = Done::default();
    for one in all {
        let done =
            one.map_err(|_| anyhow::anyhow!("a thread panicked; what it said stands above"))??;
        total.operations += done.operations;
        total.compared += done.compared;
        total.side_by_side += done.side_by_side;
        for missing in done.missing {
            if !total.missing.contains(&missing) {
                total.missing.push(missing);
            }
        }
    }
    std::fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    Ok(total)
}

fn one(path: PathBuf, plan: &Plan, number: u64) -> Result<Done> {
    let seed = plan.seed.wrapping_add(number);
    let mut subject = Subject::new(path, seed, plan.direct)?;
    for step in 0..plan.operations {
        if let Err(error) = subject.step(step, plan) {
            bail!("file {}, seed {seed}: {error:#}\n{}", subject.path.display(), subject.history());
        }
    }
    let last = subject.end();
    if let Err(error) = last {
        bail!(
            "file {}, seed {seed}, at the end: {error:#}\n{}",
            subject.path.display(),
            subject.history()
        );
    }
    Ok(subject.done)
}

impl Subject {
    fn new(path: PathBuf, seed: u64, wants_direct: bool) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("making {}", path.display()))?;
        let mut this = Self {
            path,
            file,
            direct: None,
            wants_direct,
            under_way: if wants_direct { UnderWay::new()? } else { None },
            want: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            log: VecDeque::new(),
            done: Done::default(),
        };
        this.open_direct()?;
        Ok(this)
    }

    fn open_direct(&mut self) -> Result<()> {
        if !self.wants_direct {
            return Ok(());
        }
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        self.direct = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(Errno::INVAL) => None,
            other => Some(works("opening for direct I/O", other)?),
        };
        Ok(())
    }

    fn draw(&mut self, plan: &Plan) -> Kind {
        let total = KINDS.iter().map(|(_, weight)| weight).sum();
        let mut place = self.rng.u32(0..total);
        for (kind, weight) in KINDS {
            if place < *weight {
                return match kind {
                    Kind::DropCaches if !plan.drop_caches => Kind::Forget,
                    kind => *kind,
                };
            }
            place -= weight;
        }
        Kind::Read
    }

    /// A range below `limit` that is not empty, small or large, and often at a border of blocks.
    fn range(&mut self, limit: usize) -> (usize, usize) {
        let mut at = self.rng.usize(0..limit);
        if self.rng.u8(0..4) == 0 {
            let unit = [512, 4096, 65_536, 131_072][self.rng.usize(0..4)];
            at = at / unit * unit;
        }
        let most = if self.rng.bool() { 9_000 } else { 300_000 };
        (at, self.rng.usize(1..=most.min(limit - at)))
    }

    fn step(&mut self, number: u64, plan: &Plan) -> Result<()> {
        let kind = self.draw(plan);
        let size = self.want.len();
        // What reads needs bytes that are there; what changes may go beyond the end.
        let needs_bytes = matches!(
            kind,
            Kind::Read
                | Kind::DirectRead
                | Kind::AsyncRead
                | Kind::MapRead
                | Kind::MapWrite
                | Kind::Copy
        );
        if needs_bytes && size == 0 {
            return Ok(());
        }
        let limit = if needs_bytes { size } else { plan.size };
        let (mut at, mut len) = self.range(limit);
        match kind {
            Kind::DirectRead | Kind::DirectWrite | Kind::AsyncRead | Kind::AsyncWrite => {
                at = at / 4096 * 4096;
                len = len.div_ceil(4096) * 4096;
                len = len.min((plan.size.saturating_sub(at)) / 4096 * 4096);
            }
            Kind::Append => {
                at = size;
                len = len.min(plan.size - size);
            }
            _ => {}
        }
        if len == 0 {
            return Ok(());
        }
        self.log.push_back(Step { number, kind, at, len, size_before: size });
        if self.log.len() > 4000 {
            self.log.pop_front();
        }
        self.done.operations += 1;
        self.settle(kind, at, len)
            .and_then(|()| self.act(number, kind, at, len))
            .with_context(|| format!("operation {number}, {kind:?} of {len} bytes at {at}"))?;
        let found = self.file.metadata()?.len();
        equal(
            format!("size after operation {number}, {kind:?} of {len} bytes at {at}"),
            found,
            self.want.len() as u64,
        )
    }

    fn act(&mut self, number: u64, kind: Kind, at: usize, len: usize) -> Result<()> {
        let offset = at as u64;
        match kind {
            Kind::Read => {
                // Some bytes more than there are: the end has to be right, too.
                let mut got = vec![0; len + 100];
                let mut n = 0;
                while n < got.len() {
                    match self.file.read_at(&mut got[n..], offset + n as u64)? {
                        0 => break,
                        more => n += more,
                    }
                }
                self.compare("read", at, &got[..n], len + 100)?;
            }
            Kind::Write | Kind::Append => {
                let bytes = pattern(self.rng.u64(..), len);
                self.file.write_all_at(&bytes, offset)?;
                self.put(at, &bytes);
            }
            Kind::DirectRead | Kind::DirectWrite if self.direct.is_none() => self.lacks(kind),
            Kind::AsyncRead | Kind::AsyncWrite => self.begin(number, kind, at, len)?,
            Kind::DirectRead => {
                let mut got = Aligned::of(&vec![0; len]);
                let n = match &self.direct {
                    Some(file) => {
                        works("direct read", rustix::io::pread(file, got.bytes(), offset))?
                    }
                    None => 0,
                };
                self.compare("direct read", at, &got.bytes()[..n], len)?;
            }
            Kind::DirectWrite => {
                let bytes = pattern(self.rng.u64(..), len);
                if let Some(file) = &self.direct {
                    let wrote = rustix::io::pwrite(file, Aligned::of(&bytes).bytes(), offset);
                    equal("bytes written directly", works("direct write", wrote)?, len)?;
                }
                self.put(at, &bytes);
            }
            Kind::MapRead | Kind::MapWrite => {
                let start = at / 4096 * 4096;
                let write = kind == Kind::MapWrite;
                let len = len.min(self.want.len() - at);
                let mapped = Mapping::new(
                    &self.file,
                    start as u64,
                    at - start + len,
                    Sharing::Shared,
                    write,
                );
                let mut map = works("mmap", mapped)?;
                if self.is_written_aside() {
                    works("madvise", map.here_and_there())?;
                }
                if write {
                    let bytes = pattern(self.rng.u64(..), len);
                    map.write(at - start, &bytes);
                    self.put(at, &bytes);
                    if self.rng.bool() {
                        works("msync", map.sync())?;
                    }
                } else {
                    let mut got = vec![0; len];
                    map.read(at - start, &mut got);
                    self.compare("map", at, &got, len)?;
                }
            }
            Kind::Truncate => {
                self.file.set_len(offset)?;
                self.want.resize(at, 0);
            }
            Kind::Punch => self.range_call(
                kind,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                at,
                len,
            )?,
            Kind::Zero => self.range_call(kind, FallocateFlags::ZERO_RANGE, at, len)?,
            Kind::ZeroKeep => {
                self.range_call(
                    kind,
                    FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                    at,
                    len,
                )?;
            }
            Kind::Allocate => self.range_call(kind, FallocateFlags::empty(), at, len)?,
            Kind::AllocateKeep => self.range_call(kind, FallocateFlags::KEEP_SIZE, at, len)?,
            Kind::Copy => self.copy(at, len)?,
            Kind::Sync => self.file.sync_all()?,
            Kind::DataSync => self.file.sync_data()?,
            Kind::Forget => self.forget()?,
            Kind::Reopen => {
                self.file = File::options().read(true).write(true).open(&self.path)?;
                self.open_direct()?;
            }
            Kind::DropCaches => {
                self.file.sync_all()?;
                drop_caches_if(true)?;
            }
            Kind::CompareAll => self.compare_all()?,
        }
        Ok(())
    }

    /// Begins an asynchronous request.
    fn begin(&mut self, number: u64, kind: Kind, at: usize, len: usize) -> Result<()> {
        let (Some(under_way), Some(file)) = (&mut self.under_way, &self.direct) else {
            self.lacks(kind);
            return Ok(());
        };
        if kind == Kind::AsyncRead {
            let wanted = self.want[at..(at + len).min(self.want.len())].to_vec();
            return under_way.read(file, number, at, len, wanted);
        }
        let bytes = pattern(self.rng.u64(..), len);
        under_way.write(file, number, at, &bytes)?;
        if at + len > self.want.len() {
            // The size is looked at next, and is there when the request has ended.
            under_way.settle(Touch::Write, at..at + len)?;
        }
        self.put(at, &bytes);
        Ok(())
    }

    /// Waits for the requests under way that an operation would meet.
    fn settle(&mut self, kind: Kind, at: usize, len: usize) -> Result<()> {
        let ranges = self.touched(kind, at, len);
        let Some(under_way) = &mut self.under_way else { return Ok(()) };
        ranges.into_iter().try_for_each(|(touch, range)| under_way.settle(touch, range))?;
        // Linux keeps pages in the cache that were read ahead beside a direct write, with the bytes from before.
        let advice = if self.is_written_aside() { Advice::Random } else { Advice::Normal };
        works("fadvise", rustix::fs::fadvise(&self.file, 0, None, advice))
    }

    /// An asynchronous write may be under way.
    fn is_written_aside(&self) -> bool {
        self.under_way.as_ref().is_some_and(UnderWay::has_writes)
    }

    /// The bytes that an operation sees or changes.
    fn touched(&self, kind: Kind, at: usize, len: usize) -> Vec<(Touch, Range<usize>)> {
        let (size, end) = (self.want.len(), at + len);
        match kind {
            // It asks for some bytes more.
            Kind::Read => vec![(Touch::Read, at..end + 100)],
            Kind::DirectRead | Kind::AsyncRead | Kind::MapRead => vec![(Touch::Read, at..end)],
            Kind::CompareAll => vec![(Touch::Read, 0..usize::MAX)],
            Kind::Truncate => vec![(Touch::Write, at.min(size)..usize::MAX)],
            Kind::Copy => {
                let (from, to, len) = self.halves(at, len);
                vec![(Touch::Read, from..from + len), (Touch::Write, to..to + len)]
            }
            Kind::Sync | Kind::DataSync | Kind::Forget | Kind::Reopen | Kind::DropCaches => {
                Vec::new()
            }
            // An operation that makes the file longer also changes the bytes after its old end.
            _ => vec![(Touch::Write, if end > size { at.min(size)..usize::MAX } else { at..end })],
        }
    }

    fn end(&mut self) -> Result<()> {
        if let Some(under_way) = &mut self.under_way {
            under_way.settle_all()?;
            self.done.side_by_side = under_way.side_by_side;
            self.done.compared += under_way.compared;
        }
        self.file.sync_all().context("fsync at the end")?;
        self.forget()?;
        self.compare_all()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if self.want.len() < at + bytes.len() {
            self.want.resize(at + bytes.len(), 0);
        }
        self.want[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn lacks(&mut self, kind: Kind) {
        let name = format!("{kind:?}");
        if !self.done.missing.contains(&name) {
            self.done.missing.push(name);
        }
    }

    fn range_call(
        &mut self,
        kind: Kind,
        flags: FallocateFlags,
        at: usize,
        len: usize,
    ) -> Result<()> {
        match fallocate(&self.file, flags, at as u64, len as u64) {
            Err(Errno::OPNOTSUPP) => {
                self.lacks(kind);
                return Ok(());
            }
            other => works("fallocate", other)?,
        }
        let end = at + len;
        if !flags.contains(FallocateFlags::KEEP_SIZE) && self.want.len() < end {
            self.want.resize(end, 0);
        }
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let end = end.min(self.want.len());
            if at < end {
                self.want[at..end].fill(0);
            }
        }
        Ok(())
    }

    /// From, to and how many bytes: from one half of the file to the other, so that the ranges never meet.
    fn halves(&self, at: usize, len: usize) -> (usize, usize, usize) {
        let half = self.want.len() / 2;
        let (from, to) = if at < half { (at, half + at) } else { (at, at - half) };
        let room = self.want.len() - from.max(to);
        (from, to, len.min(room).min(half))
    }

    /// Copies within the file.
    fn copy(&mut self, at: usize, len: usize) -> Result<()> {
        let (from, to, len) = self.halves(at, len);
        let (mut source, mut target) = (from as u64, to as u64);
        let mut left = len;
        while left > 0 {
            let got = rustix::fs::copy_file_range(
                &self.file,
                Some(&mut source),
                &self.file,
                Some(&mut target),
                left,
            );
            match got {
                Ok(0) => bail!("copy_file_range ends {left} bytes early"),
                Ok(n) => left -= n,
                Err(errno) => bail!("copy_file_range from {from} to {to}: {}", name_of(errno)),
            }
        }
        self.want.copy_within(from..from + len, to);
        Ok(())
    }

    fn forget(&self) -> Result<()> {
        works("fadvise", rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed))
    }

    /// Compares what was read from `at` on, where `asked` bytes were asked for.
    fn compare(&mut self, what: &str, at: usize, got: &[u8], asked: usize) -> Result<()> {
        let end = (at + asked).min(self.want.len());
        self.done.compared += got.len() as u64;
        let want = self.want.get(at..end).unwrap_or_default();
        same_bytes(format!("{what} from {at} on"), got, want)
    }

    fn compare_all(&mut self) -> Result<()> {
        let got = std::fs::read(&self.path)?;
        self.compare("the whole", 0, &got, usize::MAX / 2)
    }

    /// The last operations, as they are of use to one who looks for what went wrong.
    fn history(&self) -> String {
        let shown = self.log.iter().rev().take(60).collect::<Vec<_>>();
        let lines = shown.iter().rev().map(|step| {
            format!(
                "  {:>7} {:<12} {:>9}..{:<9} size {}",
                step.number,
                format!("{:?}", step.kind),
                step.at,
                step.at + step.len,
                step.size_before
            )
        });
        let lines: Vec<String> = lines.collect();
        format!("the last operations:\n{}", lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { seed: 1, operations: 400, size: 300_000, files: 2, drop_caches: false, direct: true }
    }

    #[test]
    fn a_file_system_that_keeps_bytes_passes() {
        let dir = tempfile::tempdir().unwrap();
        let done = run(dir.path(), &plan()).unwrap();
        assert!(done.operations > 600 && done.compared > 1 << 20, "{done:?}");
        assert!(
            done.side_by_side > 20 || done.missing.contains(&"AsyncRead".to_owned()),
            "{done:?}"
        );
    }

    #[test]
    fn a_byte_that_changes_is_found_with_its_history() {
        let dir = tempfile::tempdir().unwrap();
        let mut subject = Subject::new(dir.path().join("file"), 1, true).unwrap();
        while subject.want.len() < 5000 || !subject.history().contains("Write") {
            subject.step(subject.done.operations, &plan()).unwrap();
        }
        subject.settle(Kind::Truncate, 0, 1).unwrap();
        let old = subject.want[4321];
        subject.file.write_all_at(&[!old], 4321).unwrap();
        let error = subject.compare_all().unwrap_err().to_string();
        assert!(error.contains("byte 4321"), "{error}");
        assert!(subject.history().contains("Write"));
    }
}
