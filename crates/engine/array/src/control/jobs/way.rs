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
use braid_layout::{Layout, Level, Parity};
use braid_shard::plant::planted;
use std::ops::Range;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    new: Parity,
    old: Parity,
    backwards: bool,
}

impl Way {
    /// From `old` to `new`; the data of each member moves by so many bytes, towards its start when that is negative.
    /// `None`: numbers that do not go together.
    pub(crate) fn new(new: Parity, old: Parity, moves_by: i64, backwards: bool) -> Option<Way> {
        let more = new.data_chunks() > old.data_chunks();
        let fewer = new.data_chunks() < old.data_chunks();
        if new.used_component_size() != old.used_component_size()
            || more && backwards
            || fewer && !backwards
        {
            return None;
        }
        let (starts, ends) =
            if moves_by < 0 { (0, moves_by.unsigned_abs()) } else { (moves_by as u64, 0) };
        let old = old.numbered_from(new.stripes()).starting_at(ends).ok()?;
        Some(Way { new: new.starting_at(starts).ok()?, old, backwards })
    }

    /// That of an array that is being reshaped. `None`: it is not.
    pub(crate) fn of(geometries: &Geometries, backwards: bool) -> Option<Way> {
        let (new, old) = (geometries.whole().parity()?, geometries.before().parity()?);
        Some(Way { new: new.clone(), old: old.clone(), backwards })
    }

    /// The geometries of an array that will have `whole` at the end, and had `level` and `layout`, md's number, before.
    pub(crate) fn geometries(
        &self,
        whole: &Geometry,
        (level, layout): (Level, u32),
        border: u64,
    ) -> Geometries {
        let new = whole.over(Layout::Parity(self.new.clone()));
        let old = whole.shaped(level, layout, Layout::Parity(self.old.clone()));
        Geometries::two(Arc::new(new), Arc::new(old), border, self.backwards)
    }

    /// The shape that it leads to.
    pub(crate) fn new_shape(&self) -> &Parity {
        &self.new
    }

    /// It goes from the end of the members to their start.
    pub(crate) fn backwards(&self) -> bool {
        self.backwards
    }

    /// Stripes of the new shape that are to be filled.
    pub(crate) fn stripes(&self) -> u64 {
        self.new.stripes()
    }

    /// Stripes of the new shape of which a window has a multiple: its ends are those of whole chunks of both shapes.
    pub(crate) fn group(&self) -> u64 {
        (self.old.chunk_size() / self.new.chunk_size()).max(1)
    }

    /// Stripes that have been filled while the border stands at this array byte; `None`: it cannot stand there.
    pub(crate) fn done_at(&self, border: u64) -> Option<u64> {
        let size = self.new.stripe_size();
        let below = border / size;
        let fits = border.is_multiple_of(size * self.group()) && below <= self.stripes();
        fits.then(|| if self.backwards { self.stripes() - below } else { below })
    }

    /// The border when so many stripes have been filled.
    pub(crate) fn border(&self, done: u64) -> u64 {
        let below = if self.backwards { self.stripes() - done } else { done };
        below * self.new.stripe_size()
    }

    /// When so many stripes have been filled, all others can be, one window after the other. Where the data does not move far
    /// enough a reshape begins, or ends, with a part that only a backup file keeps.
    pub(crate) fn leads_to_the_end(&self, done: u64) -> bool {
        // Forwards the lead grows on the way, if it changes, backwards it becomes smaller.
        let last = self.stripes().saturating_sub(self.group());
        let tight = if self.backwards { last.max(done) } else { done };
        done >= self.stripes()
            || !self.window(done, u64::MAX).is_empty() && !self.window(tight, u64::MAX).is_empty()
    }

    /// The stripes that may be filled next, `most` of them or one group at most, when so many have been, and the superblocks
    /// say so: nothing of the old shape that is read from there on is written over.
    pub(crate) fn window(&self, done: u64, most: u64) -> Range<u64> {
        let (group, all, chunk) = (self.group(), self.stripes(), self.new.chunk_size());
        let most = (most / group).max(1).saturating_mul(group);
        let overtakes = planted("reshape-overtakes");
        let border = self.border(done);
        let (old_stripe, in_old) = (self.old.stripe_size(), border.min(self.old.array_size()));
        if !self.backwards {
            let needed = self.old.start() + in_old / old_stripe * self.old.chunk_size();
            let free = match in_old == self.old.array_size() || overtakes {
                true => all,
                false => (needed.saturating_sub(self.new.start()) / chunk).min(all),
            };
            let end = free.min(done.saturating_add(most)) / group * group;
            return done..end.max(done);
        }
        let needed = self.old.start() + in_old.div_ceil(old_stripe) * self.old.chunk_size();
        let free = match in_old == 0 || overtakes {
            true => 0,
            false => needed.saturating_sub(self.new.start()).div_ceil(chunk),
        };
        let end = all - done;
        let start = free.max(end.saturating_sub(most)).next_multiple_of(group);
        start.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::Spec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const CHUNK: u64 = 4096;
    const ROWS: u64 = 48;

    fn shape(level: Level, slots: usize, chunk: u64, layout: u32) -> Parity {
        let spec = Spec {
            level,
            layout,
            chunk_size: chunk,
            raid_disks: slots,
            component_size: ROWS * CHUNK,
            member_sizes: Vec::new(),
        };
        let Ok(Layout::Parity(parity)) = Layout::new(&spec) else { unreachable!("it is a shape") };
        parity
    }

    /// Goes all the way on members that are maps from rows to array blocks, and looks after each window at what a crash
    /// there would leave.
    fn goes(way: &Way) -> Result<(), TestCaseError> {
        let (new, old) = (&way.new, &way.old);
        let mut members: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let size = new.array_size().min(old.array_size());
        let put = |members: &mut BTreeMap<_, _>, parity: &Parity, byte: u64| {
            let (stripe, k, within) = parity.locate(byte);
            let at = parity.member_offset(stripe) + within;
            members.insert((parity.data_slot(stripe, k), at / CHUNK), byte);
            at / CHUNK
        };
        for byte in (0..old.array_size()).step_by(CHUNK as usize) {
            put(&mut members, old, byte);
        }
        let mut done = 0;
        while done < way.stripes() {
            let window = way.window(done, 4);
            prop_assert!(!window.is_empty(), "stuck at {} of {}", done, way.stripes());
            let after = done + (window.end - window.start);
            let border = way.border(done);
            prop_assert_eq!(way.done_at(border), Some(done));
            for stripe in window {
                for slot in 0..new.slots() {
                    // Parity, too, goes over what lies there.
                    for row in 0..new.chunk_size() / CHUNK {
                        members.remove(&(slot, new.member_offset(stripe) / CHUNK + row));
                    }
                }
                let bytes = stripe * new.stripe_size()..(stripe + 1) * new.stripe_size();
                for byte in bytes.step_by(CHUNK as usize) {
                    put(&mut members, new, byte);
                }
            }
            // Power fails: the superblocks have the border of before the window, or the one behind it.
            for border in [border, way.border(after)] {
                for byte in (0..size).step_by(CHUNK as usize) {
                    let parity = if (byte < border) != way.backwards { new } else { old };
                    let (stripe, k, within) = parity.locate(byte);
                    let at = (parity.member_offset(stripe) + within) / CHUNK;
                    let there = members.get(&(parity.data_slot(stripe, k), at));
                    prop_assert_eq!(there, Some(&byte));
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
            goes(&Way::new(new, old, moves_by, backwards).unwrap())?;
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
        assert!(way.window(way.stripes() - 1, 1).is_empty());
        assert!(!way.leads_to_the_end(0) && !way.leads_to_the_end(way.stripes() - 1));
        assert!(Way::new(three, four, 0, false).is_none());
    }
}
