//! The name of a device by that of its target: `/dev/braid/NAME`.
//!
//! Invariant: nothing but a symbolic link is replaced, and none is removed that names another device.

use std::io;
use std::path::{Path, PathBuf};

/// A link that is there until it is dropped, or [left](Link::leave).
#[derive(Debug)]
pub struct Link {
    path: PathBuf,
    to: PathBuf,
    stays: bool,
}

impl Link {
    /// Makes `folder/name` a link to `to`; one that is there already is replaced.
    ///
    /// # Errors
    /// A name that no file can have, something else in its place, and what the system refuses.
    pub fn make(folder: &Path, name: &str, to: &Path) -> io::Result<Link> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        std::fs::create_dir_all(folder)?;
        let path = folder.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(there) if there.is_symlink() => std::fs::remove_file(&path)?,
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::os::unix::fs::symlink(to, &path)?;
        Ok(Link { path, to: to.to_path_buf(), stays: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it there.
    pub fn leave(mut self) {
        self.stays = true;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.stays && std::fs::read_link(&self.path).is_ok_and(|to| to == self.to) {
            // Whoever removes the folder with it is welcome.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_and_removed_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("braid");
        let old = Link::make(&inside, "vault", Path::new("/dev/ublkb7")).unwrap();
        old.leave();
        let link = Link::make(&inside, "vault", Path::new("/dev/ublkb0")).unwrap();
        assert_eq!(std::fs::read_link(link.path()).unwrap(), Path::new("/dev/ublkb0"));
        drop(link);
        assert!(std::fs::symlink_metadata(inside.join("vault")).is_err());
        let mine = Link::make(&inside, "vault", Path::new("/dev/ublkb0")).unwrap();
        Link::make(&inside, "vault", Path::new("/dev/ublkb1")).unwrap().leave();
        drop(mine);
        assert!(std::fs::symlink_metadata(inside.join("vault")).is_ok(), "it is another's now");
        std::fs::write(inside.join("file"), "").unwrap();
        assert!(Link::make(&inside, "file", Path::new("/dev/ublkb0")).is_err());
        for wrong in ["", "..", "a/b"] {
            assert!(Link::make(&inside, wrong, Path::new("/dev/ublkb0")).is_err(), "{wrong}");
        }
    }
}
