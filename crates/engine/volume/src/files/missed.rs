//! Copies that only what snapshots see of a stripe lacks: a brick was away when it was written, and the file has let it go since.
//!
//! Of a stripe there is what the file has now, and what the snapshots see: several see it alike, until a change came between. Each of
//! these versions gets what its copies miss, the newest first. Where the next version has the same bytes in a copy
//! of its own that is whole, that is the copy of both; else it is copied anew, since others may have what an extent lacks.

use super::moving::Moved;
use super::part::Files;
use crate::extents::{Seen, Stripe, Wants};
use crate::namespace::{Inode, see_copies};
use braid_filesystem::{Errno, Ino, Kind};
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::extent::{Extent, PER_GROUP, of_copy, stripe_of};
use braid_format::volume::snapshot::{file_of, in_snapshot};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A stripe of which some snapshots see copies that miss something.
pub struct Lacking {
    /// The file, as one of these snapshots sees it.
    pub inode: Rc<Inode>,
    /// The stripe.
    pub stripe: u64,
    /// The brick of one of its copies.
    pub brick: u16,
    /// The bytes that the copies miss.
    pub bytes: u64,
}

impl Files {
    /// A file as it is now, if it is there.
    pub(super) async fn if_there(&self, ino: Ino) -> Result<Option<Rc<Inode>>, Errno> {
        match self.inodes.get(ino).await {
            Ok(inode) => Ok(Some(inode)),
            Err(Errno::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The copies that a stripe is to have as a snapshot sees it: as many as the file is to have now, if that is there and they fit
    /// on bricks.
    fn copies_seen(&self, inode: &Rc<Inode>, now: Option<&Rc<Inode>>) -> u8 {
        let asked = now.unwrap_or(inode).with(|record| record.copies);
        let placed = self.bricks.all().iter().filter(|brick| brick.is_placed()).count();
        asked.min(u8::try_from(placed).unwrap_or(u8::MAX))
    }

    /// The versions of a group of stripes: the snapshots that they are named by, with the file as each sees it, the oldest first.
    pub(super) async fn views(
        &self,
        ino: Ino,
        now: Option<&Rc<Inode>>,
        group: u64,
    ) -> Result<Vec<(u32, Option<Rc<Inode>>)>, Errno> {
        let subvolume = now.map(|now| now.with(|record| record.subvolume));
        self.seen_in(ino, self.extents.views(ino, subvolume, group).await?).await
    }

    /// The same, with those in which the file has another record, though all see the stripes alike: one may say fewer copies.
    async fn all_views(
        &self,
        ino: Ino,
        now: Option<&Rc<Inode>>,
        group: u64,
    ) -> Result<Vec<(u32, Option<Rc<Inode>>)>, Errno> {
        let mut all = self.views(ino, now, group).await?;
        let mut others = self.inodes.saved_for(ino).await?;
        others.retain(|id| all.iter().all(|(known, _)| known != id));
        all.extend(self.seen_in(ino, others).await?);
        all.sort_by_key(|(id, _)| *id);
        Ok(all)
    }

    /// A file as each of these snapshots sees it.
    async fn seen_in(
        &self,
        ino: Ino,
        ids: Vec<u32>,
    ) -> Result<Vec<(u32, Option<Rc<Inode>>)>, Errno> {
        let mut views = Vec::new();
        for id in ids {
            // None: it is being removed.
            let inode = self.if_there(in_snapshot(ino, id)).await?;
            views.push((id, inode.filter(|inode| inode.kind() == Kind::File)));
        }
        Ok(views)
    }

    /// The stripes of the group that `group` is one of, with its copies, of which some snapshot sees copies that miss something.
    ///
    /// # Errors
    /// When the extents cannot be read.
    pub async fn lacking_in_snapshots(&self, ino: Ino, group: u64) -> Result<Vec<Lacking>, Errno> {
        let group = stripe_of(group * PER_GROUP) / PER_GROUP;
        let now = self.if_there(ino).await?;
        let mut found: BTreeMap<u64, Lacking> = BTreeMap::new();
        for (_, inode) in self.all_views(ino, now.as_ref(), group).await? {
            let Some(inode) = inode else { continue };
            let copies = self.copies_seen(&inode, now.as_ref());
            if copies < 2 {
                continue;
            }
            let first = group * PER_GROUP;
            for number in first..first + PER_GROUP {
                let stripe = self.stripe(&inode, number).await?;
                let written = stripe.together().written;
                let missed = (0..copies).map(|copy| missed_by(&stripe, copy, written));
                let missed: u64 = missed.map(|bits| u64::from(bits.count_ones())).sum();
                let Some((_, extent)) = stripe.extents().next().filter(|_| missed > 0) else {
                    continue;
                };
                let lacking = found.entry(number).or_insert_with(|| Lacking {
                    inode: Rc::clone(&inode),
                    stripe: number,
                    brick: extent.brick,
                    bytes: 0,
                });
                lacking.bytes += missed * self.geometry.sub_block;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Gives what snapshots see of a stripe of a file as many copies as it is to have, each with all that is written.
    ///
    /// # Errors
    /// As [`make_copies`](Files::make_copies).
    pub async fn make_copies_seen(&self, ino: Ino, number: u64) -> Result<Moved, Errno> {
        let start = number * self.geometry.stripe;
        let range = start..start + self.geometry.stripe;
        let now = self.if_there(ino).await?;
        let mut held = Vec::new();
        if let Some(now) = &now {
            held.push(now.locks.exclusive(range.clone()).await);
        }
        let views = self.views(ino, now.as_ref(), number / PER_GROUP).await?;
        for inode in views.iter().filter_map(|(_, inode)| inode.as_ref()) {
            held.push(inode.locks.exclusive(range.clone()).await);
        }
        if let Some(now) = &now {
            // One that sees the same stripes as another may have been recorded with fewer copies.
            let all = self.all_views(ino, Some(now), number / PER_GROUP).await?;
            let all: Vec<Rc<Inode>> = all.into_iter().filter_map(|(_, inode)| inode).collect();
            let copies = self.copies_seen(now, Some(now));
            if all.iter().any(|inode| inode.with(|one| one.copies) < copies) {
                self.inodes.set_copies_seen(now, copies).await?;
                // One that came to memory meanwhile may be as it was.
                all.iter().for_each(|inode| see_copies(inode, copies));
            }
        }
        let mut later = match &now {
            Some(now) => Some(self.stripe(now, number).await?),
            None => None,
        };
        let (mut bytes, mut failed, mut marked) = (0, None, Vec::new());
        for (at, (id, inode)) in views.iter().enumerate().rev() {
            let id_of = |at: Option<usize>| at.and_then(|at| views.get(at)).map(|(id, _)| *id);
            let (below, above) = (id_of(at.checked_sub(1)), id_of(at.checked_add(1)));
            let Some(inode) = inode else {
                later = None;
                continue;
            };
            let stripe = self.stripe(inode, number).await?;
            let seen = Seen { below, at: *id, above };
            for copy in 0..self.copies_seen(inode, now.as_ref()) {
                if missed_by(&stripe, copy, stripe.together().written) == 0 {
                    continue;
                }
                marked.push(self.mark(inode, &stripe));
                match self.make_copy_seen(inode, &stripe, copy, (later.as_ref(), seen)).await {
                    Ok(made) => bytes += made,
                    Err(error) => failed = Some(error),
                }
            }
            later = Some(stripe);
        }
        match failed {
            Some(error) => Err(error),
            None if bytes > 0 => Ok(Moved::Yes(bytes)),
            None => Ok(Moved::NotThere),
        }
    }

    /// Makes one copy of what snapshots see. Gives the bytes written.
    async fn make_copy_seen(
        &self,
        inode: &Rc<Inode>,
        stripe: &Stripe,
        copy: u8,
        (later, seen): (Option<&Stripe>, Seen),
    ) -> Result<u64, Errno> {
        let (extent, together) = (stripe.get(copy), stripe.together());
        let of = (file_of(inode.ino()), of_copy(stripe.number(), copy));
        let refused = || {
            // They see something else than they did just now: another job looks at it.
            self.record.note_incomplete();
            0
        };
        if let Some(new) = later.and_then(|later| same_copy(stripe, later, copy)) {
            let done = self.extents.publish_seen(of, seen, (extent, new), None).await?;
            return Ok(if done { 0 } else { refused() });
        }
        let brick = self.bricks.get(extent.brick).filter(|_| !extent.is_hole());
        if brick.is_some_and(|brick| {
            let leaves = matches!(brick.state(), BrickState::Removing | BrickState::Lost);
            !brick.is_there() && !leaves
        }) {
            return Err(Errno::Busy);
        }
        let wants = Wants {
            ino: of.0,
            stripe: of.1,
            brick: inode.with(|record| record.wanted_brick()),
            avoid: stripe.others_than(copy),
        };
        let reserved = self.extents.reserve(wants, together.blocks.into()).await?;
        let to = (reserved.brick(), reserved.start());
        let filled = self.fill(inode, stripe, together.written, to).await?;
        if !reserved.brick().is_there() {
            return Err(Errno::Io);
        }
        let new = reserved.extent(together.written);
        let done = self.extents.publish_seen(of, seen, (extent, new), Some(&reserved)).await?;
        Ok(if done { filled } else { refused() })
    }
}

/// The sub-blocks of these that a copy of a stripe misses.
fn missed_by(stripe: &Stripe, copy: u8, written: u32) -> u32 {
    if copy < stripe.rows() { written & !stripe.get(copy).written } else { written }
}

/// The extent that a copy of a stripe gets from the next version of it: that has the same bytes, and has all of them in this
/// copy.
fn same_copy(stripe: &Stripe, later: &Stripe, copy: u8) -> Option<Extent> {
    if copy >= later.rows() {
        return None;
    }
    let (own, other, written) = (stripe.get(copy), later.get(copy), stripe.together().written);
    let is_same = |one: &Extent, other: &Extent| {
        !one.is_hole() && !other.is_hole() && one.place() == other.place()
    };
    // A sub-block that both have in one extent is the same.
    let common = (0..stripe.rows().min(later.rows())).fold(0, |all, row| {
        let (one, other) = (stripe.get(row), later.get(row));
        if is_same(&one, &other) { all | one.written & other.written } else { all }
    });
    if other.is_hole() || written & !(other.written & common) != 0 {
        return None;
    }
    if is_same(&own, &other) {
        return (own.blocks >= other.blocks).then_some(Extent { written, ..own });
    }
    let is_apart = !stripe.others_than(copy).contains(&other.brick);
    is_apart.then_some(Extent { written, ..other })
}
