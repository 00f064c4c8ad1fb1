//! Writes to members that are memory: data and parity are computed where they lie.
//!
//! The caller holds the rows. Each function gives `false` when some member is no memory, or may not be
//! used like this; the ordinary way, with requests to devices, is right then. It is right too when the
//! half of a write was done here already: writing what is there changes no parity.

use super::segment::Segment;
use super::small::Places;
use super::write::Batch;
use crate::view::View;
use braid_layout::{Slot, StripeMap};
use braid_shard::Buf;
use braid_shard::buffer::in_place::{self, Place};
use smallvec::SmallVec;
use std::ops::Range;

/// Where a block goes, and what goes there.
type Block<'a> = (Place<'a>, &'a [u8]);

/// The `len` bytes of `slot`'s member from component byte `at` on; `None` also when they are recorded as bad:
/// then the write has more to do than to write.
fn place(view: &View, slot: Slot, at: u64, len: u64) -> Option<Place<'_>> {
    if view.is_bad(slot, &(at..at + len)) {
        return None;
    }
    view.place(slot, at)
}

/// A small write.
pub(super) fn small(view: &View, places: &Places, new: &Buf) -> bool {
    let at = |slot| place(view, slot, places.at, new.len() as u64);
    let (Some(data), Some(p)) = (at(places.data), at(places.p)) else { return false };
    match places.q {
        None => in_place::update_p(data, new, p),
        Some(q) => at(q).is_some_and(|q| in_place::update_pq(places.exponent, data, new, p, q)),
    }
}

/// Writes of one stripe.
pub(super) fn batch(batch: &Batch<'_>, view: &View) -> bool {
    if !batch.engine.on_memory() || view.broken {
        return false;
    }
    // Lines of a fixed height matter to what is read; nothing is, here.
    let segments = batch.segments(None);
    if !segments.iter().all(|segment| can(batch, view, segment)) {
        return false;
    }
    let data = batch.map.data_chunks();
    for segment in &segments {
        let full = segment.full.len() == data;
        for rows in batch.bands(&segment.rows) {
            let done =
                if full { stripe(batch, view, &rows) } else { blocks(batch, view, segment, &rows) };
            if !done {
                return false;
            }
        }
    }
    for segment in &segments {
        let full = u64::from(segment.full.len() == data);
        let blocks = segment.touched.len() + batch.parity.parity_count();
        batch.engine.count(|counters| {
            counters.full_stripes += full;
            counters.rmw += 1 - full;
            counters.member_writes += blocks as u64;
        });
    }
    true
}

/// True when the members that the segment touches are there, hold what they should, and parity
/// matches.
fn can(batch: &Batch<'_>, view: &View, segment: &Segment) -> bool {
    let (start, end) = (batch.base + segment.rows.start, batch.base + segment.rows.end);
    let full = segment.full.len() == batch.map.data_chunks();
    let usable = |slot: Slot| {
        place(view, slot, start, end - start).is_some()
            && (full || view.readable(slot, &(start..end)))
    };
    (full || end <= view.resynced) && slots(&batch.map, segment).all(usable)
}

fn slots<'a>(map: &'a StripeMap, segment: &'a Segment) -> impl Iterator<Item = Slot> + 'a {
    let data = segment.touched.iter().map(|k| map.data_slot(usize::from(*k)));
    data.chain([map.p_slot()]).chain(map.q_slot())
}

/// Rows of all data chunks, with their parity.
fn stripe(batch: &Batch<'_>, view: &View, rows: &Range<u64>) -> bool {
    let map = &batch.map;
    let at = |slot| place(view, slot, batch.base + rows.start, rows.end - rows.start);
    let payload: Option<SmallVec<[Buf; 16]>> =
        (0..map.data_chunks()).map(|k| batch.payload(k, rows)).collect();
    let Some(payload) = payload else { return false };
    let data: Option<SmallVec<[Block<'_>; 16]>> = payload
        .iter()
        .enumerate()
        .map(|(k, block)| at(map.data_slot(k)).map(|place| (place, &**block)))
        .collect();
    let (Some(data), Some(p)) = (data, at(map.p_slot())) else { return false };
    let Some(q) = map.q_slot() else { return in_place::write_with_p(&data, p) };
    let Some(q) = at(q) else { return false };
    let mut by_exponent: SmallVec<[Option<Block<'_>>; 16]> = SmallVec::new();
    by_exponent.resize(batch.parity.q_width(), None);
    for (k, block) in data.into_iter().enumerate() {
        match by_exponent.get_mut(map.exponent(k)) {
            Some(place) => *place = Some(block),
            None => return false,
        }
    }
    in_place::write_with_pq(&by_exponent, p, q)
}

/// Rows of some data chunks: parity follows each.
fn blocks(batch: &Batch<'_>, view: &View, segment: &Segment, rows: &Range<u64>) -> bool {
    segment.touched.iter().all(|k| {
        let k = usize::from(*k);
        let Some(new) = batch.payload(k, rows) else { return true };
        let places = Places {
            data: batch.map.data_slot(k),
            p: batch.map.p_slot(),
            q: batch.map.q_slot(),
            // An exponent is below the number of slots of a level 6 array, 257 at most.
            exponent: batch.map.exponent(k) as u8,
            at: batch.base + rows.start,
        };
        small(view, &places, &new)
    })
}
