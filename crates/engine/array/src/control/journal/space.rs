//! Places of the ring that are used again: when the writes of a group have ended, and what they wrote is durable on the
//! members, the tail moves behind it.

use crate::control::journal::WriteJournal;
use crate::control::record::members::Member;
use crate::metadata::superblock::{superblock_bytes, write};
use braid_device::Device;
use braid_format::SECTOR;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

impl WriteJournal {
    /// What the log has now is durable on the members when this comes back, and not written again after a crash. The caller
    /// does not hold the turn.
    pub(crate) async fn drain(&self) {
        if !self.is_there() || planted("journal-not-drained") {
            return;
        }
        let writing = self.writing.take(1).await;
        self.drain_now(&writing).await;
    }

    /// [`drain`](WriteJournal::drain) for whoever writes to the ring. False: the journal is lost.
    pub(super) async fn drain_now(&self, writing: &Share) -> bool {
        if !self.is_there() {
            return false;
        }
        // All groups but an empty meta block have more blocks.
        let is_empty = self.log.borrow().as_ref().is_some_and(|log| {
            log.groups.len() == 1 && log.groups.iter().all(|group| group.blocks == 1)
        });
        is_empty || (self.write_empty(writing).await && self.clear_before_last().await)
    }

    /// Begins to make room when half of the ring is in use.
    pub(super) fn clear_in_time(self: &Rc<Self>) {
        let is_half_full = |log: &super::Log| log.free() < log.ring.blocks() / 2;
        let half_full = self.log.borrow().as_ref().is_some_and(is_half_full);
        if half_full && !self.clearing.replace(true) {
            let own = Rc::clone(self);
            self.record.shard.spawn(async move {
                own.clear_before_last().await;
                own.clearing.set(false);
            });
        }
    }

    /// Moves the tail to what is the last group now. False: the journal is lost.
    async fn clear_before_last(&self) -> bool {
        let last = self.log.borrow().as_ref().and_then(|log| {
            let last = log.groups.back()?;
            Some((last.nr, last.at))
        });
        let Some((nr, at)) = last else { return false };
        let ended = || {
            let log = self.log.borrow();
            let mut before =
                log.iter().flat_map(|log| &log.groups).take_while(|group| group.nr < nr);
            before.all(|group| group.open.is_empty()).then_some(())
        };
        // The planted bug forgets writes that are under way.
        if !planted("journal-forgets-under-way") {
            self.changed.wait_for(ended).await;
        }
        let _moving = self.moving.take(1).await;
        let passed = || {
            let log = self.log.borrow();
            log.as_ref().and_then(|log| log.groups.front()).is_none_or(|first| first.nr >= nr)
        };
        if passed() {
            return self.is_there();
        }
        // The planted bug takes for durable what members have only acknowledged.
        if !planted("journal-cleared-unflushed") {
            let alone = self.record.flushes.alone.take(1).await;
            let which =
                |member: &Member| member.holds_data() && member.device.info().volatile_cache;
            self.record.flush_alone(alone, which).await;
            if self.record.suspects.any_unrecorded() {
                self.record.record_failures().await;
            }
        }
        if !self.record.may_record() || !self.move_tail(at).await {
            return false;
        }
        if let Some(log) = self.log.borrow_mut().as_mut() {
            while log.groups.front().is_some_and(|group| group.nr < nr) {
                log.groups.pop_front();
            }
        }
        true
    }

    /// Has the log begin at ring sector `at`, durably. False: the journal is lost.
    async fn move_tail(&self, at: u64) -> bool {
        // Whoever holds the turn writes all superblocks, this one too, with the tail that it has then.
        let alone = self.record.tail_alone.take(1).await;
        let update = self.record.roster.borrow_mut().journal_mut().map(|member| {
            member.superblock.journal_tail = at;
            let device = member.device.as_device();
            let block = device.info().logical_block;
            let bytes = superblock_bytes(&self.record.shard, &member.superblock, block);
            (device, member.superblock.super_offset.saturating_mul(SECTOR as u64), bytes)
        });
        let Some((device, place, bytes)) = update else { return false };
        let written = write(&self.record.shard, &device, place, bytes).await;
        drop(alone);
        match written {
            Ok(()) => true,
            Err(error) => {
                self.lost("its superblock could not be written", error).await;
                false
            }
        }
    }
}
