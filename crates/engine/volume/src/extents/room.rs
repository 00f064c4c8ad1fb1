//! Room for new extents: blocks are reserved on the brick that a stripe belongs on, or where there are some.

use super::brick::Brick;
use super::map::ExtentMap;
use super::relief::{Relief, Work};
use super::reservation::Reservation;
use super::stripe::Avoid;
use braid_filesystem::{Errno, Ino};
use braid_shard::plant::planted;
use std::rc::Rc;

/// The number of commits that a reservation waits for, which may give freed blocks back, before it fails.
const SPACE_WAITS: usize = 64;
/// The time that a writer waits before it looks for room again while free space is defragmented, in nanoseconds.
const DEFRAGMENT_NANOS: u64 = 50_000_000;
/// The time that a writer waits before it looks for room again while devices are told of free space, in nanoseconds.
const TRIM_NANOS: u64 = 1_000_000;

/// A stripe that wants blocks.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Its file.
    pub ino: Ino,
    /// Its number, with its copy.
    pub stripe: u64,
    /// The brick that the file is to be on.
    pub brick: Option<u16>,
    /// The bricks of the stripe's other copies: it does not come to any of these.
    pub avoid: Avoid,
}

impl ExtentMap {
    /// The bricks that a stripe may go to, the best first: where the file is to be, the proxy, where placement says. With other
    /// copies about, those in a domain that has none come first.
    fn candidates(&self, wants: &Wants) -> Vec<Rc<Brick>> {
        let placed = self.placement.brick_of(wants.ino, wants.stripe);
        let mut list: Vec<Rc<Brick>> = Vec::with_capacity(3);
        for id in [wants.brick, self.record.proxy(), placed].into_iter().flatten() {
            if let Some(brick) = self.bricks.get(id).filter(|brick| brick.takes_data())
                && !wants.avoid.contains(&id)
                && !list.iter().any(|known| known.id == id)
            {
                list.push(brick);
            }
        }
        let is_apart = |brick: &Brick| self.placement.is_apart(brick.id, &wants.avoid);
        if !wants.avoid.is_empty()
            && self.bricks.any(|brick| brick.is_placed() && brick.is_there() && is_apart(brick))
        {
            // In a domain that has a copy a brick is no better than any other.
            list.retain(|brick| wants.brick == Some(brick.id) || is_apart(brick));
        }
        list
    }

    /// Reserves a run of `blocks` blocks for a stripe: where the file is to be, else on the proxy, else where placement
    /// says, else where there is room.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when there is none on any brick, also not after the commits to come.
    pub async fn reserve(&self, wants: Wants, blocks: u64) -> Result<Reservation, Errno> {
        for _ in 0..SPACE_WAITS {
            if planted("full-too-early") && self.is_an_eighth_full() {
                return Err(Errno::NoSpace);
            }
            for brick in self.candidates(&wants) {
                if let Some(reserved) = self.reserve_on(&brick, blocks).await? {
                    return Ok(reserved);
                }
            }
            let mut full: Vec<u16> = Vec::new();
            loop {
                let fits = |id: u16| !full.contains(&id);
                let of = (wants.ino, wants.stripe);
                let next = self.placement.other(of, &wants.avoid, blocks, fits);
                let Some(brick) = next.and_then(|id| self.bricks.get(id)) else { break };
                if let Some(reserved) = self.reserve_on(&brick, blocks).await? {
                    self.record.note_unbalanced();
                    return Ok(reserved);
                }
                full.push(brick.id);
            }
            if self.wait_for_trim().await {
                continue;
            }
            let settling = self.bricks.any(|brick| brick.space.settling() > 0);
            if !settling && !self.is_being_freed() && !self.defragment(blocks).await {
                return Err(Errno::NoSpace);
            }
            self.transactions.settle().await?;
        }
        Err(Errno::NoSpace)
    }

    /// Waits while devices are told of the free space that is held meanwhile. False: none is.
    async fn wait_for_trim(&self) -> bool {
        let trims = || -> Vec<u64> {
            self.bricks.all().iter().filter_map(|brick| brick.space.trims()).collect()
        };
        let before = trims();
        while !before.is_empty() && trims() == before {
            self.shard.sleep(TRIM_NANOS).await;
        }
        !before.is_empty()
    }

    /// The same for `wanted` blocks, or only `needed` ones where there are not so many together.
    ///
    /// # Errors
    /// As [`reserve`](ExtentMap::reserve).
    pub async fn reserve_about(
        &self,
        wants: Wants,
        wanted: u64,
        needed: u64,
    ) -> Result<Reservation, Errno> {
        match self.reserve(wants.clone(), wanted).await {
            Err(Errno::NoSpace) if wanted > needed => self.reserve(wants, needed).await,
            other => other,
        }
    }

    /// Reserves a run on one brick; `None`: it has no such run.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn reserve_on(
        &self,
        brick: &Rc<Brick>,
        blocks: u64,
    ) -> Result<Option<Reservation>, Errno> {
        let whole = blocks == self.geometry.blocks();
        let start = brick.space.reserve(&self.transactions, blocks, whole).await;
        let start = start.map_err(|error| self.failed(&error))?;
        Ok(start.map(|start| Reservation::new(brick, start, blocks)))
    }

    /// The planted bug takes this for a full volume.
    fn is_an_eighth_full(&self) -> bool {
        let bricks = self.bricks.all();
        let free: u64 = bricks.iter().map(|brick| brick.space.free_now()).sum();
        let blocks: u64 = bricks.iter().map(|brick| brick.space.blocks()).sum();
        free < blocks / 8 * 7
    }

    fn relief(&self) -> Option<Rc<dyn Relief>> {
        self.relief.borrow().clone()
    }

    fn is_being_freed(&self) -> bool {
        self.has_left() || self.relief().is_some_and(|relief| relief.is_freeing())
    }

    /// There is no run of `blocks` blocks any more. False: there are not so many in all either. Else free blocks that
    /// lie apart are being put together; it is worth to try again.
    async fn defragment(&self, blocks: u64) -> bool {
        let enough = self
            .bricks
            .any(|brick| brick.is_placed() && brick.is_there() && brick.space.free_now() >= blocks);
        let Some(relief) = self.relief().filter(|_| enough) else { return false };
        match relief.work() {
            Work::None if !self.defragmented.replace(true) => relief.defragment(),
            Work::Defragment => {}
            Work::None | Work::Other => return false,
        }
        // The job may wait for what the caller holds, so the caller does not wait for its end.
        self.shard.sleep(DEFRAGMENT_NANOS).await;
        true
    }
}
