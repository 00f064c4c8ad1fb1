//! Bytes that are known by their checksum: a user of the array has found that what a read gives is not what was written, and
//! has them looked for in every copy, or in all that can be computed of them.
//!
//! Bytes that are found are written over the copies that differ, or to the member of the data. Parity is left as it is: it was what
//! agreed. At level 6 it may be Q that agreed, and P that has rotten; a check of the array finds that.

use crate::engine::Engine;
use crate::read::from_parity;
use crate::redundancy::copies::{Places, places};
use crate::redundancy::mend::write_over;
use crate::state::geometries::InUnit;
use crate::state::view::View;
use braid_device::{FindAgreeing, Op, Request, Sought};
use braid_layout::{Layout, Place};
use braid_shard::BufMut;
use braid_shard::sync::promise;
use std::rc::Rc;

/// Looks for `sought`, on the shard that owns its unit. It goes on when nobody waits any more.
pub(crate) fn find(engine: &Rc<Engine>, sought: Sought) -> FindAgreeing {
    let end = sought.offset.checked_add(sought.len as u64);
    let fits = end.is_some_and(|end| end <= engine.size.get()) && sought.len > 0;
    let block = u64::from(engine.info.logical_block);
    let is_whole = (sought.offset | sought.len as u64).is_multiple_of(block);
    if !fits || !is_whole || engine.is_stopping() {
        return Sought::nowhere();
    }
    let view = engine.view();
    if let Layout::Striped(_) | Layout::Linear(_) = &view.geometry_at(sought.offset).layout {
        return find_below(&view, sought);
    }
    let InUnit { geometry, unit, left, .. } = view.locate_unit(sought.offset);
    if sought.len as u64 > left {
        return Sought::nowhere();
    }
    let owner = geometry.owner(unit);
    let engine = Rc::clone(engine);
    let (give, wait) = promise(&engine.shard);
    engine.shard.clone().spawn(async move {
        let found = match owner == engine.shard.id() {
            true => find_here(&engine, sought).await,
            false => {
                let _request = engine.begin_request();
                engine.mesh.find_agreeing(owner, sought).await.flatten()
            }
        };
        give.fulfil(found);
    });
    Box::pin(async move { wait.await.flatten() })
}

/// Without redundancy: the member that has the bytes may have some, as an array.
fn find_below(view: &View, sought: Sought) -> FindAgreeing {
    let (place, run) = match &view.geometry_at(sought.offset).layout {
        Layout::Striped(striped) => striped.map(sought.offset),
        Layout::Linear(linear) => linear.map(sought.offset),
        _ => return Sought::nowhere(),
    };
    match view.member(place.slot) {
        Some((device, data_offset)) if run >= sought.len as u64 => {
            device.find_agreeing(sought.at(data_offset + place.offset))
        }
        _ => Sought::nowhere(),
    }
}

/// [`find`] on the shard that owns the unit.
pub(crate) async fn find_here(engine: &Rc<Engine>, sought: Sought) -> Option<BufMut> {
    let _request = engine.begin_request();
    let view = engine.view();
    let geometry = view.geometry_at(sought.offset);
    if let Some(parity) = geometry.parity() {
        return from_parity::find_agreeing(engine, parity, sought).await;
    }
    let (unit, within) = geometry.locate_unit(sought.offset);
    let _held = engine.locks.lock(unit, within, within + sought.len as u64).await;
    among_copies(engine, (unit, within), sought).await
}

/// Takes the first copy that agrees, and writes it over those that do not. The bytes are locked.
async fn among_copies(
    engine: &Rc<Engine>,
    (unit, within): (u64, u64),
    sought: Sought,
) -> Option<BufMut> {
    let view = engine.view();
    let mut good: Option<BufMut> = None;
    let mut wrong = Places::new();
    for place in places(&view, unit, within) {
        let Some(bytes) = read(engine, &view, place, sought).await else { continue };
        match sought.is(&bytes) {
            false => wrong.push(place),
            true => drop(good.get_or_insert(bytes)),
        }
    }
    let good = good?;
    for place in wrong {
        write_over(engine, &view, place, &good).await;
    }
    Some(good)
}

/// The bytes of a member, if they can be read; by its own redundancy, where it is an array and that agrees.
async fn read(
    engine: &Rc<Engine>,
    view: &View,
    Place { slot, offset }: Place,
    sought: Sought,
) -> Option<BufMut> {
    if !view.readable(slot, &(offset..offset + sought.len as u64)) {
        return None;
    }
    let (device, data_offset) = view.member(slot)?;
    let request = Request::read(data_offset + offset, engine.shard.pool().get(sought.len));
    let outcome = engine.sets.one(&**device, request).await;
    if outcome.result.is_err() {
        // A read that somebody waits for finds that out, and mends or fails the member.
        return None;
    }
    let Op::Read(mut bufs) = outcome.op else { return None };
    bufs.pop()
}
