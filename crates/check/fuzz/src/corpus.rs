//! The kept inputs: `corpus/TARGET/NAME`, bytes as the target takes them.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Where the inputs of a target are.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The kept inputs of a target, by name.
///
/// # Errors
/// No such folder, nothing in it, or a file that cannot be read.
pub fn read(target: &str) -> Result<Vec<Vec<u8>>> {
    let folder = folder(target);
    let doing = || format!("reading the corpus in {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(doing)? {
        paths.push(entry.with_context(doing)?.path());
    }
    // The order decides what a seed gives.
    paths.sort();
    ensure!(!paths.is_empty(), "{}: it is empty; restore it from the repository", doing());
    let read = |path: &PathBuf| std::fs::read(path).with_context(doing);
    paths.iter().map(read).collect()
}
