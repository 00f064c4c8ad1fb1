//! Reads: each part straight from the member that has it, or from redundancy on the owner of its unit.

use super::locate::{ReadPlace, locate};
use crate::engine::Engine;
use crate::engine::mesh::PieceDone;
use crate::engine::split::{self, Kind, Split, Unrecovered};
use crate::engine::work::RecoverArgs;
use crate::state::geometries::InUnit;
use crate::state::view::View;
use braid_device::{Completion, IoError, IoErrorKind, Op, Request, Sink};
use braid_layout::{Layout, Level, Slot};
use braid_shard::BufMut;
use braid_shard::plant::planted;
use std::ops::Range;
use std::rc::Rc;

/// Carries out `request`, a read of `len` bytes, which are some. One that a member can carry out as a whole is passed on
/// as it is.
// Called in one place, for every read: a call of its own costs a twentieth of its instructions.
#[inline(always)]
pub(crate) fn read(engine: &Rc<Engine>, mut request: Request, len: u64, done: Completion) {
    let offset = request.offset;
    let Op::Read(bufs) = &request.op else { return };
    let first = match bufs.as_slice() {
        [_] => len,
        bufs => bufs.first().map_or(0, |buf| buf.len() as u64),
    };
    let view = engine.view();
    let located = locate(engine, &view, offset, first);
    if located.len == len
        && let Some((slot, at)) = located.place
        && let Some((device, data_offset)) = view.member(slot)
        && bufs.len() == 1
    {
        let index = engine.splits.enter_alone(offset, None, done);
        let token = token_of(engine, &view, slot, at..at + len, index);
        let sink = Rc::clone(&engine.splits) as Rc<dyn Sink>;
        request.offset = data_offset + at;
        return device.submit(request, Completion::new(sink, token));
    }
    read_parts(engine, &view, request, done, located);
}

/// [`read`] of several parts, or of one without a member that has it. The first is `located` already, and not asked for
/// again: a choice among copies counts as a read.
#[inline(never)]
fn read_parts(
    engine: &Rc<Engine>,
    view: &View,
    request: Request,
    done: Completion,
    located: ReadPlace,
) {
    let Request { offset, op: Op::Read(bufs) } = request else { return };
    let split = engine.split();
    split.begin(Kind::Read, done);
    let mut located = Some(located);
    let mut at = offset;
    for buf in bufs {
        let mut rest = buf;
        let mut starts = true;
        loop {
            let there = || locate(engine, view, at, rest.len() as u64);
            let ReadPlace { len, place } = located.take().unwrap_or_else(there);
            let tail = (len < rest.len() as u64).then(|| rest.split_off(len as usize));
            let index = split.add(at, starts);
            starts = false;
            submit_read(engine, view, &split, index, rest, place);
            at += len;
            match tail {
                Some(tail) => rest = tail,
                None => break,
            }
        }
    }
    split.all_submitted();
}

fn submit_read(
    engine: &Rc<Engine>,
    view: &View,
    split: &Rc<Split>,
    index: u32,
    buf: BufMut,
    place: Option<(Slot, u64)>,
) {
    let member = place.and_then(|(slot, at)| Some((slot, view.member(slot)?, at)));
    match member {
        Some((slot, (device, data_offset), at)) => {
            let token = token_of(engine, view, slot, at..at + buf.len() as u64, index);
            let sink = Rc::clone(split) as Rc<dyn Sink>;
            device.submit(Request::read(data_offset + at, buf), Completion::new(sink, token));
        }
        None => recover_part(engine, Rc::clone(split), index, buf, None),
    }
}

/// The token of a read of these component bytes of a member, which is part `index` of a request. Where there is a choice
/// among members, the read counts as begun.
#[inline]
fn token_of(engine: &Engine, view: &View, slot: Slot, bytes: Range<u64>, index: u32) -> u64 {
    match view.level() {
        Level::Raid1 | Level::Raid10 => {
            engine.members.balance.begin(slot, bytes.start, bytes.end);
            split::counted(index, slot)
        }
        _ => u64::from(index),
    }
}

/// Has part `index` of a read recovered from redundancy, on the owner of its unit. `error` is what
/// the member said that should have given it.
pub(crate) fn recover_part(
    engine: &Rc<Engine>,
    split: Rc<Split>,
    index: u32,
    buf: BufMut,
    error: Option<IoError>,
) {
    let view = engine.view();
    if !view.level().has_redundancy() {
        let error = error.unwrap_or(IoError::new(IoErrorKind::Lost));
        return split.part_done(index, Err(error), Some(buf));
    }
    let offset = split.offset_of(index);
    let InUnit { geometry, unit, left, .. } = view.locate_unit(offset);
    if buf.len() as u64 > left {
        return recover_units(engine, split, index, buf, error);
    }
    let owner = geometry.owner(unit);
    if owner == engine.shard.id() || planted("recovered-by-any-shard") {
        return recover_here(engine, offset, buf, PieceDone::Part { split, index }, error);
    }
    engine.mesh.recover(owner, offset, buf, error, (split, index));
}

/// [`recover_part`] of a part that lies in several units, which may have several owners.
fn recover_units(
    engine: &Rc<Engine>,
    split: Rc<Split>,
    index: u32,
    buf: BufMut,
    error: Option<IoError>,
) {
    let view = engine.view();
    let mut at = split.offset_of(index);
    let units = engine.split();
    units.begin(Kind::Read, Completion::new(split, split::recovered(index)));
    let mut rest = buf;
    let mut starts = true;
    loop {
        let len = view.locate_unit(at).left;
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
    engine.measured.count(|counters| counters.recovered_reads += 1);
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
    while let Some(part) = engine.splits.next_unrecovered().await {
        let Unrecovered { split, index, buf, error } = part;
        recover_part(&engine, split, index, buf, Some(error));
    }
}
