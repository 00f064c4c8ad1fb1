//! The provider of the tree around the targets.

use braid_filesystem::Errno;

/// Bytes that are written to a text at once: a page, as in sysfs (kernel, fs/kernfs/file.c).
pub const TEXT_BYTES_MAX: usize = 4096;

/// The rights on a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read only.
    Read,
    /// Written only.
    Write,
    /// Both.
    Both,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Folder,
    /// A text.
    Text(Rights),
    /// A symbolic link to this, relative to its folder.
    Link(String),
}

/// An entry with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name: 1 to 255 bytes, without a slash.
    pub name: String,
    /// The entry itself.
    pub node: Node,
}

/// A tree of texts. Its methods are called on threads that may wait. Paths are relative to the root, which is the empty
/// one, and have no slash at either end.
pub trait Texts: Send + Sync {
    /// The entries of a folder, those of targets excepted.
    ///
    /// # Errors
    /// [`Errno::NotFound`] when there is no such folder.
    fn list(&self, folder: &str) -> Result<Vec<Listed>, Errno>;

    /// The text at `path` now.
    ///
    /// # Errors
    /// [`Errno::NotFound`] when there is none, [`Errno::Access`] when it cannot be read.
    fn read(&self, path: &str) -> Result<String, Errno>;

    /// Acts on `text`, which was written to `path`: at most [`TEXT_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when the text cannot be, [`Errno::Busy`] when it is refused now, or another that says why.
    fn write(&self, path: &str, text: &str) -> Result<(), Errno>;
}
