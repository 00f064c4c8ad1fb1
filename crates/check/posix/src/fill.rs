//! Filling a file system until it is full, and what must hold then: what fsync acknowledged is there, deleting works,
//! and space comes back.

use crate::background::{drop_caches_if, wait_until_free};
use crate::bytes::pattern;
use crate::scene::{plain, same_bytes};
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What decides sizes and bytes.
    pub seed: u64,
    /// The most free bytes that there may be: a guard against filling the wrong disk.
    pub at_most: u64,
    /// Whether the kernel is told to forget all files before they are compared; only root may.
    pub drop_caches: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Files that fsync acknowledged before the first refusal.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that statfs called free at first.
    pub free_before: u64,
    /// Bytes that it called free when there was no room for a single block.
    pub free_when_full: u64,
    /// Bytes that it called free when all was removed.
    pub free_after: u64,
}

struct Kept {
    path: PathBuf,
    seed: u64,
    len: usize,
}

/// Fills `dir`, checks, and removes what it made.
///
/// # Errors
///
/// When a file that was acknowledged is not what was written, deleting fails, an error other than ENOSPC comes, or
/// space does not come back.
pub fn run(dir: &Path, plan: &Plan) -> Result<Done> {
    let free_before = free(dir)?;
    ensure!(
        free_before <= plan.at_most,
        "{free_before} bytes are free in {}, more than the {} that may be filled; see --at-most",
        dir.display(),
        plan.at_most
    );
    let home = dir.join(format!("braid-posix-fill-{}", std::process::id()));
    std::fs::create_dir(&home).with_context(|| format!("making {}", home.display()))?;
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let mut kept = Vec::new();
    // Large files first; at each refusal smaller ones, so that in the end not one block has room.
    for largest in [16 << 20, 1 << 20, 64 << 10, 4096] {
        while let Some(file) = one_more(&home, kept.len(), largest, &mut rng)? {
            kept.push(file);
        }
    }
    let free_when_full = free(dir)?;
    drop_caches_if(plan.drop_caches)?;
    compare(&kept).context("when full")?;
    // Deleting, renaming and making files shorter need no room.
    let half = kept.split_off(kept.len() / 2);
    let (files, bytes) = (
        kept.len() + half.len(),
        kept.iter().chain(&half).map(|file| file.len as u64).sum::<u64>(),
    );
    for file in &half {
        std::fs::remove_file(&file.path)
            .with_context(|| format!("removing {} when full", file.path.display()))?;
    }
    wait_until_free(
        "bytes",
        free_when_full + half.iter().map(|file| file.len as u64).sum::<u64>() / 2,
        || free(dir),
    )
    .context("after half of it was removed")?;
    let again = one_more(&home, files, 64 << 10, &mut rng)?;
    let Some(again) = again else {
        bail!("no room for a small file after half of all was removed")
    };
    kept.push(again);
    drop_caches_if(plan.drop_caches)?;
    compare(&kept).context("after half of it was removed")?;
    std::fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    // Tables that grew may stay: a hundredth of the whole.
    let free_after = wait_until_free("bytes", free_before - free_before / 100, || free(dir))
        .context("after all was removed")?;
    Ok(Done { files, bytes, free_before, free_when_full, free_after })
}

/// Writes and fsyncs one more file of at most `largest` bytes; none when there is no room, and then nothing is left.
fn one_more(
    home: &Path,
    number: usize,
    largest: usize,
    rng: &mut fastrand::Rng,
) -> Result<Option<Kept>> {
    let path = home.join(format!("{number}"));
    let (seed, len) = (rng.u64(..), rng.usize(largest / 2..=largest));
    let written = (|| {
        let mut file = File::create_new(&path)?;
        file.write_all(&pattern(seed, len))?;
        file.sync_all()
    })();
    match plain(written) {
        Ok(()) => Ok(Some(Kept { path, seed, len })),
        Err(Errno::NOSPC) => {
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                // There was no room for its name.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).context("removing a file that found no room");
                }
            }
            Ok(None)
        }
        Err(other) => {
            bail!("writing {}: {}, should be ENOSPC", path.display(), crate::scene::name_of(other))
        }
    }
}

fn compare(kept: &[Kept]) -> Result<()> {
    kept.iter().try_for_each(|file| {
        let got = std::fs::read(&file.path)
            .with_context(|| format!("reading {}", file.path.display()))?;
        same_bytes(
            format!("{}, which fsync acknowledged", file.path.display()),
            &got,
            &pattern(file.seed, file.len),
        )
    })
}

fn free(dir: &Path) -> Result<u64> {
    rustix::fs::syncfs(File::open(dir)?)?;
    let space = rustix::fs::statvfs(dir)?;
    // Those kept for root are among them: who is refused before they are used sees the same difference.
    Ok(space.f_bfree * space.f_frsize)
}
