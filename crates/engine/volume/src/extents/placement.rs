//! Where new stripes go: the table of buckets, and the records of the bricks.

use super::brick::Brick;
use super::bricks::Bricks;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::extent::{copy_of, stripe_of};
use braid_format::volume::{NO_BRICK, keys};
use braid_kv::Change;
use braid_layout::buckets::{Buckets, BucketsError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The share of each brick in new stripes.
pub struct Placement {
    bricks: Rc<Bricks>,
    buckets: RefCell<Buckets>,
    /// The buckets or the bricks' records have changed: rare, and large.
    changed: Cell<bool>,
}

impl Placement {
    pub(super) fn new(bricks: Rc<Bricks>, mut buckets: Buckets) -> Placement {
        for brick in bricks.all() {
            buckets.set_domain(brick.id, &brick.domain);
        }
        Placement { bricks, buckets: RefCell::new(buckets), changed: Cell::new(false) }
    }

    /// The brick that a copy of a stripe belongs on; the number of the stripe says which copy. `None`: there are not so many
    /// bricks.
    pub fn brick_of(&self, ino: u64, stripe: u64) -> Option<u16> {
        let copy = usize::from(copy_of(stripe));
        self.make_rows(copy + 1);
        self.buckets.borrow().brick_of_copy(ino, stripe_of(stripe), copy)
    }

    /// Rows of the table are made when the first stripe needs them, and are recorded from then on.
    fn make_rows(&self, rows: usize) {
        if self.buckets.borrow().rows() >= rows {
            return;
        }
        let weights = self.weights(NO_BRICK, None);
        match self.buckets.borrow_mut().make_rows(rows, &weights) {
            Ok(_) => self.changed.set(true),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Another brick for a stripe, which `fits`, has a part in placement, is there, is none of those to `avoid` and has room for so
    /// many blocks. One in another domain than those to avoid comes first.
    pub fn other(
        &self,
        (ino, stripe): (u64, u64),
        avoid: &[u16],
        blocks: u64,
        fits: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let has_room = |brick: &Brick| {
            brick.is_placed() && brick.is_there() && brick.space.free_now() >= blocks
        };
        let can = |id| !avoid.contains(&id) && fits(id) && self.bricks.is(id, has_room);
        let (buckets, stripe) = (self.buckets.borrow(), stripe_of(stripe));
        if avoid.is_empty() {
            return buckets.next_other(ino, stripe, can);
        }
        let apart = buckets.next_other(ino, stripe, |id| can(id) && self.is_apart(id, avoid));
        apart.or_else(|| buckets.next_other(ino, stripe, can))
    }

    /// True when a brick is in another domain than all of `others`.
    pub fn is_apart(&self, id: u16, others: &[u16]) -> bool {
        let buckets = self.buckets.borrow();
        others.iter().all(|other| !buckets.are_together(id, *other))
    }

    /// The buckets of a brick.
    pub fn share(&self, id: u16) -> usize {
        self.buckets.borrow().share(id)
    }

    /// The bricks that have a part in placement, with their weights; as if `changed` had weight `to` (`None`: none).
    pub fn weights(&self, changed: u16, to: Option<u64>) -> Vec<(u16, u64)> {
        let bricks = self.bricks.all();
        let placed = bricks.iter().filter(|brick| brick.is_placed() && brick.id != changed);
        let mut weights: Vec<(u16, u64)> = placed.map(|brick| (brick.id, brick.weight())).collect();
        weights.extend(to.map(|weight| (changed, weight)));
        weights.sort_unstable();
        weights
    }

    /// Says which domain a brick is in, also one that is to come.
    pub fn set_domain(&self, id: u16, label: &str) {
        self.buckets.borrow_mut().set_domain(id, label);
    }

    /// Shares the buckets out anew; gives how many have another brick.
    ///
    /// # Errors
    /// When there is no brick, or a weight cannot be.
    pub fn assign(&self, weights: &[(u16, u64)]) -> Result<usize, BucketsError> {
        let moved = self.buckets.borrow_mut().assign(weights)?;
        self.changed.set(true);
        Ok(moved)
    }

    /// Puts brick `new`, with a weight, in the place of brick `old`; gives how many copies of buckets are on another of the
    /// bricks that stay.
    ///
    /// # Errors
    /// When a weight cannot be; nothing has changed then.
    pub fn substitute(&self, old: u16, (new, weight): (u16, u64)) -> Result<usize, BucketsError> {
        let mut weights = self.weights(old, None);
        weights.push((new, weight));
        weights.sort_unstable();
        let mut buckets = self.buckets.borrow().clone();
        buckets.substitute(old, new);
        let moved = buckets.assign(&weights)?;
        self.buckets.replace(buckets);
        self.changed.set(true);
        Ok(moved)
    }

    /// Changes what a brick is for, and its part in placement.
    pub fn change(&self, brick: &Brick, state: BrickState, weight: Option<u64>) {
        brick.set_state(state);
        if let Some(weight) = weight {
            brick.set_weight(weight);
        }
        self.changed.set(true);
    }

    /// A brick has become one of the volume's.
    pub fn add(&self, brick: Brick) {
        self.bricks.insert(Rc::new(brick));
        self.changed.set(true);
    }

    /// A brick is none of the volume's any more.
    pub fn remove(&self, id: u16) {
        self.bricks.remove(id);
        self.changed.set(true);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.changed.get()
    }

    /// The records that have changed.
    pub(super) fn close(&self) -> Vec<Change> {
        if !self.changed.replace(false) {
            return Vec::new();
        }
        let buckets = self.buckets.borrow();
        let mut records = vec![(keys::BUCKETS.to_vec(), Some(buckets.to_bytes()))];
        for row in 1..buckets.rows() {
            records.push((keys::buckets_row(row), buckets.row_to_bytes(row)));
        }
        for brick in self.bricks.all() {
            records.push((keys::brick(brick.id), Some(brick.record().encode())));
        }
        records
    }
}
