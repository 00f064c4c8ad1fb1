//! Members that are exports of other servers and were lost with their connections: a thread tries to reach them, and takes
//! them back by what the bitmap knows.
//!
//! A server that comes and goes is not taken back at once each time: every loss soon after a return doubles the time to the
//! next try. Does not take back what was failed by command or for what it answered: nothing has changed about that.

use super::running::Running;
use super::watch;
use crate::members::parse_one;
use crate::output;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::error::ControlError;
use braid_array::state::view::MemberNr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two tries to reach a member.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// The longest time between two tries.
const TRY_MOST: Duration = Duration::from_secs(300);
/// A member that is lost again later than this after it was taken back is one that was lost once.
const STEADY_AFTER: Duration = Duration::from_secs(300);

/// Watches for as long as `running` is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>) -> Result<()> {
    let thread = ("away", "that takes members back");
    watch::start(running, thread, watch_all)
}

fn watch_all(running: &Weak<Running>) {
    let mut known: Vec<Away> = Vec::new();
    while let Some(strong) = running.upgrade() {
        strong.look_for_away(&mut known);
        drop(strong);
        std::thread::sleep(watch::EVERY);
    }
}

/// A member that is away, or was.
pub(super) struct Away {
    array: [u8; 16],
    name: String,
    pace: Pace,
    /// Refused for a reason that time does not change; under this number.
    refused: Option<MemberNr>,
}

/// When to try next.
struct Pace {
    next: Instant,
    wait: Duration,
    /// Since when it is back.
    back: Option<Instant>,
}

impl Pace {
    /// It was lost for the first time.
    fn new(now: Instant) -> Pace {
        Pace { next: now, wait: TRY_EVERY, back: None }
    }

    /// It is away: may it be tried now?
    fn is_due(&mut self, now: Instant) -> bool {
        if let Some(back) = self.back.take() {
            let steady = now.duration_since(back) >= STEADY_AFTER;
            self.wait = if steady { TRY_EVERY } else { (self.wait * 2).min(TRY_MOST) };
            self.next = if steady { now } else { now + self.wait };
        }
        now >= self.next
    }

    /// It was not there.
    fn missed(&mut self, now: Instant) {
        self.next = now + self.wait;
    }

    /// It is a member again.
    fn is_back(&mut self, now: Instant) {
        self.back = Some(now);
    }
}

impl Running {
    /// Looks once for members that are away.
    fn look_for_away(&self, known: &mut Vec<Away>) {
        let arrays = self.arrays().clone();
        known.retain(|away| arrays.iter().any(|array| array.uuid() == away.array));
        for array in arrays.iter().filter(|array| !self.is_stopping(array)) {
            for (nr, name) in away_from(array) {
                self.look_for(array, nr, &name, known);
            }
        }
    }

    fn look_for(&self, array: &Arc<Array>, nr: MemberNr, name: &str, known: &mut Vec<Away>) {
        let uuid = array.uuid();
        let at = known.iter().position(|away| away.array == uuid && away.name == name);
        let at = at.unwrap_or_else(|| {
            let pace = Pace::new(Instant::now());
            known.push(Away { array: uuid, name: name.to_string(), pace, refused: None });
            known.len() - 1
        });
        let Some(away) = known.get_mut(at) else { return };
        if away.refused == Some(nr) || !away.pace.is_due(Instant::now()) {
            return;
        }
        match self.take_back(array, nr, name) {
            Ok(done) => {
                output::note(format!("braid: {done}"));
                away.pace.is_back(Instant::now());
            }
            Err(error) => {
                away.pace.missed(Instant::now());
                // One that is not there, or still has requests, is tried again without a word each time.
                if let Some(error @ ControlError::CannotReAdd { .. }) = error.downcast_ref() {
                    away.refused = Some(nr);
                    output::note(format!(
                        "braid: {name} is there again: {error}; `braid remove {array} {name}` and `braid add {array} {name}` make \
                         a new member of it",
                        array = array.name()
                    ));
                }
            }
        }
    }
}

/// The members of an array that are away and have no lock that says who has them: exports of other servers.
fn away_from(array: &Array) -> Vec<(MemberNr, String)> {
    // An array that has been stopped meanwhile has none.
    let members = super::orders::status(array).map(|status| status.members).unwrap_or_default();
    let is_remote = |name: &str| parse_one(name).is_ok_and(|member| member.is_remote());
    let away = members.into_iter().filter(|member| member.away && is_remote(&member.name));
    away.map(|member| (member.nr, member.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_comes_and_goes_is_tried_less_and_less_often() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert!(pace.is_due(start));
        pace.missed(start);
        assert!(!pace.is_due(start + TRY_EVERY / 2));
        assert!(pace.is_due(start + TRY_EVERY));
        let mut now = start + TRY_EVERY;
        let mut waits = Vec::new();
        for _ in 0..10 {
            pace.is_back(now);
            now += Duration::from_secs(1);
            let lost = now;
            while !pace.is_due(now) {
                now += Duration::from_millis(500);
            }
            waits.push(now - lost);
        }
        assert!(waits.iter().all(|wait| *wait > TRY_EVERY && *wait <= TRY_MOST), "{waits:?}");
        assert!(waits.is_sorted() && waits.last() == Some(&TRY_MOST), "{waits:?}");
        pace.is_back(now);
        assert!(pace.is_due(now + STEADY_AFTER), "it was there for long enough");
        assert_eq!(pace.wait, TRY_EVERY);
    }
}
