//! The events that a server keeps for those who look: the last ones, numbered.

use braid_control::protocol::{Answer, Event, Numbered};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// So many are kept.
const KEPT_MAX: usize = 500;

/// See the module's documentation.
pub struct Events {
    since: u64,
    last: Mutex<VecDeque<Numbered>>,
}

impl Default for Events {
    fn default() -> Events {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = u64::try_from(since.as_micros()).unwrap_or_default();
        Events { since, last: Mutex::default() }
    }
}

impl Events {
    fn last(&self) -> MutexGuard<'_, VecDeque<Numbered>> {
        // A panic elsewhere leaves events whole.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one more.
    pub fn keep(&self, event: Event) {
        let mut last = self.last();
        let number = last.back().map_or(1, |newest| newest.number + 1);
        last.push_back(Numbered { number, event });
        if last.len() > KEPT_MAX {
            last.pop_front();
        }
    }

    /// Those with numbers greater than `after`.
    pub fn after(&self, after: u64) -> Answer {
        let events = self.last().iter().filter(|one| one.number > after).cloned().collect();
        Answer::Events { since: self.since, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples::detail;

    #[test]
    fn the_last_events_are_kept_with_their_numbers() {
        let events = Events::default();
        let numbers = |after| match events.after(after) {
            Answer::Events { events, .. } => {
                events.iter().map(|one| one.number).collect::<Vec<u64>>()
            }
            other => panic!("{other:?}"),
        };
        assert!(numbers(0).is_empty());
        for _ in 0..KEPT_MAX as u64 + 3 {
            let data = detail("data", &["active sync"]);
            events.keep(Event::of(&data, "TestMessage", None, String::new()));
        }
        assert_eq!((numbers(0).len(), numbers(0)[0]), (KEPT_MAX, 4));
        assert_eq!(numbers(KEPT_MAX as u64 + 2), [KEPT_MAX as u64 + 3]);
        assert!(numbers(u64::MAX).is_empty());
    }
}
