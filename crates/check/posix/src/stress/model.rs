//! What a directory tree should look like: names in memory, and what each call on them should answer.
//!
//! The order in which errors are looked for is that of Linux, where POSIX leaves it open.

use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A regular file, by its number in the model: hard links share it.
    File(usize),
    /// A symbolic link that leads nowhere, with its text.
    Link(String),
}

/// What a regular file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
}

/// A tree; its root is the empty path and always there.
#[derive(Clone, Debug, Default)]
pub struct Model {
    nodes: BTreeMap<PathBuf, Node>,
    contents: Vec<Content>,
}

type Answer<T = ()> = Result<T, Errno>;

impl Model {
    /// All names but the root, parents before what is in them.
    pub fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// The names in a directory.
    #[must_use]
    pub fn names(&self, dir: &Path) -> BTreeSet<PathBuf> {
        let inside = self.nodes.keys().filter(|path| path.parent() == Some(dir));
        inside.filter_map(|path| path.file_name().map(PathBuf::from)).collect()
    }

    /// The directories, the root among them.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let inner = self.nodes.iter().filter(|(_, node)| **node == Node::Directory);
        std::iter::once(PathBuf::new()).chain(inner.map(|(path, _)| path.clone())).collect()
    }

    /// How many names a file has.
    #[must_use]
    pub fn links(&self, file: usize) -> u64 {
        self.nodes.values().filter(|node| **node == Node::File(file)).count() as u64
    }

    /// What a file holds.
    ///
    /// # Errors
    ///
    /// ENOENT for a number that is none.
    pub fn content(&self, file: usize) -> Answer<&Content> {
        self.contents.get(file).ok_or(Errno::NOENT)
    }

    fn reach(&self, path: &Path) -> Answer {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for dir in above.into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
            match self.nodes.get(dir) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(Errno::NOTDIR),
                Some(Node::Link(_)) | None => return Err(Errno::NOENT),
            }
        }
        Ok(())
    }

    fn get(&self, path: &Path) -> Answer<&Node> {
        self.reach(path)?;
        self.nodes.get(path).ok_or(Errno::NOENT)
    }

    fn free(&self, path: &Path) -> Answer {
        self.reach(path)?;
        if self.nodes.contains_key(path) { Err(Errno::EXIST) } else { Ok(()) }
    }

    /// lstat: what the name stands for.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn stat(&self, path: &Path) -> Answer<Node> {
        self.get(path).cloned()
    }

    /// The file that open by this name gives, for writing.
    fn open(&mut self, path: &Path) -> Answer<&mut Content> {
        match *self.get(path)? {
            Node::Directory => Err(Errno::ISDIR),
            Node::Link(_) => Err(Errno::NOENT),
            Node::File(file) => self.contents.get_mut(file).ok_or(Errno::NOENT),
        }
    }

    /// A new file that holds `bytes`.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn create(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Answer {
        self.free(path)?;
        self.nodes.insert(path.to_owned(), Node::File(self.contents.len()));
        self.contents.push(Content { bytes: bytes.to_vec(), mode });
        Ok(())
    }

    /// Writes at an offset of a file that is there.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn write(&mut self, path: &Path, at: usize, bytes: &[u8]) -> Answer {
        let content = self.open(path)?;
        let end = at + bytes.len();
        if content.bytes.len() < end {
            content.bytes.resize(end, 0);
        }
        content.bytes[at..end].copy_from_slice(bytes);
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn truncate(&mut self, path: &Path, size: usize) -> Answer {
        self.open(path)?.bytes.resize(size, 0);
        Ok(())
    }

    /// Sets the permissions of a file; those of directories are left alone.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn chmod(&mut self, path: &Path, mode: u32) -> Answer {
        self.open(path)?.mode = mode;
        Ok(())
    }

    /// A new directory.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn mkdir(&mut self, path: &Path) -> Answer {
        self.free(path)?;
        self.nodes.insert(path.to_owned(), Node::Directory);
        Ok(())
    }

    /// A new symbolic link.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn symlink(&mut self, text: &str, path: &Path) -> Answer {
        self.free(path)?;
        self.nodes.insert(path.to_owned(), Node::Link(text.to_owned()));
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn rmdir(&mut self, path: &Path) -> Answer {
        if *self.get(path)? != Node::Directory {
            return Err(Errno::NOTDIR);
        }
        if !self.names(path).is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.nodes.remove(path);
        Ok(())
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn unlink(&mut self, path: &Path) -> Answer {
        if *self.get(path)? == Node::Directory {
            return Err(Errno::ISDIR);
        }
        self.nodes.remove(path);
        Ok(())
    }

    /// A second name.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn link(&mut self, from: &Path, to: &Path) -> Answer {
        let node = self.get(from)?.clone();
        self.free(to)?;
        if node == Node::Directory {
            return Err(Errno::PERM);
        }
        self.nodes.insert(to.to_owned(), node);
        Ok(())
    }

    /// Renames, over what may be replaced.
    ///
    /// # Errors
    ///
    /// What Linux answers.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Answer {
        self.reach(from)?;
        self.reach(to)?;
        let node = self.nodes.get(from).cloned().ok_or(Errno::NOENT)?;
        if to != from && to.starts_with(from) {
            return Err(Errno::INVAL);
        }
        if from != to && from.starts_with(to) {
            return Err(Errno::NOTEMPTY);
        }
        let target = self.nodes.get(to).cloned();
        // Links are alike by number only, and two that are links have different numbers unless one is the other.
        if from == to || matches!((&node, &target), (Node::File(a), Some(Node::File(b))) if a == b)
        {
            return Ok(());
        }
        match (&node, &target) {
            (_, None) | (Node::File(_) | Node::Link(_), Some(Node::File(_) | Node::Link(_))) => {}
            (Node::Directory, Some(Node::Directory)) if self.names(to).is_empty() => {}
            (Node::Directory, Some(Node::Directory)) => return Err(Errno::NOTEMPTY),
            (Node::Directory, Some(_)) => return Err(Errno::NOTDIR),
            (_, Some(Node::Directory)) => return Err(Errno::ISDIR),
        }
        let inside: Vec<PathBuf> =
            self.nodes.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for old in inside {
            if let (Some(node), Ok(rest)) = (self.nodes.remove(&old), old.strip_prefix(from)) {
                let new = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
                self.nodes.insert(new, node);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_renamed_with_what_it_holds() {
        let mut model = Model::default();
        let path = Path::new;
        model.mkdir(path("a")).unwrap();
        model.create(path("a/f"), b"x", 0o644).unwrap();
        model.mkdir(path("b")).unwrap();
        assert_eq!(model.rename(path("a"), path("a/c")), Err(Errno::INVAL));
        assert_eq!(model.rename(path("a"), path("b")), Ok(()));
        assert_eq!(model.stat(path("b/f")), Ok(Node::File(0)));
        assert_eq!(model.stat(path("a/f")), Err(Errno::NOENT));
        assert_eq!(model.rmdir(path("b")), Err(Errno::NOTEMPTY));
        assert_eq!(model.stat(path("b/f/g")), Err(Errno::NOTDIR));
    }
}
