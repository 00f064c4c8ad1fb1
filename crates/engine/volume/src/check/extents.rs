//! Every recorded extent, and the files that they belong to.

use super::copies::name_of;
use super::one::Halt;
use super::report::lose;
use super::walk::Walk;
use crate::watch::{Bits, Group, Walked};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::{Extent, PER_GROUP, copy_of, parse, stripe_of};
use braid_format::volume::{BLOCK, keys};
use braid_kv::Pair;
use std::collections::BTreeMap;
use std::ops::Range;

/// A file, and a group of its extents.
type OfFile = (Ino, u64);

/// Behind all groups of all files.
const END: OfFile = (Ino::MAX, u64::MAX);

impl Walk {
    /// Walks over all extents, and holds the blocks that they name in the groups of `window` against those in use. The
    /// `first` walk also holds them against the files and the bricks that there are.
    pub(super) async fn check_extents(
        &self,
        window: Range<Group>,
        first: bool,
    ) -> Result<(), Halt> {
        let dropped = self.walk_extents(&window, first, true).await?;
        if dropped {
            // They named blocks that other files may have.
            self.walk_extents(&window, false, false).await?;
        }
        self.name_common(first).await?;
        self.name_versions(first).await?;
        self.check_blocks(&window).await?;
        *self.watch.extents.borrow_mut() = Walked::default();
        Ok(())
    }

    /// One walk; true: extents of files that do not exist were there, and are not any more.
    async fn walk_extents(
        &self,
        window: &Range<Group>,
        first: bool,
        tell_shared: bool,
    ) -> Result<bool, Halt> {
        *self.watch.extents.borrow_mut() = Walked {
            judged: if first { 0 } else { Ino::MAX },
            bits: Bits::new(window.clone()),
            ..Walked::default()
        };
        let mut dropped = false;
        let mut cursor = Some(b"P".to_vec());
        let mut seen_to: OfFile = (0, 0);
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::after(b"P")).await?;
            let until = match (&next, pairs.last()) {
                (Some(_), Some((key, _))) => behind(key).unwrap_or(seen_to),
                _ => END,
            };
            let groups = self.groups_now(&pairs, seen_to..until, first);
            let with_copies = self.on.record.has_copies();
            let mut common = Vec::new();
            {
                let mut walked = self.watch.extents.borrow_mut();
                for ((ino, group), list) in &groups {
                    for (extent, stripe) in list.iter().zip(group.saturating_mul(PER_GROUP)..) {
                        if extent.is_hole() {
                            continue;
                        }
                        if first {
                            let taken = walked.taken.entry(*ino).or_default();
                            *taken = taken.wrapping_add(extent.blocks.into());
                            self.see_extent(*ino, stripe, extent, with_copies);
                        }
                        if first && extent.common {
                            common.push((*extent, (*ino, stripe)));
                        }
                        if self.on.extents.is_outside(extent) || extent.common {
                            continue;
                        }
                        let twice = walked.bits.name(extent);
                        if twice > 0 && tell_shared {
                            let name = self
                                .on
                                .bricks
                                .get(extent.brick)
                                .map_or_else(String::new, |on| on.name());
                            let what = name_of(stripe);
                            let text = format!(
                                "{what} of file {ino} shares {twice} blocks of {name} with another"
                            );
                            self.problem(false, text);
                        }
                    }
                }
                walked.to = until;
            }
            for (extent, owner) in common {
                if !self.on.extents.is_owner(extent.place(), owner).await? {
                    self.judge_common(owner).await?;
                }
            }
            seen_to = until;
            for ((ino, group), list) in groups.iter().filter(|_| first && with_copies) {
                self.judge_copies(*ino, *group, list).await?;
            }
            if first {
                dropped |= self.judge_taken(until.0).await?;
            }
            self.at(self.part(until.0));
            cursor = next;
        }
        Ok(dropped)
    }

    /// The groups of extents of a range as they are now, of which `stored` were read just now.
    fn groups_now(
        &self,
        stored: &[Pair],
        range: Range<OfFile>,
        tell: bool,
    ) -> BTreeMap<OfFile, [Extent; PER_GROUP as usize]> {
        let mut groups = BTreeMap::new();
        for (key, value) in stored {
            let (Some(ino), Some(group)) = (keys::ino_of(key), keys::second_of(key)) else {
                continue;
            };
            let inode = self.on.inodes.known(ino);
            let known = inode.and_then(|inode| inode.extents.known(group));
            let list = match known {
                Some(known) => Ok(known.list()),
                None => parse(ino, group, self.on.geometry.stripe, value),
            };
            match list {
                Ok(list) => drop(groups.insert((ino, group), list)),
                Err(error) if tell => self.problem(false, error.to_string()),
                Err(_) => {}
            }
        }
        for changed in self.on.extents.changed_groups(range) {
            groups.insert(changed.key(), changed.list());
        }
        groups
    }

    /// Counts an extent, and holds it against the brick that it is on. `with_copies`: what is lost is seen with its copies.
    fn see_extent(&self, ino: Ino, number: u64, extent: &Extent, with_copies: bool) {
        {
            let mut report = self.report.borrow_mut();
            report.stripes += u64::from(copy_of(number) == 0);
            report.bytes += u64::from(extent.blocks) * BLOCK;
        }
        let (size, stripe) = (self.on.geometry.stripe, stripe_of(number));
        let whole = (stripe.saturating_mul(size), stripe.saturating_add(1).saturating_mul(size));
        let lose_whole = || {
            if !with_copies {
                lose(&mut self.report.borrow_mut(), ino, whole);
            }
        };
        let what = || name_of(number);
        let Some(on) = self.on.bricks.get(extent.brick) else {
            let (what, number) = (what(), extent.brick);
            let text = format!("{what} of file {ino} is on brick {number}, which does not exist");
            self.problem(false, text);
            return lose_whole();
        };
        if self.on.extents.is_outside(extent) {
            let (what, name) = (what(), on.name());
            let text = format!("{what} of file {ino} is beyond the end of {name}");
            self.problem(false, text);
            return lose_whole();
        }
        if !on.is_there() && !with_copies {
            self.lose_written(ino, stripe, *extent);
        }
    }

    /// Holds the blocks that the files before `to` say to take against what their extents were seen to take. True: extents
    /// of files that do not exist were removed.
    async fn judge_taken(&self, to: Ino) -> Result<bool, Halt> {
        let bound = if to == Ino::MAX { keys::after(b"I") } else { keys::inode(to) };
        let judged = self.watch.extents.borrow().judged;
        let mut cursor = (judged < to).then(|| keys::inode(judged));
        let mut dropped = false;
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &bound).await?;
            let mut wrong = Vec::new();
            let mut strays = Vec::new();
            {
                let mut walked = self.watch.extents.borrow_mut();
                for (key, value) in &pairs {
                    let Some(ino) = keys::ino_of(key) else { continue };
                    let Some(record) = self.on.inodes.record_of(ino, value) else { continue };
                    let found = walked.taken.remove(&ino).unwrap_or(0);
                    if found != record.blocks {
                        wrong.push((ino, record.blocks, found));
                    }
                }
                let last = pairs.last().and_then(|(key, _)| keys::ino_of(key));
                let until = match (&next, last) {
                    (Some(_), Some(last)) => last.saturating_add(1),
                    _ => to,
                };
                let rest = walked.taken.split_off(&until);
                let left = std::mem::replace(&mut walked.taken, rest);
                walked.judged = until;
                // Of files that were removed meanwhile nothing is left; new ones have no record yet.
                let known = |ino: &Ino| self.on.inodes.known(*ino).is_some();
                strays.extend(left.into_iter().filter(|(ino, taken)| *taken > 0 && !known(ino)));
            }
            for (ino, said, found) in wrong {
                self.correct_blocks(ino, said, found).await?;
            }
            for (ino, _) in strays {
                dropped |= self.drop_stray(ino).await?;
            }
            cursor = next;
        }
        Ok(dropped)
    }

    async fn correct_blocks(&self, ino: Ino, said: u64, found: u64) -> Result<(), Halt> {
        let text = format!("file {ino} says that it takes {said} blocks, its extents take {found}");
        self.problem(true, text);
        if self.repair {
            let inode = match self.on.inodes.get(ino).await {
                Err(Errno::Stale) => return Ok(()),
                other => other?,
            };
            // Changes since then have changed both.
            self.on.inodes.edit(&inode, true, |record| {
                record.blocks = record.blocks.wrapping_add(found).wrapping_sub(said);
            });
        }
        Ok(())
    }

    /// ExtentGroup of a file that does not exist go. True: they did.
    async fn drop_stray(&self, ino: Ino) -> Result<bool, Halt> {
        let range = (keys::extents(ino, 0), keys::after(&keys::extents(ino, 0)[..9]));
        let mut found = Vec::new();
        let walked = self.each_pair(range, |key, _| found.push(key.to_vec()));
        walked.await?;
        for key in &found {
            self.problem(true, format!("extents of file {ino}, which does not exist"));
            if self.repair {
                self.on.transactions.set(key.clone(), None);
            }
        }
        Ok(self.repair && !found.is_empty())
    }
}

/// The group that follows the one of this key.
fn behind(key: &[u8]) -> Option<OfFile> {
    let (ino, group) = (keys::ino_of(key)?, keys::second_of(key)?);
    Some(group.checked_add(1).map_or((ino.saturating_add(1), 0), |group| (ino, group)))
}
