//! Writing the superblocks: one update at a time, to all members that are not faulty, durably.
//!
//! A member whose superblock cannot be written is faulty, which is itself an update; so an update
//! ends only when all that are left have the same one.

use crate::control::record::Record;
use crate::control::record::failing::Dropped;
use crate::control::record::members::Member;
use crate::control::record::outcomes::all_taken;
use crate::metadata::superblock::superblock_bytes;
use crate::state::view::MemberNr;
use braid_device::{Device, IoError, Request};
use braid_format::SECTOR;
use braid_format::superblock::{Superblock, pack_time};
use braid_shard::sync::Share;
use std::borrow::Cow;

impl Record {
    /// Writes what the roster says now. The caller holds the turn. Nothing is written when the
    /// array is read-only, or broken: what is on disk is then the best there is.
    pub(crate) async fn write_superblocks(&self, _turn: &Share) {
        let mut dropped = false;
        loop {
            if self.read_only || self.roster.borrow().broken {
                break;
            }
            let Err(failures) = self.write_once().await else { break };
            let mut again = self.drop_suspects().await;
            for (nr, error) in failures {
                if self.is_unfinished(error) || self.is_taken(nr, error) {
                    continue;
                }
                let why = format!(
                    "its superblock, bitmap or bad-block log could not be written: {error}"
                );
                self.note_away(nr, error);
                let dropped = self.drop_member(nr, &why);
                again |= dropped == Dropped::Faulty;
                if dropped == Dropped::Kept {
                    tracing::error!("array {}: {}: {why}", self.name, self.member_name(nr));
                }
            }
            dropped = true;
            if !again {
                break;
            }
        }
        if dropped {
            self.send_view().await;
            self.members_changed();
        }
    }

    /// One update.
    ///
    /// # Errors
    /// The members that did not take it. None of them: it has to be made anew without a suspect.
    async fn write_once(&self) -> Result<(), Vec<(MemberNr, IoError)>> {
        let before = self.roster.borrow().shared.events;
        self.roster.borrow_mut().prepare_update(pack_time((self.ctx.wall_clock)(), 0));
        let failures = self.write_bitmap_header().await;
        if !failures.is_empty() {
            // No superblock has this update. Counted twice, it would put who misses the next one two
            // behind, which is stale.
            self.roster.borrow_mut().shared.events = before;
            return Err(failures);
        }
        if let Err(failures) = self.write_bad_block_logs().await {
            self.roster.borrow_mut().shared.events = before;
            return Err(failures);
        }
        self.send_superblocks(|member| Some(Cow::Borrowed(&member.superblock))).await
    }

    /// Members that missed the last update before this start are given it, before there is a next one: should the power
    /// fail in the middle of that, they would be two behind, and left out as stale. Whoever does not take it fails with
    /// the next.
    pub(crate) async fn catch_up(&self, _turn: &Share) {
        if self.roster.borrow().broken {
            return;
        }
        let behind = self.roster.borrow_mut().catch_up();
        if !behind.is_empty() {
            let told = |nr| behind.iter().find(|(behind, _)| *behind == nr);
            let _ = self
                .send_superblocks(|member| {
                    told(member.nr).map(|(_, told)| Cow::Owned(told.clone()))
                })
                .await;
        }
    }

    /// Writes the superblocks that members are to get, if any.
    ///
    /// # Errors
    /// The members that did not take theirs.
    async fn send_superblocks(
        &self,
        to: impl for<'a> Fn(&'a Member) -> Option<Cow<'a, Superblock>>,
    ) -> Result<(), Vec<(MemberNr, IoError)>> {
        // The journal's has the tail, which moves at any time.
        let has_journal = self.roster.borrow().journal().is_some();
        let _alone = if has_journal { Some(self.tail_alone.take(1).await) } else { None };
        let mut set = self.engine.sets.start();
        for member in self.roster.borrow().members.iter() {
            if member.is_faulty() {
                continue;
            }
            let Some(superblock) = to(member) else { continue };
            let block = member.device.info().logical_block;
            let bytes = superblock_bytes(&self.shard, &superblock, block);
            let at = superblock.super_offset.saturating_mul(SECTOR as u64);
            set.submit(member.nr, &*member.device, Request::write(at, bytes, true));
        }
        all_taken(set.finish().await)
    }
}
