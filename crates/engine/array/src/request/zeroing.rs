//! Write-zeroes and discard: a range of any length, unit by unit, a bounded number at a time.
//!
//! Redundancy must keep matching data, so a discard becomes write-zeroes (with permission to
//! release the space) where every member can do that cheaply, and nothing otherwise: a discard is
//! advice. Parity levels take whole stripes only. Levels without redundancy pass discards down.

use crate::engine::Engine;
use crate::engine::mesh::PieceDone;
use crate::engine::split::Kind;
use crate::state::extent::Extent;
use crate::state::geometries::InUnit;
use crate::state::view::View;
use braid_device::{Completion, Device, IoError, IoErrorKind, Op, Outcome, Request, Sink};
use braid_layout::Layout;
use braid_shard::sync::{Promise, promise};
use std::cell::Cell;
use std::rc::Rc;

/// Units or chunks under way at a time.
const PARTS_MAX: usize = 64;
/// Bytes of zeroes that are written at once where a member cannot make them by itself.
const PLAIN_MAX: u64 = 1 << 20;

/// Discards `len` bytes at `offset`.
pub(crate) fn discard(engine: &Rc<Engine>, offset: u64, len: u64, done: Completion) {
    let (engine, op) = (Rc::clone(engine), Op::Discard { len });
    engine.shard.clone().spawn(async move {
        let _request = engine.begin_request();
        let result = if !engine.view().level().has_redundancy() {
            striped(&engine, offset, len, |len| Op::Discard { len }).await
        } else {
            let (start, end) = whole_stripes(&engine.view(), offset, len);
            if start < end && members_write_zeroes(&engine) {
                units(&engine, start, end - start, true, false).await
            } else {
                Ok(())
            }
        };
        let ignored = result.is_err_and(|error| error.kind == IoErrorKind::Unsupported);
        done.finish(if ignored { Ok(()) } else { result }, op);
    });
}

/// Zeroes `len` bytes at `offset`.
pub(crate) fn write_zeroes(
    engine: &Rc<Engine>,
    offset: u64,
    len: u64,
    unmap: bool,
    fua: bool,
    done: Completion,
) {
    let (engine, op) = (Rc::clone(engine), Op::WriteZeroes { len, unmap, fua });
    engine.shard.clone().spawn(async move {
        let _request = engine.begin_request();
        let result = if engine.view().level().has_redundancy() {
            units(&engine, offset, len, unmap, fua).await
        } else {
            let zeroes = |len| Op::WriteZeroes { len, unmap, fua };
            striped(&engine, offset, len, zeroes).await
        };
        done.finish(result, op);
    });
}

/// Of a range the part that is whole stripes, where there are stripes: its start and its end.
fn whole_stripes(view: &View, offset: u64, len: u64) -> (u64, u64) {
    let end = offset + len;
    let stripe = |at| view.geometry_at(at).parity().map_or(1, |parity| parity.stripe_size());
    // The end of the array, at most, where no stripe begins.
    let last = stripe(end.saturating_sub(1));
    (offset.next_multiple_of(stripe(offset)), end / last * last)
}

fn members_write_zeroes(engine: &Engine) -> bool {
    engine.view().devices().all(|(_, device)| device.info().writes_zeroes)
}

async fn striped(
    engine: &Rc<Engine>,
    offset: u64,
    len: u64,
    op: impl Fn(u64) -> Op,
) -> Result<(), IoError> {
    let mut at = offset;
    while at < offset + len {
        let view = engine.view();
        if view.read_only || view.broken {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        let mut set = engine.sets.start();
        let mut parts = Vec::new();
        for _ in 0..PARTS_MAX {
            if at >= offset + len {
                break;
            }
            let (place, run) = match &view.geometry_at(at).layout {
                Layout::Striped(striped) => striped.map(at),
                Layout::Linear(linear) => linear.map(at),
                _ => return Err(IoError::new(IoErrorKind::Invalid)),
            };
            let run = run.min(offset + len - at);
            let Some((device, data_offset)) = view.member(place.slot) else {
                return Err(IoError::new(IoErrorKind::Lost));
            };
            let request = Request { offset: data_offset + place.offset, op: op(run) };
            set.submit(parts.len() as u32, &**device, request);
            parts.push((Rc::clone(device), data_offset + place.offset, run));
            at += run;
        }
        for (tag, outcome) in set.finish().await {
            let refused = outcome.result.is_err_and(|error| error.kind == IoErrorKind::Unsupported);
            match (outcome.op, parts.get(tag as usize)) {
                (Op::WriteZeroes { fua, .. }, Some((device, offset, run))) if refused => {
                    plain_zeroes(engine, &**device, *offset, *run, fua).await?;
                }
                _ => outcome.result?,
            }
        }
    }
    Ok(())
}

/// Writes zero bytes to a member that cannot make them by itself.
async fn plain_zeroes(
    engine: &Rc<Engine>,
    device: &dyn Device,
    offset: u64,
    len: u64,
    fua: bool,
) -> Result<(), IoError> {
    let mut at = offset;
    while at < offset + len {
        let piece = PLAIN_MAX.min(offset + len - at);
        let request = Request::write(at, engine.scratch.zeroes(piece as usize), fua);
        engine.sets.one(device, request).await.result?;
        at += piece;
    }
    Ok(())
}

async fn units(
    engine: &Rc<Engine>,
    offset: u64,
    len: u64,
    unmap: bool,
    fua: bool,
) -> Result<(), IoError> {
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let (give, wait) = promise(&engine.shard);
        let sink = Rc::new(PromiseSink(Cell::new(Some(give))));
        let split = engine.split();
        split.begin(Kind::WriteZeroes { len, unmap, fua }, Completion::new(sink, 0));
        let view = engine.view();
        for _ in 0..PARTS_MAX {
            if at >= end {
                break;
            }
            let InUnit { geometry, unit, within, left } = view.locate_unit(at);
            let stop = end.min(at + left);
            let extent = Extent { start: within, end: within + (stop - at) };
            let index = split.add(at, false);
            let owner = geometry.owner(unit);
            if owner == engine.shard.id() {
                let done = PieceDone::Part { split: Rc::clone(&split), index };
                crate::write::start::zero_unit(engine, &view, unit, extent, unmap, fua, done);
            } else {
                let part = (Rc::clone(&split), index);
                engine.mesh.zero(owner, unit, extent, unmap, fua, part);
            }
            at = stop;
        }
        drop(view);
        split.all_submitted();
        match wait.await {
            Some(outcome) => outcome.result?,
            None => return Err(IoError::new(IoErrorKind::Refused)),
        }
    }
    Ok(())
}

struct PromiseSink(Cell<Option<Promise<Outcome>>>);

impl Sink for PromiseSink {
    fn complete(&self, _: u64, outcome: Outcome) {
        if let Some(promise) = self.0.take() {
            promise.fulfil(outcome);
        }
    }
}
