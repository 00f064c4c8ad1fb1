//! All that snapshots show has its copies, once every brick is there and the job that makes copies has ended.

use super::copies::is_orphan;
use super::ledger::Pairs;
use super::run::VolumeRun;
use crate::waiting::{Over, wait};
use braid_filesystem::{Ino, Kind};
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::extent::{self, COPIES_MAX, Extent, PER_GROUP, groups_of_copy};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_format::volume::snapshot::Saved;
use braid_volume::NewJob;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A pair as a snapshot sees it.
fn seen(pairs: &Pairs, key: &[u8], id: u32) -> Option<Vec<u8>> {
    let mut saved = pairs.range(keys::saved(key, id)..=keys::saved(key, u32::MAX));
    match saved.next() {
        Some((_, value)) => Saved::parse(value).ok()?.value(),
        None => pairs.get(key).cloned(),
    }
}

/// The extents of a group as a snapshot sees them.
fn group_seen(pairs: &Pairs, (ino, group): (Ino, u64), id: u32, bytes: u64) -> Vec<Extent> {
    let value = seen(pairs, &keys::extents(ino, group), id);
    let parsed = value.and_then(|value| extent::parse(ino, group, bytes, &value).ok());
    parsed.map_or_else(|| vec![Extent::HOLE; PER_GROUP as usize], |list| list.to_vec())
}

/// The groups of copy 0 of a file of which something is recorded, now or for a snapshot.
fn groups_of(pairs: &Pairs, ino: Ino) -> BTreeSet<u64> {
    let first = |copy: u8| keys::extents(ino, groups_of_copy(copy));
    let now = pairs.range(first(0)..first(1));
    let now = now.filter_map(|(key, _)| keys::second_of(key));
    let saved = pairs.range(keys::saved(&first(0), 0)..keys::saved(&first(1), 0));
    let saved = saved.filter_map(|(key, _)| keys::saved_extents_of(key));
    now.chain(saved.map(|(_, group, _)| group)).collect()
}

impl VolumeRun {
    /// At the end of a run in which bricks fail, if all are there: copies of what snapshots show are made.
    pub(super) fn seen_copies_are_made(&mut self) -> Result<(), Over> {
        if self.plan.snapshots.is_none() || !self.dead().is_empty() {
            return Ok(());
        }
        self.drain()?;
        self.wait_for_snapshot_calls()?;
        let life = self.life()?;
        let volume = Rc::clone(&life.volume);
        let later = life.machine.begin(async move {
            volume.set_job_speed(None);
            let _ = volume.wait_job().await;
            volume.cancel_job();
            let _ = volume.wait_job().await;
            let begun = volume.start_job(NewJob::Copies).await;
            let ended = volume.wait_job().await;
            let synced = volume.sync_all().await;
            begun.is_ok() && ended.is_ok() && synced.is_ok()
        });
        let is_done = wait(&life.machine, "the copies", &later)?;
        // One that failed meanwhile, or has no room for a copy, is told of elsewhere.
        if !is_done || !self.dead().is_empty() {
            return Ok(());
        }
        self.look_at_copies_seen()
    }

    /// Every stripe that a snapshot shows has as many copies as its file is to have, each of them whole.
    pub(super) fn look_at_copies_seen(&mut self) -> Result<(), Over> {
        let stripe = self.plan.stripe;
        let life = self.life()?;
        let bricks = life.volume.bricks();
        let placed = bricks.iter().filter(|brick| brick.state() == BrickState::Data).count();
        let pairs = life.metadata();
        for taken in &self.snapshots.taken {
            let is_file = |id| taken.shows.now.nodes.get(id).is_some_and(|n| n.kind == Kind::File);
            for (_, (ino, _)) in taken.shows.numbers.iter().filter(|(id, _)| is_file(*id)) {
                let record_of = |value: Option<Vec<u8>>| InodeRecord::parse(*ino, &value?).ok();
                let key = keys::inode(*ino);
                let Some(own) = record_of(seen(&pairs, &key, taken.id)) else { continue };
                // A file that is being removed is on its way to having none now.
                if is_orphan(&pairs, *ino) {
                    continue;
                }
                let now = record_of(pairs.get(&key).cloned());
                let asked = now.map_or(own.copies, |now| now.copies);
                let wanted = usize::from(asked).min(placed);
                for group in groups_of(&pairs, *ino) {
                    let rows: Vec<Vec<Extent>> = (0..own.held.clamp(1, COPIES_MAX))
                        .map(|copy| {
                            let group = group + groups_of_copy(copy);
                            group_seen(&pairs, (*ino, group), taken.id, stripe)
                        })
                        .collect();
                    for at in 0..PER_GROUP as usize {
                        let all = rows.iter().fold(0, |all, row| all | row[at].written);
                        let whole = rows.iter().filter(|row| row[at].written == all).count();
                        if all != 0 && whole < wanted {
                            let number = group * PER_GROUP + at as u64;
                            let copies: Vec<Extent> = rows.iter().map(|row| row[at]).collect();
                            let text = format!(
                                "file {ino}, stripe {number} is to have {wanted} copies in snapshot {}: {copies:?}",
                                taken.name
                            );
                            return self.told("copies_seen_are_made", &text);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
