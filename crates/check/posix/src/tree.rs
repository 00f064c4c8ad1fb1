//! A tree like that of a large source package: made, looked at, read and removed, each with its time.
//!
//! The distribution is a model, the same for every file system: sizes are log-normal with a median of 5 KiB and a mean
//! of some 15 KiB (sigma 1.5), at most 1 MiB; one directory for 16 files, each below an earlier one, at most 8 deep.

use crate::background::drop_caches_if;
use crate::bytes::pattern;
use crate::scene::same_bytes;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MEDIAN: f64 = 5.0 * 1024.0;
const SIGMA: f64 = 1.5;
const LARGEST: usize = 1 << 20;
const DEEPEST: usize = 8;
const FILES_PER_DIRECTORY: usize = 16;

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides names, sizes and bytes.
    pub seed: u64,
    /// The number of files.
    pub files: usize,
    /// Threads, each with its share of the files.
    pub threads: usize,
    /// Whether the kernel is told to forget all files before they are looked at and read; only root may.
    pub drop_caches: bool,
}

/// How fast one part went.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Its name: create, sync, stat, read, delete.
    pub phase: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// Files divided by seconds.
    pub files_per_s: f64,
    /// How far the meter of [`run_metered`] went.
    #[serde(skip)]
    pub metered: f64,
}

/// What was made and how fast.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// The number of files.
    pub files: usize,
    /// The number of directories.
    pub directories: usize,
    /// The bytes of all files.
    pub bytes: u64,
    /// The parts, in order.
    pub phases: Vec<Phase>,
}

struct Tree {
    /// Relative to the tree's root, parents first.
    directories: Vec<PathBuf>,
    files: Vec<Planned>,
    /// What all files' bytes are pieces of: making bytes for each would take longer than a file system does.
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Planned {
    path: PathBuf,
    /// Where its bytes begin in the tree's.
    start: usize,
    size: usize,
}

impl Planned {
    fn bytes<'a>(&self, tree: &'a Tree) -> &'a [u8] {
        &tree.bytes[self.start..self.start + self.size]
    }
}

impl Tree {
    fn of(plan: &Plan) -> Self {
        let mut rng = fastrand::Rng::with_seed(plan.seed);
        let mut directories = vec![(PathBuf::new(), 0)];
        for number in 0..plan.files / FILES_PER_DIRECTORY {
            let (parent, depth) = &directories[rng.usize(0..directories.len())];
            // One that is too deep already puts the new one at the top.
            let (path, depth) = if *depth >= DEEPEST {
                (PathBuf::from(format!("d{number}")), 1)
            } else {
                (parent.join(format!("d{number}")), depth + 1)
            };
            directories.push((path, depth));
        }
        let files = (0..plan.files)
            .map(|number| {
                let (parent, _) = &directories[rng.usize(0..directories.len())];
                Planned {
                    path: parent.join(format!("file{number}.c")),
                    start: rng.usize(0..LARGEST),
                    size: size(&mut rng),
                }
            })
            .collect();
        let directories = directories.into_iter().skip(1).map(|(path, _)| path).collect();
        Self { directories, files, bytes: pattern(plan.seed, 2 * LARGEST) }
    }
}

/// A size of the log-normal distribution, by the method of Box and Muller.
fn size(rng: &mut fastrand::Rng) -> usize {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    // Not negative, and the cast takes what is too large to the largest.
    ((MEDIAN * (SIGMA * normal).exp()) as usize).min(LARGEST)
}

/// Makes the tree in a folder below `dir`, looks at it, reads it and removes it.
///
/// # Errors
///
/// What refused to work, and the first file that does not hold what was written to it.
pub fn run(dir: &Path, plan: &Plan) -> Result<Done> {
    run_metered(dir, plan, &|| Ok(0.0))
}

/// As [`run`]; `meter` is read before and after each part: what it counts upwards is noted with the part.
///
/// # Errors
///
/// As [`run`], and those of the meter.
pub fn run_metered(dir: &Path, plan: &Plan, meter: &dyn Fn() -> Result<f64>) -> Result<Done> {
    let tree = Tree::of(plan);
    let root = dir.join(format!("braid-posix-tree-{}", std::process::id()));
    std::fs::create_dir(&root).with_context(|| format!("making {}", root.display()))?;
    let mut phases = Vec::new();
    let mut timed = |phase: &'static str, work: &dyn Fn() -> Result<()>| -> Result<()> {
        let (before, started) = (meter()?, Instant::now());
        work()?;
        let seconds = started.elapsed().as_secs_f64();
        let (metered, files_per_s) = (meter()? - before, plan.files as f64 / seconds.max(1e-9));
        phases.push(Phase { phase, seconds, files_per_s, metered });
        Ok(())
    };
    timed("create", &|| {
        for path in &tree.directories {
            std::fs::create_dir(root.join(path))
                .with_context(|| format!("making the directory {}", path.display()))?;
        }
        shared(plan, &tree, |file| {
            std::fs::write(root.join(&file.path), file.bytes(&tree))
                .with_context(|| format!("writing {}", file.path.display()))
        })
    })?;
    timed("sync", &|| {
        let opened = std::fs::File::open(&root);
        let opened = opened.with_context(|| format!("opening {}", root.display()))?;
        rustix::fs::syncfs(opened).context("syncing the file system")
    })?;
    drop_caches_if(plan.drop_caches)?;
    timed("stat", &|| {
        let seen = walk(&root)?;
        ensure!(seen == plan.files, "{seen} files were found, should be {}", plan.files);
        shared(plan, &tree, |Planned { path, size, .. }| {
            let found = std::fs::symlink_metadata(root.join(path))
                .with_context(|| format!("stat of {}", path.display()))?;
            ensure!(
                found.len() == *size as u64,
                "{} has {} bytes, should have {size}",
                path.display(),
                found.len()
            );
            Ok(())
        })
    })?;
    drop_caches_if(plan.drop_caches)?;
    timed("read", &|| {
        shared(plan, &tree, |file| {
            let path = &file.path;
            let got = std::fs::read(root.join(path))
                .with_context(|| format!("reading {}", path.display()))?;
            same_bytes(path.display(), &got, file.bytes(&tree))
        })
    })?;
    timed("delete", &|| {
        shared(plan, &tree, |Planned { path, .. }| {
            std::fs::remove_file(root.join(path))
                .with_context(|| format!("removing {}", path.display()))
        })?;
        for path in tree.directories.iter().rev() {
            std::fs::remove_dir(root.join(path))
                .with_context(|| format!("removing {}", path.display()))?;
        }
        std::fs::remove_dir(&root).with_context(|| format!("removing {}", root.display()))
    })?;
    Ok(Done {
        files: plan.files,
        directories: tree.directories.len(),
        bytes: tree.files.iter().map(|file| file.size as u64).sum(),
        phases,
    })
}

/// Does the work for every file, by the plan's threads.
fn shared(plan: &Plan, tree: &Tree, work: impl Fn(&Planned) -> Result<()> + Sync) -> Result<()> {
    let threads = plan.threads.max(1);
    let each = tree.files.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = tree
            .files
            .chunks(each)
            .map(|files| scope.spawn(move || files.iter().try_for_each(work)))
            .collect();
        all.into_iter().try_for_each(|one| match one.join() {
            Ok(done) => done,
            Err(_) => anyhow::bail!("a thread panicked; what it said stands above"),
        })
    })
}

/// The number of files below a directory, found by listing.
fn walk(dir: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in std::fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
        if entry.file_type()?.is_dir() {
            files += walk(&entry.path())?;
        } else {
            files += 1;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(files: usize) -> Plan {
        Plan { seed: 1, files, threads: 2, drop_caches: false }
    }

    #[test]
    fn a_tree_is_made_and_gone() {
        let dir = tempfile::tempdir().unwrap();
        let done = run(dir.path(), &plan(500)).unwrap();
        assert_eq!((done.files, done.directories, done.phases.len()), (500, 31, 5));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn sizes_are_those_of_the_model() {
        let mut sizes: Vec<usize> =
            Tree::of(&plan(20_000)).files.iter().map(|file| file.size).collect();
        sizes.sort_unstable();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((4_800..5_500).contains(&sizes[10_000]), "median {}", sizes[10_000]);
        assert!((12_000..18_000).contains(&mean), "mean {mean}");
        assert!(sizes.iter().all(|size| *size <= LARGEST));
    }

    #[test]
    fn the_same_seed_gives_the_same_tree() {
        assert_eq!(Tree::of(&plan(300)).files, Tree::of(&plan(300)).files);
        assert_ne!(Tree::of(&Plan { seed: 2, ..plan(300) }).files, Tree::of(&plan(300)).files);
    }
}
