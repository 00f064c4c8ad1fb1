//! Writes to members that are memory: data and parity are computed where they lie.
//!
//! The caller holds the rows and knows that every member concerned may be used as it is used here.
//! Each function gives `false`, having done nothing, when some member is no memory; the ordinary
//! way, with requests to devices, is right then.

use super::small::Places;
use crate::view::View;
use braid_layout::{Parity, Slot, StripeMap};
use braid_shard::Buf;
use braid_shard::buffer::in_place::{self, Place};
use smallvec::SmallVec;

/// Where a block goes, and what goes there.
type Block<'a> = (Place<'a>, &'a [u8]);

/// The `len` bytes of `slot`'s member from component byte `at` on; `None` also when they are recorded as bad:
/// then the write has more to do than to write.
fn place(view: &View, slot: Slot, at: u64, len: usize) -> Option<Place<'_>> {
    if view.is_bad(slot, &(at..at + len as u64)) {
        return None;
    }
    let (device, data_offset) = view.member(slot)?;
    let memory = device.memory()?;
    Some(Place { memory, at: usize::try_from(data_offset + at).ok()? })
}

/// A small write.
pub(super) fn small(view: &View, places: &Places, new: &Buf) -> bool {
    let at = |slot| place(view, slot, places.at, new.len());
    let (Some(data), Some(p)) = (at(places.data), at(places.p)) else { return false };
    match places.q {
        None => in_place::update_p(data, new, p),
        Some(q) => at(q).is_some_and(|q| in_place::update_pq(places.exponent, data, new, p, q)),
    }
}

/// A whole stripe: `payload` is its data, `base` the component byte where it begins.
pub(super) fn full_stripe(
    view: &View,
    parity: &Parity,
    map: &StripeMap,
    base: u64,
    payload: &Buf,
) -> bool {
    let chunk = parity.chunk_size() as usize;
    if chunk == 0 || payload.len() != chunk * map.data_chunks() {
        return false;
    }
    let at = |slot| place(view, slot, base, chunk);
    let blocks = payload.chunks_exact(chunk);
    let data: Option<SmallVec<[Block<'_>; 16]>> = blocks
        .enumerate()
        .map(|(k, block)| at(map.data_slot(k)).map(|place| (place, block)))
        .collect();
    let (Some(data), Some(p)) = (data, at(map.p_slot())) else { return false };
    let Some(q) = map.q_slot() else { return in_place::write_with_p(&data, p) };
    let Some(q) = at(q) else { return false };
    let mut by_exponent: SmallVec<[Option<Block<'_>>; 16]> = SmallVec::new();
    by_exponent.resize(parity.q_width(), None);
    for (k, block) in data.into_iter().enumerate() {
        match by_exponent.get_mut(map.exponent(k)) {
            Some(place) => *place = Some(block),
            None => return false,
        }
    }
    in_place::write_with_pq(&by_exponent, p, q)
}
