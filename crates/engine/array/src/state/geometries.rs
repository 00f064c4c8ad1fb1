//! The geometry of each part of an array: the same everywhere, or two with a border between them, as while an array is
//! reshaped.
//!
//! Requests ask by address: of an array byte when they are cut, of a unit when they have been. Both must give the same
//! geometry, so no two units may have the same number: below the border units are not smaller than above it, which is
//! how md goes about it too (a larger array is reshaped from its start, a smaller one from its end).
//!
//! The border stands where a unit of the geometry below ends. The unit of the other one that it cuts in two is used from
//! there on: its first part has moved, and stays on the members as it was, so that its parity still holds.

use crate::state::geometry::Geometry;
use std::sync::Arc;

/// See the module's documentation. Part of a [`View`](crate::state::view::View): it changes with it, as a whole.
#[derive(Clone, Debug)]
pub struct Geometries {
    below: Arc<Geometry>,
    above: Arc<Geometry>,
    /// The first array byte, and the first unit, of the geometry above: 0 when nothing has the one below. Whole units of that.
    border: u64,
    first_above: u64,
}

impl Geometries {
    /// The same geometry everywhere.
    pub fn one(geometry: Arc<Geometry>) -> Geometries {
        Geometries { below: Arc::clone(&geometry), above: geometry, border: 0, first_above: 0 }
    }

    /// `below` up to array byte `border`, `above` from there on, whose units are not larger.
    pub(crate) fn two(below: Arc<Geometry>, above: Arc<Geometry>, border: u64) -> Geometries {
        debug_assert!(border.is_multiple_of(below.unit_size()));
        debug_assert!(above.unit_size() <= below.unit_size());
        let first_above = border / above.unit_size();
        Geometries { below, above, border, first_above }
    }

    /// The same two, with the border elsewhere.
    pub(crate) fn with_border(&self, border: u64) -> Geometries {
        Geometries::two(Arc::clone(&self.below), Arc::clone(&self.above), border)
    }

    /// The geometry that the array had everywhere before the border began to move.
    pub(crate) fn before(&self) -> &Arc<Geometry> {
        &self.above
    }

    /// The first unit of the geometry above.
    pub(crate) fn first_above(&self) -> u64 {
        self.first_above
    }

    /// The geometry of an array byte. A unit of the one below does not reach over the border.
    #[inline]
    pub fn at(&self, array_byte: u64) -> &Arc<Geometry> {
        if array_byte < self.border { &self.below } else { &self.above }
    }

    /// The geometry of a unit.
    #[inline]
    pub fn of_unit(&self, unit: u64) -> &Arc<Geometry> {
        if unit < self.first_above { &self.below } else { &self.above }
    }

    /// The geometry that the array will have everywhere, and has when there is no border: to be asked for what does not
    /// depend on where a byte lives. It has all slots.
    pub fn whole(&self) -> &Arc<Geometry> {
        &self.below
    }

    /// Gives the units to the first `owners` shards. Nothing of the array is under way.
    pub(crate) fn set_owners(&self, owners: u16) {
        self.below.set_owners(owners);
        self.above.set_owners(owners);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Layout, Level, Spec};
    use proptest::prelude::*;

    const CHUNK: u64 = 4096;
    const COMPONENT: u64 = 64 * CHUNK;

    fn raid5(slots: usize) -> Arc<Geometry> {
        let spec = Spec {
            level: Level::Raid5,
            layout: 2,
            chunk_size: CHUNK,
            raid_disks: slots,
            component_size: COMPONENT,
            member_sizes: Vec::new(),
        };
        Arc::new(Geometry::new(Level::Raid5, 2, Layout::new(&spec).unwrap(), 512, COMPONENT, 1))
    }

    /// Stripes over `slots` members below the border, over `fewer` fewer above it.
    fn two(slots: usize, fewer: usize, blocks: u64) -> Geometries {
        let (below, above) = (raid5(slots), raid5(slots - fewer));
        let unit = below.unit_size();
        let border = (blocks * unit).min(above.array_size() / unit * unit);
        Geometries::two(below, above, border)
    }

    proptest! {
        #[test]
        fn a_byte_and_its_unit_have_the_same_geometry_and_no_two_units_the_same_number(
            slots in 4usize..8, fewer in 0usize..2, blocks in 0u64..70,
        ) {
            let all = two(slots, fewer, blocks);
            let mut before = None;
            for byte in (0..all.above.array_size()).step_by(512) {
                let geometry = all.at(byte);
                let is_below = Arc::ptr_eq(geometry, &all.below);
                prop_assert_eq!(is_below, byte < all.border);
                let unit = byte / geometry.unit_size();
                prop_assert!(Arc::ptr_eq(all.of_unit(unit), geometry));
                // A unit starts where its geometry does, or at the border, and ends where its geometry does.
                let starts = byte % geometry.unit_size() == 0 || byte == all.border;
                match before {
                    Some(last) if !starts => prop_assert_eq!(unit, last),
                    Some(last) => prop_assert!(unit > last),
                    None => prop_assert_eq!(unit, 0),
                }
                before = Some(unit);
            }
        }
    }

    #[test]
    fn without_a_border_there_is_one_geometry() {
        let geometry = raid5(4);
        let all = Geometries::one(Arc::clone(&geometry));
        for address in [0, 1, geometry.unit_size(), geometry.array_size() - 1] {
            assert!(Arc::ptr_eq(all.at(address), &geometry));
            assert!(Arc::ptr_eq(all.of_unit(address), &geometry));
        }
        assert!(Arc::ptr_eq(all.whole(), &geometry));
    }

    #[test]
    fn both_have_the_same_owners() {
        let all = two(5, 1, 2);
        all.set_owners(3);
        assert_eq!((all.below.owners(), all.above.owners()), (3, 3));
    }
}
