//! The way of a reshape: where the data of both shapes lies, and how far the next window may go.
//!
//! Rows of both shapes are counted from the same byte, the first of both shapes' data. The new data starts before the old
//! one, and the reshape goes from the start to the end, or behind it, and it goes the other way: so the place that is
//! written has a lead over what is still needed, of the distance that the data moves, and more of it where stripes have
//! more or fewer chunks than before.
//!
//! What counts is the border that the superblocks have, not how far the last window got: whatever the moment of a crash, the
//! shape that they name for a byte is the one that holds it.

use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use braid_layout::{Layout, Level};
use braid_shard::plant::planted;
use std::ops::Range;
use std::sync::Arc;

/// Array bytes that Linux moves at a time at level 10, unless a chunk is smaller (`RESYNC_BLOCK_SIZE` of raid10.c): its borders
/// stand at multiples of that.
const PIECE_OF_COPIES: u64 = 64 << 10;
/// Places of a border of which each is looked at, at most, to see whether a reshape of copies leads to the end.
const PLACES_MAX: u64 = 1 << 20;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    new: Layout,
    old: Layout,
    backwards: bool,
    /// Array bytes of a unit, in which all else is counted: a stripe of the new shape, or a piece of copies.
    unit: u64,
    /// Units of which a window has a multiple: its ends are those of whole chunks of both shapes, or of the new one where there
    /// are copies.
    group: u64,
}

impl Way {
    /// From `old` to `new`; the data of each member moves by so many bytes, towards its start when that is negative.
    /// `None`: numbers that do not go together.
    pub(crate) fn new(new: Layout, old: Layout, moves_by: i64, backwards: bool) -> Option<Way> {
        let (more, fewer) = (new.slots() > old.slots(), new.slots() < old.slots());
        if new.used_size(0) != old.used_size(0) || more && backwards || fewer && !backwards {
            return None;
        }
        let first_old = match (&new, &old) {
            (Layout::Parity(new), Layout::Parity(old)) if new.level() == old.level() => {
                new.stripes()
            }
            (Layout::Raid10(new), Layout::Raid10(old)) => {
                let far = new.is_far() || old.is_far();
                (!far && new.copy_count() == old.copy_count()).then(|| new.chunks())?
            }
            _ => return None,
        };
        let (starts, ends) =
            if moves_by < 0 { (0, moves_by.unsigned_abs()) } else { (moves_by as u64, 0) };
        let old = old.numbered_from(first_old).starting_at(ends).ok()?;
        Some(Way::between(new.starting_at(starts).ok()?, old, backwards))
    }

    /// That of an array that is being reshaped. `None`: it is not.
    pub(crate) fn of(geometries: &Geometries, backwards: bool) -> Option<Way> {
        if geometries.is_one() {
            return None;
        }
        let (new, old) = (&geometries.whole().layout, &geometries.before().layout);
        Some(Way::between(new.clone(), old.clone(), backwards))
    }

    fn between(new: Layout, old: Layout, backwards: bool) -> Way {
        let (chunk, before) = (new.chunk_size(), old.chunk_size());
        let (unit, group) = match &new {
            Layout::Parity(parity) => (parity.stripe_size(), (before / chunk).max(1)),
            _ => {
                let unit = PIECE_OF_COPIES.min(chunk).min(before);
                (unit, chunk / unit)
            }
        };
        Way { new, old, backwards, unit, group }
    }

    /// The geometries of an array that will have `whole` at the end, and had `level` and `layout`, md's number, before.
    pub(crate) fn geometries(
        &self,
        whole: &Geometry,
        (level, layout): (Level, u32),
        border: u64,
    ) -> Geometries {
        let new = whole.over(self.new.clone());
        let old = whole.shaped(level, layout, self.old.clone());
        Geometries::two(Arc::new(new), Arc::new(old), border, self.backwards)
    }

    /// The shape that it leads to.
    pub(crate) fn new_shape(&self) -> &Layout {
        &self.new
    }

    /// The shape that it leaves.
    pub(crate) fn old_shape(&self) -> &Layout {
        &self.old
    }

    /// It goes from the end of the members to their start.
    pub(crate) fn backwards(&self) -> bool {
        self.backwards
    }

    /// Array bytes of a unit.
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Units of the new shape that are to be filled.
    pub(crate) fn units(&self) -> u64 {
        self.new.array_size() / self.unit
    }

    /// Units of which a window has a multiple.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// Units that take up so many bytes of each member, one at least.
    pub(crate) fn units_in(&self, rows: u64) -> u64 {
        (self.new.fits_below(self.new.start().saturating_add(rows)) / self.unit).max(1)
    }

    /// Bytes of each member that a unit takes up, at least one.
    pub(crate) fn rows_of_unit(&self) -> u64 {
        match &self.new {
            Layout::Raid10(raid10) => {
                (self.unit * raid10.copy_count() as u64 / raid10.slots() as u64).max(1)
            }
            other => other.chunk_size(),
        }
    }

    /// Units that have been filled while the border stands at this array byte; `None`: it cannot stand there.
    pub(crate) fn done_at(&self, border: u64) -> Option<u64> {
        // The two shapes' parities hold on both sides of it only where whole stripes end; copies do anywhere.
        let apart = match &self.new {
            Layout::Parity(_) => self.unit * self.group,
            _ => self.unit,
        };
        let below = border / self.unit;
        let fits = border.is_multiple_of(apart) && below <= self.units();
        fits.then(|| if self.backwards { self.units() - below } else { below })
    }

    /// The border when so many units have been filled.
    pub(crate) fn border(&self, done: u64) -> u64 {
        let below = if self.backwards { self.units() - done } else { done };
        below * self.unit
    }

    /// When so many units have been filled, all others can be, one window after the other. Where the data does not move far
    /// enough a reshape begins, or ends, with a part that only a backup file keeps.
    pub(crate) fn leads_to_the_end(&self, done: u64) -> bool {
        // Forwards the lead grows on the way, if it changes, backwards it becomes smaller.
        let last = self.units().saturating_sub(self.group);
        let tight = if self.backwards { last.max(done) } else { done };
        let leads = |done: u64| done >= self.units() || !self.window(done, u64::MAX).is_empty();
        leads(done) && leads(tight) && self.copies_lead_to_the_end(done)
    }

    /// Rows of copies begin at other places of both shapes, again and again: the lead goes up and down with them.
    fn copies_lead_to_the_end(&self, done: u64) -> bool {
        let (Layout::Raid10(new), Layout::Raid10(old)) = (&self.new, &self.old) else {
            return true;
        };
        // After as many chunks as there are slots both begin a row.
        let bytes = |slots: usize, chunk: u64| (slots as u64).saturating_mul(chunk);
        let (a, b) = (bytes(new.slots(), new.chunk_size()), bytes(old.slots(), old.chunk_size()));
        let period = (a / greatest_common_divisor(a, b)).saturating_mul(b) / self.unit;
        let windows = period.min(self.units() - done) / self.group;
        if windows > PLACES_MAX {
            return false;
        }
        let first = match self.backwards {
            true => (self.units() - period.min(self.units())).max(done),
            false => done,
        };
        let ends = (0..windows).map(|nr| first.next_multiple_of(self.group) + nr * self.group);
        let mut places = ends.filter(|place| *place < self.units());
        places.all(|place| !self.window(place, u64::MAX).is_empty())
    }

    /// The units that may be filled next, `most` of them or one group at most, when so many have been, and the superblocks
    /// say so: nothing of the old shape that is read from there on is written over.
    pub(crate) fn window(&self, done: u64, most: u64) -> Range<u64> {
        let (group, all) = (self.group, self.units());
        let most = (most / group).max(1).saturating_mul(group);
        let overtakes = planted("reshape-overtakes");
        let border = self.border(done).min(self.old.array_size());
        if !self.backwards {
            let free = match border == self.old.array_size() || overtakes {
                true => all,
                false => self.new.fits_below(self.old.needed_from(border)) / self.unit,
            };
            let end = free.min(done.saturating_add(most)) / group * group;
            return done..end.max(done);
        }
        let free = match border == 0 || overtakes {
            true => 0,
            false => self.new.fits_from(self.old.needed_until(border)) / self.unit,
        };
        let end = all - done;
        let start = free.max(end.saturating_sub(most)).next_multiple_of(group);
        start.min(end)..end
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::Spec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const CHUNK: u64 = 4096;
    const ROWS: u64 = 48;

    fn shape(level: Level, slots: usize, chunk: u64, layout: u32) -> Layout {
        let spec = Spec {
            level,
            layout,
            chunk_size: chunk,
            raid_disks: slots,
            component_size: ROWS * CHUNK,
            member_sizes: Vec::new(),
        };
        let Ok(layout) = Layout::new(&spec) else { unreachable!("it is a shape") };
        layout
    }

    /// Slot and block of the member of all places that hold this array byte.
    fn places(layout: &Layout, byte: u64) -> Vec<(usize, u64)> {
        match layout {
            Layout::Parity(parity) => {
                let (stripe, k, within) = parity.locate(byte);
                let at = parity.member_offset(stripe) + within;
                vec![(parity.data_slot(stripe, k), at / CHUNK)]
            }
            Layout::Raid10(raid10) => {
                let (chunk, within) = raid10.locate(byte);
                let copies = raid10.copies(chunk);
                copies.iter().map(|at| (at.slot, (at.offset + within) / CHUNK)).collect()
            }
            _ => unreachable!("it is reshaped"),
        }
    }

    /// Blocks that a window which fills these array bytes writes over besides their own places.
    fn parity_of(layout: &Layout, bytes: &Range<u64>) -> Vec<(usize, u64)> {
        let Layout::Parity(parity) = layout else { return Vec::new() };
        let mut all = Vec::new();
        for stripe in bytes.start / parity.stripe_size()..bytes.end / parity.stripe_size() {
            let rows = 0..parity.chunk_size() / CHUNK;
            let first = parity.member_offset(stripe) / CHUNK;
            all.extend(
                (0..parity.slots())
                    .flat_map(|slot| rows.clone().map(move |row| (slot, first + row))),
            );
        }
        all
    }

    /// Goes all the way from `done` units on, on members that are maps from rows to array blocks, and looks after each window
    /// at what a crash there would leave.
    fn goes(way: &Way, mut done: u64) -> Result<(), TestCaseError> {
        let (new, old) = (&way.new, &way.old);
        let mut members: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let size = new.array_size().min(old.array_size());
        let at_first = way.border(done);
        for byte in (0..old.array_size()).step_by(CHUNK as usize) {
            if (byte < at_first) == way.backwards {
                members.extend(places(old, byte).into_iter().map(|place| (place, byte)));
            }
        }
        for byte in (0..new.array_size()).step_by(CHUNK as usize) {
            if (byte < at_first) != way.backwards {
                members.extend(places(new, byte).into_iter().map(|place| (place, byte)));
            }
        }
        while done < way.units() {
            let window = way.window(done, 4);
            prop_assert!(!window.is_empty(), "stuck at {} of {}", done, way.units());
            let after = done + (window.end - window.start);
            let border = way.border(done);
            prop_assert_eq!(way.done_at(border), Some(done));
            let bytes = window.start * way.unit()..window.end * way.unit();
            for place in parity_of(new, &bytes) {
                members.remove(&place);
            }
            for byte in bytes.step_by(CHUNK as usize) {
                members.extend(places(new, byte).into_iter().map(|place| (place, byte)));
            }
            // Power fails: the superblocks have the border of before the window, or the one behind it.
            for border in [border, way.border(after)] {
                for byte in (0..size).step_by(CHUNK as usize) {
                    let layout = if (byte < border) != way.backwards { new } else { old };
                    for place in places(layout, byte) {
                        prop_assert_eq!(members.get(&place), Some(&byte));
                    }
                }
            }
            done = after;
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn nothing_that_a_recorded_border_needs_is_written_over(
            level in prop::sample::select(vec![Level::Raid5, Level::Raid6]), more in 0usize..3, fewer in 0usize..3,
            chunks in (0u32..3, 0u32..3), lead in 1u64..4, either in any::<bool>(), layouts in (0u32..4, 0u32..4),
        ) {
            let (before, after) = (4 + fewer, 4 + more);
            let backwards = after < before || (after == before && either);
            let chunks = (CHUNK << chunks.0, CHUNK << chunks.1);
            let (new, old) = (shape(level, after, chunks.1, layouts.1), shape(level, before, chunks.0, layouts.0));
            let lead = (lead * chunks.0.max(chunks.1)) as i64;
            let moves_by = if backwards { lead } else { -lead };
            goes(&Way::new(new, old, moves_by, backwards).unwrap(), 0)?;
        }

        #[test]
        fn copies_go_from_wherever_linux_has_left_them(
            more in 0usize..4, fewer in 0usize..4, chunks in (0u32..3, 0u32..3), lead in 1u64..12, either in any::<bool>(),
            numbers in (0usize..2, 0usize..2), three in any::<bool>(), place in 0u64..100,
        ) {
            let (before, after) = (3 + fewer, 3 + more);
            let backwards = after < before || (after == before && either);
            let chunks = (CHUNK << chunks.0, CHUNK << chunks.1);
            let of = |number| match (number, three) {
                (0, false) => 0x102,
                (0, true) => 0x103,
                (_, false) => 0x1_0201,
                (_, true) => 0x1_0301,
            };
            let new = shape(Level::Raid10, after, chunks.1, of(numbers.0));
            let old = shape(Level::Raid10, before, chunks.0, of(numbers.1));
            let lead = (lead * chunks.0.max(chunks.1)) as i64;
            let moves_by = if backwards { lead } else { -lead };
            if let Some(way) = Way::new(new, old, moves_by, backwards) {
                let done = way.units() * place / 100;
                if way.leads_to_the_end(done) {
                    goes(&way, done)?;
                }
                // Three places of each chunk in two rows of each shape, and a chunk that the border cuts.
                prop_assert!(way.leads_to_the_end(done) || lead < 8 * chunks.0.max(chunks.1) as i64);
            }
        }
    }

    #[test]
    fn where_the_data_stays_the_first_window_would_write_over_itself() {
        let (three, four) = (shape(Level::Raid5, 3, CHUNK, 2), shape(Level::Raid5, 4, CHUNK, 2));
        let way = Way::new(four.clone(), three.clone(), 0, false).unwrap();
        assert!(way.window(0, 1).is_empty());
        // Towards the start, and only there.
        let way = Way::new(three.clone(), four.clone(), 0, true).unwrap();
        assert!(!way.window(0, 1).is_empty());
        assert!(way.window(way.units() - 1, 1).is_empty());
        assert!(!way.leads_to_the_end(0) && !way.leads_to_the_end(way.units() - 1));
        assert!(Way::new(three, four, 0, false).is_none());
    }
}
