//! Bricks that come, change and go.

use crate::brick::Brick;
use crate::error::VolumeError;
use crate::space::Space;
use crate::volume::Volume;
use braid_device::Device;
use braid_filesystem::{Ino, Kind};
use braid_format::volume::brick_record::{BrickRecord, BrickState};
use braid_format::volume::inode::FLAG_PINNED;
use braid_format::volume::{BLOCK, NO_BRICK, keys};
use std::rc::Rc;
use uuid::Uuid;

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
}

impl Volume {
    /// The bricks that have a part in placement, with their weights; as if `changed` had weight `to` (`None`: none).
    pub(super) fn weights(&self, changed: u16, to: Option<u64>) -> Vec<(u16, u64)> {
        let bricks = self.bricks.borrow();
        let placed = bricks.values().filter(|brick| brick.is_placed() && brick.id != changed);
        let mut weights: Vec<(u16, u64)> = placed.map(|brick| (brick.id, brick.weight())).collect();
        weights.extend(to.map(|weight| (changed, weight)));
        weights.sort_unstable();
        weights
    }

    /// Shares the buckets out anew; what lies wrong now is for balance to move.
    pub(super) fn assign(&self, weights: &[(u16, u64)]) -> Result<(), VolumeError> {
        let moved = self.buckets.borrow_mut().assign(weights)?;
        self.placement_changed.set(true);
        self.edit_record(|record| record.unbalanced |= moved > 0);
        Ok(())
    }

    pub(super) async fn make_record_durable(&self) -> Result<(), VolumeError> {
        let number = self.transactions.number();
        Ok(self.transactions.wait_durable(number).await?)
    }

    fn may_add(&self, new: &BrickToAdd) -> Result<(), VolumeError> {
        let name = &new.device.info().name;
        if self.bricks().iter().any(|brick| brick.uuid == new.uuid) {
            return Err(VolumeError::Refused(format!("{name} is a brick of this volume already")));
        }
        if new.blocks * BLOCK < self.geometry.stripe {
            return Err(VolumeError::Refused(format!(
                "{name} has no room for a stripe: give a larger device"
            )));
        }
        if new.proxy && self.record.borrow().proxy.is_some() {
            return Err(VolumeError::Refused(
                "the volume has a proxy: take it off first (proxy --off)".into(),
            ));
        }
        if self.record.borrow().next_brick == NO_BRICK {
            return Err(VolumeError::Refused(
                "the volume has had 65,535 bricks: no numbers are left".into(),
            ));
        }
        Ok(())
    }

    /// Adds a brick and gives its number. New stripes go there at once; what is there already stays until a balance.
    ///
    /// # Errors
    /// When it is a brick of the volume already, has weight 0 or no room, or would be a second proxy.
    pub async fn add_brick(&self, new: BrickToAdd) -> Result<u16, VolumeError> {
        let _gate = self.gate.enter().await;
        let (id, space) = loop {
            self.may_add(&new)?;
            let id = self.record.borrow().next_brick;
            let space = Space::load(&self.transactions, id, new.blocks).await?;
            // Another may have been added meanwhile.
            if self.record.borrow().next_brick == id {
                break (id, space);
            }
        };
        let state = if new.proxy { BrickState::Proxy } else { BrickState::Data };
        let record = BrickRecord { uuid: new.uuid, state, weight: new.weight, blocks: new.blocks };
        let weights = self.weights(id, (!new.proxy).then_some(new.weight));
        self.assign(&weights)?;
        let brick = Brick::new(id, &record, Some(new.device), new.data_offset, space);
        self.bricks.borrow_mut().insert(id, Rc::new(brick));
        self.edit_record(|record| {
            record.next_brick = id + 1;
            if new.proxy {
                record.proxy = Some(id);
            }
        });
        self.make_record_durable().await?;
        Ok(id)
    }

    /// Changes a brick's part in placement. One that was a proxy, and is none any more, becomes a data brick.
    ///
    /// # Errors
    /// When there is no such brick, the weight is 0, or it is being removed or still the proxy.
    pub async fn set_weight(&self, id: u16, weight: u64) -> Result<(), VolumeError> {
        let brick = self.brick(id).ok_or(VolumeError::NoSuchBrick(id))?;
        match brick.state() {
            BrickState::Data => {}
            BrickState::Proxy if self.record.borrow().proxy != Some(id) => {}
            state => {
                let name = brick.name();
                return Err(VolumeError::Refused(format!(
                    "{name} has no weight to be changed: it is {state:?}"
                )));
            }
        }
        self.assign(&self.weights(id, Some(weight)))?;
        brick.set_weight(weight);
        brick.set_state(BrickState::Data);
        self.make_record_durable().await
    }

    /// Makes a brick the proxy: it takes all new stripes, and has no part in placement any more. `None`: no brick is
    /// the proxy any more; what lies on the one that was is flushed by a job.
    ///
    /// # Errors
    /// When there is no such brick, it is the last that data can be on, or another is the proxy.
    pub async fn set_proxy(&self, proxy: Option<u16>) -> Result<(), VolumeError> {
        if let Some(id) = proxy {
            let brick = self.brick(id).ok_or(VolumeError::NoSuchBrick(id))?;
            let other = self.record.borrow().proxy.filter(|other| *other != id);
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
            brick.set_state(BrickState::Proxy);
        }
        self.edit_record(|record| record.proxy = proxy);
        self.make_record_durable().await
    }

    /// Stripes of a file stay where they are from now on, or not. Of a directory: those of files made in it from now
    /// on. Taking a pin away also lets a file go that was migrated to a brick.
    ///
    /// # Errors
    /// When there is no such file.
    pub async fn set_pinned(&self, ino: Ino, pinned: bool) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "pinning a file", errno };
        self.writable().map_err(failed)?;
        let _gate = self.gate.enter().await;
        let inode = self.inode(ino).await.map_err(failed)?;
        if !matches!(inode.kind(), Kind::File | Kind::Directory) {
            return Err(VolumeError::Refused("only files and directories can be pinned".into()));
        }
        self.edit(&inode, true, |record| {
            if pinned {
                record.flags |= FLAG_PINNED;
            } else {
                record.flags &= !FLAG_PINNED;
                record.brick = NO_BRICK;
            }
        });
        Ok(())
    }

    /// Takes a brick out of placement before its stripes are moved away; refused when they would not fit elsewhere.
    pub(super) fn begin_removal(&self, id: u16) -> Result<(), VolumeError> {
        let brick = self.brick(id).ok_or(VolumeError::NoSuchBrick(id))?;
        let weights = self.weights(id, None);
        if weights.is_empty() {
            let name = brick.name();
            return Err(VolumeError::Refused(format!(
                "{name} is the last brick for data: add another first"
            )));
        }
        if !brick.is_there() && brick.space.used() > 0 {
            let (name, lost) = (brick.name(), brick.space.used() * BLOCK);
            return Err(VolumeError::Refused(format!(
                "{name} is missing, and {lost} bytes of files are on it: see which with braid volume check, remove \
                 those files, then remove the brick"
            )));
        }
        let bricks = self.bricks();
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
        // Stripes on other bricks stay where they are: only those of this brick move, and all of them.
        self.buckets.borrow_mut().assign(&weights)?;
        self.placement_changed.set(true);
        brick.set_state(BrickState::Removing);
        self.edit_record(|record| {
            if record.proxy == Some(id) {
                record.proxy = None;
            }
        });
        Ok(())
    }

    /// The brick stays after all.
    pub(super) fn cancel_removal(&self, id: u16) {
        let Some(brick) = self.brick(id).filter(|brick| brick.state() == BrickState::Removing)
        else {
            return;
        };
        if self.assign(&self.weights(id, Some(brick.weight().max(1)))).is_ok() {
            brick.set_state(BrickState::Data);
        }
    }

    /// An empty brick is let go: nothing of the volume names it any more. False: what was on its way there when the
    /// removal began has arrived, and has to leave, too.
    pub(super) async fn let_go(&self, id: u16) -> Result<bool, VolumeError> {
        let Some(brick) = self.brick(id) else { return Ok(true) };
        // Whoever has set blocks aside there has put something in them, or given them back, when nobody is inside.
        let _shut = self.gate.shut().await;
        if brick.space.used() > 0 {
            return Ok(false);
        }
        // Make the last frees there durable, so that a crash brings nothing back to these blocks.
        self.make_record_durable().await?;
        for key in self.space_keys(id).await? {
            self.transactions.set(key, None);
        }
        self.bricks.borrow_mut().remove(&id);
        self.transactions.set(keys::brick(id), None);
        self.placement_changed.set(true);
        self.gone.borrow_mut().push(brick.uuid);
        self.make_record_durable().await?;
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

    /// Bricks that were let go since this was asked last: their superblocks are to be erased.
    pub fn take_gone(&self) -> Vec<Uuid> {
        std::mem::take(&mut *self.gone.borrow_mut())
    }
}
