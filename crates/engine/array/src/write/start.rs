//! Writes: cut at the ends of units, each part handed to the owner of its unit, where it enters under the
//! consistency policy.

use crate::consistency::Entered;
use crate::engine::Engine;
use crate::engine::mesh::PieceDone;
use crate::engine::queues::Sizes;
use crate::engine::split::{Kind, Split};
use crate::engine::work::{WriteArgs, WritePayload};
use crate::read::locate::{ReadPlace, locate_read};
use crate::state::extent::Extent;
use crate::state::geometries::InUnit;
use crate::state::view::View;
use braid_device::request::only;
use braid_device::{Bufs, Completion, IoError, IoErrorKind, Op, Request};
use braid_layout::Layout;
use braid_shard::Buf;
use std::rc::Rc;

/// Carries out `request`, a write of `len` bytes, which are some.
pub(crate) fn write(engine: &Rc<Engine>, request: Request, len: u64, done: Completion) {
    let offset = request.offset;
    let Op::Write { bufs, .. } = &request.op else { return };
    // The commonest is of one buffer for a part of a unit that this shard owns. It needs the view for a moment only.
    let is_one = bufs.len() == 1;
    let part = engine.members.look(|view| locate(engine, view, offset, len).filter(|_| is_one));
    let Some(Part { unit, extent, entered, sizes }) = part else {
        let view = engine.view();
        return match view.geometry_at(offset).level.has_redundancy() {
            true => write_parts(engine, &view, request, done),
            false => write_to_member(engine, &view, request, len, done),
        };
    };
    let Op::Write { bufs, fua } = request.op else { return };
    let Ok(payload) = only(bufs) else { return };
    let done = PieceDone::Alone { request: engine.begin_request(), fua, done };
    let payload = WritePayload::Data(payload);
    let args = WriteArgs { unit, extent, payload, fua, done, entered };
    match sizes {
        _ if args.entered.is_none() => engine.tasks().record.spawn((Rc::clone(engine), args)),
        Some(sizes) => crate::write::waiting::enter(engine, sizes, args),
        None => engine.tasks().write_copies.spawn((Rc::clone(engine), args)),
    }
}

/// A write of part of a unit that this shard owns.
struct Part {
    unit: u64,
    extent: Extent,
    /// `None`: something has to be recorded before it.
    entered: Option<Entered>,
    /// Those of its stripe, at the levels that have such.
    sizes: Option<Sizes>,
}

/// The `len` bytes at `offset` as a part of one unit that this shard owns; `None` if they are not.
#[inline(always)]
fn locate(engine: &Engine, view: &View, offset: u64, len: u64) -> Option<Part> {
    if !view.geometry_at(offset).level.has_redundancy() {
        return None;
    }
    let InUnit { geometry, unit, within, left } = view.locate_unit(offset);
    if len > left || geometry.owner(unit) != engine.shard.id() {
        return None;
    }
    let extent = Extent { start: within, end: within + len };
    let entered = engine.consistency.try_enter(geometry, unit, extent);
    Some(Part { unit, extent, entered, sizes: geometry.parity().map(Sizes::of) })
}

/// [`write`] without redundancy. One that a member can carry out as a whole is passed on as it is.
#[inline]
fn write_to_member(
    engine: &Rc<Engine>,
    view: &View,
    mut request: Request,
    len: u64,
    done: Completion,
) {
    let Op::Write { bufs, fua } = &request.op else { return };
    let offset = request.offset;
    let located = locate_read(view, &view.geometry_at(offset).layout, offset, len);
    if located.len == len
        && bufs.len() == 1
        && let Some((slot, at)) = located.place
        && let Some((device, data_offset)) = view.member(slot)
        && !is_refused(view)
    {
        let index = engine.splits.enter_alone(offset, Some(*fua), done);
        let sink = Rc::clone(&engine.splits) as Rc<dyn braid_device::Sink>;
        request.offset = data_offset + at;
        return device.submit(request, Completion::new(sink, u64::from(index)));
    }
    write_parts(engine, view, request, done);
}

/// Nothing is written.
#[inline]
fn is_refused(view: &View) -> bool {
    view.read_only || view.broken
}

/// [`write`] of several units, or of one that another shard owns, or of parts of several members.
#[inline(never)]
fn write_parts(engine: &Rc<Engine>, view: &View, request: Request, done: Completion) {
    let Request { offset, op: Op::Write { bufs, fua } } = request else { return };
    let split = engine.split();
    split.begin(Kind::Write { fua }, done);
    if view.geometry_at(offset).level.has_redundancy() {
        write_units(engine, view, &split, offset, &bufs, fua);
    } else {
        write_striped(view, &split, offset, &bufs, fua);
    }
    drop(bufs);
    split.all_submitted();
}

/// Cuts at the ends of units and of buffers: what is merged further down needs no copy here.
fn write_units(
    engine: &Rc<Engine>,
    view: &View,
    split: &Rc<Split>,
    offset: u64,
    bufs: &Bufs,
    fua: bool,
) {
    let mut at = offset;
    for buf in bufs {
        let mut done = 0;
        while done < buf.len() {
            let InUnit { geometry, unit, within, left } = view.locate_unit(at);
            let len = left.min((buf.len() - done) as u64);
            let extent = Extent { start: within, end: within + len };
            let payload = buf.slice(done..done + len as usize);
            let index = split.add(at, false);
            let owner = geometry.owner(unit);
            if owner == engine.shard.id() {
                let done = PieceDone::Part { split: Rc::clone(split), index };
                write_unit(engine, view, unit, extent, payload, fua, done);
            } else {
                let part = (Rc::clone(split), index);
                engine.mesh.write(owner, unit, extent, payload, fua, part);
            }
            done += len as usize;
            at += len;
        }
    }
}

fn write_striped(view: &View, split: &Rc<Split>, offset: u64, bufs: &Bufs, fua: bool) {
    let refused = is_refused(view);
    let mut at = offset;
    for buf in bufs {
        let mut done = 0;
        while done < buf.len() {
            let rest = (buf.len() - done) as u64;
            let ReadPlace { len, place } =
                locate_read(view, &view.geometry_at(at).layout, at, rest);
            let index = split.add(at, false);
            let member = place.and_then(|(slot, at)| view.member(slot).map(|member| (member, at)));
            match member {
                Some(((device, data_offset), place)) if !refused => {
                    let sink = Rc::clone(split) as Rc<dyn braid_device::Sink>;
                    let payload = buf.slice(done..done + len as usize);
                    device.submit(
                        Request::write(data_offset + place, payload, fua),
                        Completion::new(sink, u64::from(index)),
                    );
                }
                _ => {
                    let kind = if view.broken { IoErrorKind::Lost } else { IoErrorKind::Refused };
                    split.part_done(index, Err(IoError::new(kind)), None);
                }
            }
            done += len as usize;
            at += len;
        }
    }
}

/// Writes `payload` at `extent` of a unit that this shard owns.
#[inline]
pub(crate) fn write_unit(
    engine: &Rc<Engine>,
    view: &View,
    unit: u64,
    extent: Extent,
    payload: Buf,
    fua: bool,
    done: PieceDone,
) {
    let payload = WritePayload::Data(payload);
    spawn_write(engine, view, WriteArgs { unit, extent, payload, fua, done, entered: None });
}

/// Zeroes `extent` of a unit that this shard owns.
pub(crate) fn zero_unit(
    engine: &Rc<Engine>,
    view: &View,
    unit: u64,
    extent: Extent,
    unmap: bool,
    fua: bool,
    done: PieceDone,
) {
    let payload = WritePayload::Zeroes { unmap };
    spawn_write(engine, view, WriteArgs { unit, extent, payload, fua, done, entered: None });
}

#[inline(always)]
fn spawn_write(engine: &Rc<Engine>, view: &View, mut args: WriteArgs) {
    args.entered = engine.try_enter(view, args.unit, args.extent);
    if args.entered.is_none() {
        return engine.tasks().record.spawn((Rc::clone(engine), args));
    }
    start_write(engine, view, args);
}

/// Starts a write that has entered.
#[inline(always)]
pub(crate) fn start_write(engine: &Rc<Engine>, view: &View, args: WriteArgs) {
    match &view.geometry_of(args.unit).layout {
        Layout::Parity(parity) => {
            crate::write::waiting::enter(engine, Sizes::of(parity), args);
        }
        _ => engine.tasks().write_copies.spawn((Rc::clone(engine), args)),
    }
}
