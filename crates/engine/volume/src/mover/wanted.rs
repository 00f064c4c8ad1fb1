//! Where a job wants a copy of a stripe to be.
//!
//! The bricks that placement names for the copies of a stripe count as a set: a copy that lies on one of them stays there,
//! whichever copy it is. No brick gets two copies of a stripe.

use super::part::Mover;
use crate::extents::{Avoid, Stripe};
use crate::namespace::Inode;
use braid_format::volume::extent::{COPIES_MAX, Extent, copy_of, of_copy, stripe_of};
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::snapshot::file_of;
use smallvec::SmallVec;

/// The copies that there are of a stripe, in their order, with the brick of each.
type Copies = SmallVec<[(u8, u16); COPIES_MAX as usize]>;

impl Mover {
    /// The brick that the copy of a stripe is to be moved to, one that has no other copy of it; `None`: it stays. `all`: the
    /// stripe with its copies.
    pub(super) fn wanted(
        &self,
        job: &JobRecord,
        inode: &Inode,
        (stripe, extent): (u64, Extent),
        all: &Stripe,
    ) -> Option<u16> {
        let copies: Copies = all.extents().map(|(copy, extent)| (copy, extent.brick)).collect();
        self.wanted_of(job, inode, (stripe, extent), &copies)
    }

    /// The same of a stripe that has no other copy.
    pub(super) fn wanted_alone(
        &self,
        job: &JobRecord,
        inode: &Inode,
        (stripe, extent): (u64, Extent),
    ) -> Option<u16> {
        let copies = Copies::from_iter([(copy_of(stripe), extent.brick)]);
        self.wanted_of(job, inode, (stripe, extent), &copies)
    }

    fn wanted_of(
        &self,
        job: &JobRecord,
        inode: &Inode,
        (stripe, extent): (u64, Extent),
        copies: &Copies,
    ) -> Option<u16> {
        let (pinned, told) = inode.with(|record| (record.is_pinned(), record.wanted_brick()));
        let regular = || elsewhere(copies, &self.places(inode, stripe), copy_of(stripe));
        let to = match job.kind {
            JobKind::Balance if !pinned => regular()?,
            JobKind::Flush if !pinned && Some(extent.brick) == job.brick => regular()?,
            // Whoever is to be detached keeps nothing, pinned or not.
            JobKind::Remove if Some(extent.brick) == job.brick => {
                let others = copies.iter().filter(|(copy, _)| *copy != copy_of(stripe));
                let others: Avoid = others.map(|(_, brick)| *brick).collect();
                regular().or_else(|| self.instead(job, inode, stripe, &others))?
            }
            JobKind::Migrate if inode.ino() == job.ino || (job.ino == 0 && told == job.brick) => {
                let to = job.brick?;
                // One copy goes there, and no other.
                let first = copies.first().is_some_and(|(copy, _)| *copy == copy_of(stripe));
                let is_on = copies.iter().any(|(_, brick)| *brick == to);
                Some(to).filter(|_| first && !is_on)?
            }
            _ => return None,
        };
        let is_there = |id| self.bricks.get(id).is_some_and(|brick| brick.is_there());
        // Stripes that leave a brick that is gone come from other copies.
        let can = is_there(extent.brick) || job.kind == JobKind::Remove;
        (to != extent.brick && can).then_some(to)
    }

    /// The bricks that the copies of a stripe are to be on, as many as its file is to have: first the one that the file was told
    /// to be on.
    fn places(&self, inode: &Inode, stripe: u64) -> SmallVec<[u16; COPIES_MAX as usize]> {
        let (told, copies) = inode.with(|record| (record.wanted_brick(), record.copies));
        let usable = |id: &u16| self.bricks.get(*id).is_some_and(|brick| brick.takes_data());
        let of = |copy| {
            self.extents
                .placement()
                .brick_of(file_of(inode.ino()), of_copy(stripe_of(stripe), copy))
        };
        let mut places = SmallVec::new();
        let told = told.filter(usable);
        // A copy that was told to be elsewhere leaves its place to one that would be there, too.
        let last = told.and_then(|_| of(0));
        let rows = (u8::from(told.is_some())..copies).filter_map(of);
        for brick in told.into_iter().chain(rows).chain(last) {
            if places.len() < usize::from(copies) && !places.contains(&brick) {
                places.push(brick);
            }
        }
        places
    }

    /// Another brick with room, when the one that a stripe belongs on has none.
    pub(super) fn instead(
        &self,
        job: &JobRecord,
        inode: &Inode,
        stripe: u64,
        avoid: &Avoid,
    ) -> Option<u16> {
        let fits = |id| Some(id) != job.brick;
        let blocks = self.geometry.blocks();
        self.extents.placement().other((file_of(inode.ino()), stripe), avoid, blocks, fits)
    }
}

/// The brick that copy `copy` goes to, so that as many copies as can be are where they are `wanted`, and the fewest move.
/// `None`: it stays.
fn elsewhere(copies: &Copies, wanted: &[u16], copy: u8) -> Option<u16> {
    let mut free: SmallVec<[u16; COPIES_MAX as usize]> =
        wanted.iter().copied().filter(|id| copies.iter().all(|(_, brick)| brick != id)).collect();
    for (at, (nr, brick)) in copies.iter().enumerate() {
        // Two copies on a brick should not be: one of them goes.
        let is_second = copies[..at].iter().any(|(_, other)| other == brick);
        if wanted.contains(brick) && !is_second {
            continue;
        }
        let own = wanted.get(usize::from(*nr));
        let place = free.iter().position(|id| Some(id) == own).unwrap_or(0);
        if free.is_empty() {
            return None;
        }
        let to = free.remove(place);
        if *nr == copy {
            return Some(to);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(bricks: &[u16]) -> Copies {
        (0..).zip(bricks.iter().copied()).collect()
    }

    #[test]
    fn a_copy_moves_only_to_a_wanted_brick_that_has_none() {
        let moves = |bricks: &[u16], wanted: &[u16]| -> Vec<Option<u16>> {
            let copies = copies(bricks);
            copies.iter().map(|(copy, _)| elsewhere(&copies, wanted, *copy)).collect()
        };
        assert_eq!(moves(&[1], &[1]), [None]);
        assert_eq!(moves(&[1], &[2]), [Some(2)]);
        // Which copy is where does not matter.
        assert_eq!(moves(&[1, 2], &[2, 1]), [None, None]);
        assert_eq!(moves(&[1, 2], &[2, 3]), [Some(3), None]);
        assert_eq!(moves(&[1, 2], &[3, 4]), [Some(3), Some(4)]);
        assert_eq!(moves(&[1, 2, 3], &[3, 4, 5]), [Some(4), Some(5), None]);
        // Two on a brick.
        assert_eq!(moves(&[1, 1], &[1, 2]), [None, Some(2)]);
        // Fewer bricks than copies, or one copy too many.
        assert_eq!(moves(&[1, 2], &[1]), [None, None]);
        assert_eq!(moves(&[1, 2], &[2]), [None, None]);
        assert_eq!(moves(&[], &[2]), []);
    }
}
