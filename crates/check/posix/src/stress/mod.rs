//! Random operations on names by several threads, each call's answer compared with a model's.
//!
//! Every thread has a directory of its own, for which it knows what each call should answer and what the tree should
//! hold at the end. Between, it works in a directory that all share: there only what no order of events can explain is
//! an error, and at the end the tree has to agree with itself.

mod model;

use crate::bytes::pattern;
use crate::scene::{equal, facts, holds, name_of, plain, same_bytes};
use anyhow::{Context, Result, bail, ensure};
use model::{Model, Node};
use rustix::fs::Mode;
use rustix::io::Errno;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides the operations; thread `n` has the seed plus `n`.
    pub seed: u64,
    /// Operations for each thread.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Whether the kernel is told to forget all files before the last comparison; only root may.
    pub drop_caches: bool,
}

/// What was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Operations of all threads.
    pub operations: u64,
    /// Those that should fail, and did with the right error.
    pub refused: u64,
    /// Names in the threads' own directories at the end, all compared.
    pub names: u64,
    /// Names in the shared directory at the end.
    pub shared_names: u64,
}

/// One call, on paths below some root.
#[derive(Clone, Debug)]
enum Call {
    Create(PathBuf, Vec<u8>, u32),
    Write(PathBuf, usize, Vec<u8>),
    Truncate(PathBuf, usize),
    Chmod(PathBuf, u32),
    Mkdir(PathBuf),
    Symlink(String, PathBuf),
    Rmdir(PathBuf),
    Unlink(PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Call {
    fn on_disk(&self, root: &Path) -> rustix::io::Result<()> {
        let at = |path: &PathBuf| root.join(path);
        let write = |path: &PathBuf| File::options().write(true).open(at(path));
        match self {
            Self::Create(path, bytes, mode) => plain(
                File::options()
                    .write(true)
                    .create_new(true)
                    .mode(*mode)
                    .open(at(path))
                    .and_then(|file| file.write_all_at(bytes, 0)),
            ),
            Self::Write(path, offset, bytes) => {
                plain(write(path).and_then(|file| file.write_all_at(bytes, *offset as u64)))
            }
            Self::Truncate(path, size) => {
                plain(write(path).and_then(|file| file.set_len(*size as u64)))
            }
            Self::Chmod(path, mode) => {
                // By a descriptor: the model leaves the permissions of directories alone.
                plain(
                    write(path).and_then(|file| {
                        file.set_permissions(std::fs::Permissions::from_mode(*mode))
                    }),
                )
            }
            Self::Mkdir(path) => rustix::fs::mkdir(at(path), Mode::from(0o755)),
            Self::Symlink(text, path) => rustix::fs::symlink(text, at(path)),
            Self::Rmdir(path) => rustix::fs::rmdir(at(path)),
            Self::Unlink(path) => rustix::fs::unlink(at(path)),
            Self::Link(from, to) => rustix::fs::link(at(from), at(to)),
            Self::Rename(from, to) => rustix::fs::rename(at(from), at(to)),
        }
    }

    fn in_model(&self, model: &mut Model) -> rustix::io::Result<()> {
        match self {
            Self::Create(path, bytes, mode) => model.create(path, bytes, *mode),
            Self::Write(path, offset, bytes) => model.write(path, *offset, bytes),
            Self::Truncate(path, size) => model.truncate(path, *size),
            Self::Chmod(path, mode) => model.chmod(path, *mode),
            Self::Mkdir(path) => model.mkdir(path),
            Self::Symlink(text, path) => model.symlink(text, path),
            Self::Rmdir(path) => model.rmdir(path),
            Self::Unlink(path) => model.unlink(path),
            Self::Link(from, to) => model.link(from, to),
            Self::Rename(from, to) => model.rename(from, to),
        }
    }

    /// Without the bytes.
    fn said(&self) -> String {
        match self {
            Self::Create(path, bytes, _) => {
                format!("create {} with {} bytes", path.display(), bytes.len())
            }
            Self::Write(path, at, bytes) => {
                format!("write {} bytes at {at} of {}", bytes.len(), path.display())
            }
            other => format!("{other:?}"),
        }
    }
}

/// Does what the plan says in a folder below `dir`, and removes it unless something failed.
///
/// # Errors
///
/// The first call that answered otherwise than it should, or the first difference of the trees, with the seed.
pub fn run(dir: &Path, plan: &Plan) -> Result<Done> {
    rustix::process::umask(Mode::empty());
    let home = dir.join(format!("braid-posix-stress-{}", std::process::id()));
    let shared = home.join("shared");
    std::fs::create_dir_all(&shared).with_context(|| format!("making {}", shared.display()))?;
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|number| {
                let (own, shared) = (home.join(format!("own-{number}")), &shared);
                scope.spawn(move || {
                    let seed = plan.seed.wrapping_add(number);
                    one(&own, shared, seed, plan.operations)
                        .with_context(|| format!("in {}, seed {seed}", own.display()))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut total = Done::default();
    let mut models = Vec::new();
    for (number, one) in ended.into_iter().enumerate() {
        let (done, model) =
            one.map_err(|_| anyhow::anyhow!("a thread panicked; what it said stands above"))??;
        total.operations += done.operations;
        total.refused += done.refused;
        models.push((home.join(format!("own-{number}")), model));
    }
    if plan.drop_caches {
        rustix::fs::syncfs(File::open(&home)?)?;
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .context("dropping caches, which root may")?;
    }
    for (own, model) in &models {
        total.names +=
            compare(own, model).with_context(|| format!("at the end, seed {}", plan.seed))?;
    }
    total.shared_names = agrees_with_itself(&shared).context("the shared directory")?;
    std::fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    Ok(total)
}

fn one(own: &Path, shared: &Path, seed: u64, operations: u64) -> Result<(Done, Model)> {
    std::fs::create_dir(own).with_context(|| format!("making {}", own.display()))?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut model, mut done) = (Model::default(), Done::default());
    let mut log: VecDeque<String> = VecDeque::new();
    for number in 0..operations {
        done.operations += 1;
        let own_call = draw(&mut rng, &model.directories());
        let want = own_call.in_model(&mut model);
        let got = own_call.on_disk(own);
        log.push_back(format!("  {number:>6} {}", own_call.said()));
        if log.len() > 40 {
            log.pop_front();
        }
        // POSIX leaves the choice between the two.
        let alike = got == Err(Errno::EXIST) && want == Err(Errno::NOTEMPTY);
        if got != want && !alike {
            let say = |answer: rustix::io::Result<()>| {
                answer.map_or_else(name_of, |()| "success".to_owned())
            };
            bail!(
                "operation {number}, {}: {}, should be {}\nthe last operations:\n{}",
                own_call.said(),
                say(got),
                say(want),
                log.make_contiguous().join("\n")
            );
        }
        done.refused += u64::from(want.is_err());
        if rng.u8(0..3) == 0 {
            disturb(&mut rng, shared)?;
        }
        if rng.u8(0..30) == 0 {
            look(&mut rng, own, &model).with_context(|| {
                format!(
                    "after operation {number}; the last operations:\n{}",
                    log.make_contiguous().join("\n")
                )
            })?;
        }
    }
    Ok((done, model))
}

const NAMES: [&str; 9] = ["a", "b", "c", "dd", "ee", "a name of some more bytes", "f", "g", "h"];

/// A path with a parent that is mostly there, and a name that is often taken.
fn path(rng: &mut fastrand::Rng, directories: &[PathBuf]) -> PathBuf {
    let mut parent = directories[rng.usize(0..directories.len())].clone();
    if rng.u8(0..12) == 0 {
        parent.push(NAMES[rng.usize(0..NAMES.len())]);
    }
    // Deep enough for anything that depth could show, and no path grows without end.
    if parent.components().count() > 12 {
        parent = PathBuf::new();
    }
    parent.join(NAMES[rng.usize(0..NAMES.len())])
}

fn draw(rng: &mut fastrand::Rng, directories: &[PathBuf]) -> Call {
    let path = |rng: &mut fastrand::Rng| path(rng, directories);
    match rng.u8(0..28) {
        0..5 => {
            let mode = [0o644, 0o600, 0o755, 0o777][rng.usize(0..4)];
            let len = rng.usize(0..20_000);
            Call::Create(path(rng), pattern(rng.u64(..), len), mode)
        }
        5..8 => {
            let len = rng.usize(1..10_000);
            Call::Write(path(rng), rng.usize(0..200_000), pattern(rng.u64(..), len))
        }
        8..10 => Call::Truncate(path(rng), rng.usize(0..200_000)),
        10..12 => Call::Chmod(path(rng), [0o600, 0o640, 0o666, 0o700][rng.usize(0..4)]),
        12..16 => Call::Mkdir(path(rng)),
        16..18 => {
            Call::Symlink(format!("leads nowhere {}", "x".repeat(rng.usize(0..200))), path(rng))
        }
        18..20 => Call::Rmdir(path(rng)),
        20..22 => Call::Unlink(path(rng)),
        22..24 => Call::Link(path(rng), path(rng)),
        _ => Call::Rename(path(rng), path(rng)),
    }
}

/// One call in the shared directory, where others are at work.
fn disturb(rng: &mut fastrand::Rng, shared: &Path) -> Result<()> {
    let directories = ["", "a", "b", "a/b", "a/c", "c/dd", "b/a"].map(PathBuf::from);
    let call = draw(rng, &directories);
    match call.on_disk(shared) {
        Ok(())
        | Err(
            Errno::NOENT
            | Errno::EXIST
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::NOTEMPTY
            | Errno::INVAL
            | Errno::PERM,
        ) => {}
        Err(other) => bail!("{} in the shared directory: {}", call.said(), name_of(other)),
    }
    if rng.u8(0..10) == 0 {
        for entry in std::fs::read_dir(shared)? {
            let name = entry.context("listing the shared directory")?.file_name();
            holds(
                format!("{} is a name that was made", name.display()),
                NAMES.iter().any(|known| **known == *name),
            )?;
        }
    }
    Ok(())
}

/// Looks at one directory and what is in it, in the middle of things.
fn look(rng: &mut fastrand::Rng, own: &Path, model: &Model) -> Result<()> {
    let directories = model.directories();
    let dir = &directories[rng.usize(0..directories.len())];
    let mut listed = BTreeSet::new();
    for entry in
        std::fs::read_dir(own.join(dir)).with_context(|| format!("listing {}", dir.display()))?
    {
        let name = PathBuf::from(entry?.file_name());
        ensure!(
            listed.insert(name.clone()),
            "{} is listed twice in {}",
            name.display(),
            dir.display()
        );
    }
    equal(format!("names in {}", dir.display()), &listed, &model.names(dir))?;
    for name in &listed {
        let path = dir.join(name);
        let node = model.stat(&path).map_err(|errno| anyhow::anyhow!("the model: {errno:?}"))?;
        same(own, model, &path, &node)?;
    }
    Ok(())
}

/// Compares one name.
fn same(own: &Path, model: &Model, path: &Path, node: &Node) -> Result<()> {
    let whole = own.join(path);
    let found = facts(&whole)?;
    let shown = path.display();
    match node {
        Node::Directory => {
            holds(format!("{shown} is a directory"), whole.symlink_metadata()?.is_dir())?;
            let inner = model.names(path).into_iter();
            let inner =
                inner.filter(|name| model.stat(&path.join(name)) == Ok(Node::Directory)).count();
            let right = found.nlink == 2 + inner as u64 || found.nlink == 1;
            holds(
                format!("{shown} has {} links, with {inner} directories in it", found.nlink),
                right,
            )
        }
        Node::Link(text) => {
            let got =
                std::fs::read_link(&whole).with_context(|| format!("reading the link {shown}"))?;
            equal(format!("text of {shown}"), got, PathBuf::from(text))
        }
        Node::File(file) => {
            let content =
                model.content(*file).map_err(|errno| anyhow::anyhow!("the model: {errno:?}"))?;
            equal(format!("links of {shown}"), found.nlink, model.links(*file))?;
            equal(format!("permissions of {shown}"), found.permissions(), content.mode)?;
            same_bytes(shown, &std::fs::read(&whole)?, &content.bytes)
        }
    }
}

/// Compares a whole tree, both ways; gives the number of names.
fn compare(own: &Path, model: &Model) -> Result<u64> {
    let mut names = 0;
    for dir in model.directories() {
        let mut listed = BTreeSet::new();
        for entry in std::fs::read_dir(own.join(&dir))
            .with_context(|| format!("listing {}", dir.display()))?
        {
            listed.insert(PathBuf::from(entry?.file_name()));
        }
        equal(format!("names in {}", dir.display()), listed, model.names(&dir))?;
    }
    for (path, node) in model.nodes() {
        same(own, model, path, node)?;
        names += 1;
    }
    Ok(names)
}

/// Looks that every name that is listed is there, and that link counts are right; gives the number of names.
fn agrees_with_itself(root: &Path) -> Result<u64> {
    let mut files: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut names = 0;
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        let mut inner = 0;
        for entry in
            std::fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))?
        {
            let path = entry?.path();
            let found = facts(&path)?;
            names += 1;
            if path.symlink_metadata()?.is_dir() {
                inner += 1;
                waiting.push(path);
            } else {
                let seen = files.entry(found.ino).or_insert((0, found.nlink));
                seen.0 += 1;
            }
        }
        let links = facts(&dir)?.nlink;
        let right = links == 2 + inner || links == 1;
        holds(
            format!("{} has {links} links, with {inner} directories in it", dir.display()),
            right,
        )?;
    }
    for (inode, (found, links)) in files {
        equal(format!("names of inode {inode} and its links"), found, links)?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_does_what_it_should_passes() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan { seed: 1, operations: 1500, threads: 3, drop_caches: false };
        let done = run(dir.path(), &plan).unwrap();
        assert_eq!(done.operations, 4500);
        assert!(done.refused > 500 && done.names > 20, "{done:?}");
    }

    #[test]
    fn a_difference_is_found() {
        let dir = tempfile::tempdir().unwrap();
        rustix::process::umask(Mode::empty());
        let mut model = Model::default();
        let call = Call::Create(PathBuf::from("a"), b"text".to_vec(), 0o644);
        call.in_model(&mut model).unwrap();
        call.on_disk(dir.path()).unwrap();
        assert_eq!(compare(dir.path(), &model).unwrap(), 1);
        std::fs::write(dir.path().join("a"), b"tExt").unwrap();
        assert!(compare(dir.path(), &model).unwrap_err().to_string().contains("byte 1"));
        std::fs::write(dir.path().join("a"), b"text").unwrap();
        std::fs::write(dir.path().join("b"), b"").unwrap();
        assert!(compare(dir.path(), &model).is_err());
    }
}
