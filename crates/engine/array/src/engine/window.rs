//! A window of a long job as shards hand it to each other: which units, and what became of them.

use crate::state::findings::Findings;
use braid_device::IoError;
use braid_layout::Slot;
use braid_shard::plant::planted;

/// The work of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// After an unclean stop: make redundancy match data.
    Resync,
    /// Count where redundancy does not match data.
    Check,
    /// Count, and make it match.
    Repair {
        /// Parity from the data and copies from the first, whoever is wrong.
        parity_only: bool,
    },
    /// Compute what `slot` must hold, and write it there.
    Rebuild {
        /// The slot whose member is being rebuilt.
        slot: Slot,
        /// Another whose member is, as far as it goes on: what the others hold is read once for both. Only where there are
        /// two parities.
        with: Option<Slot>,
    },
    /// Copy what the member of `slot` holds to its replacement.
    Replace {
        /// The slot whose member is being replaced.
        slot: Slot,
    },
}

impl WindowKind {
    /// It corrects what a check counts.
    pub(crate) fn repairs(self) -> bool {
        matches!(self, WindowKind::Repair { .. })
    }

    /// The members are asked which of them is wrong: not where redundancy is made to match whatever the data says.
    pub(crate) fn asks_who_is_wrong(self) -> bool {
        match self {
            WindowKind::Check => true,
            WindowKind::Repair { parity_only } => !parity_only || planted("parity-only-asks"),
            _ => false,
        }
    }
}

/// Units `first .. first + count`, all owned by one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The operation.
    pub kind: WindowKind,
    /// The first unit.
    pub first: u64,
    /// Number of units.
    pub count: u64,
    /// Which sixty-fourths of the unit; all ones: the units as a whole.
    pub slices: u64,
}

/// The outcome of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowReport {
    /// Done, or what could not be had.
    pub result: Result<(), IoError>,
    /// Sectors found different, counted in 4096-byte blocks as md does.
    pub mismatches: u64,
    /// Where, and what could not be read; `None` when there is nothing to say. Boxed: reports travel in
    /// messages that should be small.
    pub findings: Option<Box<Findings>>,
}

impl WindowReport {
    pub(crate) fn failed(error: IoError) -> WindowReport {
        WindowReport { result: Err(error), mismatches: 0, findings: None }
    }

    pub(crate) fn new(
        result: Result<(), IoError>,
        mismatches: u64,
        findings: Findings,
    ) -> WindowReport {
        let findings = (!findings.is_empty()).then(|| Box::new(findings));
        WindowReport { result, mismatches, findings }
    }
}
