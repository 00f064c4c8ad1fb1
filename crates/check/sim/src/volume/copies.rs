//! Files that have copies: how many, told when, and what must be true of them.

use super::ledger::Pairs;
use super::run::VolumeRun;
use crate::member::Member;
use crate::waiting::{Over, wait};
use braid_filesystem::Ino;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::extent::{self, Extent, PER_GROUP, copy_of, of_copy, stripe_of};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_format::volume::sums::{IntentRecord, PER_REGION, PER_WINDOW};
use braid_volume::{Brick, JobState, NewJob};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often a job that makes copies is begun at the end of a run.
const TRIES: u32 = 4;

impl VolumeRun {
    /// Now and then a file or a folder is told to have another number of copies.
    pub(super) fn tell_copies(&mut self) -> Result<(), Over> {
        let Some(plan) = &self.plan.copies else { return Ok(()) };
        let rng = &self.copies_rng;
        if rng.range(0..1000) >= plan.told_often {
            return Ok(());
        }
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_ref()) else {
            return Err(Over);
        };
        let inos: Vec<Ino> = model.numbers.values().map(|(ino, _)| *ino).collect();
        let (ino, copies) = (*rng.pick(&inos), rng.range(u64::from(plan.least)..4) as u8);
        let again = rng.percent(20);
        let text = match again {
            true => "copies are made".to_string(),
            false => format!("file {ino}: {copies} copies"),
        };
        self.world.trace(|| text.clone());
        life.client.history.note(&[], text);
        let (volume, outcomes) = (Rc::clone(&life.volume), Rc::clone(&self.outcomes));
        life.machine.home().spawn(async move {
            let result = match again {
                true => volume.start_job(NewJob::Copies).await,
                false => volume.set_copies(ino, copies).await,
            };
            outcomes.borrow_mut().push(result.map(|()| None));
        });
        Ok(())
    }

    /// The number of the only brick that fails.
    pub(super) fn victim(&self) -> Option<usize> {
        self.plan.copies.as_ref()?.victim
    }

    /// A brick that was noted as lost is there again at some later mount, with what it had made durable.
    pub(super) fn comes_back(&self, member: &Member) -> bool {
        self.victim() == Some(member.kind.index)
    }

    /// Nothing may fail now: after a crash copies may differ where nothing was said to be durable, and which is read is settled only
    /// when they were made equal.
    pub(super) fn is_in_doubt(&self) -> bool {
        let in_doubt = |life: &super::run::Life| life.volume.regions_in_doubt() > 0;
        self.plan.copies.is_some() && self.life.as_ref().is_some_and(in_doubt)
    }

    /// At the end every stripe of a file has as many copies as the file is to have, each of them whole, on as many bricks.
    pub(super) fn copies_are_made(&mut self) -> Result<(), Over> {
        if self.plan.copies.is_none() {
            return Ok(());
        }
        if self.plan.faults > 0 {
            return self.seen_copies_are_made();
        }
        self.wait_for_snapshot_calls()?;
        self.life()?.volume.set_job_speed(None);
        let mut why = String::new();
        for _ in 0..TRIES {
            self.drain()?;
            let life = self.life()?;
            let volume = Rc::clone(&life.volume);
            let later = life.machine.begin(async move {
                while volume.job().is_some_and(|job| job.state == JobState::Running) {
                    let _ = volume.wait_job().await;
                }
                volume.cancel_job();
                let _ = volume.wait_job().await;
                let begun = volume.start_job(NewJob::Copies).await;
                let ended = volume.wait_job().await;
                let _ = volume.sync_all().await;
                begun.and(ended)
            });
            match wait(&life.machine, "the copies", &later)? {
                Ok(()) => return self.look_at_copies(),
                Err(error) => why = error.to_string(),
            }
        }
        let volume = Rc::clone(&self.life()?.volume);
        let data = |brick: &&Rc<Brick>| brick.state() == BrickState::Data;
        let bricks = volume.bricks();
        let placed: Vec<_> = bricks.iter().filter(data).collect();
        let most = self.most_copies()?;
        let roomy = |brick: &&Rc<Brick>| brick.space.used() * 2 < brick.space.blocks();
        if placed.iter().copied().filter(roomy).count() >= usize::from(most)
            && placed.iter().copied().all(|brick| roomy(&brick))
        {
            return self.told("copies_are_made", &format!("with room on all bricks: {why}"));
        }
        self.compare()
    }

    /// Bricks that take data are as many as a file is to have copies, without this one.
    pub(super) fn has_bricks_for_copies(&self, without: Option<u16>) -> bool {
        let (Some(life), Some(_)) = (&self.life, &self.plan.copies) else { return true };
        let pairs = life.metadata();
        // Copies that are too many are still there until a job has freed them.
        let most = inodes_of(&pairs).map(|(_, record)| record.held).max().unwrap_or(1);
        let bricks = life.volume.bricks();
        let others = bricks.iter().filter(|brick| Some(brick.id) != without);
        others.filter(|brick| brick.state() == BrickState::Data).count() >= usize::from(most)
    }

    fn most_copies(&mut self) -> Result<u8, Over> {
        let pairs = self.life()?.metadata();
        Ok(inodes_of(&pairs).map(|(_, record)| record.copies).max().unwrap_or(1))
    }

    fn look_at_copies(&mut self) -> Result<(), Over> {
        let pairs = self.life()?.metadata();
        let wanted: BTreeMap<Ino, u8> =
            inodes_of(&pairs).map(|(ino, record)| (ino, record.copies)).collect();
        for ((ino, stripe), copies) in stripes_of(&pairs, self.plan.stripe) {
            let Some(wanted) = wanted.get(&ino).copied().filter(|_| !is_orphan(&pairs, ino)) else {
                continue;
            };
            let all = copies.iter().fold(0, |all, extent| all | extent.written);
            let is_whole = copies.iter().all(|extent| extent.written == all);
            // Space that was reserved needs no copies.
            if all != 0 && (copies.len() != usize::from(wanted) || !is_whole) {
                let text =
                    format!("file {ino}, stripe {stripe} is to have {wanted} copies: {copies:?}");
                return self.told("copies_are_made", &text);
            }
        }
        self.look_at_copies_seen()?;
        self.compare()
    }
}

pub(super) fn is_orphan(pairs: &Pairs, ino: Ino) -> bool {
    pairs.contains_key(&keys::orphan(ino))
}

fn inodes_of(pairs: &Pairs) -> impl Iterator<Item = (Ino, InodeRecord)> {
    pairs.range(b"I".to_vec()..keys::after(b"I")).filter_map(|(key, value)| {
        let ino = keys::ino_of(key)?;
        Some((ino, InodeRecord::parse(ino, value).ok()?))
    })
}

/// The extents of the copies of a stripe.
pub(super) fn copies_of(pairs: &Pairs, ino: Ino, stripe: u64, bytes: u64) -> Vec<Extent> {
    let of = |copy: u8| {
        let group = of_copy(stripe, copy) / PER_GROUP;
        let value = pairs.get(&keys::extents(ino, group))?;
        let extents = extent::parse(ino, group, bytes, value).ok()?;
        Some(extents[(stripe % PER_GROUP) as usize]).filter(|extent| !extent.is_hole())
    };
    (0..extent::COPIES_MAX).filter_map(of).collect()
}

/// The extents of the copies of all stripes.
pub(super) fn stripes_of(pairs: &Pairs, bytes: u64) -> BTreeMap<(Ino, u64), Vec<Extent>> {
    let mut stripes: BTreeMap<(Ino, u64), Vec<Extent>> = BTreeMap::new();
    for (key, value) in pairs.range(b"P".to_vec()..keys::after(b"P")) {
        let (Some(ino), Some(group)) = (keys::ino_of(key), keys::second_of(key)) else { continue };
        let Ok(extents) = extent::parse(ino, group, bytes, value) else { continue };
        for (extent, number) in extents.iter().zip(group * PER_GROUP..) {
            if !extent.is_hole() {
                debug_assert!(copy_of(number) < extent::COPIES_MAX);
                stripes.entry((ino, stripe_of(number))).or_default().push(*extent);
            }
        }
    }
    stripes
}

/// The bricks that have lost something of the region that a block of a file is in.
pub(super) fn stale_in(pairs: &Pairs, ino: Ino, block: u64) -> Vec<u16> {
    let region = block / PER_WINDOW / PER_REGION;
    let record = pairs.get(&keys::intent(ino, region));
    let record = record.and_then(|bytes| IntentRecord::parse(ino, region, bytes).ok());
    record.map_or_else(Vec::new, |record| record.stale)
}
