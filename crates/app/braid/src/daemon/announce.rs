//! The lines that say that an array is served.

use crate::output::{self, size};
use anyhow::Result;
use braid_array::array::Array;
use braid_device::Target;
use braid_export::Doors;

/// Its name, its state, and where it is exported.
pub fn text(array: &Array, doors: &Doors) -> Vec<String> {
    let info = array.info();
    let status = array.control(|control| async move { control.status().await });
    let state = status.as_ref().map(|status| status.state_line()).unwrap_or_default();
    let mut lines = vec![format!(
        "array {}: {}, {}, {state}",
        array.name(),
        info.description,
        size::human(info.device.size)
    )];
    lines.extend(doors.locations(array.name()).iter().map(|location| format!("  {location}")));
    lines
}

/// Prints them, and what there is to be said beside them.
pub fn announce(array: &Array, doors: &Doors) -> Result<()> {
    let status = array.control(|control| async move { control.status().await });
    for line in status.iter().flat_map(|status| &status.left_out) {
        output::note(format!("left out of array {}: {line}", array.name()));
    }
    for line in status.iter().flat_map(|status| &status.taken_by_force) {
        output::note(format!(
            "warning: array {}: taken by force, what was written since is missing on it: {line}",
            array.name()
        ));
    }
    if let Some(doubt) = status.iter().find_map(|status| status.in_doubt.as_ref()) {
        output::note(format!(
            "warning: array {0}: what it gives of {1} may be wrong near writes of the moment in which it was not \
             stopped cleanly (the write hole); {doubt}: `braid check {0} --last` lists it",
            array.name(),
            output::slots(&doubt.slots)
        ));
    }
    text(array, doors).iter().try_for_each(output::line)
}
