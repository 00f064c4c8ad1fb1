//! Problems with the entries of a directory, and their repair. Changes wait while it is examined.

use super::one::Halt;
use super::walk::Walk;
use crate::namespace::next_cookie_after;
use crate::transactions::Transactions;
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

/// The least `next_cookie` of a directory.
pub(super) fn needed_cookie(counts: &Directory) -> u64 {
    if counts.lowest == 0 { 0 } else { next_cookie_after(counts.lowest) }
}

impl Walk {
    /// Looks at an entry that was counted and seems to stand for nothing.
    pub(super) async fn look_again(
        &self,
        directory: Ino,
        name: &[u8],
        entry: ByName,
    ) -> Result<(), Halt> {
        // It may have come meanwhile, with its file.
        if self.stands(directory, &entry).await? {
            return Ok(());
        }
        let _shut = self.on.gate.shut().await;
        let key = keys::name(directory, name);
        let now =
            self.on.transactions.stored(&key).await?.and_then(|bytes| ByName::parse(&bytes).ok());
        if now != Some(entry) || self.stands(directory, &entry).await? {
            return Ok(());
        }
        let text = String::from_utf8_lossy(name);
        self.problem(true, format!("the name {text} in directory {directory} stands for nothing"));
        self.watch.names.borrow_mut().stands_for_nothing(directory, &entry);
        if !self.repair {
            return Ok(());
        }
        let cookie = keys::cookie(directory, entry.cookie);
        let listed = self
            .on
            .transactions
            .stored(&cookie)
            .await?
            .and_then(|bytes| ByCookie::parse(&bytes).ok());
        let same = ByCookie { ino: entry.ino, kind: entry.kind, name: name.to_vec() };
        if listed.as_ref() == Some(&same) {
            self.on.transactions.set(cookie, None);
        }
        self.on.transactions.set(key, None);
        self.on.namespace.forget_names();
        let from = {
            let mut names = self.watch.names.borrow_mut();
            names.forget_listed(directory, name, &entry);
            names.from
        };
        // Files of earlier walks were compared with this entry, too.
        if directory < from
            && let Some(inode) = self.on.inodes.known(directory)
        {
            self.on
                .inodes
                .edit(&inode, true, |record| record.entries = record.entries.saturating_sub(1));
        }
        if entry.ino < from
            && let Some(inode) = self.on.inodes.known(entry.ino)
            && inode.with(|record| record.kind == entry.kind && entry.kind != DIRECTORY)
        {
            self.on
                .inodes
                .edit(&inode, true, |record| record.nlink = record.nlink.saturating_sub(1));
        }
        Ok(())
    }

    /// The directory is there, and so is the file, and is what the entry says.
    async fn stands(&self, directory: Ino, entry: &ByName) -> Result<bool, Errno> {
        let kind = async |ino| match self.on.inodes.get(ino).await {
            Ok(inode) => Ok(inode.with(|record| record.kind)),
            // Also one whose record is damaged is of no use.
            Err(Errno::Stale) => Ok(0),
            Err(Errno::Io) if self.on.transactions.stored(&keys::inode(ino)).await.is_ok() => Ok(0),
            Err(error) => Err(error),
        };
        Ok(kind(directory).await? != 0 && kind(entry.ino).await? == entry.kind)
    }

    /// Holds the entries of a directory by name against those in the order of reading, one by one.
    pub(super) async fn compare_order(&self, directory: Ino) -> Result<(), Halt> {
        let _shut = self.on.gate.shut().await;
        let mut in_order: BTreeMap<u64, ByCookie> = BTreeMap::new();
        let first = keys::cookie(directory, 0);
        let listed = all_pairs(
            &self.on.transactions,
            first,
            keys::after(&keys::cookie(directory, 0)[..9]),
            |pair| {
                if let (Some(cookie), Ok(entry)) =
                    (keys::second_of(&pair.0), ByCookie::parse(&pair.1))
                {
                    in_order.insert(cookie, entry);
                }
            },
        );
        listed.await?;
        let mut unlisted: Vec<(Vec<u8>, ByName)> = Vec::new();
        let mut counts = Directory::default();
        let prefix = keys::name(directory, b"");
        let named = all_pairs(
            &self.on.transactions,
            prefix.clone(),
            keys::after(&prefix),
            |(key, value)| {
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
            },
        );
        named.await?;
        for (name, _) in &unlisted {
            let name = String::from_utf8_lossy(name);
            let text = format!("the name {name} in directory {directory} is missing in its order");
            self.problem(true, text);
        }
        for (cookie, entry) in in_order {
            let name = String::from_utf8_lossy(&entry.name);
            let text = format!("{name} is in the order of directory {directory} and has no entry");
            self.problem(true, text);
            if self.repair {
                self.on.transactions.set(keys::cookie(directory, cookie), None);
            }
        }
        if self.repair && !unlisted.is_empty() {
            let inode = self.on.inodes.get(directory).await?;
            let needed = needed_cookie(&counts);
            self.on
                .inodes
                .edit(&inode, true, |record| record.next_cookie = record.next_cookie.max(needed));
            for (name, entry) in unlisted {
                let cookie = self.on.namespace.new_cookie(&inode);
                self.on.namespace.list_entry(&inode, &name, ByName { cookie, ..entry });
            }
            self.on.namespace.forget_names();
        }
        // From here on the two agree, or have been told of.
        let mut names = self.watch.names.borrow_mut();
        if let Some(known) = names.directories.get_mut(&directory) {
            known.lowest = counts.lowest;
        }
        Ok(())
    }

    /// Gives a file without a name one in `/lost+found`.
    pub(super) async fn save_nameless(&self, ino: Ino) -> Result<(), Errno> {
        let owner = Caller::default();
        let node = NewNode { kind: Kind::Directory, perm: 0o700, umask: 0, rdev: 0, target: b"" };
        let directory = match self.on.namespace.look_up(ROOT, LOST_AND_FOUND).await {
            Err(Errno::NotFound) => {
                self.on.namespace.make_node(owner, ROOT, LOST_AND_FOUND, node).await?
            }
            other => other?,
        };
        let parent = directory.attr.ino;
        self.on.namespace.give_back(parent, 1, 0);
        let inode = self.on.inodes.get(ino).await?;
        let directory = self.on.inodes.directory(parent).await?;
        let kind = inode.kind();
        self.on.namespace.add_entry(&directory, format!("#{ino}").as_bytes(), ino, kind);
        self.on.inodes.edit(&inode, true, |record| {
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

/// All pairs of a range, at once.
async fn all_pairs(
    transactions: &Transactions,
    first: Vec<u8>,
    to: Vec<u8>,
    mut see: impl FnMut(Pair),
) -> Result<(), Errno> {
    let mut from = Some(first);
    while let Some(start) = from.take() {
        let (pairs, next) = transactions.scanned(&start, &to, AT_ONCE).await?;
        pairs.into_iter().for_each(&mut see);
        from = next;
    }
    Ok(())
}
