//! What the engine says of a check or repair, in the words in which it is kept and sent.

use braid_array::state::findings::{Finding, PLACES_MAX, Verdict};
use braid_array::state::in_doubt::InDoubt as Told;
use braid_array::status::Scrubbed as Part;
use braid_control::protocol::{Found, FoundPlace, InDoubt, ScrubReport, ScrubState, Scrubbed};
use std::collections::BTreeMap;

/// Names of members by their numbers.
pub(super) type Names = BTreeMap<u32, String>;

/// A check or repair that has not begun.
pub(super) fn not_begun(repair: bool, parity_only: bool, now: u64) -> ScrubReport {
    ScrubReport {
        state: ScrubState::Waiting,
        why: None,
        parity_only,
        started: now,
        updated: now,
        ended: None,
        from: 0,
        position: 0,
        until: 0,
        mismatches: 0,
        wrong: BTreeMap::new(),
        found: Scrubbed {
            kind: if repair { "repair" } else { "check" }.to_string(),
            places: Vec::new(),
            more: 0,
            unmended: 0,
            lost: 0,
        },
    }
}

/// The report after `part`, of which `before` has nothing.
pub(super) fn joined(before: &ScrubReport, part: &Part, names: &Names) -> ScrubReport {
    let mut report = before.clone();
    if before.until == 0 {
        report.from = part.range.start;
    }
    report.until = part.range.end;
    report.position = part.position;
    // The engine was told of those before.
    report.mismatches = part.mismatches;
    let findings = &part.findings;
    for (nr, bytes) in &findings.wrong {
        *report.wrong.entry(name(names, nr)).or_default() += bytes;
    }
    let mut places = findings.places.iter().map(|found| place(found, names));
    let room = PLACES_MAX.saturating_sub(report.found.places.len());
    report.found.places.extend(places.by_ref().take(room));
    report.found.more += findings.more + places.count() as u64;
    report.found.unmended += findings.unmended;
    report.found.lost += findings.lost;
    report
}

/// The places in doubt of an array of `size` bytes: those that were known, and those that the start by force has added.
pub(super) fn in_doubt(known: Option<InDoubt>, told: &Told, size: u64) -> InDoubt {
    let place = |array: std::ops::Range<u64>, component: std::ops::Range<u64>, slots: &[usize]| {
        FoundPlace {
            offset: array.start,
            length: array.end - array.start,
            component_offset: component.start,
            component_length: component.end - component.start,
            verdict: Found::InDoubt,
            members: slots.iter().map(|slot| format!("the member of slot {slot}")).collect(),
            mended: false,
        }
    };
    let mut all = known.unwrap_or_default();
    let anywhere = told.anywhere.then(|| place(0..size, 0..0, &told.slots));
    let named = told.places.iter();
    let named = named.map(|one| place(one.array.clone(), one.component.clone(), &[one.slot]));
    for place in anywhere.into_iter().chain(named) {
        if all.places.contains(&place) {
            continue;
        }
        match all.places.len() < PLACES_MAX {
            true => all.places.push(place),
            false => all.more += 1,
        }
    }
    all.more = all.more.max(told.more);
    all.places.sort_by_key(|place| (place.offset, place.length));
    all
}

fn name(names: &Names, nr: &u32) -> String {
    names.get(nr).cloned().unwrap_or_else(|| format!("a member that was removed ({nr})"))
}

fn place(found: &Finding, names: &Names) -> FoundPlace {
    FoundPlace {
        offset: found.array.start,
        length: found.array.end - found.array.start,
        component_offset: found.component.start,
        component_length: found.component.end - found.component.start,
        verdict: match found.verdict {
            Verdict::Wrong => Found::Wrong,
            Verdict::Unknown => Found::Unknown,
            Verdict::Several => Found::Several,
            Verdict::Unreadable => Found::Unreadable,
            Verdict::Lost => Found::Lost,
        },
        members: found.members.iter().map(|nr| name(names, nr)).collect(),
        mended: found.mended,
    }
}
