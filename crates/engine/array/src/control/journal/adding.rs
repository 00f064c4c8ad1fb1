//! A journal given to the running array: to one that has lost its own, or to one without.
//!
//! ```text
//!  empty log on the device ─► requests held, those under way end ─► superblocks that name it ─► engines log ─► requests go on
//! ```
//!
//! Whatever the moment of a crash: with the new journal the log is empty, and without it the array is what it was.

use crate::control::commands;
use crate::control::journal::WriteJournal;
use crate::control::record::members::{Member, Standing};
use crate::error::ControlError;
use crate::metadata::journal::Begun;
use crate::metadata::journal::place::{SLOTS_MAX, begin_log, blocks_needed, journal_place};
use crate::metadata::journal::ring::Ring;
use braid_device::Device;
use braid_device::meter::Metered;
use braid_format::SECTOR;
use braid_format::journal::BLOCK;
use braid_format::placement::MemberPlace;
use std::rc::Rc;

impl WriteJournal {
    /// The place of a journal for this array on a device.
    ///
    /// # Errors
    /// The array cannot have one, or has one; the device is too small.
    pub(crate) fn place(
        &self,
        name: &str,
        device: &Rc<Metered>,
    ) -> Result<MemberPlace, ControlError> {
        let doing = "adding a journal";
        let geometry = self.record.geometry();
        let roster = self.record.roster.borrow();
        let refuse = |why: String| {
            let array = self.record.name.clone();
            Err(ControlError::ConsistencyPolicy { doing, array, why })
        };
        let shared = &roster.shared;
        if !geometry.level.is_parity() {
            return refuse(format!(
                "level {} has no parity that it could keep right",
                geometry.level
            ));
        }
        if let Some(journal) = roster.journal() {
            return refuse(format!("it has one, {}; fail and remove that first", journal.name));
        }
        if shared.bitmap_offset != 0 || shared.ppl.is_some() {
            return refuse("it has a bitmap or a partial parity log, and a journal takes their place; remove that first: grow \
                           --consistency-policy resync, or grow --bitmap none".to_string());
        }
        if shared.reshape.is_some() {
            return refuse(commands::not_done_yet(&self.record, "a reshape"));
        }
        let chunk = geometry.layout.chunk_size();
        if !chunk.is_multiple_of(BLOCK as u64) || geometry.slots() > SLOTS_MAX {
            return refuse(format!(
                "a journal is kept where chunks are whole blocks of {BLOCK} bytes, and slots at most {SLOTS_MAX}"
            ));
        }
        let need = blocks_needed(chunk, geometry.slots()) * BLOCK as u64;
        let place = journal_place(shared.version, device.info().size / SECTOR as u64);
        let have = place.map_or(0, |place| place.data_size * SECTOR as u64);
        place.filter(|_| have >= need).ok_or_else(|| {
            let why = format!(
                "it has room for a journal of {have} bytes, and one stripe of this array takes {need}; use a larger device"
            );
            commands::unfit(&self.record, name, why)
        })
    }

    /// Makes `member`, which has its place, the journal: its superblock says so, and its log is empty.
    ///
    /// # Errors
    /// The device does not take that.
    pub(crate) async fn prepare(&self, member: &mut Member) -> Result<Begun, ControlError> {
        member.standing = Standing::Journal;
        let superblock = &mut member.superblock;
        (superblock.journal, superblock.bblog_offset, superblock.bblog_size) = (true, 0, 0);
        let unfit = |why: String| commands::unfit(&self.record, &member.name, why);
        let ring = Ring::of(&member.name, &member.device.as_device(), superblock);
        let ring =
            ring.ok_or_else(|| unfit("the journal does not lie in whole blocks of it".into()))?;
        let any = u64::from_le_bytes(
            (self.record.ctx.new_uuid)().first_chunk().copied().unwrap_or_default(),
        );
        let begun = begin_log(&self.record.shard, &ring, &superblock.set_uuid, any).await;
        begun.map_err(|error| unfit(format!("the journal could not be written: {error}")))
    }

    /// Every superblock says from the next update on that the array has a journal.
    pub(crate) fn note(&self) {
        let mut roster = self.record.roster.borrow_mut();
        roster.shared.journal = true;
        roster.members.iter_mut().for_each(|member| member.superblock.journal = true);
    }

    /// No journal came of it.
    pub(crate) fn forget(&self) {
        let mut roster = self.record.roster.borrow_mut();
        roster.shared.journal = false;
        roster.members.iter_mut().for_each(|member| member.superblock.journal = false);
    }

    /// All writes are logged from now on: the superblocks name the journal, and no write is under way.
    pub(crate) async fn open(&self, begun: Begun) {
        if let Some(recorded) = self.begin(begun) {
            self.record.engines.ask(move |engine| engine.record_by(recorded)).await;
        }
        self.record.send_view().await;
    }
}
