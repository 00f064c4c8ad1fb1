//! Requests that members in memory let be done at once: no task, no lock held, nothing to join.
//!
//! A database's commonest requests touch one chunk. Where the members concerned lend their memory, and
//! nobody holds the range, carrying such a request out is a copy, with parity an update of a few bytes
//! more; anything around that would cost as much again. Every function here gives `false`,
//! having done nothing, when the request is not of that kind, and the ordinary way is right then.
//!
//! Invariant: nothing here waits, so whatever was true at the start is true until the end.

use crate::engine::Engine;
use crate::front::locate_read;
use crate::mirror::places;
use crate::parity::segment::Extent;
use crate::parity::small;
use crate::view::View;
use braid_device::{BufMuts, Bufs};
use braid_layout::Layout;
use braid_shard::buffer::in_place::{self, Place};
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
use std::rc::Rc;

/// The largest such request in bytes. Above, writes that come for one stripe in one turn are better
/// carried out together: whole stripes need nothing read.
const LEN_MAX: usize = 16 << 10;

/// Reads into `bufs` when one member has all of it.
#[inline]
pub(crate) fn read(engine: &Rc<Engine>, offset: u64, bufs: &mut BufMuts) -> bool {
    let [buf] = bufs.as_mut_slice() else { return false };
    if !engine.on_memory() || buf.len() > LEN_MAX {
        return false;
    }
    let view = engine.view();
    let found = locate_read(engine, &view, offset, buf.len() as u64);
    if found.len != buf.len() as u64 {
        return false;
    }
    let Some((slot, at)) = found.place else { return recover(engine, &view, offset, buf) };
    view.place(slot, at).is_some_and(|place| place.memory.read(place.at, buf))
}

/// Reads part of a chunk whose member cannot give it, when all others of its stripe, and P, can.
fn recover(engine: &Engine, view: &View, offset: u64, buf: &mut BufMut) -> bool {
    let Layout::Parity(parity) = &engine.geometry.layout else { return false };
    let (stripe, k, within) = parity.locate(offset);
    let end = within + buf.len() as u64;
    if engine.geometry.owner(stripe) != engine.shard.id()
        || !engine.locks.is_free(stripe, within, end)
    {
        return false;
    }
    let map = parity.map_stripe(stripe);
    let at = parity.member_offset(stripe) + within;
    let bytes = at..at + buf.len() as u64;
    if bytes.end > view.resynced {
        return false;
    }
    let place = |slot| view.place(slot, at).filter(|_| view.readable(slot, &bytes));
    let others = (0..map.data_chunks()).filter(|other| *other != k).map(|k| map.data_slot(k));
    let places: Option<SmallVec<[Place<'_>; 16]>> =
        others.chain([map.p_slot()]).map(place).collect();
    let done = places.is_some_and(|places| in_place::xor(&places, buf));
    engine.count(|counters| counters.recovered_reads += u64::from(done));
    done
}

/// Writes `bufs` when they lie in one unit of this shard that nobody is at work on.
#[inline]
pub(crate) fn write(engine: &Rc<Engine>, offset: u64, bufs: &Bufs) -> bool {
    let [buf] = bufs.as_slice() else { return false };
    if !engine.on_memory() || buf.len() > LEN_MAX {
        return false;
    }
    if !engine.geometry.level.has_redundancy() {
        return plain(engine, offset, buf);
    }
    let unit_size = engine.geometry.unit_size();
    let unit = offset / unit_size;
    let start = offset - unit * unit_size;
    let extent = Extent { start, end: start + buf.len() as u64 };
    if extent.end > unit_size || engine.geometry.owner(unit) != engine.shard.id() {
        return false;
    }
    let Some(_entered) = engine.try_enter(unit, extent) else { return false };
    write_piece(engine, unit, extent, buf)
}

/// Writes part of a unit of this shard; its bits in the bitmap are recorded.
#[inline]
pub(crate) fn write_piece(engine: &Rc<Engine>, unit: u64, extent: Extent, new: &Buf) -> bool {
    if !engine.on_memory() || new.len() > LEN_MAX {
        return false;
    }
    match &engine.geometry.layout {
        Layout::Parity(parity) => small::write(engine, parity, unit, extent, new),
        Layout::Mirror(_) | Layout::Raid10(_) => copies(engine, unit, extent, new),
        Layout::Striped(_) | Layout::Linear(_) => false,
    }
}

/// Levels without redundancy.
fn plain(engine: &Engine, offset: u64, new: &Buf) -> bool {
    let view = engine.view();
    let found = locate_read(engine, &view, offset, new.len() as u64);
    match found.place {
        Some((slot, at)) if found.len == new.len() as u64 => {
            let place = view.place(slot, at).filter(|_| !view.read_only && !view.broken);
            place.is_some_and(|place| place.memory.write(place.at, new))
        }
        _ => false,
    }
}

/// All copies of a mirror.
fn copies(engine: &Rc<Engine>, unit: u64, extent: Extent, new: &Buf) -> bool {
    if !engine.locks.is_free(unit, extent.start, extent.end) {
        return false;
    }
    let Some(_writing) = engine.try_begin_write() else { return false };
    let view = engine.view();
    if view.any_bad() {
        return false;
    }
    let copies = places(engine, unit, extent.start);
    let there = copies.iter().filter(|copy| view.writable(copy.slot));
    let places: Option<SmallVec<[Place<'_>; 4]>> =
        there.map(|copy| view.place(copy.slot, copy.offset)).collect();
    let Some(places) = places.filter(|places| !places.is_empty()) else { return false };
    // A member that is too short has been refused at assembly.
    places.iter().all(|place| place.memory.write(place.at, new))
}
