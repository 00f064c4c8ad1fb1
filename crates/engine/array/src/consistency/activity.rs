//! "Active" in the superblocks, as one shard knows it, and the writes that are under way meanwhile.
//!
//! Invariant: while a write is in flight the superblocks say "active".

use crate::consistency::policy::Logged;
use std::cell::Cell;
use std::rc::Rc;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Activity {
    /// The superblocks say that the array may be written.
    active: Cell<bool>,
    writes_in_flight: Cell<u32>,
    wrote_since_asked: Cell<bool>,
}

/// Held while a write is under way: the array is not marked clean meanwhile.
pub(crate) struct WriteInFlight {
    activity: Rc<Activity>,
    /// Data that stays logged although members have it, or do not take it: seldom any.
    kept: Cell<Option<Box<Kept>>>,
    /// Some member did not take a part of it.
    error: Cell<bool>,
}

/// One of a list.
struct Kept {
    _logged: Logged,
    _before: Option<Box<Kept>>,
}

impl WriteInFlight {
    /// Some member did not take a part of it, and that is done with.
    pub(crate) fn note_error(&self) {
        self.error.set(true);
    }

    /// Whether there was one.
    pub(crate) fn met_error(&self) -> bool {
        self.error.get()
    }

    pub(super) fn keep(&self, logged: Logged) {
        self.kept.set(Some(Box::new(Kept { _logged: logged, _before: self.kept.take() })));
    }
}

impl Drop for WriteInFlight {
    #[inline]
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            drop(kept);
        }
        self.activity.writes_in_flight.set(self.activity.writes_in_flight.get() - 1);
    }
}

impl Activity {
    #[inline]
    pub(super) fn try_begin(self: &Rc<Activity>) -> Option<WriteInFlight> {
        if !self.active.get() {
            return None;
        }
        self.writes_in_flight.set(self.writes_in_flight.get() + 1);
        self.wrote_since_asked.set(true);
        Some(WriteInFlight {
            activity: Rc::clone(self),
            kept: Cell::default(),
            error: Cell::default(),
        })
    }

    pub(super) fn is_active(&self) -> bool {
        self.active.get()
    }

    pub(super) fn set_active(&self) {
        self.active.set(true);
    }

    pub(super) fn try_deactivate(&self, only_if_idle: bool) -> bool {
        let wrote = self.wrote_since_asked.replace(false);
        if self.writes_in_flight.get() > 0 || (only_if_idle && wrote) {
            return false;
        }
        self.active.set(false);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_begins_before_the_superblocks_say_active_nor_is_it_clean_before_all_has_ended() {
        let activity = Rc::new(Activity::default());
        assert!(activity.try_begin().is_none());
        activity.set_active();
        let writing = activity.try_begin().unwrap();
        assert!(!activity.try_deactivate(false) && activity.is_active());
        drop(writing);
        assert!(activity.try_deactivate(false));
        assert!(activity.try_begin().is_none());
    }

    #[test]
    fn idle_is_an_array_without_a_write_since_the_last_question() {
        let activity = Rc::new(Activity::default());
        activity.set_active();
        drop(activity.try_begin());
        assert!(!activity.try_deactivate(true), "it wrote since");
        assert!(activity.try_deactivate(true));
    }
}
