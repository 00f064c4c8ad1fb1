//! The superblocks of a mounted volume, and the order in which they are written.
//!
//! Every change is written to all bricks that are there in two passes, each with a generation of its own and each of both
//! copies, one after the other: so a brick that is one generation behind only missed the end of an interruption,
//! and one that is two behind missed a change. A brick that cannot be written to is lost: the others note with which
//! generation it went, and both passes are made again.
//!
//! The bricks that hold the metadata are written before the others, and the others only when one of them has taken it: a
//! brick without metadata is never ahead of all that have it. Where three hold it, two must have taken it, so that any two know of
//! the newest change; who the three are changes in steps: when all have taken a pass that says whose metadata is current, the
//! next one tells who decides from then on, and most of those before must take that too. Where too few take a pass it stops. Nobody
//! is noted as away then, and the next try writes the same generation.
//!
//! Invariant: at any moment the bricks that are there can be put together. What this module does not know: what the
//! metadata holds.

mod returning;

use super::choose::Assembly;
use super::error::AssembleError;
use super::examine::{Half, erase, write_request};
use super::plan::{has_region, nanos};
use crate::namespace::Clock;
use braid_device::{Device, IoError, IoSets};
use braid_format::brick::{
    Area, Away, BrickIds, BrickState, BrickSuperblock, MAX_AWAY, MAX_HOLDERS, MetadataState,
    VolumeName, VolumeState,
};
use braid_shard::Shard;
use braid_shard::plant::planted;
use braid_shard::sync::{Budget, Share};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A brick that is there.
struct Present {
    device: Rc<dyn Device>,
    superblock: BrickSuperblock,
    /// The last generation that it is known to have.
    taken: u64,
    /// The copy that is written first: one that is damaged or older, so that the other stays whole meanwhile.
    begin_with: Half,
}

struct Roster {
    generation: u64,
    /// The last pass stopped, or was interrupted before the mount: its generation is given again, since some bricks may
    /// have it and others not.
    stopped: bool,
    /// The time in the superblocks that were written last: of two with one generation the later is right.
    updated: u64,
    volume_state: VolumeState,
    present: BTreeMap<u16, Present>,
    away: BTreeMap<u16, u64>,
    /// Bricks that are there again and that the superblocks still call away, until they are as new as the others.
    returning: BTreeMap<u16, u64>,
    /// The bricks that decide: of three most have to take each pass, of fewer one.
    holders: Vec<u16>,
    /// All that are there know who they are: the superblocks tell them.
    holders_are_told: bool,
    /// Bricks that are none any more and whose superblocks are still to be erased.
    left_over: Vec<(Rc<dyn Device>, BrickSuperblock)>,
}

/// See the module's documentation.
pub struct Superblocks {
    shard: Shard,
    io: IoSets,
    clock: Clock,
    name: String,
    roster: RefCell<Roster>,
    /// One change is written at a time.
    turn: Rc<Budget>,
    /// Changes that were made, and how many of them are written.
    changes: Cell<u64>,
    written: Cell<u64>,
    /// Why the last pass stopped.
    why_stopped: RefCell<Option<String>>,
}

impl Superblocks {
    /// Of the bricks of `assembly`; nothing is written yet.
    pub fn new(shard: &Shard, assembly: &Assembly, clock: Clock) -> Superblocks {
        let of = |(id, brick): (&u16, &super::FoundBrick)| {
            let mut superblock = brick.superblock.clone();
            let held = superblock.metadata_state == MetadataState::InSync;
            if held && assembly.metadata_behind.contains(id) {
                superblock.metadata_state = MetadataState::OutOfSync;
            }
            let taken = superblock.generation;
            let device = Rc::clone(&brick.device);
            (*id, Present { device, superblock, taken, begin_with: brick.begin_with })
        };
        let left_over = assembly.left_over.iter();
        let by_id = |away: &Away| (away.brick_id, away.generation);
        // Where an interruption left some a generation behind, all get the same one first: were the next one interrupted
        // again, those would be two behind.
        let behind = assembly.bricks.iter().any(|(id, brick)| {
            brick.superblock.generation < assembly.generation
                && !assembly.returning.iter().any(|away| away.brick_id == *id)
        });
        let times = assembly.bricks.values().map(|brick| brick.superblock.updated);
        let roster = Roster {
            generation: assembly.generation,
            stopped: behind,
            updated: times.max().unwrap_or(0),
            volume_state: VolumeState::Clean,
            present: assembly.bricks.iter().map(of).collect(),
            away: assembly.away.iter().map(by_id).collect(),
            returning: assembly.returning.iter().map(by_id).collect(),
            holders: match assembly.holders.is_empty() {
                true => assembly.metadata.clone(),
                false => assembly.holders.clone(),
            },
            holders_are_told: !assembly.holders.is_empty(),
            left_over: left_over
                .map(|brick| (Rc::clone(&brick.device), brick.superblock.clone()))
                .collect(),
        };
        Superblocks {
            shard: shard.clone(),
            io: IoSets::new(shard),
            clock,
            name: assembly.name.clone(),
            roster: RefCell::new(roster),
            turn: Budget::new(shard, 1),
            changes: Cell::new(0),
            written: Cell::new(0),
            why_stopped: RefCell::default(),
        }
    }

    /// The volume is being made: what is written before [`clean`](Superblocks::clean) says so.
    pub(super) fn being_made(&self) {
        self.roster.borrow_mut().volume_state = VolumeState::Creating;
    }

    /// Says that the volume is mounted: before anything is written to its data and metadata. Erases what an
    /// interrupted removal left.
    ///
    /// # Errors
    /// When no brick takes it, or too many do not.
    pub async fn mounted(&self) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        let left_over = std::mem::take(&mut self.roster.borrow_mut().left_over);
        self.roster.borrow_mut().volume_state = VolumeState::Mounted;
        self.note_change();
        if !self.roster.borrow().returning.is_empty() {
            // Interrupted now, this is a volume whose bricks are still to be taken back. Were they not called away any more
            // while one of them has its old generation, that one would be taken for a stale copy.
            if !planted("returned-at-once") {
                self.make_whole().await?;
                self.passes(1, &turn).await?;
            }
            self.roster.borrow_mut().returning.clear();
            self.note_change();
        }
        self.write(&turn).await?;
        for (device, superblock) in left_over {
            if let Err(error) = erase(&self.shard, &*device, &superblock).await {
                tracing::warn!("{error}");
            }
        }
        Ok(())
    }

    /// Says that the volume was unmounted in order: after everything is durable and the store is stopped.
    ///
    /// # Errors
    /// When no brick takes it.
    pub async fn clean(&self) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        self.roster.borrow_mut().volume_state = VolumeState::Clean;
        self.note_change();
        self.write(&turn).await
    }

    /// Gives the volume another name. It is not mounted, and all of its bricks are there.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub(super) async fn rename(&self, name: VolumeName) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        for brick in self.roster.borrow_mut().present.values_mut() {
            brick.superblock.volume_name = name.clone();
        }
        self.note_change();
        self.write(&turn).await
    }

    /// Adds a brick: writes its own superblock, then all. Before its record is in the metadata.
    ///
    /// # Errors
    /// When it cannot be written: then it is not added.
    pub async fn add(
        &self,
        device: Rc<dyn Device>,
        superblock: BrickSuperblock,
    ) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        let id = superblock.brick_id;
        let mut own = superblock.clone();
        own.generation = self.roster.borrow().generation;
        for half in [Half::First, Half::Second] {
            let request = write_request(&self.shard, &own, half);
            let outcome = self.io.one(&*device, request).await;
            outcome.result.map_err(|error| AssembleError::Io {
                device: device.info().name.clone(),
                doing: "writing",
                error,
            })?;
        }
        let taken = own.generation;
        let begin_with = Half::First;
        let brick = Present { device, superblock, taken, begin_with };
        self.roster.borrow_mut().present.insert(id, brick);
        self.note_change();
        self.write(&turn).await?;
        if self.roster.borrow().present.contains_key(&id) {
            return Ok(());
        }
        // It failed at once: it was never a brick.
        self.roster.borrow_mut().away.remove(&id);
        self.note_change();
        self.write(&turn).await?;
        Err(AssembleError::NoSuchBrick(id))
    }

    /// Takes a brick out, there or not, that the metadata knows no more: the others are written without it, then its
    /// superblocks are erased.
    ///
    /// # Errors
    /// When the others cannot be written, or it cannot be erased (it is out then, all the same).
    pub async fn remove(&self, id: u16) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        // So that the next mount may erase what a power cut leaves of it: it holds nothing that somebody wants back.
        let is_new = self.set_state(id, BrickState::Removing, None);
        if self.roster.borrow().holders.contains(&id) {
            // The others decide without it when that is written.
            self.note_metadata(id, MetadataState::Unused);
        }
        if is_new || !self.is_written() {
            self.write(&turn).await?;
        }
        let removed = {
            let mut roster = self.roster.borrow_mut();
            let known = roster.away.remove(&id).is_some();
            let removed = roster.present.remove(&id);
            if removed.is_none() && !known {
                return Err(AssembleError::NoSuchBrick(id));
            }
            removed
        };
        self.note_change();
        self.write(&turn).await?;
        match removed {
            Some(Present { device, superblock, .. }) => {
                erase(&self.shard, &*device, &superblock).await
            }
            None => Ok(()),
        }
    }

    /// Notes that a brick is not used any more until the next mount.
    ///
    /// # Errors
    /// [`AssembleError::NoHolder`] when no other holds the metadata: it stays. When the others cannot be written.
    pub async fn lost(&self, id: u16) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        // None is left where the others have lost it while this was waited for.
        if self.hold_metadata().iter().all(|held| *held == id) {
            let name =
                self.brick(id).map_or_else(String::new, |(device, _)| device.info().name.clone());
            return Err(self.no_holder(name, false, None));
        }
        self.roster.borrow_mut().lose(id);
        self.note_change();
        self.write(&turn).await
    }

    /// Notes what a brick is for and its weight. Writes nothing where that is known, or the brick is not there.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub async fn changed(
        &self,
        id: u16,
        state: BrickState,
        weight: u64,
    ) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        self.set_state(id, state, Some(weight));
        // Superblocks that a stopped pass has not written are tried again.
        if self.is_written() { Ok(()) } else { self.write(&turn).await }
    }

    /// Changes in memory what a brick that is there is for, and its weight. False where that is so already.
    fn set_state(&self, id: u16, state: BrickState, weight: Option<u64>) -> bool {
        let mut roster = self.roster.borrow_mut();
        let Some(brick) = roster.present.get_mut(&id) else { return false };
        let superblock = &mut brick.superblock;
        let weight = weight.unwrap_or(superblock.weight);
        // A weight of 0 cannot be told of a brick that takes data.
        let weight = if state == BrickState::Data { weight.max(1) } else { weight };
        if (superblock.state, superblock.weight) == (state, weight) {
            return false;
        }
        (superblock.state, superblock.weight) = (state, weight);
        self.note_change();
        true
    }

    /// Notes what a brick's metadata region is, in memory; [`settle`](Superblocks::settle) writes it.
    pub fn note_metadata(&self, id: u16, state: MetadataState) {
        if let Some(brick) = self.roster.borrow_mut().present.get_mut(&id)
            && brick.superblock.metadata_state != state
        {
            brick.superblock.metadata_state = state;
            if state == MetadataState::Unused {
                brick.superblock.metadata_generation = 0;
            }
            self.note_change();
        }
    }

    /// Metadata regions get the ends of their bricks' data areas, so many bytes each, a multiple of a block. Nothing may lie
    /// there any more, which the metadata knows.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub(crate) async fn grow_metadata(&self, grown: &[(u16, u64)]) -> Result<(), AssembleError> {
        let turn = self.turn.take(1).await;
        for (id, len) in grown {
            let mut roster = self.roster.borrow_mut();
            let Some(brick) = roster.present.get_mut(id) else { continue };
            let superblock = &mut brick.superblock;
            superblock.data.len = superblock.data.len.saturating_sub(*len);
            let offset = superblock.data.offset + superblock.data.len;
            superblock.metadata_grown.push(Area { offset, len: *len });
        }
        self.note_change();
        self.write(&turn).await
    }

    /// Writes what was noted and is not yet written.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub async fn settle(&self) -> Result<(), AssembleError> {
        if self.is_written() {
            return Ok(());
        }
        let turn = self.turn.take(1).await;
        if self.is_written() { Ok(()) } else { self.write(&turn).await }
    }

    /// Why superblocks could not be written when that was tried last: nothing can be made durable until they can.
    pub fn stopped(&self) -> Option<String> {
        self.why_stopped.borrow().clone()
    }

    fn is_written(&self) -> bool {
        self.written.get() == self.changes.get()
    }

    /// The bricks that are there and whose superblocks say that they hold the metadata.
    pub fn hold_metadata(&self) -> Vec<u16> {
        let roster = self.roster.borrow();
        let state = |brick: &Present| brick.superblock.metadata_state;
        let held = roster.present.iter().filter(|(_, brick)| state(brick) == MetadataState::InSync);
        held.map(|(id, _)| *id).collect()
    }

    /// Bricks that are not there, or were lost.
    pub fn away(&self) -> Vec<u16> {
        self.roster.borrow().away.keys().copied().collect()
    }

    /// Bricks that are there.
    pub fn present(&self) -> Vec<u16> {
        self.roster.borrow().present.keys().copied().collect()
    }

    /// The generation that was written last.
    pub fn generation(&self) -> u64 {
        self.roster.borrow().generation
    }

    /// A brick that is there: its device and superblock.
    pub fn brick(&self, id: u16) -> Option<(Rc<dyn Device>, BrickSuperblock)> {
        let roster = self.roster.borrow();
        let brick = roster.present.get(&id)?;
        Some((Rc::clone(&brick.device), brick.superblock.clone()))
    }

    /// Metadata regions, used or not, of all bricks that are there, and their bytes.
    pub(crate) fn regions(&self) -> Vec<(u16, MetadataState, u64)> {
        let roster = self.roster.borrow();
        let bricks = roster.present.iter().filter(|(_, brick)| has_region(&brick.superblock));
        bricks
            .map(|(id, brick)| {
                (*id, brick.superblock.metadata_state, brick.superblock.metadata_size())
            })
            .collect()
    }

    pub(super) fn shard(&self) -> &Shard {
        &self.shard
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// Both passes.
    async fn write(&self, turn: &Share) -> Result<(), AssembleError> {
        self.passes(2, turn).await
    }

    /// So many passes in a row that all bricks have taken.
    async fn passes(&self, wanted: u32, turn: &Share) -> Result<(), AssembleError> {
        let mut whole = 0;
        let mut last = None;
        while whole < wanted {
            let changes = self.changes.get();
            let superblocks = self.roster.borrow_mut().next(nanos((self.clock)()));
            if superblocks.is_empty() {
                let last: Option<IoError> = last;
                let last = last.map_or("none was there".to_string(), |error| error.to_string());
                return Err(AssembleError::AllGone { volume: self.name.clone(), last });
            }
            let failed = self.pass_in_order(&superblocks, turn).await?;
            // Changes noted meanwhile are in no pass, or in one only.
            whole = if failed.is_empty() && changes == self.changes.get() { whole + 1 } else { 0 };
            if failed.is_empty() {
                self.written.set(changes);
                self.roster.borrow_mut().taken_by_all(&superblocks);
            }
            for (id, error) in failed {
                last = Some(error);
                // A commit that relies on this waits until it is written.
                self.note_change();
                let mut roster = self.roster.borrow_mut();
                if roster.returning.contains_key(&id) {
                    // It is of its old generation or of this one, which nobody knows: the next mount finds out.
                    let device = roster.lose(id).unwrap_or_default();
                    return Err(AssembleError::Io { device, doing: "writing", error });
                }
                let name = roster.lose(id).unwrap_or_default();
                tracing::error!(brick = %name, "its superblock could not be written: {error}; the brick is not used any more");
                if roster.away.len() > MAX_AWAY {
                    let (volume, missing) = (self.name.clone(), roster.away.len());
                    return Err(AssembleError::TooManyAway { volume, missing });
                }
            }
        }
        Ok(())
    }

    /// One pass: first the bricks that hold the metadata, then the others. Says who failed.
    async fn pass_in_order(
        &self,
        superblocks: &[BrickSuperblock],
        turn: &Share,
    ) -> Result<Vec<(u16, IoError)>, AssembleError> {
        let decide = self.roster.borrow().holders.clone();
        let holds = |brick: &&BrickSuperblock| brick.metadata_state == MetadataState::InSync;
        let decides = |brick: &&BrickSuperblock| decide.contains(&brick.brick_id);
        let (holders, others): (Vec<&BrickSuperblock>, Vec<&BrickSuperblock>) =
            superblocks.iter().partition(holds);
        // Some that decide may have lost the metadata since then.
        let (deciding, others): (Vec<&BrickSuperblock>, Vec<&BrickSuperblock>) =
            others.into_iter().partition(decides);
        let mut failed = self.pass(&holders, turn).await;
        if failed.len() == holders.len() && !planted("generation-without-holder") {
            return Err(self.stop(&failed, false));
        }
        failed.extend(self.pass(&deciding, turn).await);
        let took = |brick: &&&BrickSuperblock| {
            decides(brick) && !failed.iter().any(|(lost, _)| *lost == brick.brick_id)
        };
        let votes = holders.iter().chain(&deciding).filter(took).count();
        if votes < needed_of(&decide) && !planted("minority-goes-on") {
            return Err(self.stop(&failed, decide.len() > 2));
        }
        failed.extend(self.pass(&others, turn).await);
        self.roster.borrow_mut().stopped = false;
        if self.why_stopped.take().is_some() {
            tracing::info!(volume = %self.name, "a brick with its metadata takes superblocks again");
        }
        Ok(failed)
    }

    /// A pass stops, since these bricks, the last with metadata or two of three, have not taken it, or were lost before: the
    /// error, which is told once.
    fn stop(&self, failed: &[(u16, IoError)], of_three: bool) -> AssembleError {
        let mut roster = self.roster.borrow_mut();
        roster.stopped = true;
        let lost = roster.holders.iter().filter(|id| of_three && !roster.present.contains_key(id));
        let mut bricks: Vec<String> = lost.map(|id| format!("brick {id}")).collect();
        drop(roster);
        let mut why = None;
        for (id, error) in failed {
            bricks.extend(self.brick(*id).map(|(device, _)| device.info().name.clone()));
            // Where one may come back, it is worth waiting.
            why = why.filter(|known: &IoError| !known.means_gone()).or(Some(*error));
        }
        let bricks = if bricks.is_empty() { "the brick".to_string() } else { bricks.join(", ") };
        let error = self.no_holder(bricks, of_three, why);
        if self.why_stopped.replace(Some(error.to_string())).is_none() {
            tracing::error!("{error}");
        }
        error
    }

    fn no_holder(&self, bricks: String, of_three: bool, error: Option<IoError>) -> AssembleError {
        AssembleError::NoHolder { volume: self.name.clone(), bricks, of_three, error }
    }

    /// Writes both copies of all `superblocks` and says who failed.
    async fn pass(&self, superblocks: &[&BrickSuperblock], _turn: &Share) -> Vec<(u16, IoError)> {
        let mut failed: Vec<(u16, IoError)> = Vec::new();
        for turn in 0..2 {
            let mut set = self.io.start();
            for superblock in superblocks {
                let id = superblock.brick_id;
                if failed.iter().any(|(lost, _)| *lost == id) {
                    continue;
                }
                let brick = self
                    .roster
                    .borrow()
                    .present
                    .get(&id)
                    .map(|brick| (Rc::clone(&brick.device), brick.begin_with));
                if let Some((device, begin_with)) = brick {
                    let half = if turn == 0 { begin_with } else { begin_with.other() };
                    let request = write_request(&self.shard, superblock, half);
                    set.submit(id.into(), &*device, request);
                }
            }
            for (id, outcome) in set.finish().await {
                // Tags are ids.
                let id = id as u16;
                let Err(error) = outcome.result else { continue };
                failed.push((id, error));
                if turn == 1
                    && let Some(brick) = self.roster.borrow_mut().present.get_mut(&id)
                {
                    // The one that was written is whole.
                    brick.begin_with = brick.begin_with.other();
                }
            }
        }
        let mut roster = self.roster.borrow_mut();
        for superblock in superblocks {
            let id = superblock.brick_id;
            if let Some(brick) = roster.present.get_mut(&id)
                && !failed.iter().any(|(lost, _)| *lost == id)
            {
                brick.taken = superblock.generation;
            }
        }
        failed
    }
}

impl Roster {
    /// A brick that is there is away from now on. Gives its device's name.
    fn lose(&mut self, id: u16) -> Option<String> {
        let brick = self.present.remove(&id)?;
        // One that an interruption had left a generation behind has that one still, or the one that it was to get now: what
        // is noted is next to both.
        self.away.insert(id, self.generation.min(brick.taken.saturating_add(1)));
        Some(brick.device.info().name.clone())
    }

    /// All bricks that are there have taken these superblocks: those with current metadata decide from now on.
    fn taken_by_all(&mut self, superblocks: &[BrickSuperblock]) {
        let current =
            superblocks.iter().filter(|brick| brick.metadata_state == MetadataState::InSync);
        self.holders = current.map(|brick| brick.brick_id).collect();
        self.holders_are_told = true;
    }

    /// The superblocks of the next generation.
    fn next(&mut self, now: u64) -> Vec<BrickSuperblock> {
        if !std::mem::take(&mut self.stopped) {
            self.generation += 1;
        }
        self.updated = now.max(self.updated.saturating_add(1));
        let ids = BrickIds::new(self.present.keys().chain(self.away.keys()).copied());
        // A volume has at most 4096 bricks.
        let count = (self.present.len() + self.away.len()) as u16;
        let known: BTreeMap<u16, u64> =
            self.away.iter().chain(&self.returning).map(|(id, at)| (*id, *at)).collect();
        let away: Vec<Away> = known
            .iter()
            .map(|(id, generation)| Away { brick_id: *id, generation: *generation })
            .collect();
        let is_known = |id: &u16| self.present.contains_key(id) || self.away.contains_key(id);
        let are_told = self.holders_are_told && self.holders.len() == MAX_HOLDERS;
        let mut told = Vec::new();
        if are_told && self.holders.iter().all(is_known) {
            told.clone_from(&self.holders);
            told.sort_unstable();
        }
        let mut superblocks = Vec::new();
        for brick in self.present.values_mut() {
            let superblock = &mut brick.superblock;
            superblock.generation = self.generation;
            superblock.volume_state = self.volume_state;
            superblock.brick_count = count;
            superblock.brick_ids = ids.clone();
            superblock.away = away.clone();
            superblock.metadata_holders.clone_from(&told);
            // No superblock calls its own brick away.
            superblock.away.retain(|away| away.brick_id != superblock.brick_id);
            superblock.updated = self.updated;
            if superblock.metadata_state == MetadataState::InSync {
                superblock.metadata_generation = self.generation;
            }
            superblocks.push(superblock.clone());
        }
        superblocks
    }
}

/// The number of these bricks that have to take a change.
fn needed_of(holders: &[u16]) -> usize {
    match holders.len() {
        0 => 0,
        1 | 2 => 1,
        more => more / 2 + 1,
    }
}
