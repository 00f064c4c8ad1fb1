//! Where the bricks of volumes are: one small file for each volume, `UUID.volume` in the state directory, so that a
//! volume can be mounted by its name.
//!
//! The superblocks say what a brick is; this says only where to look first. Invariant: whatever stands in it, no brick
//! is taken for what it is not.

use crate::settings::kept::Kept;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use uuid::Uuid;

/// Files that end so are ours.
const ENDING: &str = ".volume";
/// More bytes than these are no list of ours.
const FILE_MAX: u64 = 4 << 20;

/// A volume that this machine has made or mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its UUID, as text.
    pub uuid: String,
    /// Where its bricks were: absolute paths, `array:NAME`, or NBD URIs.
    pub bricks: Vec<String>,
}

/// The volumes that are known, by name. Files that cannot be read or understood are passed over.
pub fn all(kept: &Kept) -> Vec<Known> {
    let Some(entries) = kept.folder().and_then(|folder| fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(ENDING);
    let read = |entry: fs::DirEntry| {
        let mut bytes = Vec::new();
        File::open(entry.path()).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice::<Known>(&bytes).ok()
    };
    let mut known: Vec<Known> = entries.flatten().filter(ours).filter_map(read).collect();
    known.sort_by(|one, other| (&one.name, &one.uuid).cmp(&(&other.name, &other.uuid)));
    known
}

/// The volumes of that name or UUID.
pub fn named(kept: &Kept, wanted: &str) -> Vec<Known> {
    let uuid = Uuid::parse_str(wanted).map(|uuid| uuid.to_string());
    let is = |known: &Known| known.name == wanted || Ok(&known.uuid) == uuid.as_ref();
    all(kept).into_iter().filter(is).collect()
}

/// Notes where the bricks of a volume are; those in memory, which will be gone, are left out.
///
/// # Errors
/// When the file cannot be written. It holds what it held, then.
pub fn store(kept: &Kept, name: &str, uuid: Uuid, bricks: &[String]) -> Result<()> {
    let lasts = |brick: &&String| !["ram:", "model:"].iter().any(|kind| brick.starts_with(kind));
    let bricks: Vec<String> = bricks.iter().filter(lasts).cloned().collect();
    if bricks.is_empty() {
        return Ok(());
    }
    let known = Known { name: name.to_string(), uuid: uuid.to_string(), bricks };
    let folder = kept.prepare()?;
    let path = folder.join(format!("{uuid}{ENDING}"));
    let doing = || format!("noting the bricks of volume {name} in {}", path.display());
    let mut text = serde_json::to_string_pretty(&known).with_context(doing)?;
    text.push('\n');
    if fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let mut file =
        tempfile::Builder::new().prefix(".volume-").tempfile_in(folder).with_context(doing)?;
    file.write_all(text.as_bytes()).with_context(doing)?;
    file.as_file().sync_all().with_context(doing)?;
    file.persist(&path).map_err(|failed| failed.error).with_context(doing)?;
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(doing)
}

/// Notes nothing about a volume any more.
///
/// # Errors
/// When the file cannot be removed.
pub fn forget(kept: &Kept, known: &Known) -> Result<()> {
    let folder = kept.folder().context("no state directory is known")?;
    // Text of a file of ours: only what is a UUID names one.
    let uuid = Uuid::parse_str(&known.uuid).context("forgetting a volume")?;
    let path = folder.join(format!("{uuid}{ENDING}"));
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_found_by_name_and_uuid_and_garbage_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("state")));
        assert!(all(&kept).is_empty());
        let uuid = Uuid::from_bytes([7; 16]);
        let bricks = ["/srv/a", "ram:1G#0", "array:m0", "nbd://host/x"].map(str::to_string);
        store(&kept, "pool", uuid, &bricks).unwrap();
        fs::write(folder.path().join("state/x.volume"), "{\"name\":").unwrap();
        let known = named(&kept, "pool");
        assert_eq!(known.len(), 1);
        assert_eq!(known[0].bricks, ["/srv/a", "array:m0", "nbd://host/x"]);
        assert_eq!(named(&kept, &uuid.to_string().to_uppercase()), known);
        assert!(named(&kept, "other").is_empty());
        store(&kept, "pool", uuid, &bricks[..1]).unwrap();
        assert_eq!(all(&kept)[0].bricks, ["/srv/a"]);
        store(&kept, "memory", Uuid::from_bytes([8; 16]), &bricks[1..2]).unwrap();
        assert_eq!(all(&kept).len(), 1);
        forget(&kept, &all(&kept)[0]).unwrap();
        assert!(all(&kept).is_empty());
    }
}
