//! Read errors of members that the others made good: counted, and where they are too many, or the member is to
//! fail at its first, the reason that it fails.
//!
//! The rules are md's (`raid1-10.c`, `exceed_read_errors`; `md.c`, `corrected_errors`): a member may have
//! `max_read_errors` read errors, of which every hour without any halves the count. md has another number for levels 4,
//! 5 and 6, and counts those in a row there (`raid5.c`, `raid5_end_read_request`); here the rule is the same everywhere.
//! Only at levels 1 and 10 is a member to fail fast.
//!
//! Does not know copies: engines have the data when they ask.
//!
//! Invariant: nothing here fails a member that the data depends on.

use crate::control::Control;
use crate::control::record::failing::Dropped;
use crate::state::flags::MemberFlags;
use crate::state::view::MemberNr;
use braid_device::IoError;
use braid_layout::Level;

impl Control {
    /// An engine could not read member `nr`, and has what it wanted from another: true when the member has failed for
    /// it, so that there is nothing to correct.
    pub(crate) async fn read_error(&self, nr: MemberNr, error: IoError) -> bool {
        let level = self.record.geometry().level;
        let copies = matches!(level, Level::Raid1 | Level::Raid10);
        let max = self.in_effect.settings.get().max_read_errors(level);
        let why = {
            let mut roster = self.record.roster.borrow_mut();
            let Some(member) = roster.member_mut(nr) else { return true };
            if copies && MemberFlags::of(&member.superblock).failfast {
                format!("{error}, and it is to fail fast")
            } else {
                let count = member.read_errors.add(self.record.shard.now());
                if count <= max {
                    return false;
                }
                format!("{error}; {count} read errors of late, max_read_errors is {max}")
            }
        };
        self.fail_if_spared(nr, &why).await
    }

    /// An engine could not write to member `nr`, which is to fail fast: true when it has failed, false when it is to be
    /// treated like any other because the data depends on it.
    pub(crate) async fn fail_fast(&self, nr: MemberNr, error: IoError) -> bool {
        let why = format!("{error}, and it is to fail fast");
        self.fail_if_spared(nr, &why).await
    }

    async fn fail_if_spared(&self, nr: MemberNr, why: &str) -> bool {
        let dropped = self.record.fail_nr_unless_needed(nr, why, true).await;
        matches!(dropped, Dropped::Faulty | Dropped::Already)
    }

    /// So many sectors of member `nr` could not be read, and can be since they were written again. The
    /// superblock says so at its next update, as in md.
    pub(crate) fn corrected(&self, nr: MemberNr, sectors: u32) {
        if let Some(member) = self.record.roster.borrow_mut().member_mut(nr) {
            let count = &mut member.superblock.cnt_corrected_read;
            *count = count.saturating_add(sectors);
        }
    }
}
