//! Errors of members that another copy made good: counted, and where they are too many, or the member is to
//! fail at its first, the reason that it fails.
//!
//! The rules are md's (`raid1-10.c`, `exceed_read_errors`; `md.c`, `corrected_errors`): at levels 1 and 10 a
//! member may have `max_read_errors` read errors, of which every hour without any halves the count.
//! Levels 4, 5 and 6 correct as many as there are.
//!
//! Does not know copies: engines have the data when they ask.
//!
//! Invariant: nothing here fails a member that the data depends on.

use crate::control::Control;
use crate::control::failing::Dropped;
use crate::engine::ArrayId;
use crate::options::MemberFlags;
use crate::state::view::MemberNr;
use braid_device::IoError;
use braid_layout::Level;
use braid_shard::{Nanos, Shard};
use std::rc::Rc;

const HOUR: Nanos = 3_600_000_000_000;

/// Read errors of a member, of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadErrors {
    count: u32,
    last: Option<Nanos>,
}

impl ReadErrors {
    /// Counts one more; gives how many there are now.
    fn add(&mut self, now: Nanos) -> u32 {
        if let Some(last) = self.last.replace(now) {
            let hours = now.saturating_sub(last) / HOUR;
            self.count =
                u32::try_from(hours).ok().and_then(|h| self.count.checked_shr(h)).unwrap_or(0);
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

impl Control {
    /// An engine could not read member `nr` of array `id`, and has what it wanted from another; `answer` is
    /// called with true when the member has failed for it, so that there is nothing to correct.
    pub(crate) fn read_error_for_engine(
        shard: &Shard,
        id: ArrayId,
        nr: MemberNr,
        error: IoError,
        answer: Box<dyn FnOnce(bool) + Send>,
    ) {
        let Some(control) = Control::find(shard, id) else { return answer(false) };
        shard.spawn(async move { answer(control.read_error(nr, error).await) });
    }

    async fn read_error(self: &Rc<Self>, nr: MemberNr, error: IoError) -> bool {
        if !matches!(self.geometry.level, Level::Raid1 | Level::Raid10) {
            return false;
        }
        let max = self.settings.get().max_read_errors();
        let why = {
            let mut roster = self.roster.borrow_mut();
            let Some(member) = roster.member_mut(nr) else { return true };
            if MemberFlags::of(&member.superblock).failfast {
                format!("{error}, and it is to fail fast")
            } else {
                let count = member.read_errors.add(self.shard.now());
                if count <= max {
                    return false;
                }
                format!("{error}; {count} read errors of late, max_read_errors is {max}")
            }
        };
        self.fail_if_spared(nr, &why).await
    }

    /// An engine could not write to member `nr` of array `id`, which is to fail fast; `answer` is called with
    /// true when it has failed, as [`Control::fail_for_engine`] does, and with false when it is
    /// to be treated like any other because the data depends on it.
    pub(crate) fn fail_fast_for_engine(
        shard: &Shard,
        id: ArrayId,
        nr: MemberNr,
        error: IoError,
        answer: Box<dyn FnOnce(bool) + Send>,
    ) {
        let Some(control) = Control::find(shard, id) else { return answer(false) };
        let why = format!("{error}, and it is to fail fast");
        shard.spawn(async move { answer(control.fail_if_spared(nr, &why).await) });
    }

    async fn fail_if_spared(self: &Rc<Self>, nr: MemberNr, why: &str) -> bool {
        let dropped = self.fail_nr_unless_needed(nr, why, true).await;
        matches!(dropped, Dropped::Faulty | Dropped::Already)
    }

    /// So many sectors of member `nr` could not be read, and can be since they were written again. The
    /// superblock says so at its next update, as in md.
    pub(crate) fn corrected(&self, nr: MemberNr, sectors: u32) {
        if let Some(member) = self.roster.borrow_mut().member_mut(nr) {
            let count = &mut member.superblock.cnt_corrected_read;
            *count = count.saturating_add(sectors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_halves_with_each_hour_since_the_last_error() {
        let mut errors = ReadErrors::default();
        for expected in 1..=16 {
            assert_eq!(errors.add(HOUR), expected);
        }
        assert_eq!(errors.add(2 * HOUR - 1), 17);
        assert_eq!(errors.add(4 * HOUR), 17 / 4 + 1);
        assert_eq!(errors.add(100 * HOUR), 1);
    }
}
