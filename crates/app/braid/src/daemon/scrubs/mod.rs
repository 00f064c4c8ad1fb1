//! Checks and repairs of this server's arrays: begun, paused, gone on with after a restart or when their hours come, and
//! their reports.
//!
//! The engine runs one from a position to the end of the array and says how far it has come and what it has found until
//! there. This module keeps both on disk every few seconds, and at once when something was found, and has the engine go on from
//! there whenever nothing stands against it: no other job, not paused, within the hours of `check_between`.
//!
//! | file | subject |
//! |---|---|
//! | `found` | what the engine says, in the words of the protocol |
//! | `record` | the file between two runs |
//!
//! Invariant: the position that is kept and the findings that are kept are of the same moment, so that nothing is found
//! twice and nothing is passed over.

mod found;
mod record;

use super::orders::order;
use crate::output::{self, time};
use crate::settings::hours::Hours;
use crate::settings::kept::Kept;
use anyhow::{Result, bail};
use braid_array::array::Array;
use braid_array::options::Scrub;
use braid_array::status::{JobOutcome, Scrubbed};
use braid_control::protocol::{InDoubt, ScrubReport, ScrubState};
use braid_device::Target;
use found::{Names, in_doubt, joined, not_begun};
use record::Record;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The position of a check is kept this often.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// A pause waits for what is under way no longer than that; what it has come to is asked again later.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The arrays' checks and repairs.
pub struct Scrubs {
    kept: Kept,
    arrays: Mutex<BTreeMap<[u8; 16], One>>,
}

/// Those of one array.
#[derive(Default)]
struct One {
    hours: Option<Hours>,
    record: Record,
    /// The part that the engine runs.
    part: Option<Part>,
    /// The record as it is on disk, and when it was written.
    stored: Option<(Record, Instant)>,
    /// The engine was asked what is in doubt.
    asked_doubt: bool,
}

struct Part {
    /// Its number in the engine.
    nr: u64,
    /// The report without it.
    before: ScrubReport,
    /// Names of members, for places: a member may be gone when its array has stopped.
    names: Names,
}

/// The checks and repairs of an array, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The one that runs, waits or is paused.
    pub under_way: Option<ScrubReport>,
    /// The last one that has ended.
    pub last: Option<ScrubReport>,
    /// The hours between which they run.
    pub hours: Option<Hours>,
    /// The places that may be wrong since a start by force.
    pub in_doubt: Option<InDoubt>,
}

impl Scrubs {
    /// None is known; what is kept is kept in `kept`.
    pub fn new(kept: Kept) -> Scrubs {
        Scrubs { kept, arrays: Mutex::default() }
    }

    fn arrays(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], One>> {
        // Work that a panic leaves half done is asked of the engine anew.
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hours between which checks and repairs of an array run from now on; `None`: always.
    pub fn set_hours(&self, uuid: [u8; 16], hours: Option<Hours>) {
        self.entry(&mut self.arrays(), uuid).hours = hours;
    }

    fn entry<'a>(&self, arrays: &'a mut BTreeMap<[u8; 16], One>, uuid: [u8; 16]) -> &'a mut One {
        arrays.entry(uuid).or_insert_with(|| {
            let (mut record, wrong) = Record::load(&self.kept, &uuid);
            if let Some(wrong) = wrong {
                output::note(format!(
                    "warning: what is kept of checks in {wrong}; it is as if there had been none"
                ));
            }
            let stored = Some((record.clone(), Instant::now()));
            if let Some(report) =
                record.under_way.as_mut().filter(|one| one.state == ScrubState::Running)
            {
                report.state = ScrubState::Waiting;
            }
            One { record, stored, ..One::default() }
        })
    }

    /// The checks and repairs of an array.
    ///
    /// # Errors
    /// When it has been stopped.
    pub fn known(&self, array: &Array) -> Result<Known> {
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        one.ask(array)?;
        one.ask_doubt(array)?;
        self.keep(one, array, false);
        let Record { under_way, last, in_doubt } = one.record.clone();
        Ok(Known { under_way, last, hours: one.hours, in_doubt })
    }

    /// The places in doubt since a start by force are right.
    ///
    /// # Errors
    /// Nothing is in doubt.
    pub fn accept_doubt(&self, array: &Array) -> Result<String> {
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        one.ask_doubt(array)?;
        let name = array.name();
        if one.record.in_doubt.take().is_none() {
            bail!("nothing is in doubt on array {name}");
        }
        self.keep(one, array, true);
        Ok(format!("nothing is in doubt on array {name} any more"))
    }

    /// Starts a check or repair. Says what happens.
    ///
    /// # Errors
    /// One is under way already, or the engine refuses.
    pub fn start(&self, array: &Array, repair: bool, parity_only: bool) -> Result<String> {
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        one.ask(array)?;
        let name = array.name();
        if let Some(report) = &one.record.under_way {
            bail!("a {} of array {name} {}", report.found.kind, standing(report, name, one.hours));
        }
        let report = not_begun(repair, parity_only, time::now());
        let kind = report.found.kind.clone();
        let scrub = scrub_of(&report);
        order(array, move |control| async move { control.jobs().may_scrub(&scrub) })?;
        if let Some(hours) = one.hours.filter(|hours| !hours.contain(time::minute_of_day())) {
            one.record.under_way = Some(report);
            self.keep(one, array, true);
            return Ok(format!(
                "{kind} of array {name} begins at {} (check_between={hours})",
                hours.begin()
            ));
        }
        one.record.under_way = Some(report);
        if let Err(error) = one.go_on(array) {
            one.record.under_way = None;
            return Err(error);
        }
        self.keep(one, array, true);
        Ok(format!("{kind} of array {name} started; `braid wait {name}` follows it"))
    }

    /// Pauses the check or repair that is under way, until [`Scrubs::resume`].
    ///
    /// # Errors
    /// There is none.
    pub fn pause(&self, array: &Array) -> Result<String> {
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        one.ask(array)?;
        let name = array.name();
        let Some(report) = &mut one.record.under_way else { return none_under_way(name) };
        report.state = ScrubState::Paused;
        report.why = None;
        let kind = report.found.kind.clone();
        one.interrupt(array)?;
        self.keep(one, array, true);
        let done = one.record.under_way.as_ref().map_or(100.0, ScrubReport::percent);
        Ok(format!(
            "{kind} of array {name} is paused at {done:.1} %; `braid {kind} {name} --resume` goes on with it, also after \
             a restart"
        ))
    }

    /// Goes on with the check or repair that is paused.
    ///
    /// # Errors
    /// There is none, or the engine refuses: it is tried again by itself.
    pub fn resume(&self, array: &Array) -> Result<String> {
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        one.ask(array)?;
        let name = array.name();
        let Some(report) = &mut one.record.under_way else { return none_under_way(name) };
        if report.state != ScrubState::Paused {
            let standing = standing(report, name, one.hours);
            return Ok(format!("the {} of array {name} {standing}", report.found.kind));
        }
        report.state = ScrubState::Waiting;
        one.go_on_if_it_may(array);
        self.keep(one, array, true);
        let Some(report) = &one.record.under_way else { return none_under_way(name) };
        Ok(format!(
            "the {} of array {name} {}",
            report.found.kind,
            standing(report, name, one.hours)
        ))
    }

    /// Ends the check or repair that is under way.
    ///
    /// # Errors
    /// There is none.
    pub fn cancel(&self, array: &Array) -> Result<String> {
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        one.ask(array)?;
        let name = array.name();
        if one.record.under_way.is_none() {
            return none_under_way(name);
        }
        one.interrupt(array)?;
        let Some(mut report) = one.record.under_way.take() else {
            return Ok(format!("it had ended; `braid check {name} --last` shows the report"));
        };
        let kind = report.found.kind.clone();
        (report.state, report.why) = (ScrubState::Cancelled, None);
        report.ended = Some(time::now());
        one.record.last = Some(report);
        one.part = None;
        self.keep(one, array, true);
        Ok(format!("{kind} of array {name} cancelled"))
    }

    /// Goes on with what may go on, interrupts what its hours have ended for, and keeps what has come about.
    pub fn look(&self, array: &Array) {
        if array.info().read_only {
            return;
        }
        let mut arrays = self.arrays();
        let one = self.entry(&mut arrays, array.uuid());
        if one.ask(array).is_err() || one.ask_doubt(array).is_err() {
            return;
        }
        if one.part.is_some() && !one.is_time() {
            // It ends by and by, and the next look asks what it has come to; one that has been stopped is asked no more.
            let _ = one.end_part(array);
        }
        one.go_on_if_it_may(array);
        self.keep(one, array, false);
    }

    /// The array has been stopped, and what it ran has come to `ended`.
    pub fn stopped(&self, array: &Array, ended: Option<Scrubbed>) {
        let mut arrays = self.arrays();
        let Some(mut one) = arrays.remove(&array.uuid()) else { return };
        if let Some(ended) = ended {
            one.take(&ended);
        }
        if let Some(report) =
            one.record.under_way.as_mut().filter(|one| one.state == ScrubState::Running)
        {
            report.state = ScrubState::Waiting;
        }
        self.keep(&mut one, array, true);
    }

    /// Keeps the record if it has changed: at once where it is worth it, else now and then.
    fn keep(&self, one: &mut One, array: &Array, at_once: bool) {
        let changed = match &one.stored {
            None => true,
            Some((stored, _)) if *stored == one.record => false,
            Some((stored, when)) => {
                let of = |record: &Record| {
                    record
                        .under_way
                        .as_ref()
                        .map(|one| (one.state, one.found.clone(), one.mismatches))
                        .map(|one| (one, record.in_doubt.clone()))
                };
                at_once || when.elapsed() >= KEEP_EVERY || of(stored) != of(&one.record)
            }
        };
        if !changed || array.info().read_only {
            return;
        }
        if let Err(error) = one.record.store(&self.kept, &array.uuid(), array.name()) {
            output::note(format!(
                "braid: {error}; a restart would not know of it",
                error = crate::output::said(&error)
            ));
        }
        one.stored = Some((one.record.clone(), Instant::now()));
    }
}

impl One {
    /// Now is within the hours.
    fn is_time(&self) -> bool {
        self.hours.is_none_or(|hours| hours.contain(time::minute_of_day()))
    }

    /// Asks the engine what the part that it runs has come to.
    fn ask(&mut self, array: &Array) -> Result<()> {
        let Some(part) = &mut self.part else { return Ok(()) };
        let (now, names) = order(array, |control| async move {
            let now = control.jobs().scrub_now();
            let members = control.status().await.members;
            let names = members.into_iter().map(|member| (member.nr, member.name));
            Ok((now, names.collect::<Names>()))
        })?;
        part.names.extend(names);
        if let Some(now) = now {
            self.take(&now);
        }
        Ok(())
    }

    /// Asks the engine, once, what is in doubt since it was started.
    fn ask_doubt(&mut self, array: &Array) -> Result<()> {
        if self.asked_doubt {
            return Ok(());
        }
        let told = order(array, |control| async move { Ok(control.status().await.in_doubt) })?;
        if let Some(told) = told {
            let (known, size) = (self.record.in_doubt.take(), array.info().device.size);
            self.record.in_doubt = Some(in_doubt(known, &told, size));
        }
        self.asked_doubt = true;
        Ok(())
    }

    /// Takes over what the engine says of a part, if it is the one that it runs.
    fn take(&mut self, now: &Scrubbed) {
        let Some(part) = self.part.as_ref().filter(|part| part.nr == now.nr) else { return };
        let Some(known) = &self.record.under_way else { return };
        let mut report = joined(&part.before, now, &part.names);
        (report.state, report.why) = (known.state, None);
        if report.position != known.position || report.found != known.found || now.outcome.is_some()
        {
            report.updated = time::now();
        } else {
            report.updated = known.updated;
        }
        let Some(outcome) = &now.outcome else {
            if report.state == ScrubState::Waiting {
                report.state = ScrubState::Running;
            }
            self.record.under_way = Some(report);
            return;
        };
        self.part = None;
        match outcome {
            JobOutcome::Interrupted => {
                if report.state != ScrubState::Paused {
                    report.state = ScrubState::Waiting;
                }
                self.record.under_way = Some(report);
                return;
            }
            JobOutcome::Done => report.state = ScrubState::Done,
            JobOutcome::Failed(why) => {
                (report.state, report.why) = (ScrubState::Failed, Some(why.clone()));
            }
        }
        self.has_ended(report);
    }

    /// Nothing is left of the one that was under way; it ended when it was last seen to go on.
    fn has_ended(&mut self, mut report: ScrubReport) {
        report.ended = Some(report.updated);
        self.record.last = Some(report);
        self.record.under_way = None;
    }

    /// Has the engine begin the part that is left.
    fn go_on(&mut self, array: &Array) -> Result<()> {
        let Some(report) = &mut self.record.under_way else { return Ok(()) };
        if report.until > 0 && report.position >= report.until {
            // It had come to its end before a crash, and nobody had asked since.
            let mut report = report.clone();
            (report.state, report.why) = (ScrubState::Done, None);
            self.has_ended(report);
            return Ok(());
        }
        let scrub = scrub_of(report);
        let nr = order(array, move |control| async move { control.jobs().start_scrub(scrub) })?;
        (report.state, report.why) = (ScrubState::Running, None);
        self.part = Some(Part { nr, before: report.clone(), names: Names::new() });
        self.ask(array)
    }

    fn go_on_if_it_may(&mut self, array: &Array) {
        let waits =
            self.record.under_way.as_ref().is_some_and(|one| one.state == ScrubState::Waiting);
        if !waits || self.part.is_some() || !self.is_time() {
            return;
        }
        if let Err(error) = self.go_on(array)
            && let Some(report) = &mut self.record.under_way
        {
            // Most often another job runs; it is tried again at the next look.
            report.why = Some(crate::output::said(&error));
        }
    }

    /// Has the engine end the part that it runs, or not begin it.
    fn end_part(&mut self, array: &Array) -> Result<()> {
        let not_begun = order(array, |control| async move { Ok(control.jobs().cancel_scrub()) })?;
        if self.part.as_ref().is_some_and(|part| Some(part.nr) == not_begun) {
            self.part = None;
            if let Some(report) =
                self.record.under_way.as_mut().filter(|one| one.state == ScrubState::Running)
            {
                report.state = ScrubState::Waiting;
            }
        }
        Ok(())
    }

    /// Ends what the engine runs, and asks what it has come to.
    fn interrupt(&mut self, array: &Array) -> Result<()> {
        let since = Instant::now();
        self.end_part(array)?;
        while self.part.is_some() && since.elapsed() < ENDS_WITHIN {
            self.ask(array)?;
            if self.part.is_some() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

/// The rest of a check or repair, as the engine is asked for it.
fn scrub_of(report: &ScrubReport) -> Scrub {
    Scrub {
        repair: report.found.kind == "repair",
        parity_only: report.parity_only,
        position: report.position,
        mismatches: report.mismatches,
    }
}

fn none_under_way<T>(name: &str) -> Result<T> {
    bail!("no check or repair of array {name} is running, waiting or paused")
}

/// What becomes of a check or repair that is under way, as the rest of a sentence.
fn standing(report: &ScrubReport, name: &str, hours: Option<Hours>) -> String {
    let (kind, done) = (&report.found.kind, report.percent());
    match (report.state, hours) {
        (ScrubState::Paused, _) => format!(
            "is paused at {done:.1} %: `braid {kind} {name} --resume` goes on with it, --cancel ends it"
        ),
        (ScrubState::Waiting, Some(hours)) if !hours.contain(time::minute_of_day()) => {
            format!("goes on at {}, from {done:.1} %; --cancel ends it", hours.begin())
        }
        (ScrubState::Waiting, _) => {
            let why = report.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            format!("goes on from {done:.1} % as soon as it can{why}; --cancel ends it")
        }
        _ => format!("is running, {done:.1} % done; `braid wait {name}` follows it"),
    }
}
