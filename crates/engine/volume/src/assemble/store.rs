//! The metadata store of a mounted volume over the metadata regions of its bricks.
//!
//! Invariant: a commit that a leg did not take is answered only when the superblocks say so.

use super::error::AssembleError;
use super::superblocks::Superblocks;
use braid_format::brick::MetadataState;
use braid_kv::{Answer, Begun, Change, KvStore, Pair, Store, StoreError, StoreSpace};
use braid_mirror::{LEGS_MAX, Mirror, MirrorError, Open, Region};
use braid_shard::sync::Budget;
use std::cell::RefCell;
use std::rc::Rc;

/// The number of times that a commit tries to write superblocks which no brick with the metadata takes: for half a
/// minute.
const PATIENCE: u32 = 60;
/// Nanoseconds between two tries.
const TRY_EVERY: u64 = 500_000_000;

/// Which bricks hold the legs of the mirror that the store is in.
type Legs = Rc<RefCell<[Option<u16>; LEGS_MAX]>>;

/// See the module's documentation. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub struct BrickStore {
    kv: KvStore,
    mirror: Rc<Mirror>,
    superblocks: Rc<Superblocks>,
    legs: Legs,
    /// One leg is added or let go at a time.
    turn: Rc<Budget>,
}

impl BrickStore {
    /// Opens the store on the metadata regions of `bricks`, one to [`LEGS_MAX`], the one to be believed first. `cache_bytes` is what is kept
    /// in memory of it.
    ///
    /// # Errors
    /// When a region cannot be used, or the store in it is damaged.
    pub async fn open(
        superblocks: &Rc<Superblocks>,
        bricks: &[u16],
        how: Open,
        cache_bytes: usize,
    ) -> Result<BrickStore, AssembleError> {
        // One may have failed since it was found.
        let held = bricks.iter().filter(|id| superblocks.brick(**id).is_some());
        let held: Vec<u16> = held.take(LEGS_MAX).copied().collect();
        let regions = held.iter().map(|id| region(superblocks, *id)).collect::<Result<_, _>>()?;
        let legs: Legs = Rc::new(RefCell::new(std::array::from_fn(|leg| held.get(leg).copied())));
        let shard = superblocks.shard();
        let mirror = Mirror::open(shard, regions, how).await.map_err(StoreError::from)?;
        let noted = (Rc::clone(&legs), Rc::clone(superblocks));
        mirror.on_detached(move |detached| {
            let (legs, superblocks) = &noted;
            let leg = legs.borrow_mut().get_mut(detached.leg).and_then(Option::take);
            if let Some(id) = leg {
                tracing::error!(brick = %detached.name, "its copy of the metadata is not used any more: {}", detached.why);
                superblocks.note_metadata(id, MetadataState::OutOfSync);
            }
        });
        let kv = KvStore::open(shard, Rc::clone(&mirror), cache_bytes).await?;
        let turn = Budget::new(shard, 1);
        let store = BrickStore { kv, mirror, superblocks: Rc::clone(superblocks), legs, turn };
        // Bricks that were detached while opening.
        store.superblocks.settle().await?;
        Ok(store)
    }

    /// The bricks that hold the metadata, or are being given it.
    pub fn bricks(&self) -> Vec<u16> {
        self.legs.borrow().iter().flatten().copied().collect()
    }

    /// The bricks that hold the metadata. Waits for a copy that is being made.
    pub async fn settled_bricks(&self) -> Vec<u16> {
        let _turn = self.turn.take(1).await;
        self.bricks()
    }

    /// Makes the region of brick `id` another leg, whatever it held; the store goes on meanwhile.
    ///
    /// # Errors
    /// When there are [`LEGS_MAX`] legs already, it is one, or the region cannot be used or fails.
    pub async fn add_leg(&self, id: u16) -> Result<(), AssembleError> {
        let _turn = self.turn.take(1).await;
        let region = region(&self.superblocks, id)?;
        let place = {
            let mut legs = self.legs.borrow_mut();
            if legs.contains(&Some(id)) {
                let why = format!("brick {id} has a copy of the metadata already");
                return Err(StoreError::Failed(why).into());
            }
            // The store puts it in the first place that is free.
            let Some(free) = legs.iter().position(Option::is_none) else {
                let why = format!("there are {LEGS_MAX} copies of the metadata");
                return Err(StoreError::Failed(why).into());
            };
            legs[free] = Some(id);
            free
        };
        // The region is no copy until this is done.
        self.superblocks.note_metadata(id, MetadataState::OutOfSync);
        let mut made = self.superblocks.settle().await;
        if made.is_ok() {
            made = self.join(region).await.map_err(|error| StoreError::from(error).into());
        }
        let still = self.legs.borrow().get(place).copied().flatten() == Some(id);
        match made {
            Ok(()) if still => {
                self.superblocks.note_metadata(id, MetadataState::InSync);
                self.superblocks.settle().await
            }
            Ok(()) => Ok(()),
            Err(error) => {
                if still && let Some(leg) = self.legs.borrow_mut().get_mut(place) {
                    *leg = None;
                }
                Err(error)
            }
        }
    }

    async fn join(&self, region: Region) -> Result<(), MirrorError> {
        self.mirror.join(region)?.run().await
    }

    async fn release(&self, leg: usize) -> Result<(), StoreError> {
        let last = |_| StoreError::Failed("the metadata would have no copy left".to_string());
        self.mirror.release(leg, "it was asked for").await.map_err(last)
    }

    /// Lets the leg on brick `id` go. Its region is not used any more afterwards. Waits for a copy that is being made.
    ///
    /// # Errors
    /// When nothing would be left.
    pub async fn drop_leg(&self, id: u16) -> Result<(), AssembleError> {
        let _turn = self.turn.take(1).await;
        let place = self.legs.borrow().iter().position(|leg| *leg == Some(id));
        if let Some(place) = place {
            self.release(place).await?;
        }
        self.superblocks.note_metadata(id, MetadataState::Unused);
        self.superblocks.settle().await
    }

    /// Takes what the regions of the bricks have grown by, which their superblocks name. Waits for a copy that is being made.
    ///
    /// # Errors
    /// When a region fails, or it has grown too often.
    pub async fn grow(&self) -> Result<(), AssembleError> {
        let _turn = self.turn.take(1).await;
        let legs = *self.legs.borrow();
        let mut regions = Vec::new();
        for (place, id) in legs.iter().enumerate() {
            let Some(id) = *id else { continue };
            match self.superblocks.brick(id) {
                Some(_) => regions.push((place, region(&self.superblocks, id)?)),
                // Its superblocks could not be written: it may not know that it has grown.
                None => self.release(place).await?,
            }
        }
        self.mirror.prepare_growth(regions).await.map_err(StoreError::from)?;
        // One that has not taken part is none of those that the next start takes for current.
        self.superblocks.settle().await?;
        Ok(self.kv.take_growth().await?)
    }

    /// Notes in the superblocks of the others that brick `id` has failed. The store is not asked, which may be waiting with
    /// a commit for just that; a leg that lies there is to be let go afterwards.
    pub fn note_lost(&self, id: u16) -> Answer<()> {
        let superblocks = Rc::clone(&self.superblocks);
        Box::pin(async move {
            if !superblocks.hold_metadata().iter().any(|held| *held != id) {
                let why = format!(
                    "brick {id}, the only one with a copy of the metadata, did not make durable what was written to it"
                );
                return Err(StoreError::Failed(why));
            }
            let noted = match superblocks.lost(id).await {
                Err(AssembleError::NoHolder { error: Some(_), .. }) => settle(&superblocks).await,
                other => other,
            };
            noted.map_err(|error| StoreError::Failed(error.to_string()))
        })
    }

    /// Blocks that a leg had lost and that were mended from another, since the mount.
    pub fn mended(&self) -> u64 {
        self.mirror.mended()
    }

    /// Closes the store in order, after all that was asked before.
    ///
    /// # Errors
    /// When the regions did not take the end: then the volume was not unmounted in order.
    pub async fn stop(&self) -> Result<(), AssembleError> {
        self.mirror.stop_joins();
        // A copy that was being made has ended then.
        let _turn = self.turn.take(1).await;
        let stopped = self.kv.stop().await;
        self.superblocks.settle().await?;
        Ok(stopped?)
    }
}

/// Has the superblocks written. Where no brick with the metadata takes one, that is tried again for some time, unless
/// they are gone for good: whoever changes something waits meanwhile.
async fn settle(superblocks: &Superblocks) -> Result<(), AssembleError> {
    let mut tries = PATIENCE;
    loop {
        match superblocks.settle().await {
            Err(AssembleError::NoHolder { error: Some(error), .. })
                if !error.means_gone() && tries > 0 =>
            {
                tries -= 1;
                superblocks.shard().sleep(TRY_EVERY).await;
            }
            other => return other,
        }
    }
}

fn region(superblocks: &Superblocks, id: u16) -> Result<Region, AssembleError> {
    let (device, superblock) = superblocks.brick(id).ok_or(AssembleError::NoSuchBrick(id))?;
    let name = device.info().name.clone();
    let areas: Vec<(u64, u64)> =
        superblock.metadata_areas().map(|area| (area.offset, area.len)).collect();
    Region::of_ranges(device, &areas).map_err(|error| AssembleError::Region { device: name, error })
}

impl BrickStore {
    /// A commit counts when the superblocks say which bricks have taken it.
    fn acknowledged(&self, done: Answer<()>) -> Answer<()> {
        let superblocks = Rc::clone(&self.superblocks);
        Box::pin(async move {
            done.await?;
            let settled = settle(&superblocks).await;
            settled.map_err(|error| StoreError::Failed(error.to_string()))?;
            // A brick that is away counts no more at the next mount, although its region may have taken this.
            if superblocks.hold_metadata().is_empty() {
                let why = "every brick that holds the metadata has failed".to_string();
                return Err(StoreError::Failed(why));
            }
            Ok(())
        })
    }
}

impl Store for BrickStore {
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.kv.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>> {
        self.kv.scan(from, to, limit)
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<()> {
        self.acknowledged(self.kv.commit(changes))
    }

    fn begin_commit(&self, changes: Vec<Change>) -> Result<Begun, Vec<Change>> {
        let Begun { go, done } = self.kv.begin_commit(changes)?;
        Ok(Begun { go, done: self.acknowledged(done) })
    }

    fn space(&self) -> StoreSpace {
        self.kv.space()
    }
}
