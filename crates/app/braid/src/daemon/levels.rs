//! Another level of a running array.

use super::orders::{order, status};
use super::reshaping::{self, NORMALISE, estimated_rate};
use crate::output::time::span;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::levels::Relevelled;
use braid_array::control::steps::wanted::{WantedArray, WantedLayout};
use braid_array::control::steps::{Step, Steps};
use braid_control::protocol::{Answer, LevelStep, LevelSteps, NewShape, Relevelling};
use braid_device::spec::show_size;
use braid_layout::{Level, layout_name, layout_number};

/// mdadm's word for the layout that moves nothing.
const PRESERVE: &str = "preserve";

/// Gives the array another shape, which at level 1 is another number of copies, or only says what that would mean.
///
/// # Errors
/// The array refuses it, with the reason.
pub(super) fn reshape(array: &Array, shape: &NewShape, dry_run: bool) -> Result<Answer> {
    match status(array)?.level {
        Level::Raid1 => change(array, Level::Raid1, shape, dry_run),
        _ => reshaping::reshape(array, shape, dry_run),
    }
}

/// Gives the array another level, or only says what that would mean.
///
/// # Errors
/// The array refuses it, with the reason.
pub(super) fn change(
    array: &Array,
    level: Level,
    shape: &NewShape,
    dry_run: bool,
) -> Result<Answer> {
    let rate = estimated_rate(&status(array)?);
    let layout = match shape.layout.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => WantedLayout::Any,
        Some(PRESERVE) => WantedLayout::Preserve,
        Some(name) if NORMALISE.contains(&name) => WantedLayout::Normalise,
        Some(name) => WantedLayout::Number(layout_number(level, name)?),
    };
    let wanted =
        WantedArray { level, layout, chunk_size: shape.chunk, raid_disks: shape.raid_disks };
    let Steps { goal, under_way, mut steps } =
        order(array, move |control| async move { control.change_to(wanted, dry_run).await })?;
    let name = array.name();
    if under_way.is_none()
        && steps.len() == 1
        && let Some(Step::Level(_)) = steps.first()
        && let Some(Step::Level(planned)) = steps.pop()
    {
        let report = report(name, planned, dry_run, rate);
        let mut lines = what(&report, dry_run, rate * 1024);
        if dry_run {
            lines.push("nothing was changed (--dry-run)".to_string());
        }
        return Ok(Answer::Relevelling { text: lines.join("\n"), report });
    }
    // Steps already made are in the past tense, later ones are conditional.
    let begins = under_way.is_none() && !dry_run;
    let step = |(nr, step)| {
        let later = dry_run || nr > 0 || !begins;
        match step {
            Step::Level(planned) => LevelStep::Level(report(name, planned, later, rate)),
            Step::Reshape(planned) => {
                LevelStep::Reshape(reshaping::report(name, planned, later, rate))
            }
        }
    };
    let steps: Vec<LevelStep> = steps.into_iter().enumerate().map(step).collect();
    let seconds = |step: &LevelStep| match step {
        LevelStep::Level(report) => report.seconds,
        LevelStep::Reshape(report) => report.seconds,
    };
    let report = LevelSteps {
        array: name.to_string(),
        dry_run,
        new_level: goal.level.to_string(),
        new_layout: layout_name(goal.level, goal.layout),
        new_chunk_size: goal.chunk_size,
        new_raid_devices: goal.raid_disks,
        under_way,
        seconds: steps.iter().map(seconds).sum(),
        steps,
    };
    Ok(Answer::LevelSteps { text: text(&report, rate * 1024), report })
}

/// All steps, at `rate` bytes per second and member.
fn text(report: &LevelSteps, rate: u64) -> String {
    let LevelSteps { array, new_level, dry_run, steps, under_way, .. } = report;
    let goal = match &report.new_layout {
        Some(layout) => format!("{new_level} with layout {layout}"),
        None => new_level.clone(),
    };
    if steps.is_empty() && under_way.is_none() {
        return format!("array {array} stays {goal}: what was to follow is given up");
    }
    let mut lines = Vec::new();
    if let Some(what) = under_way {
        let follows = if steps.is_empty() { "nothing is left to be done" } else { "first comes" };
        lines.push(match steps.is_empty() {
            true => {
                format!("array {array} becomes {goal}: {what} is under way, after which {follows}")
            }
            false => {
                format!("array {array} becomes {goal}; {follows} {what}, which is under way or due")
            }
        });
    } else if steps.len() > 1 {
        let (becomes, count) = (if *dry_run { "would become" } else { "becomes" }, steps.len());
        lines.push(format!("array {array} {becomes} {goal} in {count} steps"));
    }
    for (nr, step) in steps.iter().enumerate() {
        let mut said = match step {
            LevelStep::Level(report) => what(report, report.dry_run, rate),
            LevelStep::Reshape(report) => {
                let mut said = vec![reshaping::what(report)];
                said.extend(reshaping::how(report, rate));
                said
            }
        };
        if (steps.len() > 1 || under_way.is_some())
            && let Some(first) = said.first_mut()
        {
            *first = format!("step {}: {first}", nr + 1);
        }
        lines.extend(said);
    }
    if steps.len() > 1 {
        lines.push(format!("each step begins by itself when the one before has ended and the array is whole; together about {}", span(report.seconds)));
    }
    lines.push(match dry_run {
        true => "nothing was changed (--dry-run)".to_string(),
        false => format!("`braid wait {array}` follows it; after a restart of the server the same command goes on"),
    });
    lines.join("\n")
}

/// A change in numbers, at `rate` KiB per second and member.
fn report(array: &str, planned: Relevelled, dry_run: bool, rate: u64) -> Relevelling {
    let Relevelled { level, layout, raid_disks, chunk_size, .. } = planned;
    let copied = if planned.rebuilt.is_empty() { 0 } else { planned.component_size };
    Relevelling {
        array: array.to_string(),
        dry_run,
        level: level.0.to_string(),
        new_level: level.1.to_string(),
        layout: layout_name(level.0, layout.0),
        new_layout: layout_name(level.1, layout.1),
        raid_devices: raid_disks.0,
        new_raid_devices: raid_disks.1,
        chunk_size: chunk_size.0,
        new_chunk_size: chunk_size.1,
        array_size: planned.array_size,
        copied,
        // One after the other.
        seconds: copied / 1024 * planned.rebuilt.len() as u64 / rate,
        rebuilt: planned.rebuilt,
        freed: planned.freed,
        leaving: planned.leaving,
        missing: planned.empty,
    }
}

/// `later`: it is not done yet; `rate`: bytes per second and member with which the time was estimated.
fn what(report: &Relevelling, later: bool, rate: u64) -> Vec<String> {
    let Relevelling { array, level, new_level, .. } = report;
    let is = if later { "would be" } else { "is" };
    let (old, new) = (report.raid_devices, report.new_raid_devices);
    let mut first = match level == new_level {
        true => {
            let has = if later { "would have" } else { "has" };
            format!("array {array} {has} {new} slots instead of {old}")
        }
        false => format!("array {array} {is} {new_level} instead of {level}"),
    };
    if let Some(layout) = &report.new_layout {
        first.push_str(&format!(", with layout {layout}"));
    }
    if old != new && level != new_level {
        first.push_str(&format!(", with {new} slots instead of {old}"));
    }
    if report.chunk_size != report.new_chunk_size && report.new_chunk_size > 0 {
        first.push_str(&format!(", in chunks of {}", show_size(report.new_chunk_size)));
    }
    let mut lines = vec![first, "no data is moved, and its users see no difference".to_string()];
    if !report.freed.is_empty() {
        lines.push(format!("{} {is} a spare", report.freed.join(", ")));
    }
    if !report.leaving.is_empty() {
        let (leaves, have) = match later {
            true => ("would leave", "have"),
            false => ("has left", "have"),
        };
        lines.push(format!(
            "{} {leaves} the array, since the others {have} all that is there: from then on the loss of any of them loses data",
            report.leaving.join(", ")
        ));
    }
    if !report.rebuilt.is_empty() {
        let (follow, is) = match later {
            true => (String::new(), "would be"),
            false => (format!("; `braid wait {array}` follows it"), "is being"),
        };
        lines.push(format!(
            "{} {is} rebuilt, {} each: about {} at {}/s, if nobody else uses the members{follow}",
            report.rebuilt.join(", "),
            show_size(report.copied),
            span(report.seconds),
            show_size(rate)
        ));
    }
    if report.missing > 0 {
        lines.push(format!(
            "{} of its slots {} without a member: braid add {array} MEMBER gives it one, which is rebuilt",
            report.missing,
            match (later, report.missing) {
                (true, _) => "would be",
                (false, 1) => "is",
                (false, _) => "are",
            }
        ));
    }
    lines
}
