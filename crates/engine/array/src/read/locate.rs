//! The member that has the bytes of a read: one part of a request at a time.

use crate::engine::Engine;
use crate::engine::balance::Ties;
use crate::redundancy::copies::{Places, alike, places};
use crate::state::geometry::REGION;
use crate::state::view::View;
use braid_layout::{Layout, Parity, Place, Slot};
use braid_shard::plant::planted;

/// The length of one part of a read, and the member that has all of it, if any.
pub(crate) struct ReadPlace {
    pub(crate) len: u64,
    pub(crate) place: Option<(Slot, u64)>,
}

/// Where `len` bytes at array byte `offset` are read, of copies the first that is whole.
#[inline(always)]
pub(crate) fn locate_read(view: &View, layout: &Layout, offset: u64, len: u64) -> ReadPlace {
    match layout {
        Layout::Parity(parity) => in_stripe(view, parity, offset, len),
        layout => elsewhere(view, layout, offset, len),
    }
}

#[inline(always)]
fn in_stripe(view: &View, parity: &Parity, offset: u64, len: u64) -> ReadPlace {
    let (stripe, k, within) = parity.locate(offset);
    let len = len.min(parity.chunk_size() - within);
    let slot = parity.data_slot(stripe, k);
    let at = parity.member_offset(stripe) + within;
    let readable = view.readable(slot, &(at..at + len));
    ReadPlace { len, place: readable.then_some((slot, at)) }
}

#[inline(never)]
fn elsewhere(view: &View, layout: &Layout, offset: u64, len: u64) -> ReadPlace {
    match layout {
        Layout::Striped(striped) => {
            let (place, run) = striped.map(offset);
            ReadPlace { len: run.min(len), place: Some((place.slot, place.offset)) }
        }
        Layout::Linear(linear) => {
            let (place, run) = linear.map(offset);
            ReadPlace { len: run.min(len), place: Some((place.slot, place.offset)) }
        }
        Layout::Parity(parity) => in_stripe(view, parity, offset, len),
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
            let len = len.min(raid10.chunk_size() - within).min(view.geometries().run(offset));
            let len = alike(view, (chunk_nr, within), len);
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
// Every read comes by here: a call of its own costs a sixtieth of all its instructions.
#[inline(always)]
pub(crate) fn locate(engine: &Engine, view: &View, offset: u64, len: u64) -> ReadPlace {
    match &view.geometry_at(offset).layout {
        layout @ (Layout::Mirror(_) | Layout::Raid10(_)) => {
            locate_copy(engine, view, layout, offset, len)
        }
        layout => locate_read(view, layout, offset, len),
    }
}

/// The length of one part of a read of a mirror, and the member that has all of it, if any.
fn locate_copy(engine: &Engine, view: &View, layout: &Layout, offset: u64, len: u64) -> ReadPlace {
    let heads = view.rotational();
    let (places, len, ties) = match layout {
        Layout::Raid10(raid10) => {
            let (chunk_nr, within) = raid10.locate(offset);
            let len = len.min(raid10.chunk_size() - within).min(view.geometries().run(offset));
            let len = alike(view, (chunk_nr, within), len);
            let mut places = places(view, chunk_nr, within);
            let ties = match heads {
                _ if raid10.is_far() => Ties::First,
                true if raid10.is_offset()
                    && engine.members.balance.goes_on(offset, offset + len)
                    && offset + len <= view.resynced =>
                {
                    // Copies in turn by the chunk's number lie in rows one after the other.
                    let copies = places.len().max(1);
                    places.rotate_left((chunk_nr % copies as u64) as usize);
                    Ties::First
                }
                true => Ties::Nearest,
                false => Ties::Turns,
            };
            (places, len, ties)
        }
        _ => {
            // Cutting is of use to members only that a stream may leave.
            let run = engine.members.balance.run();
            let len = if heads { len } else { len.min(run - offset % run) };
            let len = view.same_until(&(offset..offset + len)) - offset;
            let ties = if heads { Ties::Nearest } else { Ties::Turns };
            (places(view, offset / REGION, offset % REGION), len, ties)
        }
    };
    let readable = |place: &&Place| view.readable(place.slot, &(place.offset..place.offset + len));
    let same = offset + len <= view.resynced || planted("reads-in-turn");
    if !same || (heads && ties == Ties::First) {
        return ReadPlace { len, place: whole(places.iter().find(readable)) };
    }
    let preferred = |place: &&Place| readable(place) && !view.write_mostly(place.slot);
    let copies: Places = places.iter().filter(preferred).copied().collect();
    let place = match copies.is_empty() {
        false => engine.members.balance.choose(&copies, heads, ties),
        true => places.iter().find(readable).copied(),
    };
    ReadPlace { len, place: whole(place.as_ref()) }
}

fn whole(place: Option<&Place>) -> Option<(Slot, u64)> {
    place.map(|place| (place.slot, place.offset))
}
