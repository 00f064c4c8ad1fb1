//! The volume as a [`FileSystem`].

use crate::namespace::{
    Inode, may_be_allocated, may_be_opened, may_be_set, may_be_written, may_change,
};
use crate::transactions::room_of;
use crate::volume::Volume;
use braid_filesystem::{
    Allocate, Attr, Caller, DirEntry, Entry, Errno, FileFlags, FileSystem, Ino, Kind, Lease,
    NAME_MAX, NewNode, Opening, ROOT, RenameFlags, Seek, SetAttr, Space, TrimRange, Writing,
    XattrMode,
};
use braid_format::volume::BLOCK;
use braid_format::volume::project::UNLIMITED;
use braid_shard::{Buf, BufMut};
use std::cell::Cell;
use std::rc::Rc;

/// Free space, or room below a limit, with less than which writers are told of errors at once, in bytes; of free space less where
/// that is more than this part of the volume.
const NEARLY_FULL_BYTES: u64 = 256 << 20;
const NEARLY_FULL_PART: u64 = 16;
/// Bytes of metadata that a file takes, about: for `df -i`.
const BYTES_PER_FILE: u64 = 512;

impl Volume {
    async fn timed_read(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        room: Option<BufMut>,
    ) -> Result<Buf, Errno> {
        let start = self.shard.now();
        let read = self.files.read_file(ino, offset, len, room).await;
        let took = self.shard.now().saturating_sub(start);
        self.pace.saw_request(took);
        if let Ok(bytes) = &read {
            self.counts.read(bytes.len() as u64, took);
        }
        read
    }

    async fn timed_write(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: Buf,
        how: Writing,
    ) -> Result<(), Errno> {
        let (start, bytes) = (self.shard.now(), data.len() as u64);
        let _gate = self.gate.enter().await;
        let written = self.files.write_file(inode, offset, data, how).await;
        let took = self.shard.now().saturating_sub(start);
        self.pace.saw_request(took);
        if written.is_ok() {
            self.counts.written(bytes, took);
        }
        written
    }

    /// See [`FileSystem::fsync_since`]. Without `told`, the first who asks is told for all of those who have none.
    async fn sync_file(
        &self,
        ino: Ino,
        data_only: bool,
        told: Option<&Cell<u64>>,
    ) -> Result<(), Errno> {
        let inode = self.inodes.get(ino).await?;
        let durable = self.commits.make_durable(inode.needed(data_only)).await;
        let known = told.map_or_else(|| inode.lost_told(), Cell::get);
        let lost = inode.lost();
        if let Some(told) = told {
            told.set(lost.max(known));
        }
        inode.has_told(lost);
        if lost > known { Err(Errno::Io) } else { durable }
    }

    /// The file is offered as a block device from now on, whose clients have its content to themselves: through the file
    /// system it is neither written nor cut, which is [`Errno::Busy`]. False: it is offered already.
    pub fn begin_export(&self, ino: Ino) -> bool {
        self.exported.borrow_mut().insert(ino)
    }

    /// It is a file like others again.
    pub fn end_export(&self, ino: Ino) {
        self.exported.borrow_mut().remove(&ino);
    }

    /// Refuses an exported file: two caches of it could not be kept the same.
    fn not_exported(&self, ino: Ino) -> Result<(), Errno> {
        if self.is_shared(ino) { Err(Errno::Busy) } else { Ok(()) }
    }

    /// Writes for a client of the block device that the file is.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub async fn write_exported(&self, ino: Ino, offset: u64, data: Buf) -> Result<(), Errno> {
        may_change(ino)?;
        let inode = self.inodes.file(ino).await?;
        self.timed_write(&inode, offset, data, Writing::default()).await
    }

    /// Zeroes or frees a range for a client of the block device that the file is.
    ///
    /// # Errors
    /// As [`FileSystem::allocate`].
    pub async fn allocate_exported(
        &self,
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        may_change(ino)?;
        let _gate = self.gate.enter().await;
        self.files.allocate_file(ino, how, offset, len).await
    }
}

impl FileSystem for Volume {
    async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        self.namespace.look_up(parent, name).await
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.namespace.give_back(ino, count, 0);
    }

    async fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        Ok(self.inodes.get(ino).await?.attr(self.geometry.stripe))
    }

    async fn set_attr(&self, caller: Caller, ino: Ino, set: SetAttr) -> Result<Attr, Errno> {
        may_change(ino)?;
        self.transactions.writable()?;
        let _gate = self.gate.enter().await;
        let inode = self.inodes.get(ino).await?;
        may_be_set(&inode, &set)?;
        if let Some(size) = set.size {
            self.not_exported(ino)?;
            if size > inode.size() {
                self.transactions.may_grow().await?;
            }
            let file = self.inodes.file(ino).await?;
            self.files.set_size(&file, size).await?;
        }
        self.namespace.set_attributes(caller, &inode, set).await?;
        Ok(inode.attr(self.geometry.stripe))
    }

    async fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
    ) -> Result<Entry, Errno> {
        may_change(parent)?;
        let _gate = self.gate.enter().await;
        self.namespace.may_get_names(parent).await?;
        self.namespace.make_node(caller, parent, name, node).await
    }

    async fn make_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        node: NewNode<'_>,
    ) -> Result<Entry, Errno> {
        may_change(parent)?;
        let _gate = self.gate.enter().await;
        self.namespace.may_get_names(parent).await?;
        self.namespace.make_unnamed(caller, parent, node).await
    }

    async fn flags(&self, ino: Ino) -> Result<FileFlags, Errno> {
        self.namespace.flags(ino).await
    }

    async fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<(), Errno> {
        may_change(ino)?;
        let _gate = self.gate.enter().await;
        self.namespace.set_flags(ino, flags).await
    }

    async fn trim(&self, range: TrimRange) -> Result<u64, Errno> {
        self.trim_free_space(range).await
    }

    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let inode = self.inodes.get(ino).await?;
        if inode.kind() != Kind::Symlink {
            return Err(Errno::Invalid);
        }
        Ok(inode.with(|record| record.target.clone()))
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        may_change(parent)?;
        may_change(ino)?;
        let _gate = self.gate.enter().await;
        self.namespace.may_get_names(parent).await?;
        self.namespace.make_link(ino, parent, name).await
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        may_change(parent)?;
        let _gate = self.gate.enter().await;
        self.namespace.unlink_name(parent, name).await
    }

    async fn remove_dir(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        may_change(parent)?;
        let _gate = self.gate.enter().await;
        self.namespace.remove_directory(parent, name).await
    }

    async fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        may_change(parent)?;
        may_change(new_parent)?;
        let _gate = self.gate.enter().await;
        self.namespace.may_get_names(new_parent).await?;
        self.namespace.rename_name(parent, name, new_parent, new_name, flags).await
    }

    async fn open(&self, ino: Ino, how: Opening) -> Result<(), Errno> {
        if how.writes || how.truncate {
            may_change(ino)?;
        }
        self.inodes.add_open(ino);
        let opened = async {
            let inode = self.inodes.get(ino).await?;
            may_be_opened(&inode, how)?;
            if how.truncate {
                self.transactions.writable()?;
                self.not_exported(ino)?;
                let _gate = self.gate.enter().await;
                self.files.set_size(&inode, 0).await?;
            }
            Ok(())
        };
        let opened = opened.await;
        if opened.is_err() {
            self.namespace.give_back(ino, 0, 1);
        }
        opened
    }

    fn close(&self, ino: Ino) {
        self.namespace.give_back(ino, 0, 1);
    }

    fn is_nearly_full(&self, ino: Ino) -> bool {
        // It was opened, so it is in memory.
        let known = self.inodes.known(ino);
        let known = known.map(|inode| inode.with(|record| (record.project, record.copies)));
        let (project, copies) = known.unwrap_or((0, 1));
        let near = |left: u64, bytes: u64| left.saturating_mul(BLOCK) < bytes;
        let all = self.usage().1.saturating_mul(BLOCK);
        let room = self.projects.room(project);
        near(self.bricks.room_for(copies), NEARLY_FULL_BYTES.min(all / NEARLY_FULL_PART))
            || room != UNLIMITED && near(room, NEARLY_FULL_BYTES)
    }

    fn is_shared(&self, ino: Ino) -> bool {
        self.exported.borrow().contains(&ino)
    }

    async fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Buf, Errno> {
        self.timed_read(ino, offset, len, None).await
    }

    async fn read_into(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        room: BufMut,
    ) -> Result<Buf, Errno> {
        self.timed_read(ino, offset, len, Some(room)).await
    }

    async fn lease(&self, ino: Ino, offset: u64) -> Option<Lease> {
        let lease = self.files.lease(ino, offset).await?;
        Some(Box::new(lease))
    }

    async fn write(&self, ino: Ino, offset: u64, data: Buf, how: Writing) -> Result<(), Errno> {
        may_change(ino)?;
        self.not_exported(ino)?;
        let inode = self.inodes.file(ino).await?;
        // Pages that the kernel writes out were written when it was allowed.
        if !how.behind {
            may_be_written(&inode)?;
        }
        self.timed_write(&inode, offset, data, how).await
    }

    async fn copy_range(
        &self,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Result<u64, Errno> {
        may_change(to)?;
        self.not_exported(to)?;
        let (source, target) = (self.inodes.file(from).await?, self.inodes.file(to).await?);
        may_be_written(&target)?;
        let _gate = self.gate.enter().await;
        self.files.copy_range((&source, from_at), (&target, to_at), len).await
    }

    async fn fsync(&self, ino: Ino, data_only: bool) -> Result<(), Errno> {
        self.sync_file(ino, data_only, None).await
    }

    async fn fsync_since(&self, ino: Ino, data_only: bool, told: &Cell<u64>) -> Result<(), Errno> {
        self.sync_file(ino, data_only, Some(told)).await
    }

    fn losses_told(&self, ino: Ino) -> u64 {
        self.inodes.known(ino).map_or(0, |inode| inode.lost_told())
    }

    async fn sync(&self) -> Result<(), Errno> {
        self.sync_all().await
    }

    async fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<(), Errno> {
        may_change(ino)?;
        self.not_exported(ino)?;
        may_be_allocated(&*self.inodes.get(ino).await?, how)?;
        self.allocate_exported(ino, how, offset, len).await
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Errno> {
        self.files.seek_file(ino, offset, what).await
    }

    async fn read_dir(&self, ino: Ino, cookie: u64, max: usize) -> Result<Vec<DirEntry>, Errno> {
        self.namespace.read_entries(ino, cookie, max).await
    }

    async fn read_dir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno> {
        self.namespace.read_entries_plus(ino, cookie, max).await
    }

    async fn parent(&self, ino: Ino) -> Result<Ino, Errno> {
        let directory = self.inodes.directory(ino).await?;
        Ok(if ino == ROOT { ROOT } else { directory.with(|record| record.parent) })
    }

    async fn space(&self, ino: Ino) -> Result<Space, Errno> {
        let (used, all) = self.usage();
        let (project, copies) =
            self.inodes.get(ino).await?.with(|record| (record.project, record.copies));
        let store = self.transactions.store().space();
        let room = room_of(&store);
        let files_free = room.saturating_sub(store.used) / BYTES_PER_FILE;
        let whole = Space {
            block: BLOCK as u32,
            blocks: all,
            free: all - used,
            available: self.bricks.room_for(copies),
            files: room / BYTES_PER_FILE,
            files_free,
            name_max: NAME_MAX as u32,
        };
        Ok(self.space_of(project, whole))
    }

    async fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        may_change(ino)?;
        let _gate = self.gate.enter().await;
        self.namespace.set_attribute(ino, name, value, mode).await
    }

    async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.namespace.attribute(ino, name).await
    }

    async fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        self.namespace.attributes(ino).await
    }

    async fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        may_change(ino)?;
        let _gate = self.gate.enter().await;
        self.namespace.remove_attribute(ino, name).await
    }
}
