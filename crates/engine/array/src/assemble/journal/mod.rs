//! The journal device of an array that is being assembled: is it there, what its log asks for, and doing that.
//!
//! ```text
//!  log ─► rows with data and parity ─► members, flush
//!      ─► rows with data alone ─► their parity ─► a new log, with both ─► tail ─► members, flush
//!      ─► empty meta block ─► tail
//! ```
//!
//! A row with data alone (a write-back cache of md's leaves those) is logged anew with its parity before a member is
//! written, as by md: what has to be recovered from old parity for it would be lost with the first block that is.
//! Whatever the moment of a crash, the tail stands at a log that has all that the members may lack.
//!
//! | file | subject |
//! |---|---|
//! | `log` | the log as it is read |
//! | `rows` | a row whose data alone was logged, made whole |
//! | `replay` | the log carried out, and begun anew |
//!
//! Without its journal an array is read-only, as in md, until somebody insists: writes that are only there would be lost.

mod log;
mod replay;
mod rows;

pub(super) use log::Log;
pub(super) use replay::replay;

use crate::assemble::choose::{Choice, Chosen};
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::metadata::journal::ring::Ring;
use braid_format::journal::{BLOCK, BLOCK_SECTORS};
use braid_layout::Layout;
use braid_shard::Shard;
use braid_shard::plant::planted;

/// The journal of an array.
pub(super) enum Journal {
    /// It has none.
    Absent,
    /// It is missing, or cannot be used; why.
    Lost(String),
    /// It is there.
    There(Log),
}

impl Journal {
    /// Nothing of the array may be written.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Journal::Lost(_))
    }

    /// Its log, when there is one.
    pub(super) fn log(&self) -> Option<&Log> {
        match self {
            Journal::There(log) => Some(log),
            Journal::Absent | Journal::Lost(_) => None,
        }
    }
}

fn is_journal(chosen: &&Chosen) -> bool {
    chosen.standing == Standing::Journal
}

/// Reads the log of the array's journal, if it has one.
///
/// # Errors
/// Two journals.
pub(super) async fn find(
    shard: &Shard,
    choice: &Choice,
    layout: &Layout,
) -> Result<Journal, AssembleError> {
    let Layout::Parity(parity) = layout else { return Ok(Journal::Absent) };
    if !choice.shared.journal {
        return Ok(Journal::Absent);
    }
    let mut journals = choice.members.iter().filter(is_journal);
    let Some(journal) = journals.next() else {
        return Ok(Journal::Lost("its journal device is missing".to_string()));
    };
    if let Some(second) = journals.next() {
        return Err(AssembleError::SameMember {
            first: journal.found.name.clone(),
            second: second.found.name.clone(),
            what: "the journal".to_string(),
        });
    }
    let found = &journal.found;
    let Some(ring) = Ring::of(&found.name, &found.device, &found.superblock) else {
        let why =
            format!("{}: its ring does not lie within the device, in blocks of it", found.name);
        return Ok(Journal::Lost(why));
    };
    let needed = 2 + parity.slots() as u64;
    if ring.blocks() < needed {
        let (have, need) = (ring.blocks() * BLOCK as u64, needed * BLOCK as u64);
        return Ok(Journal::Lost(format!(
            "{}: a journal of {have} bytes cannot hold one row of blocks, for which it takes {need}",
            found.name
        )));
    }
    let tail = found.superblock.journal_tail;
    let row = |sector: u64| {
        let offset = sector.checked_mul(512).filter(|at| *at < parity.array_size())?;
        let (stripe, _, within) = parity.locate(offset);
        let row = (parity.member_offset(stripe) + within) / 512;
        row.is_multiple_of(BLOCK_SECTORS).then_some(row)
    };
    let size = parity.used_component_size() / 512;
    let read = Log::read(shard, ring, (&choice.shared.set_uuid, tail), size, row).await;
    Ok(match read {
        Ok(log) => Journal::There(log),
        Err(why) => Journal::Lost(format!("{}: {why}", found.name)),
    })
}

/// The array goes on without its journal: what was only there is lost, and redundancy is made to match.
pub(super) fn give_up(choice: &mut Choice, why: &str) {
    tracing::warn!(
        "array {}: {why}; it goes on without by force: writes that are only there are lost, and redundancy is resynced",
        choice.title()
    );
    choice.shared.journal = false;
    if !planted("journal-given-up-unsynced") {
        choice.shared.resync_offset = 0;
    }
    for chosen in std::mem::take(&mut choice.members) {
        if is_journal(&&chosen) {
            choice
                .left_out
                .push(format!("{}: the array has no journal any more", chosen.found.name));
            continue;
        }
        choice.members.push(chosen);
    }
    for chosen in &mut choice.members {
        chosen.found.superblock.journal = false;
    }
}

/// A line on an array that is read-only for want of its journal.
pub(super) fn read_only_line(why: &str) -> String {
    format!(
        "journal: {why}: the array is read-only, since the journal may hold writes that the members lack; stop the array \
         and start it with the journal, or with --force to go on without (those writes are lost, and all is resynced)"
    )
}
