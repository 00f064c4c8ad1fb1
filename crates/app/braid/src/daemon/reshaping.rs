//! Another shape of a running array: the number of its members, its chunks and layout.

use super::orders::{order, status};
use crate::output::time::span;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::reshaping::{Reshaped, WantedShape};
use braid_array::control::steps::wanted::normal_layout;
use braid_array::status::ArrayStatus;
use braid_control::protocol::{Answer, NewShape, Reshaping};
use braid_device::spec::show_size;
use braid_layout::{layout_name, layout_number};

/// mdadm's words for the layout without a slot that has Q to itself.
pub(super) const NORMALISE: [&str; 2] = ["normalise", "normalize"];

/// The speed that times of jobs are estimated with, in KiB per second and member.
const KIB_PER_SECOND: u64 = 100 << 10;

/// The same for an array that may be limited to less.
pub(super) fn estimated_rate(now: &ArrayStatus) -> u64 {
    KIB_PER_SECOND.min(now.sync_speed.max_kib).max(1)
}

/// Gives the array another shape, or only says what that would mean.
///
/// # Errors
/// The array refuses it, with the reason.
pub(super) fn reshape(array: &Array, shape: &NewShape, dry_run: bool) -> Result<Answer> {
    let now = status(array)?;
    let rate = estimated_rate(&now);
    let number = |name: &str| match name.to_ascii_lowercase().as_str() {
        name if NORMALISE.contains(&name) => Ok(normal_layout(now.level, now.layout)),
        _ => layout_number(now.level, name),
    };
    let wanted = WantedShape {
        raid_disks: shape.raid_disks,
        chunk_size: shape.chunk,
        layout: shape.layout.as_deref().map(number).transpose()?,
    };
    let planned =
        order(array, move |control| async move { control.reshape(wanted, dry_run).await })?;
    let report = report(array.name(), planned, dry_run, rate);
    let mut lines = vec![what(&report)];
    lines.extend(how(&report, rate * 1024));
    lines.push(match dry_run {
        true => "nothing was changed (--dry-run)".to_string(),
        false => format!("`braid wait {}` follows it", array.name()),
    });
    Ok(Answer::Reshaping { text: lines.join("\n"), report })
}

/// A reshape in numbers, at `rate` KiB per second and member.
pub(super) fn report(array: &str, planned: Reshaped, dry_run: bool, rate: u64) -> Reshaping {
    // As much is read from a member as is written to it.
    let kib = planned.on_each / 1024 * 2;
    Reshaping {
        array: array.to_string(),
        dry_run,
        raid_devices: planned.raid_disks.0,
        new_raid_devices: planned.raid_disks.1,
        chunk_size: planned.chunk_size.0,
        new_chunk_size: planned.chunk_size.1,
        layout: layout_name(planned.level, planned.layout.0),
        new_layout: layout_name(planned.level, planned.layout.1),
        array_size: planned.array_size.0,
        new_array_size: planned.array_size.1,
        moved: planned.moved,
        on_each: planned.on_each,
        data_moves_by: planned.data_moves_by,
        backwards: planned.backwards,
        seconds: kib / rate,
        spares: planned.spares,
        freed: planned.freed,
    }
}

/// The two shapes.
pub(super) fn what(report: &Reshaping) -> String {
    let Reshaping { array, dry_run, raid_devices, new_raid_devices, .. } = report;
    let is = if *dry_run { "would be" } else { "is being" };
    let mut what = Vec::new();
    if raid_devices != new_raid_devices {
        what.push(format!("from {raid_devices} members to {new_raid_devices}"));
    }
    if report.chunk_size != report.new_chunk_size {
        let chunks = [report.chunk_size, report.new_chunk_size].map(show_size);
        what.push(format!("from chunks of {} to {}", chunks[0], chunks[1]));
    }
    if let (Some(from), Some(to)) = (&report.layout, &report.new_layout)
        && from != to
    {
        what.push(format!("from layout {from} to {to}"));
    }
    let mut first = format!("array {array} {is} reshaped {}", what.join(", "));
    if !report.spares.is_empty() {
        first.push_str(&format!(": {} gets a slot", report.spares.join(", ")));
    }
    if !report.freed.is_empty() {
        first.push_str(&format!(": {} is a spare when it is done", report.freed.join(", ")));
    }
    first
}

/// The amount that is moved; `rate`: bytes per second and member with which the time was estimated.
pub(super) fn how(report: &Reshaping, rate: u64) -> Vec<String> {
    let (are, moves) = match report.dry_run {
        true => ("would be", "would move"),
        false => ("are", "moves"),
    };
    let mut lines = vec![
        format!(
            "{} of data {are} moved, {} on each member: about {} at {}/s, if nobody else uses the members",
            show_size(report.moved),
            show_size(report.on_each),
            span(report.seconds),
            show_size(rate)
        ),
        format!(
            "the data of each member {moves} {} towards its {}, so that nothing is written over that is still needed",
            show_size(report.data_moves_by),
            if report.backwards { "end" } else { "start" }
        ),
    ];
    if report.array_size != report.new_array_size {
        lines.push(format!(
            "clients see {} instead of {} when it is done, those of NBD when they connect again",
            show_size(report.new_array_size),
            show_size(report.array_size)
        ));
    }
    lines
}
