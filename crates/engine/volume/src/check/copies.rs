//! Stripes of which there are copies: what is lost is what no copy has on a brick that is there; two copies lie on two bricks;
//! and a file has no copy that nobody looks at.
//!
//! The extents of one stripe stand apart in the store, so the groups of its copies are brought to memory together, and judged as
//! they are at one moment.

use super::one::Halt;
use super::report::lose;
use super::walk::Walk;
use crate::extents::Stripe;
use crate::namespace::Inode;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::{Extent, PER_GROUP, copy_of, of_copy, stripe_of};
use smallvec::SmallVec;
use std::rc::Rc;

/// The name of a stripe, with its copy if it is not the first, for people.
pub(super) fn name_of(number: u64) -> String {
    match (stripe_of(number), copy_of(number)) {
        (stripe, 0) => format!("stripe {stripe}"),
        (stripe, copy) => format!("copy {copy} of stripe {stripe}"),
    }
}

impl Walk {
    /// Judges the stripes of a group of a file together with their copies, if no other group of theirs stands before this one in
    /// the store. `list` is what was seen of it.
    pub(super) async fn judge_copies(
        &self,
        ino: Ino,
        group: u64,
        list: &[Extent; PER_GROUP as usize],
    ) -> Result<(), Halt> {
        let number = group * PER_GROUP;
        let (copy, first) = (copy_of(number), stripe_of(number));
        let inode = match self.on.inodes.get(ino).await {
            // It was removed meanwhile, or never was there, which is told elsewhere.
            Err(Errno::Stale) => return Ok(()),
            other => other?,
        };
        if copy > 0 {
            self.judge_held(&inode, copy, group).await;
            let before = self.on.extents.group(&inode.extents, first / PER_GROUP).await;
            if before.is_ok_and(|before| !before.placed().is_empty()) {
                return Ok(());
            }
        }
        let stripes: Vec<Stripe> = {
            let rows = inode.with(|record| record.held).max(copy + 1);
            let mut stripes = Vec::new();
            for stripe in first..first + PER_GROUP {
                match self.on.extents.stripe(&inode.extents, stripe, rows).await {
                    Ok(stripe) => stripes.push(stripe),
                    // One of them is damaged, which is told where it is seen; what it had is not known.
                    Err(_) => return self.judge_alone(ino, first, list),
                }
            }
            stripes
        };
        let mut twice = SmallVec::<[u64; 4]>::new();
        let copies = inode.with(|record| record.copies);
        for stripe in &stripes {
            self.count_lacking(stripe, copies);
            let together = stripe.together();
            let there = stripe.extents().filter(|(_, extent)| self.is_readable(extent));
            let there = there.fold(0, |all, (_, extent)| all | extent.written);
            self.lose_written(
                ino,
                stripe.number(),
                Extent { written: together.written & !there, ..together },
            );
            let bricks: SmallVec<[u16; 4]> =
                stripe.extents().map(|(_, extent)| extent.brick).collect();
            if (1..bricks.len()).any(|at| bricks[..at].contains(&bricks[at])) {
                twice.push(stripe.number());
            }
        }
        drop(stripes);
        for stripe in twice {
            self.part_copies(&inode, stripe).await?;
        }
        Ok(())
    }

    /// Judges a group by what was seen of it alone.
    fn judge_alone(
        &self,
        ino: Ino,
        first: u64,
        list: &[Extent; PER_GROUP as usize],
    ) -> Result<(), Halt> {
        for (extent, stripe) in list.iter().zip(first..) {
            if !extent.is_hole() && !self.is_readable(extent) {
                self.lose_written(ino, stripe, *extent);
            }
        }
        Ok(())
    }

    /// The extent lies within a brick that is there.
    fn is_readable(&self, extent: &Extent) -> bool {
        self.on.bricks.is_there(extent.brick) && !self.on.extents.is_outside(extent)
    }

    /// The bytes of an extent are lost. Only written data can be: reserved blocks read as zero wherever they are.
    pub(super) fn lose_written(&self, ino: Ino, stripe: u64, extent: Extent) {
        let geometry = self.on.geometry;
        let start = stripe.saturating_mul(geometry.stripe);
        for (run, is_written) in geometry.runs(extent, 0, geometry.stripe) {
            if is_written {
                let range = (start.saturating_add(run.start), start.saturating_add(run.end));
                lose(&mut self.report.borrow_mut(), ino, range);
            }
        }
    }

    /// A copy that its file does not know to have is neither read nor freed.
    async fn judge_held(&self, inode: &Rc<Inode>, copy: u8, group: u64) {
        let Ok(group) = self.on.extents.group(&inode.extents, group).await else { return };
        let held = inode.with(|record| record.held);
        if copy < held || group.placed().is_empty() {
            return;
        }
        let ino = inode.ino();
        let text = format!("file {ino} has copy {copy} of stripes, and says to have {held}");
        self.problem(true, text);
        if self.repair {
            let _gate = self.on.gate.enter().await;
            self.on.record.note_copies();
            self.on.inodes.edit(inode, true, |record| record.held = record.held.max(copy + 1));
        }
    }

    /// Two copies of a stripe lie on one brick: the later one goes, if others have all that it has, and is to be made anew.
    async fn part_copies(&self, inode: &Rc<Inode>, number: u64) -> Result<(), Halt> {
        let size = self.on.geometry.stripe;
        let start = number.saturating_mul(size);
        let _gate = self.on.gate.enter().await;
        let _held = inode.locks.exclusive(start..start.saturating_add(size)).await;
        let rows = inode.with(|record| record.held);
        let stripe = self.on.extents.stripe(&inode.extents, number, rows).await?;
        let all: SmallVec<[(u8, Extent); 4]> = stripe.extents().collect();
        for (at, (copy, extent)) in all.iter().enumerate() {
            if !all[..at].iter().any(|(_, other)| other.brick == extent.brick) {
                continue;
            }
            let others = all.iter().filter(|(other, _)| other != copy);
            let others = others.fold(0, |all, (_, other)| all | other.written);
            let is_spare = extent.written & !others == 0;
            let name = self.on.bricks.get(extent.brick).map_or_else(String::new, |on| on.name());
            let (what, ino) = (name_of(of_copy(number, *copy)), inode.ino());
            let text = format!("{what} of file {ino} is on {name}, where another copy of it is");
            self.problem(is_spare, text);
            if self.repair && is_spare {
                self.on.extents.prepare_free(*extent).await?;
                let (group, number) = stripe.place(*copy);
                let replaced = self.on.extents.clear(group, number);
                self.on.inodes.extent_replaced(inode, replaced);
                self.on.record.note_incomplete();
                break;
            }
        }
        Ok(())
    }
}
