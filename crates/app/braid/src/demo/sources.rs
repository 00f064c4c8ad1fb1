//! The files that are copied in: real ones of this machine, with their checksums.
//!
//! Owns the choice, the copying and the comparison. Does not know what the copies stand on.

use super::stage::Interrupt;
use crate::output::size;
use anyhow::{Context, Result, ensure};
use crc_fast::{CrcAlgorithm, Digest};
use rustix::fs::{Advice, fadvise, syncfs};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// More files would measure the file system rather than the array.
const FILES_MAX: usize = 6000;
/// Smaller files are left out, for the same reason.
const FILE_BYTES_MIN: u64 = 16 << 10;
/// Larger files are left out: one of them would be all.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes per read.
pub const PIECE: usize = 1 << 20;

/// One file.
pub struct Source {
    /// Where it is read from.
    pub from: PathBuf,
    /// Its path under the folder.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// CRC-64 of its content.
    pub checksum: u64,
}

/// See the module's documentation.
pub struct Sources {
    root: PathBuf,
    files: Vec<Source>,
    bytes: u64,
}

impl Sources {
    /// Chooses files of about `bytes` bytes and reads each once.
    ///
    /// # Errors
    /// When there are none, or one cannot be read.
    pub fn choose(bytes: u64, interrupt: &Interrupt) -> Result<Sources> {
        let mut best: Option<Sources> = None;
        for root in roots() {
            let mut chosen = Sources { root: root.clone(), files: Vec::new(), bytes: 0 };
            chosen.collect(&root, bytes);
            if best.as_ref().is_none_or(|best| chosen.bytes > best.bytes) {
                best = Some(chosen);
            }
            if best.as_ref().is_some_and(|best| best.bytes > bytes / 2) {
                break;
            }
        }
        let mut sources = best.filter(|best| best.bytes > 0).context(
            "there is nothing to copy: neither the Rust toolchain's documentation nor /usr/share",
        )?;
        for source in &mut sources.files {
            interrupt.go_on()?;
            let (size, checksum) = read_all(&source.from, |_| Ok(()))?;
            (source.size, source.checksum) = (size, checksum);
        }
        sources.bytes = sources.files.iter().map(|source| source.size).sum();
        Ok(sources)
    }

    fn collect(&mut self, folder: &Path, limit: u64) {
        // What cannot be read is not chosen.
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if self.files.len() >= FILES_MAX || self.bytes >= limit {
                return;
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() {
                self.collect(&path, limit);
            } else if kind.is_file() {
                self.take(path);
            }
        }
    }

    fn take(&mut self, from: PathBuf) {
        let size = fs::metadata(&from).map_or(0, |found| found.len());
        let readable =
            (FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&size) && File::open(&from).is_ok();
        let Ok(path) = from.strip_prefix(&self.root).map(Path::to_owned) else { return };
        if readable {
            self.bytes += size;
            self.files.push(Source { from, path, size, checksum: 0 });
        }
    }

    /// The files.
    pub fn files(&self) -> &[Source] {
        &self.files
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What they are, in a line.
    pub fn describe(&self) -> String {
        format!(
            "{} files with {} of {}",
            self.files.len(),
            size::human(self.bytes),
            self.root.display()
        )
    }

    /// Copies all of them under `folder`; `arrived` counts bytes.
    ///
    /// # Errors
    /// When one cannot be read or written, or a signal came.
    pub fn copy_to(&self, folder: &Path, interrupt: &Interrupt, arrived: &AtomicU64) -> Result<()> {
        let mut made: Option<PathBuf> = None;
        for source in &self.files {
            interrupt.go_on()?;
            let to = folder.join(&source.path);
            let parent = to.parent().unwrap_or(folder);
            if made.as_deref() != Some(parent) {
                fs::create_dir_all(parent)
                    .with_context(|| format!("making the folder {}", parent.display()))?;
                made = Some(parent.to_owned());
            }
            let failed = || format!("writing {}", to.display());
            let mut file = File::create(&to).with_context(failed)?;
            read_all(&source.from, |bytes| {
                file.write_all(bytes).with_context(failed)?;
                arrived.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reads the copies under `folder` and compares their checksums.
    ///
    /// # Errors
    /// The first copy that is not what was copied.
    pub fn compare(&self, folder: &Path, interrupt: &Interrupt) -> Result<()> {
        for source in &self.files {
            interrupt.go_on()?;
            let copy = folder.join(&source.path);
            let (size, checksum) = read_all(&copy, |_| Ok(()))?;
            source.expect(size, checksum)?;
        }
        Ok(())
    }

    /// Has the system forget the content of the copies under `folder`, so that they are read from disk.
    ///
    /// # Errors
    /// When a copy cannot be opened.
    pub fn drop_from_cache(&self, folder: &Path) -> Result<()> {
        for source in &self.files {
            let copy = folder.join(&source.path);
            let file = File::open(&copy).with_context(|| format!("opening {}", copy.display()))?;
            fadvise(&file, 0, None, Advice::DontNeed)
                .with_context(|| format!("dropping {} from the page cache", copy.display()))?;
        }
        Ok(())
    }
}

impl Source {
    /// Compares what a copy holds with what was copied.
    ///
    /// # Errors
    /// They differ.
    pub fn expect(&self, size: u64, checksum: u64) -> Result<()> {
        ensure!(
            (size, checksum) == (self.size, self.checksum),
            "{}: the copy has {size} bytes with checksum {checksum:016x}; {} bytes with {:016x} were copied",
            self.path.display(),
            self.size,
            self.checksum
        );
        Ok(())
    }
}

/// Writes everything out that belongs to the file system of `path`.
///
/// # Errors
/// When something could not be written.
pub fn sync(path: &Path) -> Result<()> {
    let folder = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    syncfs(&folder).with_context(|| format!("writing everything out to {}", path.display()))
}

/// The checksum of a stream of bytes.
pub fn digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc64Nvme)
}

/// Reads a file to its end; gives its size and checksum.
pub fn read_all(path: &Path, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<(u64, u64)> {
    let failed = || format!("reading {}", path.display());
    let mut file = File::open(path).with_context(failed)?;
    let mut buffer = vec![0; PIECE];
    let (mut size, mut digest) = (0, digest());
    loop {
        let count = file.read(&mut buffer).with_context(failed)?;
        // `read` gives at most the length of the buffer.
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            return Ok((size, digest.finalize()));
        }
        digest.update(bytes);
        size += count as u64;
        each(bytes)?;
    }
}

/// Where to look: the toolchain's documentation, then what every system has.
fn roots() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    if let Ok(found) = sysroot
        && found.status.success()
    {
        let sysroot = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
        roots.push(sysroot.join("share/doc/rust"));
    }
    roots.push(PathBuf::from("/usr/share"));
    roots
}
