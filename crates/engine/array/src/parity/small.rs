//! The small write to members that are memory: part of one chunk, all members concerned healthy.
//!
//! There it is no more than the update of a few bytes and their parity, done where they lie and at
//! once; see [`crate::at_once`].

use super::segment::Extent;
use crate::engine::Engine;
use crate::view::View;
use braid_layout::{Parity, Slot};
use braid_shard::Buf;
use std::rc::Rc;

/// Where the blocks are: data, P, Q.
pub(super) struct Places {
    pub(super) data: Slot,
    pub(super) p: Slot,
    pub(super) q: Option<Slot>,
    /// The data block's.
    pub(super) exponent: u8,
    /// Component byte.
    pub(super) at: u64,
}

/// Writes `new` at `extent` of stripe `unit`, of which this shard is the owner. False, and nothing
/// done, when it is not of the shape that this module is for.
#[inline]
pub(crate) fn write(
    engine: &Rc<Engine>,
    parity: &Parity,
    unit: u64,
    extent: Extent,
    new: &Buf,
) -> bool {
    let chunk = parity.chunk_size();
    let k = extent.start / chunk;
    let (within, end) = (extent.start - k * chunk, extent.end - k * chunk);
    if end > chunk || !engine.locks.is_free(unit, within, end) {
        return false;
    }
    let Some(_writing) = engine.try_begin_write() else { return false };
    let map = parity.map_stripe(unit);
    let places = Places {
        data: map.data_slot(k as usize),
        p: map.p_slot(),
        q: map.q_slot(),
        // An exponent is below the number of slots of a level 6 array, 257 at most.
        exponent: map.exponent(k as usize) as u8,
        at: parity.member_offset(unit) + within,
    };
    let view = engine.view();
    if !places.healthy(&view, new.len()) || !super::in_place::small(&view, &places, new) {
        return false;
    }
    engine.count(|counters| {
        counters.rmw += 1;
        counters.pieces += 1;
        counters.batches += 1;
        counters.lookups += 1;
        counters.member_writes += 1 + parity.parity_count() as u64;
    });
    engine.cache_forget(unit, within..end);
    true
}

impl Places {
    /// True when all members concerned have valid blocks of `len` bytes there, and parity matches.
    fn healthy(&self, view: &View, len: usize) -> bool {
        let end = self.at + len as u64;
        let mut slots = [Some(self.data), Some(self.p), self.q].into_iter().flatten();
        let bytes = self.at..end;
        !view.broken && end <= view.resynced && slots.all(|slot| view.readable(slot, &bytes))
    }
}
