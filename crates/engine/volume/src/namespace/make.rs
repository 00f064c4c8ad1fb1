//! New files and links.

use super::access_lists::Rights;
use super::flags::{may_be_changed, may_come_into};
use super::inode::{Inode, nibble_of};
use super::rules::{check_name, entry_bytes, is_dots};
use super::tree::Namespace;
use braid_filesystem::{Caller, Entry, Errno, Ino, Kind, MODE_MASK, NewNode};
use braid_format::volume::NO_BRICK;
use braid_format::volume::inode::{
    FLAG_INHERIT_PROJECT, FLAG_NO_ATTRIBUTES, FLAG_PINNED, FLAG_UNNAMED, InodeRecord,
};
use braid_shard::plant::planted;
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
        let _held = directory.locks.exclusive(braid_shard::range_locks::WHOLE).await;
        if self.is_taken(parent, name).await? {
            return Err(Errno::Exists);
        }
        self.check_alive(&directory)?;
        let rights = self.rights_for_new(&directory, &node).await?;
        self.may_make_in(&directory)?;
        // Others have waited for the directory, too.
        let bytes = entry_bytes(name) + node.target.len() as u64 + rights.bytes();
        self.transactions.has_room_for(bytes)?;
        let ino = self.record.new_ino()?;
        let inode = self.add_node(ino, self.new_record(caller, &directory, &node), rights);
        if node.kind == Kind::Directory {
            self.names.made(ino);
        }
        self.transactions.count_bytes(node.target.len() as u64);
        self.add_entry(&directory, name, ino, node.kind);
        Ok(self.entry_of(&inode))
    }

    /// See [`braid_filesystem::FileSystem::make_unnamed`]. Until it has a name the next mount removes it.
    pub async fn make_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        node: NewNode<'_>,
    ) -> Result<Entry, Errno> {
        let directory = self.inodes.directory(parent).await?;
        self.transactions.may_grow().await?;
        self.check_alive(&directory)?;
        let rights = self.rights_for_new(&directory, &node).await?;
        self.may_make_in(&directory)?;
        self.transactions.has_room_for(entry_bytes(b"") + rights.bytes())?;
        let mut record = self.new_record(caller, &directory, &node);
        record.nlink = 0;
        record.flags |= FLAG_UNNAMED;
        let inode = self.add_node(self.record.new_ino()?, record, rights);
        if !planted("unnamed-forgotten") {
            self.orphans.record(inode.ino());
        }
        Ok(self.entry_of(&inode))
    }

    /// A new file of that record, whose mode and lists are those of `rights`.
    fn add_node(&self, ino: Ino, mut record: InodeRecord, rights: Rights) -> Rc<Inode> {
        record.perm |= rights.perm & MODE_MASK;
        let inode = self.inodes.add(ino, record);
        for (name, value) in rights.lists {
            self.put_attribute(&inode, name, value);
        }
        inode
    }

    /// Puts whiteout `ino`, a device of number 0, where a name has just been taken away.
    pub(super) fn leave_whiteout(&self, directory: &Rc<Inode>, name: &[u8], cookie: u64, ino: Ino) {
        let kind = Kind::CharDevice;
        let node = NewNode { kind, perm: 0, umask: 0, rdev: 0, target: b"" };
        let record = self.new_record(Caller::default(), directory, &node);
        self.add_node(ino, record, Rights { perm: 0, lists: Vec::new() });
        self.add_entry_at(directory, name, cookie, ino, kind);
    }

    async fn is_taken(&self, parent: Ino, name: &[u8]) -> Result<bool, Errno> {
        Ok(self.find_snapshot(parent, name).is_some() || self.find(parent, name).await?.is_some())
    }

    fn check_new_name(&self, name: &[u8]) -> Result<(), Errno> {
        if is_dots(name) {
            return Err(Errno::Exists);
        }
        check_name(name)
    }

    /// Refuses one more file where what is made in the directory is of a project that has as many as it may.
    pub(super) fn may_make_in(&self, directory: &Inode) -> Result<(), Errno> {
        let inherits = |record: &InodeRecord| record.flags & FLAG_INHERIT_PROJECT != 0;
        let project = directory.with(|record| inherits(record).then_some(record.project));
        project.map_or(Ok(()), |project| self.inodes.projects().may_add_file(project))
    }

    /// A directory that was removed takes no new names.
    pub(super) fn check_alive(&self, directory: &Inode) -> Result<(), Errno> {
        if directory.with(|record| record.nlink == 0) { Err(Errno::NotFound) } else { Ok(()) }
    }

    /// Its mode is what it has from the directory; that which was asked for is in its rights.
    fn new_record(&self, caller: Caller, directory: &Rc<Inode>, node: &NewNode<'_>) -> InodeRecord {
        let now = self.inodes.now();
        let is_directory = node.kind == Kind::Directory;
        directory.with(|parent| {
            // In a directory with setgid the group is the directory's, and new directories do the same.
            let inherits = parent.perm & 0o2000 != 0;
            let setgid = if inherits && is_directory { 0o2000 } else { 0 };
            // Where the directory's files are to lie somewhere, or to stay, new ones are too.
            let (pinned, brick) = (parent.flags & FLAG_PINNED, parent.brick);
            let inherits_project = parent.flags & FLAG_INHERIT_PROJECT;
            let has_data = matches!(node.kind, Kind::File | Kind::Directory);
            let copies = if has_data { parent.copies } else { 1 };
            InodeRecord {
                kind: nibble_of(node.kind),
                perm: setgid,
                uid: caller.uid,
                gid: if inherits { parent.gid } else { caller.gid },
                nlink: if is_directory { 2 } else { 1 },
                rdev: node.rdev,
                flags: pinned
                    | FLAG_NO_ATTRIBUTES
                    | if is_directory { inherits_project } else { 0 },
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
                brick: if has_data { brick } else { NO_BRICK },
                project: if inherits_project != 0 { parent.project } else { 0 },
                copies,
                held: copies,
                subvolume: parent.subvolume,
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
        let _held = directory.locks.exclusive(braid_shard::range_locks::WHOLE).await;
        if self.is_taken(parent, name).await? {
            return Err(Errno::Exists);
        }
        self.check_alive(&directory)?;
        may_be_changed(&inode)?;
        may_come_into(&directory, &inode)?;
        self.may_come_under(&directory, &inode)?;
        let (links, is_unnamed) =
            inode.with(|record| (record.nlink, record.flags & FLAG_UNNAMED != 0));
        match links {
            0 if !is_unnamed => return Err(Errno::NotFound),
            LINKS_MAX.. => return Err(Errno::TooManyLinks),
            _ => {}
        }
        self.transactions.has_room_for(entry_bytes(name))?;
        self.inodes.edit(&inode, true, |record| {
            record.nlink += 1;
            if !planted("unnamed-for-ever") {
                record.flags &= !FLAG_UNNAMED;
            }
        });
        if is_unnamed {
            self.orphans.is_named(ino);
        }
        self.inodes.touch(&inode, false);
        self.add_entry(&directory, name, ino, inode.kind());
        Ok(self.entry_of(&inode))
    }
}
