//! Other sizes of a running array: of its components, and of what users see.

use super::orders::order;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::resizing::{self, WantedSize};
use braid_control::protocol::{Answer, Resized, SizeOf};
use braid_device::spec::show_size;

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
            "NVMe/TCP hosts and virtual machines are told; NBD clients see the old size until they connect again or their user \
             tells them, disks of ublk before Linux 6.16 until the server is started again; an array above: braid grow ARRAY \
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
