//! Levels 1 and 10: copies of the same bytes on several members.

use crate::state::geometry::REGION;
use crate::state::view::View;
use braid_layout::{Layout, Place};
use smallvec::SmallVec;

/// Where the copies of some bytes of one unit are.
pub(crate) type Places = SmallVec<[Place; 4]>;

/// The copies of the bytes of `unit` that start at byte `within` of it.
pub(crate) fn places(view: &View, unit: u64, within: u64) -> Places {
    match &view.geometry_of(unit).layout {
        Layout::Mirror(mirror) => {
            (0..mirror.slots()).map(|slot| Place { slot, offset: unit * REGION + within }).collect()
        }
        Layout::Raid10(raid10) => (0..raid10.copy_count())
            .map(|copy| {
                let place = raid10.copy(unit, copy);
                Place { slot: place.slot, offset: place.offset + within }
            })
            .collect(),
        _ => Places::new(),
    }
}

/// [`places`] in the order in which they are asked for `len` bytes: write-mostly members come last, but where
/// copies may differ the first in the order of slots counts.
pub(crate) fn in_order(view: &View, (unit, within): (u64, u64), len: u64) -> Places {
    let mut all = places(view, unit, within);
    let end = unit * view.geometry_of(unit).unit_size() + within + len;
    if view.any_write_mostly() && end <= view.resynced {
        // Stable: slots keep their order.
        all.sort_by_key(|place| view.write_mostly(place.slot));
    }
    all
}

/// Of the `len` bytes of `unit` from byte `within` on, how many first ones are such that each copy of them
/// can be read as a whole, or not at all. A unit of level 10 is a chunk.
#[inline]
pub(crate) fn alike(view: &View, (unit, within): (u64, u64), len: u64) -> u64 {
    if !view.uneven() {
        return len;
    }
    let copies = places(view, unit, within);
    let runs = copies.iter().map(|place| {
        view.next_change(place.slot, &(place.offset..place.offset + len)) - place.offset
    });
    runs.min().unwrap_or(len)
}
