//! The members' bad-block logs: blocks that could not be written are recorded before anybody may rely on it,
//! and leave the log when they were written after all.
//!
//! A log is written with the superblocks, before them: the superblock of a member says whether its log
//! counts. What leaves it needs no write of its own (as in md), but has been made durable before.
//!
//! Does not know which rows the blocks belong to, nor whether what they held can be had elsewhere.
//!
//! Invariant: every block that engines must not read is in the log of its member, but for those of which the
//! write is not acknowledged yet.

use crate::control::record::Record;
use crate::control::record::bad_list::Bad;
use crate::control::record::members::{Member, Roster};
use crate::control::record::outcomes::all_taken;
use crate::engine::home::BadBytes;
use crate::state::bad_blocks::BadBlocks;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use braid_device::{Device, IoError, Request};
use braid_format::{SECTOR, badblocks};
use braid_shard::plant::planted;
use braid_shard::{Buf, Pool};
use std::ops::Range;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The outcome of recording blocks as bad.
enum Entered {
    /// They are in the list, and the log has to be written.
    New,
    /// The log has them already.
    Known,
    /// The member is gone, or has failed.
    NoMember,
    /// Why they cannot be recorded.
    NoRoom(String),
}

impl Member {
    /// Where its log is, and how long it is, in bytes; `None` when it has none, or one that cannot be written
    /// because the device has larger blocks.
    pub(crate) fn bad_block_log(&self) -> Option<(u64, usize)> {
        let at = self.superblock.bblog_sector()?.checked_mul(SECTOR_BYTES)?;
        let len = usize::from(self.superblock.bblog_size) * SECTOR;
        let block = self.device.info().logical_block.max(1);
        let aligned = at.is_multiple_of(block.into()) && len.is_multiple_of(block as usize);
        aligned.then_some((at, len))
    }

    fn encoded(&self, list: &BadBlocks) -> Result<Vec<u8>, badblocks::BadBlocksError> {
        badblocks::encode(list.ranges(), self.superblock.bblog_shift, self.superblock.bblog_size)
    }

    /// The bad ranges for the engines: component bytes, in whole logical blocks of the array.
    pub(crate) fn bad_component_bytes(&self, geometry: &Geometry) -> Option<Arc<BadBlocks>> {
        // Without redundancy the log says nothing that would help; md ignores it there too.
        if self.bad.now.is_empty() || !geometry.level.has_redundancy() {
            return None;
        }
        let start = self.component_start();
        let (now, moved) = (self.superblock.data_offset, self.superblock.new_data_offset());
        let last = moved.map_or(now, |new| new.max(now));
        let shift = last.saturating_sub(start).saturating_mul(SECTOR_BYTES);
        let used = geometry.component_size.saturating_add(shift);
        let block = u64::from(geometry.logical_block.max(1));
        let bytes = |sectors: u64| sectors.saturating_sub(start).saturating_mul(SECTOR_BYTES);
        let ranges = self.bad.now.ranges().iter().map(|sectors| {
            let end = bytes(sectors.end).min(used);
            bytes(sectors.start) / block * block..end.div_ceil(block).saturating_mul(block)
        });
        let list = BadBlocks::new(ranges);
        (!list.is_empty()).then(|| Arc::new(list))
    }

    /// The sectors of the member that hold these component bytes, those in part included.
    fn sectors(&self, bytes: &Range<u64>) -> Range<u64> {
        let start = self.component_start();
        start.saturating_add(bytes.start / SECTOR_BYTES)
            ..start.saturating_add(bytes.end.div_ceil(SECTOR_BYTES))
    }
}

impl Roster {
    /// Records component bytes of a member as bad before the array runs: its log lists them with the first superblocks.
    /// False: it has no log, or no room in it.
    pub(crate) fn record_bad_at_start(&mut self, nr: MemberNr, bytes: Range<u64>) -> bool {
        matches!(self.enter_bad(nr, &[bytes]), Entered::New | Entered::Known)
    }

    fn enter_bad(&mut self, nr: MemberNr, bytes: &[Range<u64>]) -> Entered {
        let Some(member) = self.member_mut(nr).filter(|member| !member.is_faulty()) else {
            return Entered::NoMember;
        };
        if member.bad_block_log().is_none() {
            return Entered::NoRoom("it has no such log".to_string());
        }
        let sectors: Vec<Range<u64>> = bytes.iter().map(|bytes| member.sectors(bytes)).collect();
        let known = |list: &BadBlocks| sectors.iter().all(|range| list.covers(range));
        if known(&member.bad.now) && known(&member.bad.logged) {
            return Entered::Known;
        }
        let all = BadBlocks::new(member.bad.now.ranges().iter().cloned().chain(sectors));
        if let Err(error) = member.encoded(&all) {
            return Entered::NoRoom(error.to_string());
        }
        member.bad.fits = all.clone();
        member.bad.now = all;
        Entered::New
    }

    /// Members whose log says something else than is known, what it shall list, and its bytes: none for an
    /// empty list, since the superblock then says that there is none.
    fn logs_due(&self, pool: &Pool) -> Vec<(MemberNr, BadBlocks, Option<Buf>)> {
        let mut due = Vec::new();
        for member in self.members.iter().filter(|member| !member.is_faulty()) {
            let Bad { now, logged, fits } = &member.bad;
            if now == logged || member.bad_block_log().is_none() {
                continue;
            }
            let now_encoded = member.encoded(now).map(|bytes| (now, bytes));
            let Ok((list, bytes)) =
                now_encoded.or_else(|_| member.encoded(fits).map(|bytes| (fits, bytes)))
            else {
                continue;
            };
            if list == logged {
                continue;
            }
            let log = (!list.is_empty()).then(|| pool.copy_of(&bytes).freeze());
            due.push((member.nr, list.clone(), log));
        }
        due
    }
}

impl Record {
    /// An engine says that component bytes of member `nr` cannot be written: true when the member's log says so and
    /// all shards know, false when that cannot be.
    pub(crate) async fn record_bad(&self, nr: MemberNr, bad: BadBytes) -> bool {
        let BadBytes { bytes, error, or_fail } = bad;
        let turn = self.turn().await;
        let entered = match self.read_only || self.roster.borrow().broken {
            true => Entered::NoMember,
            false => self.roster.borrow_mut().enter_bad(nr, &bytes),
        };
        match entered {
            Entered::Known => true,
            Entered::NoMember => false,
            Entered::NoRoom(why) => {
                drop(turn);
                if or_fail {
                    self.fail_nr(
                        nr,
                        &format!("{error}; its bad-block log cannot take more: {why}"),
                    )
                    .await;
                }
                false
            }
            Entered::New => {
                let total: u64 = bytes.iter().map(|range| range.end - range.start).sum();
                let first = bytes.iter().map(|range| range.start).min().unwrap_or(0);
                tracing::warn!(
                    "array {}: {}: {total} bytes from component byte {first} on are recorded as bad: {error}",
                    self.name,
                    self.member_name(nr)
                );
                // The planted bug forgets the invariant of this file.
                if !planted("bad-block-unrecorded") {
                    self.write_superblocks(&turn).await;
                }
                if or_fail && let Some(member) = self.roster.borrow_mut().member_mut(nr) {
                    // As in md: a member that does not take what is written to it is replaced when there is a spare.
                    member.want_replacement = true;
                }
                // Only now: a write that they are missing from may be acknowledged at once.
                self.send_view().await;
                drop(turn);
                let roster = self.roster.borrow();
                let there = roster.member(nr).is_some_and(|member| !member.is_faulty());
                let recorded = there && !roster.broken;
                drop(roster);
                if !there || or_fail {
                    self.members_changed();
                }
                recorded
            }
        }
    }

    /// Component bytes of a member were written: they are not bad any more. Its log says so with the next
    /// superblocks.
    pub(crate) fn good_again(&self, nr: MemberNr, bytes: Range<u64>) {
        {
            let mut roster = self.roster.borrow_mut();
            let Some(member) = roster.member_mut(nr) else { return };
            let unit = 1_u64.checked_shl(member.superblock.bblog_shift.into()).unwrap_or(u64::MAX);
            let sectors = member.sectors(&bytes);
            // Only what covers an entry's unit makes that good.
            let first = sectors.start.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            let good = first..(sectors.end / unit).saturating_mul(unit);
            if good.is_empty() || !member.bad.now.overlaps(&good) {
                return;
            }
            member.bad.now = member.bad.now.without(&good);
        }
        self.post_view();
    }

    /// Writes the logs that do not say what is known, before the superblocks that make them count. The
    /// caller holds the turn.
    ///
    /// # Errors
    /// The members that this cannot be done on; none of them when a suspect is to be dropped first.
    pub(crate) async fn write_bad_block_logs(&self) -> Result<(), Vec<(MemberNr, IoError)>> {
        let due = self.roster.borrow().logs_due(self.shard.pool());
        if due.is_empty() {
            return Ok(());
        }
        // Flush before the log shrinks: data written over bad blocks must be durable before the log stops listing them.
        let shrinks = |member: &Member| {
            let list = due.iter().find(|(nr, _, _)| *nr == member.nr).map(|(_, list, _)| list);
            list.is_some_and(|list| !member.bad.logged.is_within(list))
        };
        let any = self.roster.borrow().members.iter().any(shrinks);
        if any {
            self.flush_some(shrinks).await;
            if self.suspects.any() {
                return Err(Vec::new());
            }
        }
        let mut set = self.engine.sets.start();
        for (nr, _, log) in &due {
            if let Some(member) = self.roster.borrow().member(*nr)
                && let Some((at, _)) = member.bad_block_log()
                && let Some(log) = log
            {
                set.submit(*nr, &*member.device, Request::write(at, log.clone(), true));
            }
        }
        all_taken(set.finish().await)?;
        let mut roster = self.roster.borrow_mut();
        for (nr, list, _) in due {
            if let Some(member) = roster.member_mut(nr) {
                member.superblock.bad_blocks = !list.is_empty();
                member.bad.fits = list.clone();
                member.bad.logged = list;
            }
        }
        Ok(())
    }
}
