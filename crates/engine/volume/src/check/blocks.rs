//! Which blocks extents name, against those that are recorded as in use; so many groups of blocks at a time.

use super::one::Halt;
use super::walk::Walk;
use crate::extents::Brick;
use crate::extents::Differences;
use crate::watch::Group;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::keys;
use braid_format::volume::space::GROUP_BLOCKS;
use braid_shard::plant::planted;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Groups in use that are looked at in one walk over all extents: 64 MiB of bits, for 2 TiB.
#[cfg(not(test))]
const GROUPS_AT_ONCE: usize = 16 << 10;
#[cfg(test)]
const GROUPS_AT_ONCE: usize = 1;
/// Bitmaps that are read in one step.
const BITMAPS_AT_ONCE: usize = 32;

impl Walk {
    /// All groups of all bricks, in parts that are looked at in one walk each.
    pub(super) fn block_windows(&self) -> Vec<Range<Group>> {
        let (mut windows, mut first, mut count) = (Vec::new(), (0, 0), 0);
        for brick in self.on.bricks.all() {
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

    /// Holds the blocks that extents were seen to name against those in use.
    pub(super) async fn check_blocks(&self, window: &Range<Group>) -> Result<(), Halt> {
        for brick in self.on.bricks.all().iter().filter(|brick| brick.state() != BrickState::Lost) {
            let last = brick.space.blocks().div_ceil(GROUP_BLOCKS);
            let from = if brick.id == window.start.0 { window.start.1 } else { 0 };
            let to = if brick.id == window.end.0 { window.end.1.min(last) } else { last };
            let inside = (window.start.0..=window.end.0).contains(&brick.id);
            if inside && from < to {
                self.check_brick(brick, from..to).await?;
            }
        }
        Ok(())
    }

    /// The same for some groups of one brick.
    async fn check_brick(&self, brick: &Rc<Brick>, groups: Range<u64>) -> Result<(), Halt> {
        let (mut leaked, mut unmarked) = (0, 0);
        let mut corrected = self.repair;
        let mut at = groups.start;
        while at < groups.end {
            // Groups are counted in 32 bits on disk.
            let (first, end) =
                (keys::blocks(brick.id, at as u32), keys::blocks(brick.id, groups.end as u32));
            let (pairs, next) = self.so_many_pairs(&first, &end, BITMAPS_AT_ONCE).await?;
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
                let walked = self.watch.extents.borrow();
                // Of a large brick most groups may be empty.
                let mut wanted: BTreeSet<u64> = stored.keys().copied().collect();
                wanted.extend(walked.bits.named_in(brick.id, at..until));
                wanted.extend(brick.space.groups_in_use_of(at..until));
                for group in wanted {
                    let stored = stored.get(&group).map(Vec::as_slice);
                    let named = walked.bits.of((brick.id, group));
                    match brick.space.differences(group, named, stored) {
                        Ok(found) if found.is_none() => {}
                        Ok(found) => wrong.push((group, found)),
                        Err(error) => self.problem(false, error.to_string()),
                    }
                }
            }
            for (group, found) in wrong {
                let found = match self.repair {
                    false => found,
                    true => self.correct_group(brick, group, &mut corrected).await?,
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
        self.report.borrow_mut().leaked_blocks += leaked;
        if leaked > 0 {
            let text = format!("{name}: {leaked} blocks are in use and no file has them");
            self.problem(corrected, text);
        }
        if unmarked > 0 {
            let text = format!("{name}: {unmarked} blocks of files are recorded as free");
            self.problem(true, text);
        }
        Ok(())
    }

    /// Frees the blocks of a group that nobody names, and marks those that are named. Changes wait meanwhile.
    async fn correct_group(
        &self,
        brick: &Rc<Brick>,
        group: u64,
        corrected: &mut bool,
    ) -> Result<Differences, Halt> {
        let _shut = self.on.gate.shut().await;
        let extents = &self.on.extents;
        extents.load(brick, group * GROUP_BLOCKS, 1).await?;
        let walked = self.watch.extents.borrow();
        let named = walked.bits.of((brick.id, group));
        let found = brick.space.differences(group, named, None);
        let found = found.map_err(|error| extents.failed(&error))?;
        for (start, blocks) in &found.unmarked {
            (*start..start + blocks).for_each(|block| extents.mark_named(brick, block));
        }
        if walked.bits.is_doubtful() {
            // Another file may have them still.
            *corrected &= found.leaked.is_empty();
        } else {
            let leaked = found.leaked.iter();
            leaked.for_each(|(start, blocks)| extents.free_unnamed(brick, *start, *blocks));
        }
        Ok(found)
    }
}
