//! The geometry of each part of an array: the same everywhere, or two with a border between them, as while an array is
//! reshaped.
//!
//! Requests ask by address: of an array byte when they are cut, of a unit when they have been. Both must give the same
//! geometry, so no two units may have the same number: those of the shape that the array leaves are numbered from behind the
//! last one of the new shape on.
//!
//! The border stands where a stripe of the new shape begins. The stripe of the old one that it cuts in two is used on its side
//! only: its other part has moved, and stays on the members as it was, so that its parity still holds. Where there are copies
//! it may stand anywhere: the chunks of both shapes that it cuts are each used on their side only.

use crate::state::geometry::Geometry;
use braid_shard::plant::planted;
use std::sync::Arc;

/// See the module's documentation. Part of a [`View`](crate::state::view::View): it changes with it, as a whole.
#[derive(Clone, Debug)]
pub struct Geometries {
    /// The shape that the array gets, or has everywhere.
    new: Arc<Geometry>,
    old: Arc<Geometry>,
    /// The first array byte that has another geometry than the first of all; `u64::MAX`: none has.
    border: u64,
    /// The old shape lies below the border: the reshape goes from the end to the start.
    backwards: bool,
    /// The first unit of the old shape; `u64::MAX`: there is none.
    first_old: u64,
}

/// Where an array byte lies.
#[derive(Clone, Copy, Debug)]
pub struct InUnit<'a> {
    /// The geometry there.
    pub geometry: &'a Geometry,
    /// The unit.
    pub unit: u64,
    /// The byte within it.
    pub within: u64,
    /// Bytes from there on that are of the same unit.
    pub left: u64,
}

impl Geometries {
    /// The same geometry everywhere.
    pub fn one(geometry: Arc<Geometry>) -> Geometries {
        let (old, new) = (Arc::clone(&geometry), geometry);
        Geometries { new, old, border: u64::MAX, backwards: false, first_old: u64::MAX }
    }

    /// `new` on one side of array byte `border` and `old` on the other: above it, or with `backwards` below it. Their units
    /// have different numbers.
    pub(crate) fn two(
        new: Arc<Geometry>,
        old: Arc<Geometry>,
        border: u64,
        backwards: bool,
    ) -> Geometries {
        debug_assert!(!new.has_parity() || border.is_multiple_of(new.unit_size()));
        let first_old = old.locate_unit(0).0;
        debug_assert!(first_old >= new.units());
        Geometries { new, old, border, backwards, first_old }
    }

    /// No other geometry is anywhere: nothing is being reshaped.
    pub(crate) fn is_one(&self) -> bool {
        self.first_old == u64::MAX
    }

    /// The same two, with the border elsewhere.
    pub(crate) fn with_border(&self, border: u64) -> Geometries {
        Geometries { border, ..self.clone() }
    }

    /// The geometry that the array had everywhere before the border began to move.
    pub(crate) fn before(&self) -> &Arc<Geometry> {
        &self.old
    }

    /// The geometry of an array byte.
    #[inline]
    pub fn at(&self, array_byte: u64) -> &Arc<Geometry> {
        if (array_byte < self.border) != self.backwards { &self.new } else { &self.old }
    }

    /// Bytes from an array byte on that are on its side of the border; `u64::MAX` or nearly so where no border is above it.
    /// Chunks of copies may be cut by it, those of stripes are not.
    #[inline]
    pub(crate) fn run(&self, array_byte: u64) -> u64 {
        match array_byte < self.border {
            true => self.border - array_byte,
            false => u64::MAX,
        }
    }

    /// Where an array byte lies.
    #[inline(always)]
    pub fn locate(&self, array_byte: u64) -> InUnit<'_> {
        let geometry = self.at(array_byte);
        let (unit, within) = geometry.locate_unit(array_byte);
        let left = geometry.unit_size() - within;
        // A unit of the old shape may reach over a border above it, one of the new shape does not.
        let left = match planted("cut-stripe-whole") {
            true => left,
            false => left.min(self.run(array_byte)),
        };
        InUnit { geometry, unit, within, left }
    }

    /// The geometry of a unit.
    #[inline]
    pub fn of_unit(&self, unit: u64) -> &Arc<Geometry> {
        if unit < self.first_old { &self.new } else { &self.old }
    }

    /// The geometry that the array will have everywhere, and has when there is no border: to be asked for what does not
    /// depend on where a byte lives. While there is a border its component may start later than it will.
    pub fn whole(&self) -> &Arc<Geometry> {
        &self.new
    }

    /// The array can go on with exactly the slots for which `working` is true, on both sides of the border.
    pub(crate) fn survives(&self, working: impl Fn(usize) -> bool) -> bool {
        self.new.survives(&working) && (self.is_one() || self.old.survives(&working))
    }

    /// The one of them that has all slots.
    pub(crate) fn widest(&self) -> &Arc<Geometry> {
        if self.old.slots() > self.new.slots() { &self.old } else { &self.new }
    }

    /// Gives the units to the first `owners` shards. Nothing of the array is under way.
    pub(crate) fn set_owners(&self, owners: u16) {
        self.new.set_owners(owners);
        self.old.set_owners(owners);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Layout, Level, Spec};
    use proptest::prelude::*;

    const CHUNK: u64 = 4096;
    const COMPONENT: u64 = 64 * CHUNK;

    fn raid5(slots: usize, chunk: u64, first: u64) -> Arc<Geometry> {
        let spec = Spec {
            level: Level::Raid5,
            layout: 2,
            chunk_size: chunk,
            raid_disks: slots,
            component_size: COMPONENT,
            member_sizes: Vec::new(),
        };
        let Layout::Parity(parity) = Layout::new(&spec).unwrap() else { unreachable!() };
        let layout = Layout::Parity(parity.numbered_from(first));
        Arc::new(Geometry::new(Level::Raid5, 2, layout, 512, COMPONENT, 1))
    }

    /// A reshape from `before` slots and `chunks.0` to `after` and `chunks.1`, at some place.
    fn two(
        before: usize,
        after: usize,
        chunks: (u64, u64),
        place: u64,
        backwards: bool,
    ) -> Geometries {
        let new = raid5(after, chunks.1, 0);
        let old = raid5(before, chunks.0, new.units());
        let unit = (after as u64 - 1) * chunks.0.max(chunks.1);
        let most = new.array_size().min(old.array_size()) / unit;
        Geometries::two(new, old, place.min(most) * unit, backwards)
    }

    proptest! {
        #[test]
        fn a_byte_and_its_unit_have_the_same_geometry_and_no_two_units_the_same_number(
            before in 3usize..7, after in 3usize..7, chunks in (0u32..3, 0u32..3), place in 0u64..70,
            either in any::<bool>(),
        ) {
            let backwards = after < before || (after == before && either);
            let chunks = (CHUNK << chunks.0, CHUNK << chunks.1);
            let all = two(before, after, chunks, place, backwards);
            let (mut last, mut seen) = (None, std::collections::BTreeSet::new());
            let mut end = 0;
            for byte in (0..all.new.array_size().min(all.old.array_size())).step_by(512) {
                let geometry = all.at(byte);
                let is_new = Arc::ptr_eq(geometry, &all.new);
                prop_assert_eq!(is_new, (byte < all.border) != backwards);
                let InUnit { unit, within, left, .. } = all.locate(byte);
                prop_assert!(Arc::ptr_eq(all.of_unit(unit), geometry));
                prop_assert!(within + left <= geometry.unit_size() && left > 0);
                if last != Some(unit) {
                    // A unit goes on to the byte at which it was said to end.
                    prop_assert_eq!(byte, end);
                    prop_assert!(seen.insert(unit));
                    end = byte + left;
                } else {
                    prop_assert_eq!(byte + left, end);
                }
                last = Some(unit);
            }
        }
    }

    #[test]
    fn without_a_border_there_is_one_geometry() {
        let geometry = raid5(4, CHUNK, 0);
        let all = Geometries::one(Arc::clone(&geometry));
        for address in [0, 1, geometry.unit_size(), geometry.array_size() - 1] {
            assert!(Arc::ptr_eq(all.at(address), &geometry));
            assert!(Arc::ptr_eq(all.of_unit(address), &geometry));
        }
        assert!(Arc::ptr_eq(all.whole(), &geometry));
    }

    #[test]
    fn both_have_the_same_owners() {
        let all = two(4, 5, (CHUNK, CHUNK), 2, false);
        all.set_owners(3);
        assert_eq!((all.new.owners(), all.old.owners()), (3, 3));
    }
}
