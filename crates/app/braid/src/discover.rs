//! What is on a device before it becomes a member: signatures, who uses it, how large it is.
//!
//! Reads through ordinary file calls, and through the device where there is no file; writes nothing. What a signature looks like is `braid-format`'s.

use crate::members::Member;
use crate::on_shard;
use crate::output::size;
use crate::source::Source;
use anyhow::{Context, Result, bail};
use braid_device::file::{FileMember, Mode};
use braid_device::{DeviceInfo, IoSets, Op, Opener, Request};
use braid_format::bitmap::{self, BitmapSuperblock};
use braid_format::signature::{Areas, Signature, detect, ranges};
use braid_format::superblock::{READ_LEN, Superblock, SuperblockError, candidates, choose};
use braid_shard::mailbox::Remote;
use rustix::fs::{major, minor};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

const SECTOR: u64 = braid_format::SECTOR as u64;

/// What was found on one device.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// What is recognised on it.
    pub signatures: Vec<Signature>,
    /// Who uses it, or why it cannot be opened; `None`: nobody, and it can.
    pub in_use: Option<String>,
    /// Tells the bytes that were looked at from others; `None` where nothing was read.
    digest: Option<u64>,
}

impl Found {
    /// Nothing was found, and nobody uses it.
    pub fn is_free(&self) -> bool {
        self.signatures.is_empty() && self.in_use.is_none()
    }

    /// Its size, for a table.
    pub fn size_text(&self) -> String {
        match self.digest {
            Some(_) => size::human(self.size),
            None => "in memory".to_string(),
        }
    }

    /// What was found, one line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.in_use.iter().cloned().collect();
        for signature in &self.signatures {
            // A format may be recognised by several places; one line says enough.
            if !lines.contains(&signature.what) {
                lines.push(signature.what.clone());
            }
        }
        lines
    }
}

/// Looks at a device by itself, or through `home` where it has no path; one in memory is always empty.
///
/// # Errors
/// As [`look`] and [`look_through`].
pub fn look_at(home: &Remote, member: &Member) -> Result<Found> {
    match member.array().is_some() || member.is_remote() {
        true => look_through(home, member),
        false => look(member),
    }
}

/// Looks at a device; one in memory is always empty.
///
/// # Errors
/// When it is not there or cannot be read.
pub fn look(member: &Member) -> Result<Found> {
    let Some(path) = member.path() else {
        let opener = member.prepare(Mode::ReadOnly)?;
        drop(opener);
        let name = member.name.clone();
        return Ok(Found { name, size: 0, signatures: Vec::new(), in_use: None, digest: None });
    };
    let in_use = mounted(path).or_else(|| match FileMember::open(path, Mode::ReadOnly) {
        Ok(_) => None,
        Err(error) => Some(error.why),
    });
    let info = info(path)?;
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let (mut areas, mut digest) = (Areas::new(), DefaultHasher::new());
    for (offset, len) in ranges(info.size) {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset)
            .with_context(|| format!("reading {len} bytes at {offset} of {}", path.display()))?;
        bytes.hash(&mut digest);
        areas.push(offset, bytes);
    }
    let signatures = detect(info.size, &areas);
    let digest = Some(digest.finish());
    Ok(Found { name: member.name.clone(), size: info.size, signatures, in_use, digest })
}

/// Looks at what the users of an array would see, which runs on `home`, or at an export of another server. Who uses it is
/// for the server to know.
///
/// # Errors
/// When it was not found, or cannot be read.
pub fn look_through(home: &Remote, member: &Member) -> Result<Found> {
    look_opened(home, &member.name, &member.prepare(Mode::ReadOnly)?)
}

/// The same of a device that is open. Who has it locked finds what stays.
///
/// # Errors
/// When it cannot be read.
pub fn look_opened(home: &Remote, name: &str, opener: &Arc<dyn Opener>) -> Result<Found> {
    let (name, opener) = (name.to_string(), Arc::clone(opener));
    let read = on_shard::run(home, move |shard| async move {
        let device = opener.open(&shard)?;
        let (size, mut areas) = (device.info().size, Areas::new());
        let mut digest = DefaultHasher::new();
        for (offset, len) in ranges(size) {
            let block = device.info().logical_block.max(1) as usize;
            // What is looked at begins and ends at sectors; a device may have larger blocks.
            let before = offset as usize % block;
            let end = (before + len).next_multiple_of(block);
            let request = Request::read(offset - before as u64, shard.pool().get(end));
            request.check(device.info())?;
            let outcome = IoSets::new(&shard).one(&*device, request).await;
            outcome.result?;
            let Op::Read(bufs) = outcome.op else { continue };
            let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            let bytes = bytes.get(before..before + len).unwrap_or_default().to_vec();
            bytes.hash(&mut digest);
            areas.push(offset, bytes);
        }
        Ok::<_, anyhow::Error>((size, areas, digest.finish()))
    })?;
    let (size, areas, digest) = read.with_context(|| format!("looking at what is on {name}"))?;
    let (signatures, digest) = (detect(size, &areas), Some(digest));
    Ok(Found { name, size, signatures, in_use: None, digest })
}

/// Looks again at devices that are locked by now, before anything is written: between the first look and the lock somebody
/// else may have used them. `doing` begins the message.
///
/// # Errors
/// When one holds something else than was found, or cannot be read.
pub fn look_again<'a>(
    home: &Remote,
    doing: &str,
    devices: impl Iterator<Item = (&'a Found, &'a Arc<dyn Opener>)>,
) -> Result<()> {
    for (found, opener) in devices.filter(|(found, _)| found.digest.is_some()) {
        let now = look_opened(home, &found.name, opener)?;
        if (now.size, now.digest) == (found.size, found.digest) {
            continue;
        }
        let what = match now.lines().as_slice() {
            [] => "nothing that is recognised".to_string(),
            lines => lines.join("; "),
        };
        bail!(
            "{doing}: {} was changed by somebody else between the look at it and its lock, and holds now: {what}. Nothing \
             was written; look again (braid examine {}) and start anew",
            found.name,
            found.name
        );
    }
    Ok(())
}

/// What a device says of itself, also while somebody uses it.
///
/// # Errors
/// When it is not there or cannot be opened.
pub fn info(path: &Path) -> Result<DeviceInfo> {
    Ok(FileMember::open(path, Mode::Examine)?.info().clone())
}

/// What was read of a device that may be in use.
#[derive(Debug)]
pub struct Examined {
    /// Its superblock; `None` when it has none.
    pub superblock: Result<Option<Superblock>, SuperblockError>,
    /// The bytes that the superblock stands in; empty without one.
    pub raw: Vec<u8>,
    /// The superblock of its bitmap, where there is one that makes sense.
    pub bitmap: Option<BitmapSuperblock>,
    /// Its size in sectors.
    pub dev_sectors: u64,
    /// What is recognised on it, as far as it can be read.
    pub signatures: Vec<Signature>,
}

/// Reads the superblock of a device; writes nothing and takes no lock. A place that cannot be read is passed
/// over where another has a superblock.
///
/// # Errors
/// When it is not there or cannot be read. A damaged superblock is no error here.
pub fn examine(path: &Path) -> Result<Examined> {
    examine_source(&Source::file(path)?, &path.display().to_string())
}

/// The same of any device, which messages call `name`.
///
/// # Errors
/// As [`examine`].
pub fn examine_source(file: &Source, name: &str) -> Result<Examined> {
    let size = file.size().with_context(|| format!("asking for the size of {name}"))?;
    let dev_sectors = size / SECTOR;
    let mut tried = Vec::new();
    let mut unreadable = None;
    for (version, at) in candidates(dev_sectors) {
        let mut bytes = vec![0; READ_LEN];
        let offset = at * SECTOR;
        match file.read_exact_at(&mut bytes, offset) {
            Ok(()) => {
                let parsed = Superblock::parse(&bytes, version, at, dev_sectors);
                tried.push((version, bytes, parsed));
            }
            Err(error) => {
                unreadable.get_or_insert((offset, error));
            }
        }
    }
    let superblock = choose(tried.iter().map(|(_, _, parsed)| parsed.clone()));
    if let (Ok(None), Some((offset, error))) = (&superblock, unreadable) {
        return Err(error)
            .with_context(|| format!("reading {READ_LEN} bytes at {offset} of {name}"));
    }
    let mut raw = Vec::new();
    let mut bitmap = None;
    if let Ok(Some(superblock)) = &superblock {
        let chosen = tried.into_iter().find(|(version, _, _)| *version == superblock.version);
        raw = chosen.map_or(raw, |(_, bytes, _)| bytes);
        let offset = superblock.bitmap_sector().and_then(|sector| sector.checked_mul(SECTOR));
        let mut bytes = vec![0; bitmap::HEADER];
        if offset.is_some_and(|offset| file.read_exact_at(&mut bytes, offset).is_ok()) {
            bitmap = BitmapSuperblock::parse(&bytes).ok();
        }
    }
    let mut areas = Areas::new();
    for (offset, len) in ranges(size) {
        let mut bytes = vec![0; len];
        if file.read_exact_at(&mut bytes, offset).is_ok() {
            areas.push(offset, bytes);
        }
    }
    let signatures = detect(size, &areas);
    Ok(Examined { superblock, raw, bitmap, dev_sectors, signatures })
}

/// Where a block device is mounted or used as swap; `None` for a file, and when it is not.
fn mounted(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    if !found.file_type().is_block_device() {
        return None;
    }
    let number = format!("{}:{}", major(found.rdev()), minor(found.rdev()));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = mounts.lines().find_map(|line| mount_of(line, &number));
    if let Some(place) = place {
        return Some(format!("mounted on {place}"));
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_this =
        |name: &str| std::fs::metadata(name).is_ok_and(|swap| swap.rdev() == found.rdev());
    let name = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    name.into_iter().any(is_this).then(|| "used as swap".to_string())
}

/// The mount point in a line of `/proc/self/mountinfo` when it is of the device `number`.
fn mount_of(line: &str, number: &str) -> Option<String> {
    let mut words = line.split(' ');
    let matches = words.nth(2)? == number;
    let place = words.nth(1)?;
    matches.then(|| place.replace("\\040", " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_the_number_of_its_device() {
        let line = "36 35 8:17 / /mnt/my\\040disk rw,noatime - ext4 /dev/sdb1 rw";
        assert_eq!(mount_of(line, "8:17").as_deref(), Some("/mnt/my disk"));
        assert_eq!(mount_of(line, "8:1"), None);
        assert_eq!(mount_of("", "8:1"), None);
        assert_eq!(mount_of("1 2 8:1", "8:1"), None);
    }

    #[test]
    fn an_empty_file_has_nothing_and_a_locked_one_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        braid_device::file::create_sparse(&path, 4 << 20).unwrap();
        let member = crate::members::parse_one(path.to_str().unwrap()).unwrap();
        let found = look(&member).unwrap();
        assert!(found.is_free() && found.size == 4 << 20, "{found:?}");
        let held = member.prepare(Mode::ReadWrite).unwrap();
        let found = look(&member).unwrap();
        assert!(found.in_use.is_some(), "{found:?}");
        drop(held);
    }

    #[test]
    fn a_device_that_is_too_small_for_a_superblock_is_examined_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny");
        std::fs::write(&path, [0; 512]).unwrap();
        assert_eq!(examine(&path).unwrap().superblock, Ok(None));
    }
}
