//! Problems with the entries of a directory, and their repair. Changes wait while it is examined.

use super::files::needed_cookie;
use super::run::Walk;
use crate::under_way::Halt;
use crate::volume::Volume;
use crate::watch::{DIRECTORY, Directory};
use braid_filesystem::{Caller, Errno, Ino, Kind, NewNode, ROOT};
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::keys;
use braid_kv::Pair;
use std::collections::BTreeMap;

/// Where files without a name go.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Entries that are read at a time.
const AT_ONCE: usize = 1024;

impl Volume {
    /// Looks at an entry that was counted and seems to stand for nothing.
    pub(super) async fn look_again(
        &self,
        walk: &Walk,
        directory: Ino,
        name: &[u8],
        entry: ByName,
    ) -> Result<(), Halt> {
        // It may have come meanwhile, with its file.
        if self.stands(directory, &entry).await? {
            return Ok(());
        }
        let _shut = self.gate.shut().await;
        let key = keys::name(directory, name);
        let now = self.stored(&key).await?.and_then(|bytes| ByName::parse(&bytes).ok());
        if now != Some(entry) || self.stands(directory, &entry).await? {
            return Ok(());
        }
        let text = String::from_utf8_lossy(name);
        walk.problem(true, format!("the name {text} in directory {directory} stands for nothing"));
        walk.watch.names.borrow_mut().stands_for_nothing(directory, &entry);
        if !walk.repair {
            return Ok(());
        }
        let cookie = keys::cookie(directory, entry.cookie);
        let listed = self.stored(&cookie).await?.and_then(|bytes| ByCookie::parse(&bytes).ok());
        let same = ByCookie { ino: entry.ino, kind: entry.kind, name: name.to_vec() };
        if listed.as_ref() == Some(&same) {
            self.transactions.set(cookie, None);
        }
        self.transactions.set(key, None);
        self.names.forget();
        let from = {
            let mut names = walk.watch.names.borrow_mut();
            names.forget_listed(directory, name, &entry);
            names.from
        };
        // Files of earlier walks were compared with this entry, too.
        if directory < from
            && let Some(inode) = self.inodes.get(directory)
        {
            self.edit(&inode, true, |record| record.entries = record.entries.saturating_sub(1));
        }
        if entry.ino < from
            && let Some(inode) = self.inodes.get(entry.ino)
            && inode.with(|record| record.kind == entry.kind && entry.kind != DIRECTORY)
        {
            self.edit(&inode, true, |record| record.nlink = record.nlink.saturating_sub(1));
        }
        Ok(())
    }

    /// The directory is there, and so is the file, and is what the entry says.
    async fn stands(&self, directory: Ino, entry: &ByName) -> Result<bool, Errno> {
        let kind = async |ino| match self.inode(ino).await {
            Ok(inode) => Ok(inode.with(|record| record.kind)),
            // Also one whose record is damaged is of no use.
            Err(Errno::Stale) => Ok(0),
            Err(Errno::Io) if self.stored(&keys::inode(ino)).await.is_ok() => Ok(0),
            Err(error) => Err(error),
        };
        Ok(kind(directory).await? != 0 && kind(entry.ino).await? == entry.kind)
    }

    /// All pairs of a range, at once.
    async fn all_pairs(
        &self,
        first: Vec<u8>,
        to: Vec<u8>,
        mut see: impl FnMut(Pair),
    ) -> Result<(), Errno> {
        let mut from = Some(first);
        while let Some(start) = from.take() {
            let scanned = self.transactions.scan(&start, &to, AT_ONCE).await;
            let (pairs, next) = scanned.map_err(|error| self.store_failed(&error))?;
            pairs.into_iter().for_each(&mut see);
            from = next;
        }
        Ok(())
    }

    /// Holds the entries of a directory by name against those in the order of reading, one by one.
    pub(super) async fn compare_order(&self, walk: &Walk, directory: Ino) -> Result<(), Halt> {
        let _shut = self.gate.shut().await;
        let mut in_order: BTreeMap<u64, ByCookie> = BTreeMap::new();
        let first = keys::cookie(directory, 0);
        let listed = self.all_pairs(first, keys::after(&keys::cookie(directory, 0)[..9]), |pair| {
            if let (Some(cookie), Ok(entry)) = (keys::second_of(&pair.0), ByCookie::parse(&pair.1))
            {
                in_order.insert(cookie, entry);
            }
        });
        listed.await?;
        let mut unlisted: Vec<(Vec<u8>, ByName)> = Vec::new();
        let mut counts = Directory::default();
        let prefix = keys::name(directory, b"");
        let named = self.all_pairs(prefix.clone(), keys::after(&prefix), |(key, value)| {
            let (Some(name), Ok(entry)) = (keys::name_of(&key), ByName::parse(&value)) else {
                return;
            };
            let same = ByCookie { ino: entry.ino, kind: entry.kind, name: name.to_vec() };
            // Another name may stand there.
            if in_order.get(&entry.cookie) == Some(&same) {
                in_order.remove(&entry.cookie);
                let lowest = if counts.lowest == 0 { entry.cookie } else { counts.lowest };
                counts.lowest = lowest.min(entry.cookie);
            } else {
                unlisted.push((name.to_vec(), entry));
            }
        });
        named.await?;
        for (name, _) in &unlisted {
            let name = String::from_utf8_lossy(name);
            let text = format!("the name {name} in directory {directory} is missing in its order");
            walk.problem(true, text);
        }
        for (cookie, entry) in in_order {
            let name = String::from_utf8_lossy(&entry.name);
            let text = format!("{name} is in the order of directory {directory} and has no entry");
            walk.problem(true, text);
            if walk.repair {
                self.transactions.set(keys::cookie(directory, cookie), None);
            }
        }
        if walk.repair && !unlisted.is_empty() {
            let inode = self.inode(directory).await?;
            let needed = needed_cookie(&counts);
            self.edit(&inode, true, |record| record.next_cookie = record.next_cookie.max(needed));
            for (name, entry) in unlisted {
                let cookie = self.new_cookie(&inode);
                self.list_entry(&inode, &name, ByName { cookie, ..entry });
            }
            self.names.forget();
        }
        // From here on the two agree, or have been told of.
        let mut names = walk.watch.names.borrow_mut();
        if let Some(known) = names.directories.get_mut(&directory) {
            known.lowest = counts.lowest;
        }
        Ok(())
    }

    /// Gives a file without a name one in `/lost+found`.
    pub(super) async fn save_nameless(&self, ino: Ino) -> Result<(), Errno> {
        let owner = Caller::default();
        let node = NewNode { kind: Kind::Directory, perm: 0o700, rdev: 0, target: b"" };
        let directory = match self.look_up(ROOT, LOST_AND_FOUND).await {
            Err(Errno::NotFound) => self.make_node(owner, ROOT, LOST_AND_FOUND, node).await?,
            other => other?,
        };
        let parent = directory.attr.ino;
        self.give_back(parent, 1, 0);
        let inode = self.inode(ino).await?;
        let directory = self.directory(parent).await?;
        let kind = inode.kind();
        self.add_entry(&directory, format!("#{ino}").as_bytes(), ino, kind);
        self.edit(&inode, true, |record| {
            if kind == Kind::Directory {
                record.parent = parent;
                record.nlink = record.nlink.max(2);
            } else {
                record.nlink = 1;
            }
        });
        Ok(())
    }
}
