//! Writes of part of one unit to all its copies.

use crate::engine::Engine;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::redundancy::copies::places;
use crate::state::extent::Extent;
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind, Op, Outcomes, Request};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Carries out one write and tells `done`.
pub(crate) async fn write(engine: Rc<Engine>, args: WriteArgs) {
    let WriteArgs { unit, extent, payload, fua, .. } = &args;
    let result = write_copies(&engine, *unit, *extent, payload, *fua).await;
    args.finish(&engine.mesh, result);
}

async fn write_copies(
    engine: &Rc<Engine>,
    unit: u64,
    extent: Extent,
    payload: &WritePayload,
    fua: bool,
) -> Result<(), IoError> {
    // Overlapping writes must reach all copies in the same order.
    let end = if planted("copies-unlocked") { extent.start } else { extent.end };
    let _held = match engine.locks.try_lock(unit, extent.start, end) {
        Some(held) => held,
        None => engine.locks.lock(unit, extent.start, end).await,
    };
    let _writing = match engine.try_begin_write() {
        Some(writing) => writing,
        None => engine.begin_write().await?,
    };
    let view = engine.view();
    let by_member = matches!(payload, WritePayload::Zeroes { .. })
        && view.devices().all(|(_, device)| device.info().writes_zeroes);
    let outcomes = write_once(engine, &view, (unit, extent), payload, by_member, fua).await?;
    if by_member && outcomes.any_error(|error| error.kind == IoErrorKind::Unsupported) {
        // A member that cannot do this here, although it says so, is told in plain writes.
        let outcomes = write_once(engine, &view, (unit, extent), payload, false, fua).await?;
        return engine.settle_writes(&view, outcomes).await;
    }
    engine.settle_writes(&view, outcomes).await
}

/// Writes all copies; with `by_member` zeroes by the members' own means.
async fn write_once(
    engine: &Rc<Engine>,
    view: &View,
    (unit, extent): (u64, Extent),
    payload: &WritePayload,
    by_member: bool,
    fua: bool,
) -> Result<Outcomes, IoError> {
    let len = extent.end - extent.start;
    let mut set = engine.sets.start();
    let mut copies = 0;
    for place in places(engine, unit, extent.start) {
        let Some((device, data_offset)) = view.member(place.slot) else { continue };
        if planted("target-left-out") && !view.readable(place.slot, &(place.offset..place.offset)) {
            continue;
        }
        let op = match payload {
            WritePayload::Data(buf) => Op::Write { bufs: [buf.clone()].into_iter().collect(), fua },
            WritePayload::Zeroes { unmap } if by_member => {
                Op::WriteZeroes { len, unmap: *unmap, fua }
            }
            WritePayload::Zeroes { .. } => {
                Op::Write { bufs: [engine.zeroes(len as usize)].into_iter().collect(), fua }
            }
        };
        let request = Request { offset: data_offset + place.offset, op };
        set.submit(place.slot as u32, &**device, request);
        copies += 1;
    }
    if copies == 0 {
        return Err(IoError::new(IoErrorKind::Lost));
    }
    Ok(set.finish().await)
}
