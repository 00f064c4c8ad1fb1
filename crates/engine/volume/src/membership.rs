//! Bricks come, change and go.

use crate::commit::Commits;
use crate::error::VolumeError;
use crate::extents::{Brick, Bricks, ExtentMap, Space};
use crate::gate::Gate;
use crate::parts::Parts;
use crate::record::Record;
use crate::transactions::Transactions;
use braid_device::Device;
use braid_format::volume::brick_record::{BrickRecord, BrickState, DOMAIN_MAX, is_domain};
use braid_format::volume::{BLOCK, NO_BRICK, keys};
use braid_shard::Shard;
use std::cell::RefCell;
use std::rc::Rc;
use uuid::Uuid;

/// The bricks of a volume, as they come, change and go.
pub struct Membership {
    shard: Shard,
    stripe: u64,
    transactions: Rc<Transactions>,
    commits: Rc<Commits>,
    record: Rc<Record>,
    bricks: Rc<Bricks>,
    extents: Rc<ExtentMap>,
    gate: Rc<Gate>,
    /// Bricks that were detached, whose superblocks are still there.
    gone: RefCell<Vec<Gone>>,
}

/// A brick that was emptied, or whose copies are all made elsewhere, and is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The number that it had.
    pub id: u16,
    /// Its uuid.
    pub uuid: Uuid,
}

/// A brick to be added.
pub struct BrickToAdd {
    /// Which device it is.
    pub uuid: Uuid,
    /// The device.
    pub device: Rc<dyn Device>,
    /// First byte of its data area.
    pub data_offset: u64,
    /// Its part in placement; not 0.
    pub weight: u64,
    /// Blocks of its data area.
    pub blocks: u64,
    /// It is to be the proxy: no part in placement, but all new stripes first.
    pub proxy: bool,
    /// The label of its domain, at most 16 bytes; empty: its own.
    pub domain: String,
    /// The number of the brick whose place it takes: that one has no part in placement any more, and is to be removed.
    pub in_place_of: Option<u16>,
}

/// A brick that is there again.
pub struct BrickBack {
    /// Its number.
    pub id: u16,
    /// Which brick the device says that it is.
    pub uuid: Uuid,
    /// The device.
    pub device: Rc<dyn Device>,
    /// First byte of its data area.
    pub data_offset: u64,
    /// Blocks of its data area.
    pub blocks: u64,
}

/// Refuses what cannot be the label of a domain.
pub(crate) fn check_domain(label: &str) -> Result<(), VolumeError> {
    match is_domain(label) {
        true => Ok(()),
        false => Err(VolumeError::Refused(format!(
            "{label:?} is no domain: give a label of at most {DOMAIN_MAX} bytes without control characters"
        ))),
    }
}

fn no_part(brick: &Brick) -> VolumeError {
    VolumeError::Refused(format!(
        "{} has no part in placement that another could take: it is {:?}; add the other one without that",
        brick.name(),
        brick.state()
    ))
}

impl Membership {
    /// Over these parts.
    pub fn new(parts: &Parts) -> Membership {
        Membership {
            shard: parts.shard.clone(),
            stripe: parts.geometry.stripe,
            transactions: Rc::clone(&parts.transactions),
            commits: Rc::clone(&parts.commits),
            record: Rc::clone(&parts.record),
            bricks: Rc::clone(&parts.bricks),
            extents: Rc::clone(&parts.extents),
            gate: Rc::clone(&parts.gate),
            gone: RefCell::default(),
        }
    }

    fn weights(&self, changed: u16, to: Option<u64>) -> Vec<(u16, u64)> {
        self.extents.placement().weights(changed, to)
    }

    /// Shares the buckets out anew; what lies wrong now is for balance to move.
    fn assign(&self, weights: &[(u16, u64)]) -> Result<(), VolumeError> {
        self.record.buckets_moved(self.extents.placement().assign(weights)?);
        Ok(())
    }

    /// Changes what a brick is for, and its part in placement.
    fn change(&self, brick: &Brick, state: BrickState, weight: Option<u64>) {
        self.extents.placement().change(brick, state, weight);
    }

    fn may_add(&self, new: &BrickToAdd) -> Result<(), VolumeError> {
        let name = &new.device.info().name;
        if self.bricks.all().iter().any(|brick| brick.uuid == new.uuid) {
            return Err(VolumeError::Refused(format!("{name} is a brick of this volume already")));
        }
        check_domain(&new.domain)?;
        if new.blocks * BLOCK < self.stripe {
            return Err(VolumeError::Refused(format!(
                "{name} has no room for a stripe: give a larger device"
            )));
        }
        if new.proxy && self.record.proxy().is_some() {
            return Err(VolumeError::Refused(
                "the volume has a proxy: take it off first (proxy --off)".into(),
            ));
        }
        if self.record.next_brick() == NO_BRICK {
            return Err(VolumeError::Refused(
                "the volume has had 65,535 bricks: no numbers are left".into(),
            ));
        }
        Ok(())
    }

    /// The brick whose place another is to take.
    fn may_replace(&self, new: &BrickToAdd) -> Result<Option<Rc<Brick>>, VolumeError> {
        let Some(id) = new.in_place_of else { return Ok(None) };
        let old = self.may_be_replaced(id)?;
        if new.proxy {
            return Err(no_part(&old));
        }
        Ok(Some(old))
    }

    /// A brick whose place another can take.
    ///
    /// # Errors
    /// When there is no such brick, it has no part in placement, or is missing with content that no other has.
    pub fn may_be_replaced(&self, id: u16) -> Result<Rc<Brick>, VolumeError> {
        let old = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
        if !old.is_placed() {
            return Err(no_part(&old));
        }
        self.has_what_is_on(&old)?;
        Ok(old)
    }

    /// Refuses to let a brick go that is missing, with content that no other has.
    fn has_what_is_on(&self, brick: &Brick) -> Result<(), VolumeError> {
        if !brick.is_there() && brick.space.used() > 0 && !self.record.has_copies() {
            let (name, lost) = (brick.name(), brick.space.used() * BLOCK);
            return Err(VolumeError::Refused(format!(
                "{name} is missing, and {lost} bytes of files are on it: see which with braid volume check, remove \
                 those files, then remove the brick"
            )));
        }
        Ok(())
    }

    /// Adds a brick and gives its number. New stripes go there at once; what is there already stays until a balance, or, of the
    /// brick whose place it takes, until the removal of that one.
    ///
    /// # Errors
    /// When it is a brick of the volume already, has weight 0 or no room, or would be a second proxy; when it cannot take the
    /// place of the other.
    pub async fn add(&self, new: BrickToAdd) -> Result<u16, VolumeError> {
        let _gate = self.gate.enter().await;
        let (id, space, old) = loop {
            self.may_add(&new)?;
            let old = self.may_replace(&new)?;
            let id = self.record.next_brick();
            let space = Space::load(&self.transactions, id, new.blocks).await?;
            // Another may have been added meanwhile.
            if self.record.next_brick() == id {
                break (id, space, old);
            }
        };
        let state = if new.proxy { BrickState::Proxy } else { BrickState::Data };
        let (uuid, weight, blocks) = (new.uuid, new.weight, new.blocks);
        let record = BrickRecord { uuid, state, weight, blocks, domain: new.domain };
        self.extents.placement().set_domain(id, &record.domain);
        match &old {
            None => self.assign(&self.weights(id, (!new.proxy).then_some(new.weight)))?,
            Some(old) => {
                let moved = self.extents.placement().substitute(old.id, (id, new.weight))?;
                self.record.buckets_moved(moved);
                self.change(old, BrickState::Removing, None);
            }
        }
        let space = Rc::new(space);
        let brick = Brick::new(&self.shard, id, &record, Some(new.device), new.data_offset, space);
        self.extents.placement().add(brick);
        self.record.brick_added(id, new.proxy);
        self.commits.make_record_durable().await?;
        Ok(id)
    }

    /// Changes a brick's part in placement. One that was a proxy, and is none any more, becomes a data brick.
    ///
    /// # Errors
    /// When there is no such brick, the weight is 0, or it is being removed or still the proxy.
    pub async fn set_weight(&self, id: u16, weight: u64) -> Result<(), VolumeError> {
        let brick = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
        match brick.state() {
            BrickState::Data => {}
            BrickState::Proxy if self.record.proxy() != Some(id) => {}
            state => {
                let name = brick.name();
                return Err(VolumeError::Refused(format!(
                    "{name} has no weight to be changed: it is {state:?}"
                )));
            }
        }
        self.assign(&self.weights(id, Some(weight)))?;
        self.change(&brick, BrickState::Data, Some(weight));
        Ok(self.commits.make_record_durable().await?)
    }

    /// Changes a brick's part in placement, in the open transaction.
    ///
    /// # Errors
    /// When the weight cannot be.
    pub fn set_share(&self, brick: &Brick, weight: u64) -> Result<(), VolumeError> {
        self.assign(&self.weights(brick.id, Some(weight)))?;
        self.change(brick, brick.state(), Some(weight));
        Ok(())
    }

    /// The data area of a brick has another size, which its record is to say.
    pub fn note_size(&self, brick: &Brick) {
        self.change(brick, brick.state(), None);
    }

    /// Makes a brick the proxy: it takes all new stripes, and has no part in placement any more. `None`: no brick is
    /// the proxy any more; what lies on the one that was is flushed by a job.
    ///
    /// # Errors
    /// When there is no such brick, it is the last that data can be on, or another is the proxy.
    pub async fn set_proxy(&self, proxy: Option<u16>) -> Result<(), VolumeError> {
        if let Some(id) = proxy {
            let brick = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
            let other = self.record.proxy().filter(|other| *other != id);
            if other.is_some() {
                return Err(VolumeError::Refused(
                    "the volume has a proxy: take it off first (proxy --off)".into(),
                ));
            }
            if !brick.takes_data() {
                return Err(VolumeError::Refused(format!("{} takes no data now", brick.name())));
            }
            let weights = self.weights(id, None);
            if weights.is_empty() {
                return Err(VolumeError::Refused(
                    "it is the only brick for data: add another before it becomes the proxy".into(),
                ));
            }
            self.assign(&weights)?;
            self.change(&brick, BrickState::Proxy, None);
        }
        self.record.set_proxy(proxy);
        Ok(self.commits.make_record_durable().await?)
    }

    /// Refuses the removal of a brick whose stripes would not fit elsewhere, or that has what no other has. Gives it.
    ///
    /// # Errors
    /// The refusal.
    pub fn may_remove(&self, id: u16) -> Result<Rc<Brick>, VolumeError> {
        let brick = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
        if self.weights(id, None).is_empty() {
            let name = brick.name();
            return Err(VolumeError::Refused(format!(
                "{name} is the last brick for data: add another first"
            )));
        }
        self.has_what_is_on(&brick)?;
        let bricks = self.bricks.all();
        let others =
            bricks.iter().filter(|other| other.id != id && other.is_placed() && other.is_there());
        let room: u64 = others.map(|other| other.space.blocks() - other.space.used()).sum();
        let needed = brick.space.used();
        if needed > room {
            return Err(VolumeError::Refused(format!(
                "{} bytes on {} do not fit on the other bricks, which have {} free: add a brick or remove files first",
                needed * BLOCK,
                brick.name(),
                room * BLOCK
            )));
        }
        Ok(brick)
    }

    /// Takes a brick out of placement before its stripes are moved away.
    ///
    /// # Errors
    /// As [`may_remove`](Membership::may_remove).
    pub fn begin_removal(&self, id: u16) -> Result<(), VolumeError> {
        let brick = self.may_remove(id)?;
        // Stripes on other bricks stay where they are: only those of this brick move, and all of them.
        self.extents.placement().assign(&self.weights(id, None))?;
        self.change(&brick, BrickState::Removing, None);
        self.record.no_proxy(id);
        Ok(())
    }

    /// The brick stays after all.
    pub fn cancel_removal(&self, id: u16) {
        let Some(brick) = self.bricks.get(id).filter(|brick| brick.state() == BrickState::Removing)
        else {
            return;
        };
        if self.assign(&self.weights(id, Some(brick.weight().max(1)))).is_ok() {
            self.change(&brick, BrickState::Data, None);
        }
    }

    /// An empty brick is detached: nothing of the volume names it any more. False: what was on its way there when the
    /// removal began has arrived, and has to leave, too.
    pub async fn detach(&self, id: u16) -> Result<bool, VolumeError> {
        let Some(brick) = self.bricks.get(id) else { return Ok(true) };
        // Whoever has reserved blocks there has put something in them, or given them back, when nobody is inside.
        let _shut = self.gate.shut().await;
        if brick.space.used() > 0 {
            return Ok(false);
        }
        // Make the last frees there durable, so that a crash brings nothing back to these blocks.
        self.commits.make_record_durable().await?;
        for key in self.space_keys(id).await? {
            self.transactions.set(key, None);
        }
        self.extents.placement().remove(id);
        self.transactions.set(keys::brick(id), None);
        self.gone.borrow_mut().push(Gone { id, uuid: brick.uuid });
        self.commits.make_record_durable().await?;
        Ok(true)
    }

    async fn space_keys(&self, id: u16) -> Result<Vec<Vec<u8>>, VolumeError> {
        let mut found = Vec::new();
        for (first, last) in [
            (keys::blocks(id, 0), keys::blocks(id, u32::MAX)),
            (keys::usage(id, 0), keys::usage(id, u32::MAX)),
        ] {
            let mut from = Some(first);
            while let Some(start) = from.take() {
                let (pairs, next) =
                    self.transactions.scan(&start, &keys::after(&last), 4096).await?;
                found.extend(pairs.into_iter().map(|(key, _)| key));
                from = next;
            }
        }
        Ok(found)
    }

    /// A brick that is not there may be taken back, as a device with so many blocks of data.
    ///
    /// # Errors
    /// When it is no brick of the volume, is another than that of this number, is there, or too small.
    pub fn may_take_back(
        &self,
        id: u16,
        uuid: Uuid,
        blocks: u64,
    ) -> Result<Rc<Brick>, VolumeError> {
        self.transactions
            .writable()
            .map_err(|errno| VolumeError::File { doing: "taking a brick back", errno })?;
        let brick = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
        let refused = |why: String| Err(VolumeError::Refused(why));
        if brick.uuid != uuid {
            return refused(format!(
                "brick {id} of the volume is {}, and the device holds {uuid}: bring the device that was lost",
                brick.uuid
            ));
        }
        if brick.is_there() {
            return refused(format!("{} is there: nothing is to be taken back", brick.name()));
        }
        if brick.space.blocks() > blocks {
            return refused(format!(
                "the device has {blocks} blocks for data, and brick {id} has {}: bring the device that was lost",
                brick.space.blocks()
            ));
        }
        Ok(brick)
    }

    /// All that the next mount has to know of the failure of a brick is durable, and nothing is on its way to it any more but what
    /// belongs to changes of files. From then on superblocks may say that it is there again.
    ///
    /// # Errors
    /// When the store fails, or its requests do not end.
    pub async fn prepare_take_back(&self, brick: &Brick) -> Result<(), VolumeError> {
        self.bricks.note_failed().await?;
        // A commit that is under way may be about to note it, and there may be marks of what it has lost.
        self.commits.make_record_durable().await?;
        if self.bricks.is_quiet(brick).await {
            return Ok(());
        }
        Err(VolumeError::Refused(format!(
            "requests to brick {} from before it was lost have not ended yet: try again when they have",
            brick.id
        )))
    }

    /// A brick is there again. Nothing is said of what it holds: copies that missed something are known as such.
    ///
    /// # Errors
    /// When it was taken back, or removed, meanwhile.
    pub async fn take_back(
        &self,
        brick: &Rc<Brick>,
        device: Rc<dyn Device>,
        data_offset: u64,
    ) -> Result<(), VolumeError> {
        // Whoever is inside may have seen that it is away, and reckons with that.
        let _shut = self.gate.shut().await;
        if !self.bricks.get(brick.id).is_some_and(|known| Rc::ptr_eq(&known, brick)) {
            return Err(VolumeError::Refused(format!(
                "brick {} was taken back or removed meanwhile: see braid volume status",
                brick.id
            )));
        }
        self.bricks.put_back(brick, device, data_offset);
        Ok(())
    }

    /// Bricks that were detached since this was asked last: their superblocks are to be erased, and the others not to name them
    /// any more.
    pub fn take_gone(&self) -> Vec<Gone> {
        std::mem::take(&mut *self.gone.borrow_mut())
    }
}
