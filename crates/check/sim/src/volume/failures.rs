//! Bricks that fail: blocks that cannot be read or take no write, a write or a flush that fails, a brick that is slow
//! or gone. Some come back at the next mount, others never.
//!
//! The bytes that may be lost then are known exactly: what the recorded extents have on bricks that are not there, or on blocks
//! that cannot be read. Nothing else may be, and the volume's check has to name the former.

use super::copies::{copies_of, stale_in, stripes_of};
use super::ledger::Pairs;
use super::run::{VolumeRun, uuid_of};
use crate::device::SimOpener;
use crate::member::Member;
use crate::waiting::{Over, wait};
use braid_filesystem::Ino;
use braid_format::volume::BLOCK;
use braid_format::volume::extent::Extent;
use braid_shard::Shard;
use braid_volume::{Brick, BrickBack, CheckReport, Geometry, NoteLost, Volume, VolumeError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// What noting that a brick is lost takes.
const NOTING_NANOS: u64 = 2_000_000;

/// Ranges of files.
type Ranges = BTreeMap<Ino, Vec<(u64, u64)>>;

impl VolumeRun {
    /// A brick that the volume has now.
    fn some_brick(&self) -> Option<Rc<Member>> {
        let life = self.life.as_ref()?;
        if self.is_in_doubt() {
            return None;
        }
        let members = life.volume.bricks().into_iter().filter_map(|brick| self.member_of(&brick));
        let may_fail =
            |member: &Rc<Member>| self.victim().is_none_or(|victim| victim == member.kind.index);
        let members = members.filter(may_fail);
        let members: Vec<Rc<Member>> = members.filter(|member| !member.is_gone()).collect();
        let alone = members.len() < 2 && self.victim().is_none() && !self.faults_rng.percent(10);
        (!members.is_empty() && !alone).then(|| Rc::clone(self.faults_rng.pick(&members)))
    }

    /// The device of a brick.
    fn member_of(&self, brick: &Brick) -> Option<Rc<Member>> {
        let index = usize::try_from(brick.uuid.as_u128()).ok()?.checked_sub(1)?;
        Some(self.world.member(index))
    }

    /// Something befalls a brick.
    pub(super) fn a_brick_fails(&mut self) -> Result<(), Over> {
        let Some(member) = self.some_brick() else { return Ok(()) };
        let (rng, name) = (&self.faults_rng, member.name().to_string());
        let size = member.kind.info.size;
        let block = member.kind.tear;
        // Whole stripes are at the bottom, ends of files at the top.
        let place = || {
            let near = rng.log_range(1..size / block) * block;
            if rng.percent(60) { near } else { size - near }
        };
        let mut only_gone = false;
        let what = match rng.range(0..20) {
            0..7 => {
                member.die(rng);
                self.lost_some.set(true);
                only_gone = true;
                "is gone".to_string()
            }
            7..10 => {
                let (at, count) = (place(), rng.log_range(1..200));
                member.make_unreadable(at, count);
                format!("cannot read {count} blocks at {at}")
            }
            10..13 => {
                let writes = rng.log_range(1..40) as u32;
                member.fail_write_in(Some(writes));
                format!("will fail a write in {writes}")
            }
            13..15 => {
                let (at, count, unreadable) = (place(), rng.log_range(1..200), rng.percent(40));
                member.make_defective(at, count, unreadable);
                format!("takes no write of {count} blocks at {at}")
            }
            15..18 => {
                member.fail_flush();
                "will fail a flush".to_string()
            }
            _ => {
                let times = rng.log_range(2..60);
                member.slowness.set(times);
                format!("is slow, {times} times")
            }
        };
        self.faults += 1;
        self.world.trace(|| format!("{name} {what}"));
        if member.slowness.get() > 1 && !member.is_weak() {
            return Ok(());
        }
        let others =
            self.world.members.borrow().iter().any(|member| member.is_weak() && !member.is_gone());
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        life.client.history.note(&[], format!("{name} {what}"));
        life.client.may_fail = Some(false);
        // While bricks are gone and do nothing worse, new files are well.
        let first = model.next_id();
        life.client.unharmed = (only_gone && !others).then_some(first);
        model.bricks_fail = self.plan.copies.as_ref().is_none_or(|copies| copies.victim.is_none());
        Ok(())
    }

    /// Now and then the brick that was lost answers again, and is taken back while the volume is mounted.
    pub(super) fn a_brick_returns(&mut self) -> Result<(), Over> {
        let (Some(plan), Some(_)) = (&self.plan.copies, self.victim()) else { return Ok(()) };
        if self.returns_rng.range(0..1000) >= plan.returns {
            return Ok(());
        }
        self.take_victim_back()
    }

    /// The brick that was lost answers again, and is taken back.
    pub(super) fn take_victim_back(&mut self) -> Result<(), Over> {
        let Some(victim) = self.victim() else { return Ok(()) };
        let life = self.life.as_mut().ok_or(Over)?;
        let bricks = life.volume.bricks();
        let is_lost = |brick: &&Rc<Brick>| brick.uuid == uuid_of(victim) && !brick.is_there();
        let Some(id) = bricks.iter().find(is_lost).map(|brick| brick.id) else { return Ok(()) };
        let member = self.world.member(victim);
        if member.has_left() {
            return Ok(());
        }
        member.set_gone(false);
        if self.returns_rng.percent(70) {
            member.heal();
        }
        let Some(brick) = self.plan.all_bricks().nth(victim) else { return Ok(()) };
        let shard = life.machine.home().clone();
        let Ok(device) = SimOpener::of(&self.world, victim).open(&shard) else { return Ok(()) };
        let back = BrickBack {
            id,
            uuid: uuid_of(victim),
            device,
            data_offset: brick.data_offset,
            blocks: brick.blocks(),
        };
        let text = format!("{} is taken back", member.name());
        self.world.trace(|| text.clone());
        life.client.history.note(&[], text);
        let (noted, outcomes) = (Rc::clone(&self.noted), Rc::clone(&self.outcomes));
        let (volume, own) = (Rc::clone(&life.volume), shard.clone());
        shard.spawn(async move {
            let note = async || {
                own.sleep(NOTING_NANOS).await;
                noted.borrow_mut().remove(&id);
                Ok(())
            };
            let result: Result<(), VolumeError> = volume.take_back_brick(back, note).await;
            outcomes.borrow_mut().push(result.map(|()| None));
        });
        Ok(())
    }

    /// What superblocks do in a volume: they say which bricks have failed, a little later.
    pub(super) fn note_lost(&self, shard: &Shard) -> NoteLost {
        let (shard, noted) = (shard.clone(), Rc::clone(&self.noted));
        let lost_some = Rc::clone(&self.lost_some);
        Rc::new(move |id| {
            lost_some.set(true);
            let (shard, noted) = (shard.clone(), Rc::clone(&noted));
            Box::pin(async move {
                shard.sleep(NOTING_NANOS).await;
                noted.borrow_mut().insert(id);
                Ok(())
            })
        })
    }

    /// A brick that was noted as lost does not come back: who took it back would find old data.
    pub(super) fn keep_noted_away(&mut self) {
        let Some(life) = &self.life else { return };
        for id in self.noted.take() {
            let member = life.volume.brick(id).and_then(|brick| self.member_of(&brick));
            if let Some(member) = member {
                self.world.trace(|| format!("{} is noted as lost", member.name()));
                if self.comes_back(&member) {
                    continue;
                }
                member.leave();
            }
        }
    }

    /// Bricks come back, or not.
    pub(super) fn bricks_between_lives(&mut self) {
        if self.plan.faults == 0 {
            return;
        }
        for member in self.world.members.borrow().iter() {
            member.slowness.set(1);
            if self.plan.copies.is_some() && self.victim().is_none() && member.is_gone() {
                // Without what it missed it would have other copies than those that were read meanwhile.
                member.leave();
            }
            if member.is_gone() && self.faults_rng.percent(60) && !member.has_left() {
                self.world.trace(|| format!("{} is there again", member.name()));
                member.set_gone(false);
            }
            if self.faults_rng.percent(50) {
                member.heal();
            }
        }
    }

    /// Some brick is not as it should be.
    pub(super) fn has_weak_bricks(&self) -> bool {
        self.bricks().iter().any(|member| member.is_weak())
    }

    /// Some brick is not as it should be, or is back and has lost what was nowhere else and not durable.
    pub(super) fn may_fail(&self) -> bool {
        self.has_weak_bricks() || self.victim().is_some() && self.lost_some.get()
    }

    /// The devices of bricks, without those that arrays are made of.
    fn bricks(&self) -> Vec<Rc<Member>> {
        let count = self.plan.all_bricks().count();
        self.world.members.borrow().iter().take(count).cloned().collect()
    }

    /// The client reckons with what is not as it should be when a life begins.
    pub(super) fn expect_failures(&mut self) {
        let (weak, may_fail) = (self.has_weak_bricks(), self.may_fail());
        let only_gone = self.bricks().iter().all(|member| !member.is_weak() || member.is_gone());
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else { return };
        life.client.may_fail = may_fail.then_some(false);
        life.client.unharmed = (weak && only_gone).then(|| model.next_id());
        let alone = self.plan.copies.as_ref().is_none_or(|copies| copies.victim.is_none());
        model.bricks_fail = weak && alone;
    }

    /// Something may have failed in this life.
    pub(super) fn is_faulty(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.client.may_fail.is_some())
    }

    /// Bricks that the volume knows are not there.
    pub(super) fn dead(&self) -> Vec<u16> {
        let bricks = self.life.iter().flat_map(|life| life.volume.bricks());
        bricks.filter(|brick| !brick.is_there()).map(|brick| brick.id).collect()
    }

    /// What could not be read lies on a brick that is not there, or on blocks that cannot be read; and what is said to be
    /// lost could not be read.
    pub(super) fn judge_unread(&mut self, lost: Option<&CheckReport>) -> Result<(), Over> {
        let stripe = self.plan.stripe;
        let pairs = self.pairs()?;
        let (Some(life), Some(model)) = (&self.life, &self.model) else { return Err(Over) };
        let unread = &life.client.unread;
        for (id, range) in unread {
            let Some((ino, _)) = model.numbers.get(id).copied() else { continue };
            let copies = copies_of(&pairs, ino, range.start / stripe, stripe);
            let within = range.start % stripe;
            let stale = stale_in(&pairs, ino, range.start / BLOCK);
            let has_it = |extent: &&Extent| Geometry::new(stripe).is_written(**extent, within);
            let is_bad = |extent: &Extent| match self.victim() {
                Some(victim) => self.is_on(*extent, victim),
                None => stale.contains(&extent.brick) || self.is_bad(*extent, within),
            };
            if copies.is_empty() || copies.iter().filter(has_it).any(|extent| !is_bad(extent)) {
                let text = format!(
                    "f{id}, file {ino}: at {} nothing can be read: {copies:?}",
                    range.start
                );
                return self.told("only_what_a_brick_took_is_lost", &text);
            }
        }
        // A flush that fails may take a brick away after everything was read.
        let Some(report) = lost.filter(|_| self.dead_when_read == Some(self.dead())) else {
            return Ok(());
        };
        let not_read: BTreeSet<(Ino, u64)> = unread
            .iter()
            .filter_map(|(id, range)| Some((model.numbers.get(id)?.0, range.start)))
            .collect();
        // Only files that have a name were read, and long ones not as a whole.
        let named = model.now.named();
        for (id, (ino, _)) in model.numbers.iter().filter(|(id, _)| named.contains(id)) {
            let Some(node) = model.now.nodes.get(id).filter(|node| node.size < 64 << 20) else {
                continue;
            };
            let ranges =
                report.lost.iter().filter(|lost| lost.ino == *ino).flat_map(|lost| &lost.ranges);
            for (from, to) in ranges {
                let mut blocks = (*from..(*to).min(node.size)).step_by(BLOCK as usize);
                if let Some(at) = blocks.find(|at| !not_read.contains(&(*ino, *at))) {
                    let text =
                        format!("f{id}, file {ino}: {at} is said to be lost, and can be read");
                    return self.told("check_names_what_is_lost", &text);
                }
            }
        }
        Ok(())
    }

    /// All records, with everything in them.
    fn pairs(&mut self) -> Result<Pairs, Over> {
        let life = self.life()?;
        // Where a flush fails the records are written nevertheless.
        let volume = Rc::clone(&life.volume);
        let later = life.machine.begin(async move { volume.sync_all().await });
        let _ = wait(&life.machine, "a sync", &later)?;
        Ok(life.metadata())
    }

    /// The extent lies on the brick of this number.
    fn is_on(&self, extent: Extent, index: usize) -> bool {
        let brick = self.life.as_ref().and_then(|life| life.volume.brick(extent.brick));
        brick.is_some_and(|brick| brick.uuid == uuid_of(index))
    }

    /// The block of an extent that holds byte `at` of its stripe cannot be read.
    fn is_bad(&self, extent: Extent, at: u64) -> bool {
        let Some(brick) = self.life.as_ref().and_then(|life| life.volume.brick(extent.brick))
        else {
            return false;
        };
        let Some(member) = self.member_of(&brick) else { return false };
        let from = brick.byte_of(extent.start) + at / BLOCK * BLOCK;
        let overlaps = |bad: &Range<u64>| bad.start < from + BLOCK && from < bad.end;
        !brick.is_there() || member.is_gone() || member.unreadable().iter().any(overlaps)
    }

    /// What only the brick has that fails, of regions where it is marked to have lost what it had taken: a write that was lost so, and
    /// that nobody has asked after by fsync, may show what was there before once power has failed. With the metadata of a mount.
    pub(super) fn only_on_victim(&self, pairs: &Pairs, volume: &Volume) -> Ranges {
        let mut found = Ranges::new();
        let uuid = self.victim().filter(|_| self.lost_some.get()).map(uuid_of);
        let victim = volume.bricks().into_iter().find(|brick| Some(brick.uuid) == uuid);
        let Some(victim) = victim else { return found };
        let geometry = Geometry::new(self.plan.stripe);
        for ((ino, stripe), copies) in stripes_of(pairs, geometry.stripe) {
            let written = |is_there: bool| {
                let on = copies.iter().filter(|extent| (extent.brick == victim.id) == is_there);
                on.fold(0, |all, extent| all | extent.written)
            };
            let only = written(true) & !written(false);
            for sub_block in (0..32).filter(|sub_block| only >> sub_block & 1 == 1) {
                let from = stripe * geometry.stripe + sub_block * geometry.sub_block;
                if stale_in(pairs, ino, from / BLOCK).contains(&victim.id) {
                    found.entry(ino).or_default().push((from, from + geometry.sub_block));
                }
            }
        }
        found
    }

    /// What the records say lies on bricks that the volume knows are not there.
    fn lost_by_records(&mut self) -> Result<Ranges, Over> {
        let geometry = Geometry::new(self.plan.stripe);
        let pairs = self.pairs()?;
        let volume = Rc::clone(&self.life()?.volume);
        let is_there = |id| volume.brick(id).is_some_and(|brick| brick.is_there());
        let mut lost = Ranges::new();
        for ((ino, stripe), copies) in stripes_of(&pairs, geometry.stripe) {
            let all = copies.iter().fold(0, |all, extent| all | extent.written);
            let there = copies.iter().filter(|extent| is_there(extent.brick));
            let left = all & !there.fold(0, |all, extent| all | extent.written);
            for sub_block in (0..32).filter(|sub_block| left >> sub_block & 1 == 1) {
                let from = stripe * geometry.stripe + sub_block * geometry.sub_block;
                let ranges = lost.entry(ino).or_default();
                match ranges.last_mut().filter(|last| last.1 == from) {
                    Some(last) => last.1 = from + geometry.sub_block,
                    None => ranges.push((from, from + geometry.sub_block)),
                }
            }
        }
        Ok(lost)
    }

    /// The check has named exactly what is lost. False: something was on its way while it looked.
    pub(super) fn names_what_is_lost(&mut self, report: &CheckReport) -> Result<bool, Over> {
        let told: Ranges = report.lost.iter().map(|lost| (lost.ino, lost.ranges.clone())).collect();
        let lost = self.lost_by_records()?;
        if told != lost {
            self.world.trace(|| format!("told as lost: {told:?}, by the records: {lost:?}"));
            return Ok(false);
        }
        let Some(model) = &self.model else { return Err(Over) };
        for lost in &report.lost {
            let has_name = model.numbers.iter().any(|(id, (ino, _))| {
                *ino == lost.ino && model.now.names.values().any(|named| named == id)
            });
            if has_name != lost.path.starts_with('/') {
                let text = format!("file {} is told as {}", lost.ino, lost.path);
                return self.told("check_names_what_is_lost", &text);
            }
        }
        Ok(true)
    }
}
