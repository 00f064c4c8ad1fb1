//! Reads: each part straight from the member that has it, or from redundancy on the owner of its unit.

use super::locate::{ReadPlace, locate};
use crate::engine::Engine;
use crate::engine::gather::{self, Gather, Kind, Unrecovered};
use crate::engine::mesh::PieceDone;
use crate::engine::work::RecoverArgs;
use crate::state::view::View;
use braid_device::{BufMuts, Completion, IoError, IoErrorKind, Request};
use braid_layout::{Layout, Level, Slot};
use braid_shard::BufMut;
use braid_shard::plant::planted;
use std::rc::Rc;

/// Reads array bytes from `offset` on into `bufs`.
pub(crate) fn read(engine: &Rc<Engine>, offset: u64, mut bufs: BufMuts, done: Completion) {
    // A request without bytes has been completed already.
    let Some(first) = bufs.first().map(|buf| buf.len() as u64) else { return };
    let (view, gather) = (engine.view(), engine.gather());
    let located = locate(engine, &view, offset, first);
    if bufs.len() == 1
        && located.len == first
        && located.place.is_some_and(|(slot, _)| view.member(slot).is_some())
        && let Some(buf) = bufs.pop()
    {
        gather.begin_alone(offset, done);
        return submit_read(engine, &view, &gather, 0, buf, located.place);
    }
    gather.begin(Kind::Read, done);
    // Not asked for again: a choice among copies counts as a read.
    let mut located = Some(located);
    let mut at = offset;
    for buf in bufs {
        let mut rest = buf;
        let mut starts = true;
        loop {
            let there = || locate(engine, &view, at, rest.len() as u64);
            let ReadPlace { len, place } = located.take().unwrap_or_else(there);
            let tail = (len < rest.len() as u64).then(|| rest.split_off(len as usize));
            let index = gather.add(at, starts);
            starts = false;
            submit_read(engine, &view, &gather, index, rest, place);
            at += len;
            match tail {
                Some(tail) => rest = tail,
                None => break,
            }
        }
    }
    gather.all_submitted();
}

fn submit_read(
    engine: &Rc<Engine>,
    view: &View,
    gather: &Rc<Gather>,
    index: u32,
    buf: BufMut,
    place: Option<(Slot, u64)>,
) {
    let member = place.and_then(|(slot, at)| view.member(slot).map(|member| (member, at)));
    match member {
        Some(((device, data_offset), at)) => {
            let sink = Rc::clone(gather) as Rc<dyn braid_device::Sink>;
            let token = match (engine.level, place) {
                (Level::Raid1 | Level::Raid10, Some((slot, at))) => {
                    engine.balance.begin(slot, at, at + buf.len() as u64);
                    gather::counted(index, slot)
                }
                _ => u64::from(index),
            };
            device.submit(Request::read(data_offset + at, buf), Completion::new(sink, token));
        }
        None => recover_part(engine, Rc::clone(gather), index, buf, None),
    }
}

/// Has part `index` of a read recovered from redundancy, on the owner of its unit. `error` is what
/// the member said that should have given it.
pub(crate) fn recover_part(
    engine: &Rc<Engine>,
    gather: Rc<Gather>,
    index: u32,
    buf: BufMut,
    error: Option<IoError>,
) {
    if !engine.level.has_redundancy() {
        let error = error.unwrap_or(IoError::new(IoErrorKind::Lost));
        return gather.part_done(index, Err(error), Some(buf));
    }
    let offset = gather.offset_of(index);
    let view = engine.view();
    let geometry = view.geometry_at(offset);
    let unit_size = geometry.unit_size();
    let unit = offset / unit_size;
    if offset + buf.len() as u64 > (unit + 1) * unit_size {
        return recover_units(engine, gather, index, buf, error);
    }
    let owner = geometry.owner(unit);
    if owner == engine.shard.id() || planted("recovered-by-any-shard") {
        return recover_here(engine, offset, buf, PieceDone::Part { gather, index }, error);
    }
    engine.mesh.recover(owner, offset, buf, error, (gather, index));
}

/// [`recover_part`] of a part that lies in several units, which may have several owners.
fn recover_units(
    engine: &Rc<Engine>,
    gather: Rc<Gather>,
    index: u32,
    buf: BufMut,
    error: Option<IoError>,
) {
    let view = engine.view();
    let mut at = gather.offset_of(index);
    let units = engine.gather();
    units.begin(Kind::Read, Completion::new(gather, gather::recovered(index)));
    let mut rest = buf;
    let mut starts = true;
    loop {
        let unit_size = view.geometry_at(at).unit_size();
        let len = unit_size - at % unit_size;
        let tail = (len < rest.len() as u64).then(|| rest.split_off(len as usize));
        let part = units.add(at, starts);
        starts = false;
        recover_part(engine, Rc::clone(&units), part, rest, error);
        at += len;
        match tail {
            Some(tail) => rest = tail,
            None => break,
        }
    }
    units.all_submitted();
}

/// Recovers on this shard, which owns the unit.
pub(crate) fn recover_here(
    engine: &Rc<Engine>,
    offset: u64,
    buf: BufMut,
    done: PieceDone,
    error: Option<IoError>,
) {
    engine.count(|counters| counters.recovered_reads += 1);
    if planted("buffer-leaked") {
        std::mem::forget(engine.shard.pool().get(buf.len()));
    }
    let args = (Rc::clone(engine), RecoverArgs { offset, buf, done, error });
    match &engine.view().geometry_at(offset).layout {
        Layout::Parity(_) => engine.tasks().recover_from_parity.spawn(args),
        _ => engine.tasks().recover_from_copies.spawn(args),
    }
}

/// Recovers, one after the other, parts of reads whose member failed, until the array is stopped.
pub(crate) async fn recover_failed(engine: Rc<Engine>) {
    while let Some(part) = engine.gathers.next_unrecovered().await {
        let Unrecovered { gather, index, buf, error } = part;
        recover_part(&engine, gather, index, buf, Some(error));
    }
}
