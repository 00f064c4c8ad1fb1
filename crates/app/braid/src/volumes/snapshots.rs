//! Snapshots of folders of a mounted volume.
//!
//! They come and go beside the kernel, which keeps names, and their absence, for a day: it is told of each.

use super::hosted::Hosted;
use super::inside::inside;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::{FileName, SnapshotDetail};
use braid_filesystem::{FileSystem, Ino};
use braid_format::volume::snapshot::{LISTING_NAME, NAME_MAX};
use braid_volume::{SnapshotStatus, Volume, VolumeError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Hosted {
    /// The snapshots of all folders, oldest first.
    ///
    /// # Errors
    /// When the volume has ended.
    pub fn snapshots(&self) -> Result<Vec<SnapshotDetail>> {
        let all = self.with(|here| async move { here.volume.snapshots().await })?;
        Ok(all.into_iter().map(|one| self.snapshot_detail(one)).collect())
    }

    /// Makes a snapshot of a folder, of everything that was written before.
    ///
    /// # Errors
    /// When the name cannot be or is taken, the path is no folder or in a snapshot; when what the kernel holds back cannot
    /// be written.
    pub fn take_snapshot(&self, folder: &FileName, name: &str) -> Result<String> {
        let path = inside(&self.dir, folder);
        let doing = format!("making snapshot {name} of {path} of volume {}", self.name);
        self.take(&path, name).with_context(|| doing)
    }

    fn take(&self, path: &str, name: &str) -> Result<String> {
        check_name(name)?;
        self.check_outside(path)?;
        if !self.read_only {
            self.write_out().context("writing what the kernel still holds")?;
        }
        let (wanted, called) = (path.to_string(), name.to_string());
        let taken = self.with(move |here| async move {
            let folder = here.volume.resolve(wanted.as_bytes()).await?;
            let before = directory_of(&here.volume, folder).await;
            let status = here.volume.take_snapshot(folder, &called).await?;
            let after = directory_of(&here.volume, folder).await;
            Ok::<_, VolumeError>((folder, [before, after], status))
        })?;
        let (folder, directories, status) = taken?;
        self.tell_kernel(folder, directories, name);
        let detail = self.snapshot_detail(status);
        let at = detail.path.unwrap_or_default();
        Ok(format!("snapshot {name} of {path} of volume {} is made: {at}", self.name))
    }

    /// Removes a snapshot of a folder; `dry_run`: only says whether it could be.
    ///
    /// # Errors
    /// When there is none of that name; with those that there are.
    pub fn remove_snapshot(&self, folder: &FileName, name: &str, dry_run: bool) -> Result<String> {
        let path = inside(&self.dir, folder);
        let (doing, of) =
            (format!("removing snapshot {name}"), format!("{path} of volume {}", self.name));
        self.remove(&path, name, dry_run, &of).with_context(|| doing)
    }

    fn remove(&self, path: &str, name: &str, dry_run: bool, of: &str) -> Result<String> {
        self.check_outside(path)?;
        let wanted = path.to_string();
        let found = self.with(move |here| async move {
            let folder = here.volume.resolve(wanted.as_bytes()).await?;
            let directory = directory_of(&here.volume, folder).await;
            Ok::<_, VolumeError>((folder, directory, here.volume.snapshots_of(folder).await))
        })?;
        let (folder, directory, all) = found.with_context(|| path.to_string())?;
        let there: Vec<String> = all.into_iter().map(|one| one.name).collect();
        if !there.iter().any(|one| one == name) {
            match there.is_empty() {
                true => bail!("{of} has no snapshots"),
                false => bail!("{of} has no snapshot of that name; it has {}", there.join(", ")),
            }
        }
        if dry_run {
            return Ok(format!("snapshot {name} of {of} can be removed: nothing was done"));
        }
        let called = name.to_string();
        let after = self.with(move |here| async move {
            here.volume.remove_snapshot(folder, &called).await?;
            Ok::<_, VolumeError>(directory_of(&here.volume, folder).await)
        })?;
        self.tell_kernel(folder, [directory, after?], name);
        Ok(format!(
            "snapshot {name} of {of} is removed; what it alone held is freed in the background"
        ))
    }

    /// Has the kernel look again for a snapshot by its name, and for the directory that it is in, which was and is this one.
    fn tell_kernel(&self, folder: Ino, [before, after]: [Option<Ino>; 2], name: &str) {
        if let Some(directory) = before.or(after) {
            self.forget_name(directory, name.as_bytes());
            self.forget_content(directory);
        }
        if before != after {
            self.forget_name(folder, LISTING_NAME);
        }
    }

    /// Refuses what is in a snapshot.
    fn check_outside(&self, path: &str) -> Result<()> {
        let all = self.with(|here| async move { here.volume.snapshots().await })?;
        let is_inside = |folder: String| Path::new(path).starts_with(listing(Path::new(&folder)));
        if all.into_iter().filter_map(|one| one.folder).any(is_inside) {
            bail!(
                "{path} is in a snapshot, of which there are no snapshots: name the folder itself"
            );
        }
        Ok(())
    }

    fn snapshot_detail(&self, one: SnapshotStatus) -> SnapshotDetail {
        let SnapshotStatus { id, folder, name, created, is_going } = one;
        let at = folder.as_deref().filter(|_| !is_going).map(|folder| {
            let folder = self.dir.join(folder.trim_start_matches('/'));
            listing(&folder).join(&name).display().to_string()
        });
        SnapshotDetail { id, name, folder, path: at, created, removing: is_going }
    }
}

/// The directory in which the snapshots of a folder are.
fn listing(folder: &Path) -> PathBuf {
    folder.join(OsStr::from_bytes(LISTING_NAME))
}

/// The number of the directory in which the snapshots of a folder are.
async fn directory_of(volume: &Volume, folder: Ino) -> Option<Ino> {
    let found = volume.lookup(folder, LISTING_NAME).await.ok()?;
    volume.forget(found.attr.ino, 1);
    Some(found.attr.ino)
}

/// Refuses what a directory cannot be called, and what a terminal would take for something else.
fn check_name(name: &str) -> Result<()> {
    match name {
        "" => bail!("a snapshot needs a name"),
        "." | ".." => bail!("a snapshot cannot be called {name}"),
        _ if name.contains('/') => {
            bail!("a snapshot's name has no slash: it is the name of a directory")
        }
        _ if name.len() > NAME_MAX => {
            bail!("its name has {} bytes: {NAME_MAX} are the most", name.len())
        }
        _ if name.chars().any(char::is_control) => {
            bail!("its name has a control character: choose one that can be printed")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_format::volume::snapshot::is_name;

    #[test]
    fn names_that_a_directory_can_have_are_taken_and_others_are_refused() {
        for name in ["daily", "2026-11-28 07:00", "ä", "...", &"x".repeat(255)] {
            check_name(name).unwrap();
            assert!(is_name(name), "{name:?}");
        }
        for (name, says) in [
            ("", "needs a name"),
            (".", "called ."),
            ("..", "called .."),
            ("a/b", "no slash"),
            ("a\nb", "control character"),
            ("a\u{7f}", "control character"),
            (&"x".repeat(256), "256 bytes"),
            (&"ä".repeat(128), "256 bytes"),
        ] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains(says), "{name:?}: {error}");
            assert!(!is_name(name), "{name:?}");
        }
    }
}
