//! One window of a long job: a run of neighbouring units that one shard owns, locked together.

use crate::engine::Engine;
use crate::jobs::findings::Findings;
use crate::write::lock::Held;
use braid_device::{IoError, IoErrorKind};
use braid_layout::{Layout, Slot};
use braid_shard::plant::planted;
use std::rc::Rc;

/// The work of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// After an unclean stop: make redundancy match data.
    Resync,
    /// Count where redundancy does not match data.
    Check,
    /// Count, and make it match.
    Repair,
    /// Compute what `slot` must hold, and write it there.
    Rebuild {
        /// The slot whose member is being rebuilt.
        slot: Slot,
    },
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

/// Sectors of 512 bytes in the 4096-byte blocks in which `a` and `b` (of equal length) differ.
pub(crate) fn differing_sectors(a: &[u8], b: &[u8]) -> u64 {
    const BLOCK: usize = 4096;
    if a == b {
        return 0;
    }
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK));
    blocks.filter(|(a, b)| a != b).map(|(a, _)| a.len().div_ceil(512) as u64).sum()
}

/// Locks the units of a window, in ascending order, wholly.
pub(crate) async fn lock_units(engine: &Engine, window: &Window) -> Vec<Held> {
    let mut held = Vec::with_capacity(window.count as usize);
    let end = if planted("window-unlocked") { window.first } else { window.first + window.count };
    for unit in window.first..end {
        held.push(engine.locks.lock(unit, 0, u64::MAX).await);
    }
    held
}

/// A chunk that is larger is gone through slice by slice: a window holds so much of each member at a time, and the
/// size of a chunk is what a superblock says.
const CHUNK_AT_ONCE: u64 = 16 << 20;

/// Carries out a window on this shard, which owns its units.
pub(crate) async fn carry_out(engine: &Rc<Engine>, window: Window) -> WindowReport {
    if engine.geometry.layout.chunk_size() <= CHUNK_AT_ONCE {
        return carry_out_at_once(engine, window).await;
    }
    let (mut mismatches, mut findings) = (0, Findings::default());
    for first in window.first..window.first + window.count {
        for nr in (0..64).filter(|nr| window.slices >> nr & 1 != 0) {
            let slice = Window { first, count: 1, slices: 1 << nr, ..window };
            let report = carry_out_at_once(engine, slice).await;
            mismatches += report.mismatches;
            findings.take(report.findings.map(|found| *found).unwrap_or_default());
            if report.result.is_err() {
                return WindowReport::new(report.result, mismatches, findings);
            }
        }
    }
    WindowReport::new(Ok(()), mismatches, findings)
}

async fn carry_out_at_once(engine: &Rc<Engine>, window: Window) -> WindowReport {
    if engine.stopping.get() {
        return WindowReport::failed(IoError::new(IoErrorKind::Refused));
    }
    match &engine.geometry.layout {
        Layout::Parity(parity) => crate::jobs::scrub_parity::window(engine, parity, window).await,
        Layout::Mirror(_) | Layout::Raid10(_) => {
            crate::jobs::scrub_copies::window(engine, window).await
        }
        Layout::Striped(_) | Layout::Linear(_) => WindowReport::new(Ok(()), 0, Findings::default()),
    }
}
