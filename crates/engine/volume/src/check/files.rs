//! Names against files: each file has the names that it says to have, each directory the entries.

use super::entries::needed_cookie;
use super::one::Halt;
use super::walk::Walk;
use crate::watch::{DIRECTORY, Directory, Names, Seen};
use braid_filesystem::{Ino, ROOT};
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_shard::plant::planted;
use std::collections::BTreeSet;

/// Numbers of files whose names are counted in one walk over all names: 8 MiB of counts, and as much again or more for
/// directories.
#[cfg(not(test))]
const FILES_AT_ONCE: u64 = 1 << 20;
#[cfg(test)]
const FILES_AT_ONCE: u64 = 1 << 4;

/// The differences between a file and its names.
struct Wrong {
    links: u32,
    entries: u64,
    /// Where its name is, if it is a directory and says otherwise.
    parent: Option<Ino>,
}

impl Wrong {
    /// `None`: it is as it should be.
    fn find(ino: Ino, record: &InodeRecord, seen: Seen, counts: &Directory) -> Option<Wrong> {
        let is_directory = record.kind == DIRECTORY;
        let links = match is_directory {
            true => counts.subdirectories.saturating_add(2),
            false => seen.names,
        };
        let elsewhere = is_directory && ino != ROOT && record.parent != counts.parent;
        let links = if planted("check-blind-to-links") { record.nlink } else { links };
        let right = record.nlink == links && record.entries == counts.entries && !elsewhere;
        let parent = elsewhere.then_some(counts.parent);
        (!right).then_some(Wrong { links, entries: counts.entries, parent })
    }
}

impl Walk {
    /// Checks names against files, so many files at a time.
    pub(super) async fn check_files(&self) -> Result<(), Halt> {
        let limit = self.limit.get();
        let mut from = 0;
        loop {
            let to = keys::inode(limit);
            let (pairs, _) = self.some_pairs(&keys::inode(from), &to).await?;
            let first = pairs.first().and_then(|(key, _)| keys::ino_of(key)).unwrap_or(limit);
            let end = first.saturating_add(FILES_AT_ONCE).min(limit);
            *self.watch.names.borrow_mut() = Names {
                from,
                first,
                end,
                files: vec![Seen::default(); (end - first) as usize],
                ..Names::default()
            };
            self.find_files().await?;
            self.count_names().await?;
            self.walk_order().await?;
            self.judge_files().await?;
            self.at(self.part(end));
            if end >= limit {
                break;
            }
            from = end;
        }
        *self.watch.names.borrow_mut() = Names::default();
        Ok(())
    }

    /// Looks which files there are.
    async fn find_files(&self) -> Result<(), Halt> {
        let (from, end) = self.watch.names.borrow().window();
        let mut numberless = None;
        let walked = self.each_pair((keys::inode(from), keys::inode(end)), |key, value| {
            let Some(ino) = keys::ino_of(key) else { return };
            if ino == 0 {
                numberless = Some(key.to_vec());
                return self.problem(true, "a file has number 0, which no name can have".into());
            }
            match InodeRecord::parse(ino, value) {
                Ok(record) => {
                    if let Some(seen) = self.watch.names.borrow_mut().file_mut(ino) {
                        seen.kind = record.kind;
                    }
                    let mut report = self.report.borrow_mut();
                    report.files += 1;
                    report.directories += u64::from(record.kind == DIRECTORY);
                }
                Err(error) => self.problem(false, error.to_string()),
            }
        });
        walked.await?;
        if let Some(key) = numberless.filter(|_| self.repair) {
            self.on.transactions.set(key, None);
        }
        if from == 0 && self.watch.names.borrow().file(ROOT).kind == 0 {
            self.problem(false, "the root directory does not exist".into());
        }
        Ok(())
    }

    /// Counts all names of the files of this walk, and all entries of its directories.
    async fn count_names(&self) -> Result<(), Halt> {
        let (from, end) = self.watch.names.borrow().window();
        let mut cursor = Some(b"D".to_vec());
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::after(b"D")).await?;
            let mut doubtful = Vec::new();
            let mut unreadable = Vec::new();
            {
                let mut names = self.watch.names.borrow_mut();
                for (key, value) in &pairs {
                    let (Some(parent), Some(name), Ok(entry)) =
                        (keys::ino_of(key), keys::name_of(key), ByName::parse(value))
                    else {
                        if from == 0 {
                            unreadable.push(key.clone());
                        }
                        continue;
                    };
                    names.count_target(parent, &entry, true);
                    names.count_entry(parent, name, &entry, true);
                    if !names.stands(parent, &entry, self.limit.get()) {
                        doubtful.push((parent, name.to_vec(), entry));
                    }
                }
                names.by_name_to = next.clone().unwrap_or_else(|| keys::after(b"D"));
            }
            let at = pairs.last().and_then(|(key, _)| keys::ino_of(key)).unwrap_or(0);
            let within = (end - from) as f64 * (0.2 + 0.5 * self.part(at));
            self.at((from as f64 + within) / self.limit.get().max(1) as f64);
            self.drop_unreadable(unreadable);
            for (parent, name, entry) in doubtful {
                self.look_again(parent, &name, entry).await?;
            }
            cursor = next;
        }
        Ok(())
    }

    /// Adds the entries up in the order of reading, and looks closer at directories where that gives something else.
    async fn walk_order(&self) -> Result<(), Halt> {
        let (from, end) = self.watch.names.borrow().window();
        let is_last = end >= self.limit.get();
        let start = if from == 0 { b"C".to_vec() } else { keys::cookie(from, 0) };
        let to = if is_last { keys::after(b"C") } else { keys::cookie(end, 0) };
        // Directories that were made meanwhile, or that damage names, are looked at one by one.
        let mut doubtful: BTreeSet<Ino> = BTreeSet::new();
        let mut cursor = Some(start);
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &to).await?;
            let mut unreadable = Vec::new();
            {
                let mut names = self.watch.names.borrow_mut();
                for (key, value) in pairs {
                    match (keys::ino_of(&key), keys::second_of(&key), ByCookie::parse(&value)) {
                        (Some(parent), ..) if parent >= end => drop(doubtful.insert(parent)),
                        (Some(parent), Some(cookie), Ok(ByCookie { ino, kind, name })) => {
                            let entry = ByName { ino, cookie, kind };
                            names.count_in_order(parent, &name, &entry, true);
                        }
                        _ => unreadable.push(key),
                    }
                }
                names.in_order_to = next.clone().unwrap_or_else(|| to.clone());
            }
            self.drop_unreadable(unreadable);
            cursor = next;
        }
        let differ = |counts: &Directory| counts.by_name != counts.in_order;
        {
            let names = self.watch.names.borrow();
            let differ = names.directories.iter().filter(|(_, counts)| differ(counts));
            doubtful.extend(differ.map(|(ino, _)| *ino));
        }
        for ino in doubtful {
            self.compare_order(ino).await?;
        }
        Ok(())
    }

    /// An entry that cannot be read goes.
    fn drop_unreadable(&self, keys: Vec<Vec<u8>>) {
        for key in keys {
            self.problem(true, "a directory entry cannot be read".into());
            if self.repair {
                self.on.transactions.set(key, None);
            }
        }
    }

    /// Holds what the files say of themselves against their names.
    async fn judge_files(&self) -> Result<(), Halt> {
        let (from, end) = self.watch.names.borrow().window();
        let mut cursor = Some(keys::inode(from));
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::inode(end)).await?;
            let mut nameless = Vec::new();
            let mut wrong = Vec::new();
            for (key, value) in &pairs {
                let Some(ino) = keys::ino_of(key) else { continue };
                let Some(record) = self.on.inodes.record_of(ino, value) else { continue };
                let names = self.watch.names.borrow();
                let (seen, counts) = (names.file(ino), names.directory(ino));
                if seen.names == 0 && ino != ROOT {
                    nameless.push(ino);
                } else if Wrong::find(ino, &record, seen, &counts).is_some()
                    || record.next_cookie < needed_cookie(&counts)
                {
                    wrong.push(ino);
                }
            }
            for ino in nameless {
                self.judge_nameless(ino).await?;
            }
            for ino in wrong {
                self.correct_counts(ino).await?;
            }
            cursor = next;
        }
        Ok(())
    }

    /// A file without a name is one that is being removed, or it gets one.
    async fn judge_nameless(&self, ino: Ino) -> Result<(), Halt> {
        let is_nameless = || self.watch.names.borrow().file(ino).names == 0;
        if self.on.transactions.stored(&keys::orphan(ino)).await?.is_some()
            || self.on.transactions.stored(&keys::inode(ino)).await?.is_none()
            || !is_nameless()
        {
            return Ok(());
        }
        self.problem(true, format!("file {ino} has no name"));
        if self.repair {
            let _shut = self.on.gate.shut().await;
            if is_nameless() {
                self.save_nameless(ino).await?;
            }
            self.correct_counts(ino).await?;
        }
        Ok(())
    }

    /// Tells how a file is other than its names say, and corrects that.
    async fn correct_counts(&self, ino: Ino) -> Result<(), Halt> {
        let inode = match self.on.inodes.get(ino).await {
            Err(braid_filesystem::Errno::Stale) => return Ok(()),
            other => other?,
        };
        let (seen, counts) = {
            let names = self.watch.names.borrow();
            (names.file(ino), names.directory(ino))
        };
        let needed = needed_cookie(&counts);
        if inode.with(|record| record.next_cookie) < needed {
            let text =
                format!("a new name in directory {ino} would take another's place in its order");
            self.problem(true, text);
            if self.repair {
                self.on.inodes.edit(&inode, true, |record| record.next_cookie = needed);
            }
        }
        let wrong = inode.with(|record| {
            let wrong = Wrong::find(ino, record, seen, &counts)?;
            Some((wrong, record.nlink, record.entries))
        });
        let Some((Wrong { links, entries, parent }, said_links, said_entries)) = wrong else {
            return Ok(());
        };
        let elsewhere = match parent {
            Some(_) => "; and it is in another directory than it says",
            None => "",
        };
        let text = format!(
            "file {ino} says {said_links} links and {said_entries} entries, there are {links} and {entries}{elsewhere}"
        );
        self.problem(true, text);
        if self.repair {
            self.on.inodes.edit(&inode, true, |record| {
                record.nlink = links;
                record.entries = entries;
                record.parent = parent.unwrap_or(record.parent);
            });
        }
        Ok(())
    }
}

impl Names {
    /// The entry is one of a directory that is there, and stands for a file that is there, as far as this walk can tell.
    /// Files with numbers from `limit` on are not counted: the last walk is in doubt of all of them.
    fn stands(&self, directory: Ino, entry: &ByName, limit: Ino) -> bool {
        let is_last = self.end >= limit;
        let unknown = |ino: Ino| is_last && ino >= limit;
        let no_directory = self.covers(directory) && self.file(directory).kind == 0;
        let no_file = self.covers(entry.ino) && self.file(entry.ino).kind != entry.kind;
        !no_directory && !no_file && !unknown(directory) && !unknown(entry.ino)
    }
}
