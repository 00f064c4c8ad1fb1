//! The member that has the bytes of a read: one part of a request at a time.

use super::balance;
use crate::engine::Engine;
use crate::state::geometry::REGION;
use crate::state::view::View;
use braid_layout::{Layout, Slot};

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
            let len = crate::redundancy::copies::alike(engine, view, (chunk_nr, within), len);
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
pub(crate) fn locate(engine: &Engine, view: &View, offset: u64, len: u64) -> ReadPlace {
    match &engine.geometry.layout {
        Layout::Mirror(_) | Layout::Raid10(_) => balance::locate(engine, view, offset, len),
        _ => locate_read(engine, view, offset, len),
    }
}
