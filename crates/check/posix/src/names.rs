//! Names until there is no room for one more, where data would still have some: each refusal must be ENOSPC and say what
//! statvfs(3) says, removing and changing what is there must go on, room must come back, and all of it must be there after
//! the file system was mounted again.

use crate::background::{drop_caches_if, wait_until_free};
use crate::bytes::pattern;
use crate::scene::{name_of, plain, same_bytes};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The task.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The most files that there may be room for: a guard against the wrong disk.
    pub at_most: u64,
    /// Has the kernel forget all names before they are compared; only root may.
    pub drop_caches: bool,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Names that were made before the first refusal.
    pub made: usize,
    /// Of those, how many were removed then.
    pub removed: usize,
    /// Names that were made after that, until the next refusal.
    pub made_again: usize,
    /// Files that statvfs said there was room for: at first,
    pub free_before: u64,
    /// when there was no room for a name,
    pub free_when_full: u64,
    /// and when all was removed.
    pub free_after: u64,
}

/// Bytes of the file that is changed when all is full.
const CONTENT: usize = 64 << 10;
const CONTENT_NAME: &str = "content";

/// Makes names in `dir` until there is no room, checks, and removes what it made. `between` is called twice, when all is
/// full: it may unmount the file system and mount it again, or do nothing.
///
/// # Errors
///
/// When a refusal is another one than ENOSPC, what must go on does not, statvfs is wrong, or a name is lost or back.
pub fn run(dir: &Path, plan: &Plan, mut between: impl FnMut() -> Result<()>) -> Result<Done> {
    let free = || Ok(space(dir)?.f_ffree);
    let before = space(dir)?;
    ensure!(
        before.f_ffree <= plan.at_most,
        "there is room for {} files in {}, more than the {} that may be made; see --at-most",
        before.f_ffree,
        dir.display(),
        plan.at_most
    );
    let home = dir.join(format!("braid-posix-names-{}", std::process::id()));
    std::fs::create_dir(&home).with_context(|| format!("making {}", home.display()))?;
    let content = home.join(CONTENT_NAME);
    std::fs::write(&content, pattern(1, CONTENT)).context("writing a file at first")?;
    File::open(&content)?.sync_all()?;

    let mut tree = Tree { home, names: BTreeSet::new(), next: 0, most: before.f_ffree * 8 + 1000 };
    let made = tree.fill()?;
    let full = space(dir)?;
    is_full(&full)?;
    goes_on(&content)?;
    tree.durable()?;
    between().context("when full")?;
    drop_caches_if(plan.drop_caches)?;
    tree.compare().context("when full")?;
    same_bytes("the file changed when full", &std::fs::read(&content)?, &pattern(2, CONTENT))?;

    let removed = tree.remove_half()?;
    wait_until_free("files", full.f_ffree + removed as u64 / 4, free)
        .context("after half of it was removed")?;
    let made_again = tree.fill()?;
    ensure!(
        made_again >= removed / 4,
        "after {removed} names were removed there was room for {made_again} only"
    );
    is_full(&space(dir)?)?;
    tree.durable()?;
    between().context("when full again")?;
    drop_caches_if(plan.drop_caches)?;
    tree.compare().context("when full again")?;

    std::fs::remove_dir_all(&tree.home)
        .with_context(|| format!("removing {}", tree.home.display()))?;
    // Tables that grew may stay: an eighth of the whole.
    let free_after = wait_until_free("files", before.f_ffree - before.f_ffree / 8, free)
        .context("after all was removed")?;
    Ok(Done {
        made,
        removed,
        made_again,
        free_before: before.f_ffree,
        free_when_full: full.f_ffree,
        free_after,
    })
}

/// The names that were made.
struct Tree {
    home: PathBuf,
    names: BTreeSet<String>,
    next: usize,
    /// More names than there can be.
    most: u64,
}

impl Tree {
    /// Makes files, directories and symbolic links until there is no room; gives how many.
    fn fill(&mut self) -> Result<usize> {
        let first = self.names.len();
        loop {
            let number = self.next;
            self.next += 1;
            let name = match number % 16 {
                3 => format!("d{number}"),
                7 => format!("l{number}"),
                _ => format!("f{number}"),
            };
            let path = self.home.join(&name);
            let made = match number % 16 {
                3 => std::fs::create_dir(&path),
                7 => std::os::unix::fs::symlink("/to/nowhere", &path),
                _ => File::create_new(&path).map(drop),
            };
            match plain(made) {
                Ok(()) => self.names.insert(name),
                Err(Errno::NOSPC) => return Ok(self.names.len() - first),
                Err(other) => {
                    bail!("making {}: {}, should be ENOSPC", path.display(), name_of(other))
                }
            };
            ensure!(
                (self.names.len() as u64) < self.most,
                "{} names and no end, of which statvfs said nothing",
                self.names.len()
            );
        }
    }

    /// Removes every second one, not in the order in which they were made.
    fn remove_half(&mut self) -> Result<usize> {
        let mut all: Vec<String> = self.names.iter().cloned().collect();
        fastrand::Rng::with_seed(1).shuffle(&mut all);
        let half = &all[..all.len() / 2];
        for name in half {
            let path = self.home.join(name);
            let removed = match name.starts_with('d') {
                true => std::fs::remove_dir(&path),
                false => std::fs::remove_file(&path),
            };
            removed.with_context(|| format!("removing {} when full", path.display()))?;
            self.names.remove(name);
        }
        Ok(half.len())
    }

    fn durable(&self) -> Result<()> {
        File::open(&self.home)?.sync_all().context("fsync of the directory when full")
    }

    fn compare(&self) -> Result<()> {
        let listed = std::fs::read_dir(&self.home)
            .with_context(|| format!("reading {}", self.home.display()))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<BTreeSet<String>>>()?;
        let mut wanted = self.names.clone();
        wanted.insert(CONTENT_NAME.to_owned());
        if let Some(lost) = wanted.difference(&listed).next() {
            bail!("{lost} was made and is not there; {} names of {}", listed.len(), wanted.len());
        }
        if let Some(back) = listed.difference(&wanted).next() {
            bail!("{back} is there and should not be");
        }
        for name in &self.names {
            let path = self.home.join(name);
            let kind = path.symlink_metadata().with_context(|| format!("looking at {name}"))?;
            let wanted = (name.starts_with('d'), name.starts_with('l'));
            ensure!((kind.is_dir(), kind.is_symlink()) == wanted, "{name} is of another kind");
        }
        Ok(())
    }
}

/// Changes to a file that is there, which must go on without room for names.
fn goes_on(content: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(content).context("opening when full")?;
    file.set_permissions(Permissions::from_mode(0o640)).context("chmod when full")?;
    let time = std::time::SystemTime::UNIX_EPOCH;
    file.set_modified(time).context("setting times when full")?;
    file.write_all_at(&pattern(2, CONTENT), 0).context("writing over bytes when full")?;
    file.sync_all().context("fsync when full")
}

fn is_full(space: &StatVfs) -> Result<()> {
    ensure!(
        !space.f_flag.contains(StatVfsMountFlags::RDONLY),
        "the file system has become read-only"
    );
    ensure!(
        space.f_ffree <= space.f_files / 16,
        "there is no room for a name, and statvfs says that there is for {} files of {}",
        space.f_ffree,
        space.f_files
    );
    Ok(())
}

fn space(dir: &Path) -> Result<StatVfs> {
    rustix::fs::syncfs(File::open(dir)?)?;
    Ok(rustix::fs::statvfs(dir)?)
}
