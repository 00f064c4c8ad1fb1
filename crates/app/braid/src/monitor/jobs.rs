//! The events of a job: that it has begun, how far it is, and how it has ended, with bytes, time and rate.

use super::Event;
use crate::output::progress::{figures, time_for};
use crate::output::{found, size, time};
use braid_control::protocol::{Detail, Job};
use std::time::Instant;

/// Percent between two reports of how far it is, as with mdadm.
const PERCENT_STEP: u64 = 20;
/// Places that are named of those where redundancy does not match.
const PLACES: usize = 3;

/// A job that has been seen.
pub(super) struct Seen {
    first: Job,
    last: Job,
    since: Instant,
    told: u64,
}

/// A change that has happened to the job of an array.
pub(super) fn look(
    seen: &mut Option<Seen>,
    (before, now): (Option<&Detail>, &Detail),
    at: Instant,
    events: &mut Vec<Event>,
) {
    let same = |seen: &Seen, job: &Job| seen.last.kind == job.kind && job.done >= seen.last.done;
    let goes_on = matches!((&*seen, &now.job), (Some(seen), Some(job)) if same(seen, job));
    // Another job may have followed, and ended, since the last look: then nobody knows how this one ended.
    let followed = before.is_some_and(|before| {
        let kind = |job: &Job| now.last_job.as_ref().is_some_and(|last| last.kind != job.kind);
        before.last_job != now.last_job && before.job.as_ref().is_some_and(kind)
    });
    if !goes_on && let Some(seen) = seen.take() {
        if followed {
            let (name, last) = (&now.name, &seen.last);
            let (done, total) = (size::human(last.done), size::human(last.total));
            let text = format!(
                "{} of array {name} has ended; when last seen it had done {done} of {total}",
                last.kind
            );
            events.push(Event::of(now, "RebuildFinished", None, text));
        } else {
            ended(seen, now, at, events);
        }
    }
    let was_seen = !goes_on && !followed && before.is_some_and(|before| before.job.is_some());
    if let Some(before) = before.filter(|_| !was_seen) {
        between_looks(before, now, events);
    }
    let Some(job) = &now.job else { return };
    let name = &now.name;
    let seen = match seen {
        Some(seen) => seen,
        None => {
            let text =
                format!("{} of array {name} has begun, {}", job.kind, size::human(job.total));
            events.push(Event::of(now, "RebuildStarted", None, text));
            let told = job.percent() as u64 / PERCENT_STEP;
            seen.insert(Seen { first: job.clone(), last: job.clone(), since: at, told })
        }
    };
    seen.last = job.clone();
    let step = job.percent() as u64 / PERCENT_STEP;
    if step > seen.told && step * PERCENT_STEP < 100 {
        seen.told = step;
        let percent = step * PERCENT_STEP;
        let rate = size::rate(job.rate as f64);
        let to_go = job.eta_seconds.map(|left| format!(", {} to go", time::span(left)));
        let to_go = to_go.unwrap_or_default();
        let text = format!("{} of array {name} is {percent} % done, {rate}{to_go}", job.kind);
        events.push(Event::of(now, &format!("Rebuild{percent}"), None, text));
    }
}

/// A job that began and ended from one look to the next.
fn between_looks(before: &Detail, now: &Detail, events: &mut Vec<Event>) {
    let Some(last) = now.last_job.as_ref().filter(|last| before.last_job.as_ref() != Some(last))
    else {
        return;
    };
    let text = format!(
        "{} of array {} has ended, {}, in less than a moment",
        last.kind, now.name, last.outcome
    );
    let event = if last.outcome == "failed" { "JobFailed" } else { "RebuildFinished" };
    events.push(Event::of(now, event, None, text));
}

fn ended(seen: Seen, now: &Detail, at: Instant, events: &mut Vec<Event>) {
    let name = &now.name;
    let kind = &seen.last.kind;
    let last = now.last_job.as_ref().filter(|last| last.kind == *kind);
    let outcome = last.map_or("interrupted", |last| last.outcome.as_str());
    let until = if outcome == "done" { seen.last.total } else { seen.last.done };
    // It had been running for a moment when it was first seen.
    let before = time_for(seen.first.done, seen.last.rate.max(seen.first.rate));
    let time = at.duration_since(seen.since) + before;
    let moved = figures(until, time);
    if outcome == "failed" {
        let why = last.and_then(|last| last.error.clone()).unwrap_or_default();
        let text = format!("{kind} of array {name} has failed after {moved}: {why}");
        events.push(Event::of(now, "JobFailed", None, text));
        return;
    }
    let text = format!("{kind} of array {name} has ended, {outcome}: {moved}");
    events.push(Event::of(now, "RebuildFinished", None, text));
    let mismatches = last.map_or(0, |last| last.mismatches);
    if mismatches > 0 && (kind == "check" || kind == "repair") {
        let mut text =
            format!("{kind} of array {name} has found {mismatches} sectors that do not match");
        let places = now.scrubbed.iter().flat_map(found::lines).take(PLACES);
        places.for_each(|place| text.push_str(&format!("; {place}")));
        events.push(Event::of(now, "MismatchFound", None, text));
    }
}
