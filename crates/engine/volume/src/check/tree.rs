//! Every name and every file.

use super::CheckReport;
use crate::names::next_cookie_after;
use crate::volume::Volume;
use braid_filesystem::{Caller, Errno, Ino, Kind, NewNode, ROOT};
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use std::collections::{BTreeMap, BTreeSet};

/// Where files without a name go.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// What a file says of itself.
struct Said {
    kind: u8,
    nlink: u32,
    entries: u64,
    blocks: u64,
    parent: Ino,
    next_cookie: u64,
}

/// A name that is not listed in its directory.
struct Unlisted {
    directory: Ino,
    name: Vec<u8>,
    entry: ByName,
}

/// What names say of a file.
#[derive(Default)]
struct Seen {
    names: u32,
    subdirectories: u32,
    entries: u64,
    parent: Ino,
}

impl Volume {
    /// Checks names against files; gives the files that there are, with the blocks that they say to take.
    pub(super) async fn check_tree(
        &self,
        repair: bool,
        report: &mut CheckReport,
    ) -> Result<BTreeMap<Ino, u64>, Errno> {
        let mut files: BTreeMap<Ino, Said> = BTreeMap::new();
        let mut numberless = Vec::new();
        let walked = self.each_pair(b"I", |key, value| {
            let Some(ino) = keys::ino_of(key) else { return };
            if ino == 0 {
                numberless.push(key.to_vec());
                return report
                    .problem(repair, "a file has number 0, which no name can have".into());
            }
            match InodeRecord::parse(ino, value) {
                Ok(record) => {
                    files.insert(
                        ino,
                        Said {
                            kind: record.kind,
                            nlink: record.nlink,
                            entries: record.entries,
                            blocks: record.blocks,
                            parent: record.parent,
                            next_cookie: record.next_cookie,
                        },
                    );
                }
                Err(error) => report.problem(false, error.to_string()),
            }
        });
        walked.await?;
        if repair {
            numberless.into_iter().for_each(|key| self.transactions.set(key, None));
        }
        let mut orphans = BTreeSet::new();
        self.each_pair(b"O", |key, _| orphans.extend(keys::ino_of(key))).await?;
        let seen = self.check_entries(repair, &files, report).await?;
        let nothing = Seen::default();
        for (ino, said) in &files {
            let seen = seen.get(ino).unwrap_or(&nothing);
            report.files += 1;
            let is_directory = said.kind == 4;
            report.directories += u64::from(is_directory);
            if seen.names == 0 && *ino != ROOT {
                if !orphans.contains(ino) {
                    report.problem(repair, format!("file {ino} has no name"));
                    if repair {
                        self.save_nameless(*ino).await?;
                    }
                }
                continue;
            }
            let links = if is_directory { 2 + seen.subdirectories } else { seen.names };
            self.check_counts(repair, *ino, said, seen, links, report).await?;
        }
        let free = files.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        if self.record.borrow().next_ino < free {
            report.problem(repair, "a new file would take the number of another".into());
            if repair {
                self.edit_record(|record| record.next_ino = free);
            }
        }
        if !files.contains_key(&ROOT) {
            report.problem(false, "the root directory does not exist".into());
        }
        Ok(files.into_iter().map(|(ino, said)| (ino, said.blocks)).collect())
    }

    async fn check_counts(
        &self,
        repair: bool,
        ino: Ino,
        said: &Said,
        seen: &Seen,
        links: u32,
        report: &mut CheckReport,
    ) -> Result<(), Errno> {
        let parent_wrong = said.kind == 4 && ino != ROOT && said.parent != seen.parent;
        if said.nlink == links && said.entries == seen.entries && !parent_wrong {
            return Ok(());
        }
        report.problem(
            repair,
            format!(
                "file {ino} says {} links and {} entries, there are {links} and {}{}",
                said.nlink,
                said.entries,
                seen.entries,
                if parent_wrong { "; and it is in another directory than it says" } else { "" }
            ),
        );
        if repair {
            let inode = self.inode(ino).await?;
            self.edit(&inode, true, |record| {
                record.nlink = links;
                record.entries = seen.entries;
                if parent_wrong {
                    record.parent = seen.parent;
                }
            });
        }
        Ok(())
    }

    /// Checks the two records of each entry against each other and against the files.
    async fn check_entries(
        &self,
        repair: bool,
        files: &BTreeMap<Ino, Said>,
        report: &mut CheckReport,
    ) -> Result<BTreeMap<Ino, Seen>, Errno> {
        let mut seen: BTreeMap<Ino, Seen> = BTreeMap::new();
        let mut by_cookie: BTreeMap<(Ino, u64), ByCookie> = BTreeMap::new();
        let mut drop_keys = Vec::new();
        let walked = self.each_pair(b"C", |key, value| {
            match (keys::ino_of(key), keys::second_of(key), ByCookie::parse(value)) {
                (Some(parent), Some(cookie), Ok(entry)) => {
                    by_cookie.insert((parent, cookie), entry);
                }
                _ => {
                    report.problem(repair, "a directory entry cannot be read".into());
                    drop_keys.push(key.to_vec());
                }
            }
        });
        walked.await?;
        let mut unlisted = Vec::new();
        let mut lowest: BTreeMap<Ino, u64> = BTreeMap::new();
        let walked = self.each_pair(b"D", |key, value| {
            let (Some(parent), Some(name), Ok(entry)) =
                (keys::ino_of(key), keys::name_of(key), ByName::parse(value))
            else {
                report.problem(repair, "a directory entry cannot be read".into());
                drop_keys.push(key.to_vec());
                return;
            };
            let text = String::from_utf8_lossy(name).into_owned();
            let target = files.get(&entry.ino);
            if !files.contains_key(&parent) || target.is_none_or(|target| target.kind != entry.kind)
            {
                report.problem(
                    repair,
                    format!("the name {text} in directory {parent} stands for nothing"),
                );
                drop_keys.push(key.to_vec());
                return;
            }
            let same = ByCookie { ino: entry.ino, kind: entry.kind, name: name.to_vec() };
            // Another name may stand there.
            if by_cookie.get(&(parent, entry.cookie)) == Some(&same) {
                by_cookie.remove(&(parent, entry.cookie));
                let lowest = lowest.entry(parent).or_insert(entry.cookie);
                *lowest = entry.cookie.min(*lowest);
            } else {
                report.problem(
                    repair,
                    format!("the name {text} in directory {parent} is missing in its order"),
                );
                unlisted.push(Unlisted { directory: parent, name: name.to_vec(), entry });
            }
            let is_directory = entry.kind == 4;
            let directory = seen.entry(parent).or_default();
            directory.entries += 1;
            directory.subdirectories += u32::from(is_directory);
            let file = seen.entry(entry.ino).or_default();
            file.names += 1;
            file.parent = parent;
        });
        walked.await?;
        for ((parent, cookie), entry) in by_cookie {
            let name = String::from_utf8_lossy(&entry.name);
            report.problem(
                repair,
                format!("{name} is in the order of directory {parent} and has no entry"),
            );
            drop_keys.push(keys::cookie(parent, cookie));
        }
        if repair {
            drop_keys.into_iter().for_each(|key| self.transactions.set(key, None));
        }
        for (ino, lowest) in lowest {
            let needed = next_cookie_after(lowest);
            if files.get(&ino).is_some_and(|said| said.next_cookie < needed) {
                report.problem(
                    repair,
                    format!(
                        "a new name in directory {ino} would take another's place in its order"
                    ),
                );
                if repair {
                    let directory = self.inode(ino).await?;
                    self.edit(&directory, true, |record| record.next_cookie = needed);
                }
            }
        }
        if repair {
            for Unlisted { directory, name, entry } in unlisted {
                let directory = self.inode(directory).await?;
                let cookie = self.new_cookie(&directory);
                self.list_entry(&directory, &name, ByName { cookie, ..entry });
            }
            self.names.forget();
        }
        Ok(seen)
    }

    /// Gives a file without a name one in `/lost+found`.
    async fn save_nameless(&self, ino: Ino) -> Result<(), Errno> {
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
