//! The ublk door in a guest, where this program runs again: this machine's kernel may have no driver for it.

use super::door::Door;
use super::outcome::{Options, Outcome};
use crate::session::Session;
use crate::uml::SHARED;
use crate::vm::Vm;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that a guest may live.
const LIMIT: Duration = Duration::from_secs(3600);
/// Take-overs at a door whose figures outside are known, as a measure of what the guest is worth.
const MEASURE: u32 = 20;

/// The driver's device.
pub(super) fn is_needed() -> bool {
    !Path::new("/dev/ublk-control").exists()
}

/// Runs `program`, which is this one, in a guest: first at the NBD door, some times, then at that of ublk.
pub(super) fn run(options: &Options, program: &Path) -> Result<Vec<Outcome>> {
    let mut guest = Session::boot_vm(Vm { limit: LIMIT, ..Vm::default() })?;
    let mut outcomes = Vec::new();
    for (door, times) in [("nbd", options.times.min(MEASURE)), ("ublk", options.times)] {
        let figures = format!("{SHARED}/{door}");
        let script = format!(
            "load ublk_drv\n{program} take-overs --braid {braid} --work /tmp/take-overs --times {times} --seed {seed} \
             --figures {figures} {door} || {{ tail -n 20 /tmp/take-overs/*/log*; dmesg | tail -n 20; exit 1; }}\n\
             ! dmesg | grep -E 'I/O error|Oops|BUG:|WARNING:'",
            program = program.display(),
            braid = options.braid.display(),
            seed = options.seed,
        );
        let output = guest.run(&script, LIMIT).context("running take-overs in a guest")?;
        ensure!(output.status == 0, "in a guest: {}", output.text);
        let found: PathBuf = guest.shared().join(door);
        let text = std::fs::read_to_string(&found).context("reading figures of a guest")?;
        let door = if door == "nbd" { Door::Nbd } else { Door::Ublk };
        let outcome = Outcome::of_figures(door, &text).context("figures of a guest")?;
        outcomes.push(Outcome { in_guest: true, ..outcome });
    }
    Ok(outcomes)
}
