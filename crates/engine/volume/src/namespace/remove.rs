//! Names that go.

use super::flags::may_lose_name;
use super::inode::Inode;
use super::rules::{check_name, is_dots};
use super::tree::Namespace;
use braid_filesystem::{Errno, Ino, Kind};
use std::rc::Rc;

impl Namespace {
    /// See [`braid_filesystem::FileSystem::unlink`].
    pub async fn unlink_name(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let directory = self.inodes.directory(parent).await?;
        self.transactions.writable()?;
        check_name(name)?;
        if is_dots(name) {
            return Err(Errno::IsDirectory);
        }
        self.transactions.room().await;
        let _held = directory.locks.exclusive(braid_shard::range_locks::WHOLE).await;
        let entry = self.find(parent, name).await?.ok_or(Errno::NotFound)?;
        let inode = self.inodes.get(entry.ino).await?;
        let kind = inode.kind();
        if kind == Kind::Directory {
            return Err(Errno::IsDirectory);
        }
        may_lose_name(&directory, &inode)?;
        self.take_entry(&directory, name, &entry, kind);
        self.take_link(&inode);
        Ok(())
    }

    /// One name of a file is gone; the file too when it was the last and nobody uses it.
    pub(super) fn take_link(&self, inode: &Rc<Inode>) {
        let left = self.inodes.edit(inode, true, |record| {
            record.nlink = record.nlink.saturating_sub(1);
            record.nlink
        });
        self.inodes.touch(inode, false);
        if left == 0 {
            self.orphans.record(inode.ino());
            self.remove_if_unused(inode.ino());
        }
    }

    /// See [`braid_filesystem::FileSystem::remove_dir`].
    pub async fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let directory = self.inodes.directory(parent).await?;
        self.transactions.writable()?;
        match name {
            b"." => return Err(Errno::Invalid),
            b".." => return Err(Errno::NotEmpty),
            name => check_name(name)?,
        }
        self.transactions.room().await;
        let _tree = self.tree.exclusive(braid_shard::range_locks::WHOLE).await;
        let _held = directory.locks.exclusive(braid_shard::range_locks::WHOLE).await;
        let entry = self.find(parent, name).await?.ok_or(Errno::NotFound)?;
        if entry.ino == parent {
            // Only damaged metadata has a directory in itself; it is held already.
            return Err(Errno::Io);
        }
        let inode = self.inodes.get(entry.ino).await?;
        if inode.kind() != Kind::Directory {
            return Err(Errno::NotDirectory);
        }
        // Whoever makes a name in it holds it from the look at its links until the name is there.
        let _child = inode.locks.exclusive(braid_shard::range_locks::WHOLE).await;
        if inode.with(|record| record.entries > 0) {
            return Err(Errno::NotEmpty);
        }
        may_lose_name(&directory, &inode)?;
        self.end_subvolume(&inode)?;
        self.take_entry(&directory, name, &entry, Kind::Directory);
        self.drop_directory(&inode);
        Ok(())
    }

    /// A directory without entries has lost its name.
    pub(super) fn drop_directory(&self, inode: &Rc<Inode>) {
        self.inodes.snapshots.lose_folder(inode.ino());
        self.inodes.edit(inode, true, |record| record.nlink = 0);
        self.inodes.touch(inode, false);
        self.orphans.record(inode.ino());
        self.remove_if_unused(inode.ino());
    }
}
