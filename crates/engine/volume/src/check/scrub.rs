//! A scrub: all data is read and held against its checksums.

use super::one::Halt;
use super::report::add;
use super::walk::Walk;
use crate::files::{Files, Scrubbed};
use crate::namespace::Inode;
use braid_filesystem::{Errno, Ino, Kind};
use braid_format::volume::extent::{PER_GROUP, stripe_of};
use braid_format::volume::snapshot::in_snapshot;
use braid_format::volume::sums::PER_WINDOW;
use braid_format::volume::{BLOCK, keys};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

impl Walk {
    /// Reads all data. What is written meanwhile is right, or found by the next one.
    pub(super) async fn scrub(&self, files: &Rc<Files>) -> Result<(), Halt> {
        self.report.borrow_mut().scrub = true;
        self.on.commits.sync_all().await?;
        let end = keys::inode(self.on.record.next_ino());
        let mut cursor = Some(keys::inode(0));
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &end).await?;
            for (key, _) in &pairs {
                if let Some(ino) = keys::ino_of(key) {
                    self.scrub_file(files, ino).await?;
                }
            }
            cursor = next;
        }
        self.scrub_versions(files).await?;
        self.name_lost().await
    }

    /// Reads what only snapshots have.
    async fn scrub_versions(&self, files: &Rc<Files>) -> Result<(), Halt> {
        let size = self.on.geometry.stripe;
        let mut cursor = self.on.snapshots.any().then(|| keys::SAVED_EXTENTS.to_vec());
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::after(keys::SAVED_EXTENTS)).await?;
            for (key, _) in &pairs {
                let Some((ino, group, id)) = keys::saved_extents_of(key) else { continue };
                let own = self.on.extents.own_of(ino, group, id).await?;
                let inode = match self.on.inodes.get(in_snapshot(ino, id)).await {
                    // The snapshot is being removed.
                    Err(Errno::Stale) => continue,
                    other => other?,
                };
                let end = inode.size().next_multiple_of(BLOCK);
                let stripes: BTreeSet<u64> =
                    own.iter().map(|(stripe, _)| stripe_of(*stripe)).collect();
                for at in stripes.into_iter().map(|stripe| stripe * size).filter(|at| *at < end) {
                    self.scrub_range(files, &inode, at..end.min(at + size)).await?;
                }
            }
            cursor = next;
        }
        Ok(())
    }

    async fn scrub_file(&self, files: &Rc<Files>, ino: Ino) -> Result<(), Halt> {
        let inode = match self.on.inodes.get(ino).await {
            // It was removed meanwhile.
            Err(Errno::Stale) => return Ok(()),
            Err(Errno::Io) => {
                self.problem(false, format!("the record of file {ino} cannot be read"));
                return Ok(());
            }
            other => other?,
        };
        self.report.borrow_mut().directories += u64::from(inode.kind() == Kind::Directory);
        self.report.borrow_mut().files += 1;
        if inode.kind() != Kind::File {
            return Ok(());
        }
        let mut next = Some(0);
        while let Some(first) = next {
            let groups;
            (groups, next) = self.on.extents.groups_from(&inode.extents, first).await?;
            for group in groups {
                self.scrub_group(files, &inode, group).await?;
            }
        }
        Ok(())
    }

    async fn scrub_group(
        &self,
        files: &Rc<Files>,
        inode: &Rc<Inode>,
        group: u64,
    ) -> Result<(), Halt> {
        let stripe = self.on.geometry.stripe;
        let step = stripe.max(PER_WINDOW * BLOCK);
        let start = group.saturating_mul(PER_GROUP * stripe);
        let end = start.saturating_add(PER_GROUP * stripe).min(inode.size());
        let mut at = start;
        while at < end {
            let range = at..at.saturating_add(step).min(end.next_multiple_of(BLOCK));
            at = range.end;
            self.scrub_range(files, inode, range).await?;
        }
        Ok(())
    }

    async fn scrub_range(
        &self,
        files: &Rc<Files>,
        inode: &Rc<Inode>,
        range: Range<u64>,
    ) -> Result<(), Halt> {
        self.rest().await?;
        let Scrubbed { bytes, sealed, rotten, lost, mended } = files.scrub(inode, range).await?;
        self.check.looked_at(bytes);
        let mut report = self.report.borrow_mut();
        report.bytes += bytes;
        report.sealed += sealed;
        for range in rotten {
            add(&mut report.rotten, inode.ino(), (range.start, range.end));
        }
        for range in lost {
            add(&mut report.lost, inode.ino(), (range.start, range.end));
        }
        for range in mended {
            add(&mut report.mended, inode.ino(), (range.start, range.end));
        }
        self.check.set_done(report.bytes);
        Ok(())
    }
}
