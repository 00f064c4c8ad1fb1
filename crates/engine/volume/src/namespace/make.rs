//! New files and links.

use super::inode::{Inode, nibble_of};
use super::rules::{check_name, entry_bytes, is_dots};
use super::tree::Namespace;
use braid_filesystem::{Caller, Entry, Errno, Ino, Kind, MODE_MASK, NewNode};
use braid_format::volume::NO_BRICK;
use braid_format::volume::inode::{FLAG_NO_ATTRIBUTES, FLAG_PINNED, InodeRecord};
use std::rc::Rc;

/// Names that a file can have.
const LINKS_MAX: u32 = 1 << 30;
/// Longest target of a symbolic link, in bytes.
const TARGET_MAX: usize = 4095;

impl Namespace {
    /// See [`braid_filesystem::FileSystem::make`].
    pub async fn make_node(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
    ) -> Result<Entry, Errno> {
        let directory = self.inodes.directory(parent).await?;
        self.check_new_name(name)?;
        self.transactions.may_grow().await?;
        if node.kind == Kind::Symlink && node.target.len() > TARGET_MAX {
            return Err(Errno::NameTooLong);
        }
        let _held = directory.locks.exclusive(crate::locks::WHOLE).await;
        if self.find(parent, name).await?.is_some() {
            return Err(Errno::Exists);
        }
        self.check_alive(&directory)?;
        // Others have waited for the directory, too.
        self.transactions.has_room_for(entry_bytes(name) + node.target.len() as u64)?;
        let ino = self.record.new_ino()?;
        let record = self.new_record(caller, &directory, &node);
        let inode = self.inodes.add(ino, record);
        if node.kind == Kind::Directory {
            self.names.made(ino);
        }
        self.transactions.count_bytes(node.target.len() as u64);
        self.add_entry(&directory, name, ino, node.kind);
        Ok(self.entry_of(&inode))
    }

    fn check_new_name(&self, name: &[u8]) -> Result<(), Errno> {
        if is_dots(name) {
            return Err(Errno::Exists);
        }
        check_name(name)
    }

    /// A directory that was removed takes no new names.
    pub(super) fn check_alive(&self, directory: &Inode) -> Result<(), Errno> {
        if directory.with(|record| record.nlink == 0) { Err(Errno::NotFound) } else { Ok(()) }
    }

    fn new_record(&self, caller: Caller, directory: &Rc<Inode>, node: &NewNode<'_>) -> InodeRecord {
        let now = self.inodes.now();
        let is_directory = node.kind == Kind::Directory;
        directory.with(|parent| {
            // In a directory with setgid the group is the directory's, and new directories do the same.
            let inherits = parent.perm & 0o2000 != 0;
            let setgid = if inherits && is_directory { 0o2000 } else { 0 };
            // Where the directory's files are to lie somewhere, or to stay, new ones are too.
            let (pinned, brick) = (parent.flags & FLAG_PINNED, parent.brick);
            InodeRecord {
                kind: nibble_of(node.kind),
                perm: (node.perm & MODE_MASK) | setgid,
                uid: caller.uid,
                gid: if inherits { parent.gid } else { caller.gid },
                nlink: if is_directory { 2 } else { 1 },
                rdev: node.rdev,
                flags: pinned | FLAG_NO_ATTRIBUTES,
                size: 0,
                blocks: 0,
                generation: 0,
                atime: now,
                mtime: now,
                ctime: now,
                crtime: now,
                parent: if is_directory { directory.ino() } else { 0 },
                next_cookie: u64::from(is_directory),
                entries: 0,
                brick: if matches!(node.kind, Kind::File | Kind::Directory) {
                    brick
                } else {
                    NO_BRICK
                },
                target: node.target.to_vec(),
            }
        })
    }

    /// See [`braid_filesystem::FileSystem::link`].
    pub async fn make_link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let directory = self.inodes.directory(parent).await?;
        self.check_new_name(name)?;
        self.transactions.may_grow().await?;
        let inode = self.inodes.get(ino).await?;
        if inode.kind() == Kind::Directory {
            return Err(Errno::NotPermitted);
        }
        let _held = directory.locks.exclusive(crate::locks::WHOLE).await;
        if self.find(parent, name).await?.is_some() {
            return Err(Errno::Exists);
        }
        self.check_alive(&directory)?;
        match inode.with(|record| record.nlink) {
            0 => return Err(Errno::NotFound),
            LINKS_MAX.. => return Err(Errno::TooManyLinks),
            _ => {}
        }
        self.transactions.has_room_for(entry_bytes(name))?;
        self.inodes.edit(&inode, true, |record| record.nlink += 1);
        self.inodes.touch(&inode, false);
        self.add_entry(&directory, name, ino, inode.kind());
        Ok(self.entry_of(&inode))
    }
}
