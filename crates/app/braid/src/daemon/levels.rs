//! Another level of a running array.

use super::orders::{order, status};
use super::reshaping::estimated_rate;
use crate::output::time::span;
use crate::protocol::{Answer, NewShape, Relevelling};
use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::levels::{Relevelled, WantedLevel};
use braid_device::spec::show_size;
use braid_layout::{Level, layout_name, layout_number};

/// mdadm's word for the layout that moves nothing.
const PRESERVE: &str = "preserve";

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
    let layout = shape.layout.as_deref().filter(|name| !name.eq_ignore_ascii_case(PRESERVE));
    let wanted = WantedLevel {
        level,
        chunk_size: shape.chunk,
        layout: layout.map(|name| layout_number(level, name)).transpose()?,
        raid_disks: shape.raid_disks,
    };
    let planned =
        order(array, move |control| async move { control.change_level(wanted, dry_run).await })?;
    let Relevelled { level, layout, raid_disks, chunk_size, .. } = planned;
    let copied = if planned.rebuilt.is_empty() { 0 } else { planned.component_size };
    let report = Relevelling {
        array: array.name().to_string(),
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
    };
    Ok(Answer::Relevelling { text: text(&report, rate * 1024), report })
}

/// `rate`: bytes per second and member with which the time was estimated.
fn text(report: &Relevelling, rate: u64) -> String {
    let Relevelling { array, dry_run, level, new_level, .. } = report;
    let is = if *dry_run { "would be" } else { "is" };
    let mut first = format!("array {array} {is} {new_level} instead of {level}");
    if let Some(layout) = &report.new_layout {
        first.push_str(&format!(", with layout {layout}"));
    }
    if report.raid_devices != report.new_raid_devices {
        let (old, new) = (report.raid_devices, report.new_raid_devices);
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
        let (leaves, have) = match dry_run {
            true => ("would leave", "have"),
            false => ("has left", "have"),
        };
        lines.push(format!(
            "{} {leaves} the array, since the others {have} all that is there: from then on the loss of any of them loses data",
            report.leaving.join(", ")
        ));
    }
    if !report.rebuilt.is_empty() {
        let (follow, is) = match dry_run {
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
            match (*dry_run, report.missing) {
                (true, _) => "would be",
                (false, 1) => "is",
                (false, _) => "are",
            }
        ));
    }
    if *dry_run {
        lines.push("nothing was changed (--dry-run)".to_string());
    }
    lines.join("\n")
}
