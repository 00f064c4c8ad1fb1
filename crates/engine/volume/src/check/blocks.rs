//! Which blocks places name, against those that are recorded as in use; so many groups of blocks at a time.

use super::run::{Halt, Walk};
use crate::brick::Brick;
use crate::space::Differences;
use crate::volume::Volume;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::keys;
use braid_format::volume::place::Place;
use braid_format::volume::space::{GROUP_BLOCKS, WORDS};
use braid_shard::plant::planted;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Groups in use that are looked at in one walk over all places: 64 MiB of bits, for 2 TiB.
#[cfg(not(test))]
const GROUPS_AT_ONCE: usize = 16 << 10;
#[cfg(test)]
const GROUPS_AT_ONCE: usize = 1;
/// Bitmaps that are read in one step.
const BITMAPS_AT_ONCE: usize = 32;

/// A brick, and a group of its blocks.
pub(super) type Group = (u16, u64);

/// The blocks that places name, in some groups.
pub(super) struct Bits {
    window: Range<Group>,
    groups: BTreeMap<Group, Box<[u64; WORDS]>>,
    /// A block was named twice.
    shared: bool,
    /// A place has gone since: what it shared with another is not named any more.
    doubtful: bool,
}

impl Default for Bits {
    fn default() -> Bits {
        Bits::new((0, 0)..(0, 0))
    }
}

impl Bits {
    /// Of the groups of `window`, none of them named yet.
    pub(super) fn new(window: Range<Group>) -> Bits {
        Bits { window, groups: BTreeMap::new(), shared: false, doubtful: false }
    }

    /// Names the blocks of a place; gives how many were named already.
    pub(super) fn name(&mut self, place: &Place) -> u32 {
        let mut twice = 0;
        self.each_word(place, true, |word, mask| {
            twice += (*word & mask).count_ones();
            *word |= mask;
        });
        self.shared |= twice > 0;
        twice
    }

    /// The place is not there any more.
    pub(super) fn unname(&mut self, place: &Place) {
        self.doubtful |= self.shared;
        self.each_word(place, false, |word, mask| *word &= !mask);
    }

    /// Calls `change` with each word that the place touches, and the bits of it.
    fn each_word(&mut self, place: &Place, fill: bool, mut change: impl FnMut(&mut u64, u64)) {
        let Some(end) = place.start.checked_add(place.blocks.into()) else { return };
        let mut at = place.start;
        while at < end {
            let bits = (end - at).min(64 - at % 64);
            let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << (at % 64) };
            let group = (place.brick, at / GROUP_BLOCKS);
            if self.window.contains(&group) {
                if fill {
                    self.groups.entry(group).or_insert_with(|| Box::new([0; WORDS]));
                }
                if let Some(words) = self.groups.get_mut(&group) {
                    change(&mut words[(at % GROUP_BLOCKS / 64) as usize], mask);
                }
            }
            at += bits;
        }
    }

    fn of(&self, group: Group) -> Option<&[u64; WORDS]> {
        self.groups.get(&group).map(|words| &**words)
    }
}

impl Volume {
    /// All groups of all bricks, in parts that are looked at in one walk each.
    pub(super) fn block_windows(&self) -> Vec<Range<Group>> {
        let (mut windows, mut first, mut count) = (Vec::new(), (0, 0), 0);
        for brick in self.bricks() {
            for group in brick.space.groups_in_use() {
                if count == GROUPS_AT_ONCE {
                    windows.push(first..(brick.id, group));
                    (first, count) = ((brick.id, group), 0);
                }
                count += 1;
            }
        }
        windows.push(first..(u16::MAX, u64::MAX));
        windows
    }

    /// Holds the blocks that places were seen to name against those in use.
    pub(super) async fn check_blocks(
        &self,
        walk: &Walk,
        window: &Range<Group>,
    ) -> Result<(), Halt> {
        for brick in self.bricks().iter().filter(|brick| brick.state() != BrickState::Lost) {
            let last = brick.space.blocks().div_ceil(GROUP_BLOCKS);
            let from = if brick.id == window.start.0 { window.start.1 } else { 0 };
            let to = if brick.id == window.end.0 { window.end.1.min(last) } else { last };
            let inside = (window.start.0..=window.end.0).contains(&brick.id);
            if inside && from < to {
                self.check_brick(walk, brick, from..to).await?;
            }
        }
        Ok(())
    }

    /// The same for some groups of one brick.
    async fn check_brick(
        &self,
        walk: &Walk,
        brick: &Rc<Brick>,
        groups: Range<u64>,
    ) -> Result<(), Halt> {
        let (mut leaked, mut unmarked) = (0, 0);
        let mut corrected = walk.repair;
        let mut at = groups.start;
        while at < groups.end {
            // Groups are counted in 32 bits on disk.
            let (first, end) =
                (keys::blocks(brick.id, at as u32), keys::blocks(brick.id, groups.end as u32));
            let (pairs, next) = self.so_many_pairs(walk, &first, &end, BITMAPS_AT_ONCE).await?;
            let stored: BTreeMap<u64, Vec<u8>> = pairs
                .into_iter()
                .filter_map(|(key, value)| Some((keys::brick_and_group(&key)?.1.into(), value)))
                .collect();
            let until = match (next, stored.last_key_value()) {
                (Some(_), Some((last, _))) => last + 1,
                _ => groups.end,
            };
            let mut wrong = Vec::new();
            {
                let walked = walk.watch.places.borrow();
                // Of a large brick most groups may be empty.
                let mut wanted: BTreeSet<u64> = stored.keys().copied().collect();
                let named = walked.bits.groups.range((brick.id, at)..(brick.id, until));
                wanted.extend(named.map(|((_, group), _)| *group));
                wanted.extend(brick.space.groups_in_use_of(at..until));
                for group in wanted {
                    let stored = stored.get(&group).map(Vec::as_slice);
                    let named = walked.bits.of((brick.id, group));
                    match brick.space.differences(group, named, stored) {
                        Ok(found) if found.is_none() => {}
                        Ok(found) => wrong.push((group, found)),
                        Err(error) => walk.problem(false, error.to_string()),
                    }
                }
            }
            for (group, found) in wrong {
                let found = match walk.repair {
                    false => found,
                    true => self.correct_group(walk, brick, group, &mut corrected).await?,
                };
                leaked += found.leaked();
                unmarked += found.unmarked();
            }
            at = until;
        }
        let name = brick.name();
        if planted("check-blind-to-leaks") {
            leaked = 0;
        }
        walk.report.borrow_mut().leaked_blocks += leaked;
        if leaked > 0 {
            let text = format!("{name}: {leaked} blocks are in use and no file has them");
            walk.problem(corrected, text);
        }
        if unmarked > 0 {
            let text = format!("{name}: {unmarked} blocks of files are recorded as free");
            walk.problem(true, text);
        }
        Ok(())
    }

    /// Frees the blocks of a group that nobody names, and marks those that are named. Changes wait meanwhile.
    async fn correct_group(
        &self,
        walk: &Walk,
        brick: &Rc<Brick>,
        group: u64,
        corrected: &mut bool,
    ) -> Result<Differences, Halt> {
        let _shut = self.gate.shut().await;
        let loaded = brick.space.load_for(&self.transactions, group * GROUP_BLOCKS, 1).await;
        loaded.map_err(|error| self.space_failed(&error))?;
        let walked = walk.watch.places.borrow();
        let named = walked.bits.of((brick.id, group));
        let found = brick
            .space
            .differences(group, named, None)
            .map_err(|error| self.space_failed(&error))?;
        for (start, blocks) in &found.unmarked {
            (*start..start + blocks).for_each(|block| brick.space.mark_named(block));
        }
        if walked.bits.doubtful {
            // Another file may have them still.
            *corrected &= found.leaked.is_empty();
        } else {
            found.leaked.iter().for_each(|(start, blocks)| brick.space.free(*start, *blocks));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(start: u64, blocks: u16) -> Place {
        Place { start, written: 0, blocks, brick: 1 }
    }

    #[test]
    fn blocks_are_named_once_across_groups_and_outside_the_window_not_at_all() {
        let mut bits = Bits::new((1, 0)..(1, 2));
        assert_eq!(bits.name(&place(GROUP_BLOCKS - 10, 100)), 0);
        assert_eq!(bits.name(&place(GROUP_BLOCKS, 64)), 64);
        assert_eq!(bits.name(&place(5 * GROUP_BLOCKS, 64)), 0);
        assert_eq!(bits.groups.len(), 2);
        assert!(!bits.doubtful);
        bits.unname(&place(GROUP_BLOCKS - 10, 100));
        assert!(bits.doubtful);
        assert_eq!(bits.name(&place(0, 1)) + bits.name(&place(GROUP_BLOCKS, 90)), 0);
    }
}
