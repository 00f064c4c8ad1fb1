//! A scrub: all data is read and held against its checksums.

use super::one::Halt;
use super::report::{CheckReport, add};
use super::walk::Walk;
use crate::files::{Files, Scrubbed};
use crate::namespace::Inode;
use braid_filesystem::{Errno, Ino, Kind};
use braid_format::volume::extent::{PER_GROUP, stripe_of};
use braid_format::volume::snapshot::in_snapshot;
use braid_format::volume::{BLOCK, keys};
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Ranges of files of which something is to be told.
#[derive(Default)]
struct Told {
    rotten: Vec<(Ino, Range<u64>)>,
    mended: Vec<(Ino, Range<u64>)>,
    lost: Vec<(Ino, Range<u64>)>,
}

/// A scrub under way.
pub(super) struct Scrub {
    walk: Rc<Walk>,
    files: Rc<Files>,
    /// Stripes that are being read.
    under_way: Cell<u32>,
    /// Why one of them ended the scrub.
    failed: Cell<Option<Halt>>,
    told: RefCell<Told>,
    ended: Notify,
}

impl Scrub {
    /// Reads all data. What is written meanwhile is right, or found by the next one.
    ///
    /// # Errors
    /// When metadata cannot be read, or it was ended.
    pub(super) async fn run(walk: &Rc<Walk>, files: &Rc<Files>) -> Result<(), Halt> {
        let scrub = Rc::new(Scrub {
            walk: Rc::clone(walk),
            files: Rc::clone(files),
            under_way: Cell::new(0),
            failed: Cell::new(None),
            told: RefCell::default(),
            ended: Notify::new(&walk.on.shard),
        });
        walk.report.borrow_mut().scrub = true;
        walk.on.commits.sync_all().await?;
        let done = match scrub.files().await {
            Ok(()) => scrub.versions().await,
            other => other,
        };
        scrub.ended.wait_for(|| (scrub.under_way.get() == 0).then_some(())).await;
        done?;
        scrub.check()?;
        scrub.report();
        walk.name_lost().await
    }

    fn check(&self) -> Result<(), Halt> {
        self.failed.get().map_or(Ok(()), Err)
    }

    async fn files(self: &Rc<Self>) -> Result<(), Halt> {
        let end = keys::inode(self.walk.on.record.next_ino());
        let mut cursor = Some(keys::inode(0));
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.walk.some_pairs(&start, &end).await?;
            for (key, _) in &pairs {
                if let Some(ino) = keys::ino_of(key) {
                    self.file(ino).await?;
                }
            }
            cursor = next;
        }
        Ok(())
    }

    /// Reads what only snapshots have.
    async fn versions(self: &Rc<Self>) -> Result<(), Halt> {
        let on = &self.walk.on;
        let size = on.geometry.stripe;
        let end = keys::after(keys::SAVED_EXTENTS);
        let mut cursor = on.snapshots.any().then(|| keys::SAVED_EXTENTS.to_vec());
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.walk.some_pairs(&start, &end).await?;
            for (key, _) in &pairs {
                let Some((ino, group, id)) = keys::saved_extents_of(key) else { continue };
                let own = on.extents.own_of(ino, group, id).await?;
                let inode = match on.inodes.get(in_snapshot(ino, id)).await {
                    // The snapshot is being removed.
                    Err(Errno::Stale) => continue,
                    other => other?,
                };
                let end = inode.size().next_multiple_of(BLOCK);
                let stripes: BTreeSet<u64> =
                    own.iter().map(|(stripe, _)| stripe_of(*stripe)).collect();
                for at in stripes.into_iter().map(|stripe| stripe * size).filter(|at| *at < end) {
                    self.range(&inode, at..end.min(at + size)).await?;
                }
            }
            cursor = next;
        }
        Ok(())
    }

    async fn file(self: &Rc<Self>, ino: Ino) -> Result<(), Halt> {
        let on = &self.walk.on;
        let inode = match on.inodes.get(ino).await {
            // It was removed meanwhile.
            Err(Errno::Stale) => return Ok(()),
            Err(Errno::Io) => {
                let text = format!("the record of file {ino} cannot be read");
                self.walk.problem(false, text);
                return Ok(());
            }
            other => other?,
        };
        self.walk.report.borrow_mut().directories += u64::from(inode.kind() == Kind::Directory);
        self.walk.report.borrow_mut().files += 1;
        if inode.kind() != Kind::File {
            return Ok(());
        }
        let mut next = Some(0);
        while let Some(first) = next {
            let groups;
            (groups, next) = on.extents.groups_from(&inode.extents, first).await?;
            for group in groups {
                self.group(&inode, group).await?;
            }
        }
        Ok(())
    }

    async fn group(self: &Rc<Self>, inode: &Rc<Inode>, group: u64) -> Result<(), Halt> {
        let stripe = self.walk.on.geometry.stripe;
        let start = group.saturating_mul(PER_GROUP * stripe);
        let end = start.saturating_add(PER_GROUP * stripe).min(inode.size());
        let mut at = start;
        while at < end {
            let range = at..at.saturating_add(stripe).min(end.next_multiple_of(BLOCK));
            at = range.end;
            self.range(inode, range).await?;
        }
        Ok(())
    }

    /// Starts to read a range within a stripe, when so many are under way as the pace of jobs allows: all bricks are busy while nobody
    /// uses the volume, and one range at a time is read while requests of files are slow.
    async fn range(self: &Rc<Self>, inode: &Rc<Inode>, range: Range<u64>) -> Result<(), Halt> {
        self.walk.rest().await?;
        let on = &self.walk.on;
        loop {
            self.check()?;
            let heads = || on.bricks.has_heads();
            let window = on.pace.window(on.shard.now(), on.geometry.stripe, heads);
            let before = self.under_way.get();
            if before < window {
                break;
            }
            self.ended.wait_for(|| (self.under_way.get() < before).then_some(())).await;
        }
        self.under_way.set(self.under_way.get() + 1);
        let (own, inode) = (Rc::clone(self), Rc::clone(inode));
        on.shard.spawn(async move {
            match own.files.scrub(&inode, range).await {
                Ok(found) => own.note(inode.ino(), found),
                Err(errno) => own.failed.set(Some(errno.into())),
            }
            own.under_way.set(own.under_way.get() - 1);
            own.ended.notify_all();
        });
        Ok(())
    }

    fn note(&self, ino: Ino, found: Scrubbed) {
        let Scrubbed { bytes, sealed, rotten, lost, mended } = found;
        self.walk.check.looked_at(bytes);
        let mut report = self.walk.report.borrow_mut();
        report.bytes += bytes;
        report.sealed += sealed;
        self.walk.check.set_done(report.bytes);
        let mut told = self.told.borrow_mut();
        told.rotten.extend(rotten.into_iter().map(|range| (ino, range)));
        told.lost.extend(lost.into_iter().map(|range| (ino, range)));
        told.mended.extend(mended.into_iter().map(|range| (ino, range)));
    }

    /// Tells in the order of files what was found in any.
    fn report(&self) {
        let Told { rotten, mended, lost } = self.told.take();
        let mut report = self.walk.report.borrow_mut();
        let CheckReport { rotten: all_rotten, mended: all_mended, lost: all_lost, .. } =
            &mut *report;
        for (mut told, list) in [(rotten, all_rotten), (mended, all_mended), (lost, all_lost)] {
            told.sort_by_key(|(ino, range)| (*ino, range.start));
            for (ino, range) in told {
                add(list, ino, (range.start, range.end));
            }
        }
    }
}
