//! Other sizes of a running array: of its components, of what users see, and the number of its members.

use super::orders::{order, status};
use crate::output::time::span;
use crate::protocol::{Answer, Reshaping, Resized, SizeOf};
use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::resizing::{self, WantedSize};
use braid_device::spec::show_size;

/// The speed that the time of a reshape is estimated with, in KiB per second and member.
const KIB_PER_SECOND: u64 = 100 << 10;

/// Uses more members, or only says what that would mean.
///
/// # Errors
/// The array refuses it, with the reason.
pub(super) fn reshape(array: &Array, raid_disks: usize, dry_run: bool) -> Result<Answer> {
    let rate = KIB_PER_SECOND.min(status(array)?.sync_speed.max_kib).max(1);
    let planned =
        order(
            array,
            move |control| async move { control.set_raid_disks(raid_disks, dry_run).await },
        )?;
    // As much is read from a member as is written to it.
    let kib = planned.on_each / 1024 * 2;
    let report = Reshaping {
        array: array.name().to_string(),
        dry_run,
        raid_devices: planned.raid_disks.0,
        new_raid_devices: planned.raid_disks.1,
        array_size: planned.array_size.0,
        new_array_size: planned.array_size.1,
        moved: planned.moved,
        on_each: planned.on_each,
        data_moves_by: planned.data_moves_by,
        seconds: kib / rate,
        spares: planned.spares,
    };
    Ok(Answer::Reshaping { text: reshape_text(&report, rate * 1024), report })
}

/// `rate`: bytes per second and member with which the time was estimated.
fn reshape_text(report: &Reshaping, rate: u64) -> String {
    let Reshaping { array, dry_run, raid_devices, new_raid_devices, .. } = report;
    let is = if *dry_run { "would be" } else { "is being" };
    let mut lines = vec![
        format!(
            "array {array} {is} reshaped from {raid_devices} members to {new_raid_devices}: {} gets a slot",
            report.spares.join(", ")
        ),
        format!(
            "{} of data are moved, {} on each member: about {} at {}/s, if nobody else uses the members",
            show_size(report.moved),
            show_size(report.on_each),
            span(report.seconds),
            show_size(rate)
        ),
        format!(
            "the data of each member moves {} towards its start, so that nothing is written over that is still needed",
            show_size(report.data_moves_by)
        ),
        format!(
            "clients see {} instead of {} when it is done and they connect again",
            show_size(report.new_array_size),
            show_size(report.array_size)
        ),
    ];
    lines.push(match dry_run {
        true => "nothing was changed (--dry-run)".to_string(),
        false => format!("`braid wait {array}` follows it"),
    });
    lines.join("\n")
}

/// Changes a size (`None`: to all that there is), or only says what that would mean.
///
/// # Errors
/// The array refuses it, with the reason.
pub(super) fn resize(
    array: &Array,
    what: SizeOf,
    size: Option<u64>,
    dry_run: bool,
) -> Result<Answer> {
    let wanted = size.map_or(WantedSize::Max, WantedSize::Bytes);
    let resized = order(array, move |control| async move {
        match what {
            SizeOf::Component => control.set_component_size(wanted, dry_run).await,
            SizeOf::Array => control.set_array_size(wanted, dry_run).await,
        }
    })?;
    let text = text(array.name(), &resized, dry_run);
    let report = Resized {
        array: array.name().to_string(),
        dry_run,
        component_size: resized.component_size.0,
        new_component_size: resized.component_size.1,
        array_size: resized.array_size.0,
        new_array_size: resized.array_size.1,
        resync: resized.resync,
        new_bitmap_chunk: resized.bitmap_chunk.map(|(_, chunk)| chunk.into()),
    };
    Ok(Answer::Resized { text, report })
}

fn text(name: &str, resized: &resizing::Resized, dry_run: bool) -> String {
    let (component, array) = (resized.component_size, resized.array_size);
    if component.0 == component.1 && array.0 == array.1 {
        return format!("array {name} has that size already: nothing to do");
    }
    let mut lines = Vec::new();
    let mut say = |what: &str, (from, to): (u64, u64)| {
        let is = if dry_run { "would be" } else { "is" };
        if from != to {
            lines.push(format!("{what} {is} {}, it was {}", show_size(to), show_size(from)));
        }
    };
    say(&format!("array {name}: what is used of each component"), component);
    say(&format!("array {name}: what its users see"), array);
    if let Some((from, to)) = resized.bitmap_chunk.filter(|(from, to)| from != to) {
        let (from, to) = (show_size(from.into()), show_size(to.into()));
        lines.push(format!(
            "a bit of its bitmap stands for {to}, it was {from}: else it would not fit its room"
        ));
    }
    if resized.resync > 0 {
        let bytes = show_size(resized.resync);
        let follow =
            if dry_run { String::new() } else { format!("; `braid wait {name}` follows it") };
        lines.push(format!("{bytes} that are new are resynced{follow}"));
    }
    if array.0 != array.1 {
        lines.push(
            "clients that are connected see the old size until they connect again; an array above: braid grow ARRAY \
             --size max"
                .to_string(),
        );
    }
    if dry_run {
        lines.push("nothing was changed (--dry-run)".to_string());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_and_what_would_be_is_told_apart() {
        let resized = resizing::Resized {
            component_size: (1 << 20, 2 << 20),
            array_size: (3 << 20, 6 << 20),
            resync: 1 << 20,
            bitmap_chunk: Some((4096, 8192)),
        };
        let done = text("a", &resized, false);
        assert!(done.contains("is 6M, it was 3M"), "{done}");
        assert!(done.contains("stands for 8K, it was 4K"), "{done}");
        let would = text("a", &resized, true);
        assert!(
            would.contains("would be 2M, it was 1M") && would.ends_with("(--dry-run)"),
            "{would}"
        );
        let same = resizing::Resized {
            component_size: (1, 1),
            array_size: (2, 2),
            resync: 0,
            bitmap_chunk: None,
        };
        assert!(text("a", &same, false).contains("nothing to do"));
    }
}
