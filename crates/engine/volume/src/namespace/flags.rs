//! The attributes that chattr(1) sets, and the changes that they forbid. The kernel, which keeps to them in its own file
//! systems, leaves that to us.

use super::inode::Inode;
use super::tree::Namespace;
use braid_filesystem::{Allocate, Errno, FileFlags, Ino, Kind, Opening, SetAttr, SetTime};
use braid_format::volume::inode::{
    FLAG_APPEND, FLAG_IMMUTABLE, FLAG_INHERIT_PROJECT, FLAG_NO_ATIME, FLAG_NO_DUMP, InodeRecord,
};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Nothing may change but by appending, or nothing at all.
const KEPT: u32 = FLAG_IMMUTABLE | FLAG_APPEND;

/// The attributes of a record.
fn flags_of(record: &InodeRecord) -> FileFlags {
    let has = |flag| record.flags & flag != 0;
    FileFlags {
        immutable: has(FLAG_IMMUTABLE),
        append: has(FLAG_APPEND),
        no_atime: has(FLAG_NO_ATIME),
        no_dump: has(FLAG_NO_DUMP),
        inherits_project: has(FLAG_INHERIT_PROJECT),
        project: record.project,
    }
}

fn set_flags_of(record: &mut InodeRecord, flags: FileFlags) {
    let all = [
        (FLAG_IMMUTABLE, flags.immutable),
        (FLAG_APPEND, flags.append),
        (FLAG_NO_ATIME, flags.no_atime),
        (FLAG_NO_DUMP, flags.no_dump),
        (FLAG_INHERIT_PROJECT, flags.inherits_project),
    ];
    for (flag, is_set) in all {
        record.flags = if is_set { record.flags | flag } else { record.flags & !flag };
    }
    record.project = flags.project;
}

/// Refuses a change of a file that has one of `flags`.
fn refuse(inode: &Inode, flags: u32) -> Result<(), Errno> {
    match inode.with(|record| record.flags & flags != 0) {
        true => Err(Errno::NotPermitted),
        false => Ok(()),
    }
}

/// Refuses a change of attributes, and another name, of what is immutable or only to be appended to.
pub fn may_be_changed(inode: &Inode) -> Result<(), Errno> {
    refuse(inode, KEPT)
}

/// Refuses a write of what is immutable. One that is only to be appended to was opened for that.
pub fn may_be_written(inode: &Inode) -> Result<(), Errno> {
    refuse(inode, FLAG_IMMUTABLE)
}

/// Refuses to open a file in a way in which it must not change.
pub fn may_be_opened(inode: &Inode, how: Opening) -> Result<(), Errno> {
    if how.writes || how.truncate {
        refuse(inode, FLAG_IMMUTABLE)?;
    }
    if how.truncate || (how.writes && !how.appends) {
        refuse(inode, FLAG_APPEND)?;
    }
    Ok(())
}

/// Refuses a change of the space of a file in which it must not change.
pub fn may_be_allocated(inode: &Inode, how: Allocate) -> Result<(), Errno> {
    match how {
        Allocate::Reserve { .. } => refuse(inode, FLAG_IMMUTABLE),
        Allocate::PunchHole | Allocate::ZeroRange { .. } => refuse(inode, KEPT),
    }
}

/// Refuses to set attributes of a file that it must keep.
pub fn may_be_set(inode: &Inode, set: &SetAttr) -> Result<(), Errno> {
    // The kernel notes the times of what its page cache held back; that was written when it was allowed.
    let is_noted_late = set.ctime.is_some()
        && *set == SetAttr { mtime: set.mtime, ctime: set.ctime, ..SetAttr::default() };
    if is_noted_late || (planted("immutable-cut") && set.size.is_some()) {
        return Ok(());
    }
    let is_now = |time: Option<SetTime>| time.is_none_or(|time| time == SetTime::Now);
    let just_touches = set.perm.or(set.size.map(|_| 0)).is_none()
        && set.uid.or(set.gid).is_none()
        && is_now(set.atime)
        && is_now(set.mtime);
    refuse(inode, if just_touches { FLAG_IMMUTABLE } else { KEPT })
}

/// Refuses to take a name of `inode` out of `directory`.
pub(super) fn may_lose_name(directory: &Inode, inode: &Inode) -> Result<(), Errno> {
    refuse(directory, KEPT)?;
    refuse(inode, KEPT)
}

/// Refuses to bring `inode` into a directory that gives its project to what is made in it, unless it has that.
pub(super) fn may_come_into(directory: &Inode, inode: &Inode) -> Result<(), Errno> {
    let project = directory
        .with(|record| (record.flags & FLAG_INHERIT_PROJECT != 0).then_some(record.project));
    match project.is_none_or(|project| inode.with(|record| record.project) == project) {
        true => Ok(()),
        false => Err(Errno::CrossDevice),
    }
}

impl Namespace {
    /// See [`braid_filesystem::FileSystem::flags`].
    pub async fn flags(&self, ino: Ino) -> Result<FileFlags, Errno> {
        Ok(self.flagged(ino).await?.with(flags_of))
    }

    /// See [`braid_filesystem::FileSystem::set_flags`].
    pub async fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<(), Errno> {
        self.transactions.writable()?;
        let inode = self.flagged(ino).await?;
        if flags.inherits_project && inode.kind() != Kind::Directory {
            return Err(Errno::Invalid);
        }
        let (project, blocks) = inode.with(|record| (record.project, record.blocks));
        if flags.project != project {
            self.inodes.projects().may_receive(flags.project, blocks)?;
        }
        self.inodes.touch(&inode, false);
        self.inodes.edit(&inode, true, |record| set_flags_of(record, flags));
        Ok(())
    }

    /// A file that can have such attributes.
    async fn flagged(&self, ino: Ino) -> Result<Rc<Inode>, Errno> {
        let inode = self.inodes.get(ino).await?;
        match inode.kind() {
            Kind::File | Kind::Directory => Ok(inode),
            _ => Err(Errno::Unsupported),
        }
    }

    /// Refuses new names in a directory that is immutable.
    pub async fn may_get_names(&self, directory: Ino) -> Result<(), Errno> {
        refuse(&*self.inodes.get(directory).await?, FLAG_IMMUTABLE)
    }
}
