//! Commands that do not wait for long: what they began goes on, and is recorded whenever the members allow it.
//!
//! An update of the superblocks ends only when all members have taken it. Where another member than the one that a command is
//! about does not answer, the command says so instead of waiting for that one, too.

use crate::control::membership::Membership;
use crate::error::ControlError;
use crate::state::view::MemberNr;
use braid_shard::Nanos;
use std::cell::RefCell;
use std::rc::Rc;

/// Between two looks, in nanoseconds.
const LOOK_EVERY: Nanos = 1_000_000;
/// Looks after which a command does not wait any longer: a second and a half.
const LOOKS: u32 = 1500;
/// A member with a request under way for so long, in nanoseconds, is one that is waited for.
const LONG: Nanos = 500_000_000;

impl Membership {
    /// Carries `work` out to its end, and waits for that for a moment. `None`: it is still under way.
    pub(super) async fn for_a_moment<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let result = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        self.record.shard.spawn(async move {
            let value = work.await;
            *slot.borrow_mut() = Some(value);
        });
        // Counted, not timed: a process that was not let run has not looked either.
        for _ in 0..LOOKS {
            self.record.shard.sleep(LOOK_EVERY).await;
            if result.borrow().is_some() {
                break;
            }
        }
        result.take()
    }

    /// The command about member `nr` has not ended, and who is waited for.
    pub(super) async fn not_recorded(&self, doing: &'static str, nr: MemberNr) -> ControlError {
        let waiting = self.unanswered.waiting().await;
        let roster = self.record.roster.borrow();
        let waits = waiting.iter().filter(|(other, nanos)| *other != nr && *nanos > LONG);
        let waits = waits.filter_map(|(other, _)| Some(roster.member(*other)?.name.clone()));
        let waits = waits.collect();
        drop(roster);
        let (array, member) = (self.record.name.clone(), self.record.member_name(nr));
        ControlError::NotRecorded { doing, array, member, waits }
    }
}
