//! Which copy of a stripe is read: one that has missed nothing, and of these the one that answers soonest.
//!
//! In a region that is in doubt after a crash, copies may differ until they were made equal: there the first is read, so that
//! what was read once is read again.

use super::part::Files;
use super::verify::Source;
use crate::extents::Stripe;
use crate::namespace::Inode;
use crate::stripes::down;
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;

/// The extent of a copy, with the copy.
pub(super) type Copy = (u8, Extent);

/// Where the bytes of a run are.
pub(super) enum From {
    /// Nowhere: they are zero.
    Zero,
    /// In no copy that can be read.
    Lost,
    /// In this extent.
    Extent(Extent),
}

impl Files {
    /// The copies that have the byte at `at` of a stripe and are on bricks that are there, the best to read first.
    pub(super) fn copies_of(&self, inode: &Inode, stripe: &Stripe, at: u64) -> SmallVec<[Copy; 4]> {
        let block = (stripe.number() * self.geometry.stripe + at) / BLOCK;
        let stale = self.sums.stale_at(inode.ino(), block);
        let in_order = self.sums.is_doubtful(inode.ino(), block);
        let has_it =
            |extent: &Extent| planted("stale-copy-read") || self.geometry.is_written(*extent, at);
        let found = stripe.extents().filter(|(_, extent)| has_it(extent));
        let mut found: SmallVec<[Copy; 4]> =
            found.filter(|(_, extent)| self.bricks.is_there(extent.brick)).collect();
        let turn = stripe.number() % u64::from(stripe.rows());
        found.sort_by_cached_key(|(copy, extent)| {
            let wait = self.bricks.get(extent.brick).map_or(u64::MAX, |brick| brick.read_wait());
            let wait = if in_order { 0 } else { wait };
            let place =
                (u64::from(*copy) + if in_order { 0 } else { turn }) % u64::from(stripe.rows());
            (stale.contains(&extent.brick) && !planted("stale-copy-read"), wait, place)
        });
        found
    }

    /// Cuts `from..to` of a stripe, multiples of a block, into runs that are read in one piece.
    pub(super) fn runs_of(
        &self,
        inode: &Inode,
        stripe: &Stripe,
        from: u64,
        to: u64,
    ) -> SmallVec<[(Range<u64>, From); 2]> {
        let together = stripe.together();
        let mut runs = SmallVec::new();
        for (run, is_written) in self.geometry.runs(together, from, to) {
            if !is_written {
                runs.push((run, From::Zero));
                continue;
            }
            if stripe.rows() == 1 {
                runs.push((run, From::Extent(together)));
                continue;
            }
            let mut at = run.start;
            while at < run.end {
                let start = at;
                let best = self.copies_of(inode, stripe, at).first().copied();
                let next = |at: u64| down(at, self.geometry.sub_block) + self.geometry.sub_block;
                at = next(at).min(run.end);
                let Some((_, extent)) = best else {
                    runs.push((start..at, From::Lost));
                    continue;
                };
                while at < run.end && self.geometry.is_written(extent, at) {
                    at = next(at).min(run.end);
                }
                runs.push((start..at, From::Extent(extent)));
            }
        }
        runs
    }

    /// Where `run`, bytes of a stripe, lies in an extent of it that has all of it.
    ///
    /// # Errors
    /// [`Errno::Io`] when the brick is not one of the volume's.
    pub(super) fn source(
        &self,
        stripe: &Stripe,
        extent: Extent,
        run: &Range<u64>,
    ) -> Result<Source, Errno> {
        let brick = self.bricks.get(extent.brick).ok_or(Errno::Io)?;
        let mut source = Source::new(self.geometry, brick, extent.start, stripe.number(), run);
        source.stripe = (stripe.rows() > 1).then(|| stripe.clone());
        Ok(source)
    }
}
