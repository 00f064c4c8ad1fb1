//! A brick that was away is there again while the volume is mounted.
//!
//! The others name it in `away` with a generation that is next to its own, until it is as new as they are. An interruption, or
//! an error of which nobody knows whether the brick has taken what was written, may come at any moment: so in each step either
//! the brick gets a generation that is next to the one that `away` names, or `away` is given one that is next to the brick's.
//! The others gain one generation in each step and the brick two.
//!
//! Before that the brick's two superblocks are made equal. Where an interruption has left one of them torn, with blocks of a newer
//! generation, the next one could complete that: the brick would be of a generation that nobody expects any more.

use super::{Half, Present, Superblocks, write_request};
use crate::assemble::FoundBrick;
use crate::assemble::error::AssembleError;
use braid_device::Device;
use braid_format::brick::{Away, BrickIds, BrickSuperblock, MetadataState};
use braid_shard::plant::planted;
use std::rc::Rc;
use uuid::Uuid;

impl Superblocks {
    /// Success if a device holds a brick of this volume, whose uuid is `uuid`.
    ///
    /// # Errors
    /// [`AssembleError::NotOfVolume`].
    pub(crate) fn is_of_volume(&self, uuid: Uuid, found: &FoundBrick) -> Result<(), AssembleError> {
        let superblock = &found.superblock;
        if superblock.volume_uuid == uuid.into_bytes() {
            return Ok(());
        }
        Err(AssembleError::NotOfVolume {
            device: found.name().to_string(),
            other: superblock.volume_name.as_str().to_string(),
            uuid: Uuid::from_bytes(superblock.volume_uuid),
            volume: self.name.clone(),
        })
    }

    /// Success if a brick of this volume is away and has come back as it went.
    ///
    /// # Errors
    /// When it is there, was removed, or is not as it went.
    pub(crate) fn may_return(&self, found: &FoundBrick) -> Result<(), AssembleError> {
        let (device, volume) = (found.name().to_string(), self.name.clone());
        let (id, generation) = (found.superblock.brick_id, found.superblock.generation);
        let roster = self.roster.borrow();
        if roster.present.contains_key(&id) {
            return Err(AssembleError::NotAway { device, id, volume });
        }
        match roster.away.get(&id) {
            None => Err(AssembleError::Removed { device, id, volume }),
            Some(went) if generation.abs_diff(*went) > 1 => {
                let went = *went;
                Err(AssembleError::NotAsItWent { device, id, volume, generation, went })
            }
            Some(_) => Ok(()),
        }
    }

    /// Bricks that were away and are used again with this mount have two superblocks that are equal from now on.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(super) async fn make_whole(&self) -> Result<(), AssembleError> {
        let bricks: Vec<_> = {
            let roster = self.roster.borrow();
            let returning = roster.returning.keys().filter_map(|id| roster.present.get(id));
            let own = |brick: &Present| {
                (Rc::clone(&brick.device), brick.superblock.clone(), brick.begin_with)
            };
            returning.map(own).collect()
        };
        for (device, superblock, half) in bricks {
            self.write_own(&device, &superblock, half).await?;
        }
        Ok(())
    }

    /// A brick that was away is used again: it gets the generation of the others, and they do not name it in `away` any more.
    ///
    /// # Errors
    /// When it is not as it went, or it or the others cannot be written: it is away then, and may be taken back later.
    pub async fn take_back(&self, found: FoundBrick) -> Result<(), AssembleError> {
        let id = found.superblock.brick_id;
        let FoundBrick { device, mut superblock, begin_with, .. } = found.clone();
        if superblock.metadata_state == MetadataState::InSync {
            superblock.metadata_state = MetadataState::OutOfSync;
        }
        {
            let _turn = self.turn.take(1).await;
            self.may_return(&found)?;
            self.write_own(&device, &found.superblock, begin_with).await?;
        }
        loop {
            let turn = self.turn.take(1).await;
            let now = FoundBrick { superblock: superblock.clone(), ..found.clone() };
            self.may_return(&now)?;
            let newest = self.generation();
            if superblock.generation >= newest || planted("returned-in-one-step") {
                let taken = superblock.generation;
                let present = Present { device, superblock, taken, begin_with };
                self.roster.borrow_mut().away.remove(&id);
                self.roster.borrow_mut().present.insert(id, present);
                self.note_change();
                let written = self.write(&turn).await;
                if written.is_err() {
                    // It has what was written last, or not: as one that is lost.
                    self.roster.borrow_mut().lose(id);
                    self.note_change();
                }
                let is_there = self.roster.borrow().present.contains_key(&id);
                return written.and(if is_there {
                    Ok(())
                } else {
                    Err(AssembleError::NoSuchBrick(id))
                });
            }
            // Next to what it has, and to what it gets.
            let between = superblock.generation + 1;
            let named = self.roster.borrow_mut().away.insert(id, between);
            // The others do not say what was noted and not written.
            if named != Some(between) || !self.is_written() {
                self.note_change();
                self.passes(1, &turn).await?;
            }
            superblock = self.next_of(superblock, between + 1);
            for half in [begin_with, begin_with.other()] {
                self.write_own(&device, &superblock, half).await?;
            }
        }
    }

    /// The superblock of a brick that returns, with a generation up to `generation`, no newer than the others.
    fn next_of(&self, own: BrickSuperblock, generation: u64) -> BrickSuperblock {
        let roster = self.roster.borrow();
        let generation = generation.min(roster.generation);
        let others = roster.away.iter().filter(|(id, _)| **id != own.brick_id);
        // None went later than this superblock says that it is of; it is not the newest before it has the others' generation.
        let others = others.map(|(id, went)| (*id, (*went).min(generation)));
        BrickSuperblock {
            generation,
            volume_state: roster.volume_state,
            // A volume has at most 4096 bricks.
            brick_count: (roster.present.len() + roster.away.len()) as u16,
            brick_ids: BrickIds::new(roster.present.keys().chain(roster.away.keys()).copied()),
            away: others.map(|(brick_id, generation)| Away { brick_id, generation }).collect(),
            // Of two with one generation the others say how the volume is.
            updated: roster.updated.saturating_sub(1),
            ..own
        }
    }

    async fn write_own(
        &self,
        device: &Rc<dyn Device>,
        superblock: &BrickSuperblock,
        half: Half,
    ) -> Result<(), AssembleError> {
        let request = write_request(&self.shard, superblock, half);
        let outcome = self.io.one(&**device, request).await;
        outcome.result.map_err(|error| AssembleError::Io {
            device: device.info().name.clone(),
            doing: "writing",
            error,
        })
    }
}
