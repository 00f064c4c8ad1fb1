//! The array as a device: cuts requests into parts, sends each to whoever carries it out.
//!
//! Healthy reads go straight to the members of any shard. Writes, and reads that need redundancy,
//! go to the owner of their unit.

use crate::engine::Engine;
use crate::gather::{self, Gather, Kind};
use crate::geometry::REGION;
use crate::mirror::balance;
use crate::parity::segment::Extent;
use crate::route::PieceDone;
use crate::spawners::{RecoverArgs, WriteArgs, WritePayload};
use crate::view::View;
use braid_device::{
    BufMuts, Bufs, Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, Outcome, Request,
};
use braid_layout::{Layout, Slot};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut};
use std::cell::Cell;
use std::rc::Rc;

/// See the module's documentation.
/// One for each connection.
#[derive(Clone)]
pub(crate) struct ArrayDevice {
    engine: Rc<Engine>,
    info: Rc<DeviceInfo>,
    /// Losses that its client has been told of.
    told: Rc<Cell<u64>>,
}

impl ArrayDevice {
    pub(crate) fn new(engine: &Rc<Engine>) -> ArrayDevice {
        // Losses from before this connection do not concern its client.
        let told = Rc::new(Cell::new(engine.reports.losses()));
        ArrayDevice { engine: Rc::clone(engine), info: engine.info(), told }
    }
}

impl Device for ArrayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn cut_from(&self, bytes: u64) {
        self.engine.set_cut_from(bytes);
    }

    fn layers(&self) -> u32 {
        self.engine.layers()
    }

    fn may_hang(&self) -> bool {
        self.engine.may_hang()
    }

    fn hurry(&self) {
        self.engine.hurry();
    }

    fn waits_for_space(&self) -> bool {
        self.engine.reports.any_waits_for_space()
    }

    fn submit(&self, request: Request, done: Completion) {
        let engine = &self.engine;
        let Request { offset, op } = request;
        let request = Request { offset, op };
        if let Err(error) = request.check(&self.info) {
            return done.finish(Err(error), request.op);
        }
        if engine.stopping.get() {
            return done.finish(Err(IoError::new(IoErrorKind::Refused)), request.op);
        }
        if engine.waits() {
            return engine.keep(request, self.clone(), done);
        }
        let len = request.len();
        if len == 0 && !matches!(request.op, Op::Flush) {
            return done.complete(Outcome::ok(request.op));
        }
        engine.meter.count(&request.op, len);
        let done = engine.time(&request.op, done);
        match request.op {
            Op::Read(bufs) => {
                engine.note_size(len);
                read(engine, offset, bufs, done);
            }
            Op::Write { bufs, fua } => {
                engine.note_size(len);
                write(engine, offset, bufs, fua, done);
            }
            Op::Flush => {
                let (engine, told) = (Rc::clone(engine), Rc::clone(&self.told));
                engine.spawners().flush.spawn((Rc::clone(&engine), told, done));
            }
            Op::Discard { len } => crate::zeroing::discard(engine, offset, len, done),
            Op::WriteZeroes { len, unmap, fua } => {
                crate::zeroing::write_zeroes(engine, offset, len, unmap, fua, done);
            }
        }
    }
}

// --- Reads ----------------------------------------------------------------------------------

/// The length of one part of a read, and the member that has all of it, if any.
pub(crate) struct ReadPlace {
    pub(crate) len: u64,
    pub(crate) place: Option<(Slot, u64)>,
}

#[inline]
pub(crate) fn locate_read(engine: &Engine, view: &View, offset: u64, len: u64) -> ReadPlace {
    match &engine.geometry.layout {
        Layout::Striped(striped) => {
            let (place, run) = striped.map(offset);
            ReadPlace { len: run.min(len), place: Some((place.slot, place.offset)) }
        }
        Layout::Linear(linear) => {
            let (place, run) = linear.map(offset);
            ReadPlace { len: run.min(len), place: Some((place.slot, place.offset)) }
        }
        Layout::Parity(parity) => {
            let (stripe, k, within) = parity.locate(offset);
            let len = len.min(parity.chunk_size() - within);
            let slot = parity.data_slot(stripe, k);
            let at = parity.member_offset(stripe) + within;
            let readable = view.readable(slot, &(at..at + len));
            ReadPlace { len, place: readable.then_some((slot, at)) }
        }
        Layout::Mirror(_) => {
            let len = view.same_until(&(offset..offset + len)) - offset;
            let readable = |slot| view.readable(slot, &(offset..offset + len));
            let preferred = |slot| readable(slot) && !view.write_mostly(slot);
            let slot = if offset + len <= view.resynced {
                let start = (offset / REGION) as usize;
                match pick(view.slots(), start, preferred) {
                    None if view.any_write_mostly() => pick(view.slots(), 0, readable),
                    slot => slot,
                }
            } else {
                // Copies may differ until the resync has come by: all reads take the same one.
                pick(view.slots(), 0, readable)
            };
            ReadPlace { len, place: slot.map(|slot| (slot, offset)) }
        }
        Layout::Raid10(raid10) => {
            let (chunk_nr, within) = raid10.locate(offset);
            let len = len.min(raid10.chunk_size() - within);
            let len = crate::mirror::alike(engine, view, (chunk_nr, within), len);
            let copies = raid10.copy_count();
            let usable = |copy: usize| {
                let place = raid10.copy(chunk_nr, copy);
                let at = place.offset + within;
                view.readable(place.slot, &(at..at + len))
            };
            let start = if offset + len <= view.resynced { chunk_nr as usize } else { 0 };
            let place = pick(copies, start, usable).map(|copy| {
                let place = raid10.copy(chunk_nr, copy);
                (place.slot, place.offset + within)
            });
            ReadPlace { len, place }
        }
    }
}

/// The first of `0..count`, starting at `start` and going round, that is usable.
fn pick(count: usize, start: usize, usable: impl Fn(usize) -> bool) -> Option<usize> {
    (0..count).map(|step| (start + step) % count).find(|candidate| usable(*candidate))
}

/// Where `len` bytes at array byte `offset` are read, with a choice among copies.
#[inline]
fn locate(engine: &Engine, view: &View, offset: u64, len: u64) -> ReadPlace {
    match &engine.geometry.layout {
        Layout::Mirror(_) | Layout::Raid10(_) => balance::locate(engine, view, offset, len),
        _ => locate_read(engine, view, offset, len),
    }
}

fn read(engine: &Rc<Engine>, offset: u64, mut bufs: BufMuts, done: Completion) {
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
            let token = match (&engine.geometry.layout, place) {
                (Layout::Mirror(_) | Layout::Raid10(_), Some((slot, at))) => {
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
    if !engine.geometry.level.has_redundancy() {
        let error = error.unwrap_or(IoError::new(IoErrorKind::Lost));
        return gather.part_done(index, Err(error), Some(buf));
    }
    let offset = gather.offset_of(index);
    let unit_size = engine.geometry.unit_size();
    let unit = offset / unit_size;
    if offset + buf.len() as u64 > (unit + 1) * unit_size {
        return recover_units(engine, gather, index, buf, error);
    }
    let owner = engine.geometry.owner(unit);
    if owner == engine.shard.id() || planted("recovered-by-any-shard") {
        return recover_here(engine, offset, buf, PieceDone::Part { gather, index }, error);
    }
    engine.router.recover(owner, offset, buf, (gather, index));
}

/// [`recover_part`] of a part that lies in several units, which may have several owners.
fn recover_units(
    engine: &Rc<Engine>,
    gather: Rc<Gather>,
    index: u32,
    buf: BufMut,
    error: Option<IoError>,
) {
    let unit_size = engine.geometry.unit_size();
    let mut at = gather.offset_of(index);
    let units = engine.gather();
    units.begin(Kind::Read, Completion::new(gather, gather::recovered(index)));
    let mut rest = buf;
    let mut starts = true;
    loop {
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
    let args = RecoverArgs { engine: Rc::clone(engine), offset, buf, done, error };
    match &engine.geometry.layout {
        Layout::Parity(_) => engine.spawners().parity_recover.spawn(args),
        _ => engine.spawners().mirror_recover.spawn(args),
    }
}

// --- Writes ---------------------------------------------------------------------------------

fn write(engine: &Rc<Engine>, offset: u64, bufs: Bufs, fua: bool, done: Completion) {
    let gather = engine.gather();
    gather.begin(Kind::Write { fua }, done);
    if engine.geometry.level.has_redundancy() {
        write_units(engine, &gather, offset, &bufs, fua);
    } else {
        write_striped(engine, &gather, offset, &bufs, fua);
    }
    drop(bufs);
    gather.all_submitted();
}

/// Cuts at the ends of units and of buffers: what is merged further down needs no copy here.
fn write_units(engine: &Rc<Engine>, gather: &Rc<Gather>, offset: u64, bufs: &Bufs, fua: bool) {
    let unit_size = engine.geometry.unit_size();
    let mut at = offset;
    for buf in bufs {
        let mut done = 0;
        while done < buf.len() {
            let (unit, within) = (at / unit_size, at % unit_size);
            let len = (unit_size - within).min((buf.len() - done) as u64);
            let extent = Extent { start: within, end: within + len };
            let payload = buf.slice(done..done + len as usize);
            let index = gather.add(at, false);
            let owner = engine.geometry.owner(unit);
            if owner == engine.shard.id() {
                let done = PieceDone::Part { gather: Rc::clone(gather), index };
                write_unit(engine, unit, extent, payload, fua, done);
            } else {
                let part = (Rc::clone(gather), index);
                engine.router.write(owner, unit, extent, payload, fua, part);
            }
            done += len as usize;
            at += len;
        }
    }
}

fn write_striped(engine: &Rc<Engine>, gather: &Rc<Gather>, offset: u64, bufs: &Bufs, fua: bool) {
    let view = engine.view();
    let refused = view.read_only || view.broken;
    let mut at = offset;
    for buf in bufs {
        let mut done = 0;
        while done < buf.len() {
            let rest = (buf.len() - done) as u64;
            let ReadPlace { len, place } = locate_read(engine, &view, at, rest);
            let index = gather.add(at, false);
            let member = place.and_then(|(slot, at)| view.member(slot).map(|member| (member, at)));
            match member {
                Some(((device, data_offset), place)) if !refused => {
                    let sink = Rc::clone(gather) as Rc<dyn braid_device::Sink>;
                    let payload = buf.slice(done..done + len as usize);
                    device.submit(
                        Request::write(data_offset + place, payload, fua),
                        Completion::new(sink, u64::from(index)),
                    );
                }
                _ => {
                    let kind = if view.broken { IoErrorKind::Lost } else { IoErrorKind::Refused };
                    gather.part_done(index, Err(IoError::new(kind)), None);
                }
            }
            done += len as usize;
            at += len;
        }
    }
}

/// Writes `payload` at `extent` of a unit that this shard owns.
pub(crate) fn write_unit(
    engine: &Rc<Engine>,
    unit: u64,
    extent: Extent,
    payload: Buf,
    fua: bool,
    done: PieceDone,
) {
    let payload = WritePayload::Data(payload);
    let (engine_of_task, intent) = (Rc::clone(engine), None);
    let args = WriteArgs { engine: engine_of_task, unit, extent, payload, fua, done, intent };
    spawn_write(engine, args);
}

/// Zeroes `extent` of a unit that this shard owns.
pub(crate) fn zero_unit(
    engine: &Rc<Engine>,
    unit: u64,
    extent: Extent,
    unmap: bool,
    fua: bool,
    done: PieceDone,
) {
    let payload = WritePayload::Zeroes { unmap };
    let (engine_of_task, intent) = (Rc::clone(engine), None);
    let args = WriteArgs { engine: engine_of_task, unit, extent, payload, fua, done, intent };
    spawn_write(engine, args);
}

fn spawn_write(engine: &Rc<Engine>, mut args: WriteArgs) {
    args.intent = engine.try_enter(args.unit, args.extent);
    if args.intent.is_none() {
        return engine.spawners().record.spawn(args);
    }
    start_write(engine, args);
}

/// Starts a write whose bits are recorded, where there is a bitmap.
pub(crate) fn start_write(engine: &Rc<Engine>, args: WriteArgs) {
    match &engine.geometry.layout {
        Layout::Parity(_) => crate::parity::waiting::enter(engine, args),
        _ => engine.spawners().mirror_write.spawn(args),
    }
}
