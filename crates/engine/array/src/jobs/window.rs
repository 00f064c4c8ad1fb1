//! One window of a long job: a run of neighbouring units that one shard owns, locked together.

use crate::engine::Engine;
use crate::engine::window::{Window, WindowKind, WindowReport};
use crate::state::findings::Findings;
use crate::state::geometry::Geometry;
use braid_device::{IoError, IoErrorKind};
use braid_layout::Layout;
use std::rc::Rc;
use std::sync::Arc;

/// A chunk that is larger is gone through slice by slice: a window holds so much of each member at a time, and the
/// size of a chunk is what a superblock says.
const CHUNK_AT_ONCE: u64 = 16 << 20;

/// Carries out a window on this shard, which owns its units.
pub(crate) async fn carry_out(engine: &Rc<Engine>, window: Window) -> WindowReport {
    let geometry = Arc::clone(engine.view().geometries().of_unit(window.first));
    if geometry.layout.chunk_size() <= CHUNK_AT_ONCE {
        return carry_out_at_once(engine, &geometry, window).await;
    }
    let (mut mismatches, mut findings) = (0, Findings::default());
    for first in window.first..window.first + window.count {
        for nr in (0..64).filter(|nr| window.slices >> nr & 1 != 0) {
            let slice = Window { first, count: 1, slices: 1 << nr, ..window };
            let report = carry_out_at_once(engine, &geometry, slice).await;
            mismatches += report.mismatches;
            findings.take(report.findings.map(|found| *found).unwrap_or_default());
            if report.result.is_err() {
                return WindowReport::new(report.result, mismatches, findings);
            }
        }
    }
    WindowReport::new(Ok(()), mismatches, findings)
}

async fn carry_out_at_once(
    engine: &Rc<Engine>,
    geometry: &Geometry,
    window: Window,
) -> WindowReport {
    if engine.is_stopping() {
        return WindowReport::failed(IoError::new(IoErrorKind::Refused));
    }
    if let WindowKind::Replace { slot } = window.kind {
        return crate::jobs::replace::window(engine, geometry, window, slot).await;
    }
    match &geometry.layout {
        Layout::Parity(parity) => crate::jobs::scrub_parity::window(engine, parity, window).await,
        Layout::Mirror(_) | Layout::Raid10(_) => {
            crate::jobs::scrub_copies::window(engine, geometry, window).await
        }
        Layout::Striped(_) | Layout::Linear(_) => WindowReport::new(Ok(()), 0, Findings::default()),
    }
}
