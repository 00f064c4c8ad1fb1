//! Metadata that is damaged after the last stop: the volume's check must find it, or the mount refuse it; and when the
//! check says that all was repaired, it is.
//!
//! The ledger, which reads the records without the engine, says whether something is wrong.

use super::ledger::{self, Pairs};
use super::run::{Mounting, VolumeRun};
use crate::rng::Rng;
use crate::waiting::{Over, wait};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::project::ProjectRecord;
use braid_format::volume::{keys, space};
use braid_kv::{Change, Store};
use braid_volume::{CheckReport, Volume};
use std::rc::Rc;

/// Kinds of damage that are tried until one fits what there is.
const TRIES: u32 = 10;

impl VolumeRun {
    /// Damages some record and looks whether the volume notices. The volume has been stopped.
    pub(super) fn damage(&mut self) -> Result<(), Over> {
        if !self.plan.aimed || self.plan.faults > 0 || !self.aimed_rng.percent(50) {
            return Ok(());
        }
        let pairs = self.metadata.pairs();
        let damaged = (0..TRIES).find_map(|_| {
            let rng = &self.aimed_rng;
            let of_project = self.plan.calls && rng.percent(25);
            let found = if of_project { damage_project(rng, pairs) } else { damage(rng, pairs) };
            let (what, changes) = found?;
            let wrong = ledger::read(&changed(pairs, &changes)).err()?;
            Some((what, changes, wrong))
        });
        let Some((what, changes, wrong)) = damaged else { return Ok(()) };
        self.world.trace(|| format!("damage: {what}: {wrong}"));
        let Mounting { later, store, machine, .. } = {
            self.metadata = self.committed(changes)?;
            self.begin_mount(1)
        };
        // A mount that refuses what is damaged has found it.
        let Ok(volume) = wait(&machine, "the mount of a damaged volume", &later)? else {
            return Ok(());
        };
        let check = |repair| {
            let volume: Rc<Volume> = Rc::clone(&volume);
            machine.begin(async move { volume.check(repair).await })
        };
        let refuses = |report: &CheckReport| report.found > report.repaired;
        match wait(&machine, "the check of a damaged volume", &check(false))? {
            Ok(report) if report.found == 0 => {
                let text = format!("{what}: {wrong}; the check says nothing");
                return self.fail("check_finds_damage", text);
            }
            // A check that cannot go on for the damage has found it, too.
            Err(_) => return Ok(()),
            Ok(_) => {}
        }
        let repaired = match wait(&machine, "the repair of a damaged volume", &check(true))? {
            Ok(report) => !refuses(&report),
            Err(_) => false,
        };
        let closing = Rc::clone(&volume);
        let later = machine.begin(async move { closing.close().await });
        let closed = wait(&machine, "the stop of a damaged volume", &later)?.is_ok();
        let left = ledger::read(store.snapshot().pairs());
        match left {
            Err(left) if repaired && closed => {
                let text = format!("{what}: {wrong}; all was repaired, it says, and {left}");
                self.fail("repair_mends_damage", text)
            }
            _ => Ok(()),
        }
    }

    /// What the store has with these changes.
    fn committed(&self, changes: Vec<Change>) -> Result<braid_kv::model::Snapshot, Over> {
        let machine = crate::machine::Machine::start(&self.world, 1);
        let store =
            braid_kv::model::ModelStore::from_snapshot(machine.home(), self.metadata.clone());
        let commit = store.commit(changes);
        let later = machine.begin(commit);
        if let Err(error) = wait(&machine, "a commit", &later)? {
            return self.fail("mounts", format!("damaging a record: {error}"));
        }
        Ok(store.snapshot())
    }
}

fn changed(pairs: &Pairs, changes: &[Change]) -> Pairs {
    let mut pairs = pairs.clone();
    for (key, value) in changes {
        match value {
            Some(value) => pairs.insert(key.clone(), value.clone()),
            None => pairs.remove(key),
        };
    }
    pairs
}

/// Some damage, in words and as changes; `None` when there is nothing of the kind that was drawn.
fn damage(rng: &Rng, pairs: &Pairs) -> Option<(&'static str, Vec<Change>)> {
    let some = |tag: u8| {
        let all: Vec<_> = pairs.range(vec![tag]..keys::after(&[tag])).collect();
        let all: Vec<_> = all.into_iter().filter(|(key, _)| key.len() > 1).collect();
        all.get(rng.below(all.len())).map(|(key, value)| ((*key).clone(), (*value).clone()))
    };
    let without = |tag| some(tag).map(|(key, _)| vec![(key, None)]);
    let inode = |change: &dyn Fn(&mut InodeRecord)| {
        let (key, value) = some(b'I')?;
        let mut record = InodeRecord::parse(keys::ino_of(&key)?, &value).ok()?;
        change(&mut record);
        Some(vec![(key, Some(record.encode()))])
    };
    let more = 1 + rng.range(0..3);
    let damage = match rng.range(0..11) {
        0 => ("a name is gone", without(b'D')?),
        1 => ("a place in the order of a directory is gone", without(b'C')?),
        2 => ("a file is gone", without(b'I')?),
        3 => ("places of a file are gone", without(b'P')?),
        4 => ("a file has more names than it has", inode(&|inode| inode.nlink += more as u32)?),
        5 => ("a file has more blocks than it has", inode(&|inode| inode.blocks += more)?),
        6 => ("a directory has more entries than it has", inode(&|inode| inode.entries += more)?),
        7 => {
            let (key, value) = some(b'A')?;
            ("a block is in use that is no file's, or the other way round", flip(rng, key, &value)?)
        }
        8 => ("a block is in use that is no file's, and counted", leak(rng, pairs, some(b'A')?)?),
        9 => {
            let (key, value) = some(b'S')?;
            let (brick, index) = keys::brick_and_group(&key)?;
            let mut counts = space::parse_usage(brick, index, &value).ok()?;
            let at = rng.below(counts.len());
            let count = counts.get_mut(at)?;
            *count ^= 1;
            ("blocks in use are counted wrong", vec![(key, space::encode_usage(&counts))])
        }
        _ => {
            let (key, value) = some(b'P')?;
            let other = some(b'P')?;
            (other.0 != key && value.len() == other.1.len()).then_some(())?;
            ("two files have the same blocks", vec![(key, Some(other.1))])
        }
    };
    Some(damage)
}

/// A project is said to take something else than it does.
fn damage_project(rng: &Rng, pairs: &Pairs) -> Option<(&'static str, Vec<Change>)> {
    let all: Vec<_> = pairs.range(vec![b'Q']..keys::after(b"Q")).collect();
    let (key, value) = *all.get(rng.below(all.len()))?;
    let mut record = ProjectRecord::parse(keys::project_of(key)?, value).ok()?;
    let value = match rng.range(0..3) {
        0 => None,
        1 => {
            record.blocks ^= 1 + rng.range(0..7);
            Some(record.encode())
        }
        _ => {
            record.files += 1 + rng.range(0..3);
            Some(record.encode())
        }
    };
    Some(("a project takes something else than is recorded", vec![(key.clone(), value)]))
}

/// Another block of a group is in use, or one less.
fn flip(rng: &Rng, key: Vec<u8>, value: &[u8]) -> Option<Vec<Change>> {
    let (brick, group) = keys::brick_and_group(&key)?;
    let mut words = space::parse_blocks(brick, group, value).ok()?;
    let near = if rng.percent(50) { 64 } else { words.len() };
    let word = words.get_mut(rng.below(near))?;
    *word ^= 1 << rng.range(0..64);
    Some(vec![(key, space::encode_blocks(&words))])
}

/// One more block of a group is in use and counted, so that nothing is wrong but that no file has it.
fn leak(rng: &Rng, pairs: &Pairs, (key, value): (Vec<u8>, Vec<u8>)) -> Option<Vec<Change>> {
    let (brick, group) = keys::brick_and_group(&key)?;
    let mut words = space::parse_blocks(brick, group, &value).ok()?;
    let word = words.get_mut(rng.below(64))?;
    let bit = (0..64).find(|bit| *word & 1 << bit == 0)?;
    *word |= 1 << bit;
    let usage = keys::usage(brick, group / space::PER_USAGE);
    let counted = pairs.get(&usage)?;
    let mut counts = space::parse_usage(brick, group / space::PER_USAGE, counted).ok()?;
    *counts.get_mut((group % space::PER_USAGE) as usize)? += 1;
    Some(vec![(key, space::encode_blocks(&words)), (usage, space::encode_usage(&counts))])
}
