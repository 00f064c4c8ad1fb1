//! Names that change.

use super::flags::{may_come_into, may_lose_name};
use super::inode::Inode;
use super::rules::{check_name, entry_bytes, is_dots};
use super::tree::Namespace;
use braid_filesystem::{
    Errno, Ino, Kind, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, ROOT, RenameFlags,
};
use braid_format::volume::entry::ByName;
use braid_shard::plant::planted;
use braid_shard::range_locks::WHOLE;
use std::rc::Rc;

/// A name, with what it stands for.
struct Found {
    entry: ByName,
    inode: Rc<Inode>,
    kind: Kind,
}

impl Namespace {
    /// See [`braid_filesystem::FileSystem::rename`].
    pub async fn rename_name(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let is_whiteout = flags.0 & RENAME_WHITEOUT.0 != 0;
        let flags = RenameFlags(flags.0 & !RENAME_WHITEOUT.0);
        let is_known = [RenameFlags(0), RENAME_NOREPLACE, RENAME_EXCHANGE].contains(&flags);
        if !is_known || (is_whiteout && flags == RENAME_EXCHANGE) {
            return Err(Errno::Invalid);
        }
        let from = self.inodes.directory(parent).await?;
        let to = self.inodes.directory(new_parent).await?;
        check_name(name)?;
        check_name(new_name)?;
        if is_dots(name) || is_dots(new_name) {
            return Err(Errno::Busy);
        }
        self.transactions.may_grow().await?;
        let _tree = self.tree.exclusive(WHOLE).await;
        // In the order of their numbers: nobody else who holds one of them waits for the other.
        let first = if parent <= new_parent { &from } else { &to };
        let _first = first.locks.exclusive(WHOLE).await;
        let _second = match parent == new_parent {
            true => None,
            false => {
                Some(if parent < new_parent { &to } else { &from }.locks.exclusive(WHOLE).await)
            }
        };
        self.check_alive(&to)?;
        // Others have waited for the tree, too.
        let whiteout_bytes = if is_whiteout { entry_bytes(name) } else { 0 };
        self.transactions.has_room_for(entry_bytes(new_name) + whiteout_bytes)?;
        let source = self.found(parent, name).await?.ok_or(Errno::NotFound)?;
        let target = self.found(new_parent, new_name).await?;
        may_lose_name(&from, &source.inode)?;
        may_come_into(&to, &source.inode)?;
        self.may_come_under(&to, &source.inode)?;
        if [(parent, name), (new_parent, new_name)]
            .into_iter()
            .any(|(parent, name)| self.find_snapshot(parent, name).is_some())
        {
            return Err(Errno::Busy);
        }
        if let Some(target) = &target {
            may_lose_name(&to, &target.inode)?;
        }
        if source.kind == Kind::Directory {
            self.check_not_below(source.entry.ino, new_parent).await?;
        }
        if flags == RENAME_EXCHANGE {
            let target = target.ok_or(Errno::NotFound)?;
            if target.entry.ino == source.entry.ino {
                return Ok(());
            }
            if target.kind == Kind::Directory {
                self.check_not_below(target.entry.ino, parent).await?;
            }
            may_come_into(&from, &target.inode)?;
            self.may_come_under(&from, &target.inode)?;
            self.exchange((&from, name, &source), (&to, new_name, &target));
            return Ok(());
        }
        let replaced = target.as_ref().map(|target| target.entry.cookie);
        if is_whiteout {
            self.may_make_in(&from)?;
        }
        let whiteout = is_whiteout.then(|| self.record.new_ino()).transpose()?;
        if let Some(target) = target {
            if flags == RENAME_NOREPLACE {
                return Err(Errno::Exists);
            }
            if target.entry.ino == source.entry.ino {
                return Ok(());
            }
            match (source.kind == Kind::Directory, target.kind == Kind::Directory) {
                (true, false) => return Err(Errno::NotDirectory),
                (false, true) => return Err(Errno::IsDirectory),
                (true, true) => {
                    // A source in the target makes the target not empty; its lock may be held here already.
                    let held = target.entry.ino == parent || target.entry.ino == new_parent;
                    let _child = match held {
                        true => None,
                        false => Some(target.inode.locks.exclusive(WHOLE).await),
                    };
                    if target.inode.with(|record| record.entries > 0) {
                        return Err(Errno::NotEmpty);
                    }
                    if is_whiteout {
                        self.may_make_in(&from)?;
                    }
                    self.end_subvolume(&target.inode)?;
                    self.take_entry(&to, new_name, &target.entry, target.kind);
                    self.drop_directory(&target.inode);
                }
                (false, false) => {
                    self.take_entry(&to, new_name, &target.entry, target.kind);
                    self.take_link(&target.inode);
                }
            }
        }
        self.take_entry(&from, name, &source.entry, source.kind);
        if let Some(ino) = whiteout {
            self.leave_whiteout(&from, name, source.entry.cookie, ino);
        }
        match replaced {
            Some(cookie) if !planted("replaced-name-moves") => {
                self.add_entry_at(&to, new_name, cookie, source.entry.ino, source.kind);
            }
            _ => self.add_entry(&to, new_name, source.entry.ino, source.kind),
        }
        self.moved_to(&source, &to);
        Ok(())
    }

    async fn found(&self, parent: Ino, name: &[u8]) -> Result<Option<Found>, Errno> {
        let Some(entry) = self.find(parent, name).await? else { return Ok(None) };
        let inode = self.inodes.get(entry.ino).await?;
        let kind = inode.kind();
        Ok(Some(Found { entry, inode, kind }))
    }

    /// Refuses to put directory `ino` into itself or below.
    async fn check_not_below(&self, ino: Ino, new_parent: Ino) -> Result<(), Errno> {
        let mut at = new_parent;
        let (mut passed, mut steps) = (0, 0u64);
        while at != ROOT {
            if at == ino {
                return Err(Errno::Invalid);
            }
            // The tree is held, so the way up ends at the root; a damaged one could go round.
            let above = self.inodes.directory(at).await?.with(|record| record.parent);
            if steps.is_power_of_two() {
                passed = at;
            }
            if above == passed || above == at || above == 0 {
                return Err(Errno::Io);
            }
            at = above;
            steps += 1;
        }
        if ino == ROOT { Err(Errno::Invalid) } else { Ok(()) }
    }

    fn exchange(&self, one: (&Rc<Inode>, &[u8], &Found), other: (&Rc<Inode>, &[u8], &Found)) {
        self.take_entry(one.0, one.1, &one.2.entry, one.2.kind);
        self.take_entry(other.0, other.1, &other.2.entry, other.2.kind);
        let (first, second) = (&one.2.entry, &other.2.entry);
        self.add_entry_at(one.0, one.1, first.cookie, second.ino, other.2.kind);
        self.add_entry_at(other.0, other.1, second.cookie, first.ino, one.2.kind);
        self.moved_to(one.2, other.0);
        self.moved_to(other.2, one.0);
    }

    fn moved_to(&self, moved: &Found, directory: &Rc<Inode>) {
        self.inodes.touch(&moved.inode, false);
        if moved.kind == Kind::Directory {
            let parent = directory.ino();
            self.inodes.edit(&moved.inode, true, |record| record.parent = parent);
        }
    }
}
