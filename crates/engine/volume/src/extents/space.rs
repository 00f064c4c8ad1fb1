//! Free space of one brick.
//!
//! Blocks are counted in groups of 32,768, each a bitmap that is loaded when it is first needed. Whole stripes are
//! taken upwards from the bottom, aligned to their size; shorter runs, the ends of files, downwards from the top, so
//! that the two do not break each other's room.
//!
//! Freed blocks stay out of use until the transaction that freed them is durable: before that, a crash would bring
//! back files that still have their bytes there.

use braid_format::volume::space::{GROUP_BLOCKS, PER_USAGE, WORDS, encode_blocks, encode_usage};
use braid_format::volume::{RecordError, keys, space as records};
use braid_kv::{Change, StoreError};
use braid_shard::plant::planted;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::words::{Run, Words, clear, find_run, get, next_bit, runs, set};
use crate::transactions::Transactions;

/// Why free space could not be looked at.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpaceError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record is damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
}

struct Bitmaps {
    /// As it will be recorded.
    used: Words,
    /// The same, and what was freed and is not to be used yet.
    busy: Words,
}

#[derive(Default)]
struct Group {
    used: u32,
    busy: u32,
    bitmaps: Option<Bitmaps>,
}

/// The difference between the blocks in use of a group and those that extents name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// In use, and no extent names them: first block of the brick and number.
    pub leaked: Vec<Run>,
    /// Named by an extent, and not in use.
    pub unmarked: Vec<Run>,
}

impl Differences {
    /// There are none.
    pub fn is_none(&self) -> bool {
        self.leaked.is_empty() && self.unmarked.is_empty()
    }

    /// Blocks that are leaked.
    pub fn leaked(&self) -> u64 {
        self.leaked.iter().map(|(_, blocks)| blocks).sum()
    }

    /// Blocks that are named and not in use.
    pub fn unmarked(&self) -> u64 {
        self.unmarked.iter().map(|(_, blocks)| blocks).sum()
    }
}

/// Free space of a brick.
pub struct Space {
    brick: u16,
    /// Blocks of the brick as it was mounted.
    blocks: u64,
    /// Blocks of its data area now: those behind are not its own any more.
    end: Cell<u64>,
    /// No block from here on is given out.
    fence: Cell<u64>,
    /// Blocks behind the fence that nobody has.
    fenced: Cell<u64>,
    groups: RefCell<Vec<Group>>,
    used: Cell<u64>,
    busy: Cell<u64>,
    dirty: RefCell<BTreeSet<u32>>,
    freed: RefCell<Vec<Run>>,
    /// Freed in the transaction that is being committed.
    settling: RefCell<Vec<Run>>,
    /// Free, and reserved while the device is told that it is.
    trimmed: RefCell<Vec<Run>>,
    /// Runs of which devices have been told.
    trims: Cell<u64>,
    /// Where the search for a whole stripe goes on.
    cursor: Cell<u64>,
    /// Group in which the search for a shorter run begins.
    short_group: Cell<usize>,
}

impl Space {
    /// Of brick `brick` with `blocks` blocks, as recorded.
    ///
    /// # Errors
    /// When the store fails or a record is damaged.
    pub async fn load(
        transactions: &Transactions,
        brick: u16,
        blocks: u64,
    ) -> Result<Space, SpaceError> {
        let count = usize::try_from(blocks.div_ceil(GROUP_BLOCKS)).unwrap_or(usize::MAX);
        let mut groups: Vec<Group> = Vec::new();
        groups.resize_with(count, Group::default);
        let mut total = 0;
        for index in 0..(count as u64).div_ceil(u64::from(PER_USAGE)) as u32 {
            let Some(bytes) = transactions.get(&keys::usage(brick, index)).await? else { continue };
            let first = index as usize * PER_USAGE as usize;
            let mut rest = blocks - first as u64 * GROUP_BLOCKS;
            for (group, used) in
                groups[first..].iter_mut().zip(records::parse_usage(brick, index, &bytes)?)
            {
                // More than there are is damage: the group is full then, until its bitmap is looked at.
                let used = u64::from(used).min(rest).min(GROUP_BLOCKS);
                rest -= rest.min(GROUP_BLOCKS);
                group.used = used as u32;
                group.busy = group.used;
                total += used;
            }
        }
        Ok(Space {
            brick,
            blocks,
            end: Cell::new(blocks),
            fence: Cell::new(blocks),
            fenced: Cell::new(0),
            groups: RefCell::new(groups),
            used: Cell::new(total),
            busy: Cell::new(total),
            dirty: RefCell::default(),
            freed: RefCell::default(),
            settling: RefCell::default(),
            trimmed: RefCell::default(),
            trims: Cell::new(0),
            cursor: Cell::new(0),
            short_group: Cell::new(count.saturating_sub(1)),
        })
    }

    /// Blocks of the brick's data area.
    pub fn blocks(&self) -> u64 {
        self.end.get()
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// The groups of blocks in which some are in use.
    pub fn groups_in_use(&self) -> Vec<u64> {
        let groups = self.groups.borrow();
        (0..).zip(&*groups).filter(|(_, group)| group.used > 0).map(|(at, _)| at).collect()
    }

    /// Those of `range`.
    pub fn groups_in_use_of(&self, range: std::ops::Range<u64>) -> Vec<u64> {
        let groups = self.groups.borrow();
        let end = groups.len().min(usize::try_from(range.end).unwrap_or(usize::MAX));
        let start = end.min(usize::try_from(range.start).unwrap_or(usize::MAX));
        let some = (start as u64..).zip(&groups[start..end]);
        some.filter(|(_, group)| group.used > 0).map(|(at, _)| at).collect()
    }

    /// The difference between the blocks in use of a group and `named`, those that extents name. `stored`: its record,
    /// which was read just now, for a group that is not in memory.
    ///
    /// # Errors
    /// When the record is damaged.
    pub fn differences(
        &self,
        group: u64,
        named: Option<&[u64; WORDS]>,
        stored: Option<&[u8]>,
    ) -> Result<Differences, SpaceError> {
        let groups = self.groups.borrow();
        let none = [0; WORDS];
        let parsed;
        let Some(known) = groups.get(group as usize) else { return Ok(Differences::default()) };
        let used: &[u64; WORDS] = match (&known.bitmaps, stored) {
            (Some(bitmaps), _) => &bitmaps.used,
            (None, Some(bytes)) => {
                parsed = self.parse(group, bytes, known.used)?;
                &parsed
            }
            (None, None) => &none,
        };
        let count: u32 = used.iter().map(|word| word.count_ones()).sum();
        if count != known.used {
            return Err(RecordError::damaged_space(self.brick, group as u32).into());
        }
        let named = named.unwrap_or(&none);
        if named == used {
            return Ok(Differences::default());
        }
        let start = group * GROUP_BLOCKS;
        let end = GROUP_BLOCKS.min(self.blocks.saturating_sub(start));
        let but = |one: &[u64; WORDS], other: &[u64; WORDS]| {
            let mut left = Box::new([0; WORDS]);
            for ((left, one), other) in left.iter_mut().zip(one).zip(other) {
                *left = one & !other;
            }
            runs(&left, end, start)
        };
        Ok(Differences { leaked: but(used, named), unmarked: but(named, used) })
    }

    /// Blocks that can be used now.
    pub fn free_now(&self) -> u64 {
        self.blocks - self.busy.get()
    }

    /// Blocks that can be used after the next commits.
    pub fn settling(&self) -> u64 {
        self.busy.get().saturating_sub(self.used.get() + self.fenced.get())
    }

    /// Makes sure that the bitmaps of the groups of a run are in memory.
    ///
    /// # Errors
    /// When the store fails or a record is damaged.
    pub(super) async fn load_for(
        &self,
        transactions: &Transactions,
        start: u64,
        blocks: u64,
    ) -> Result<(), SpaceError> {
        let last = (start + blocks.max(1) - 1) / GROUP_BLOCKS;
        for group in start / GROUP_BLOCKS..=last {
            self.load_group(transactions, group as usize).await?;
        }
        Ok(())
    }

    async fn load_group(
        &self,
        transactions: &Transactions,
        group: usize,
    ) -> Result<(), SpaceError> {
        let loaded =
            |groups: &[Group]| groups.get(group).is_none_or(|group| group.bitmaps.is_some());
        if loaded(&self.groups.borrow()) {
            return Ok(());
        }
        let bytes = transactions.get(&keys::blocks(self.brick, group as u32)).await?;
        let mut groups = self.groups.borrow_mut();
        if loaded(&groups) {
            return Ok(());
        }
        let counted = groups[group].used;
        let used = match bytes {
            Some(bytes) => self.parse(group as u64, &bytes, counted)?,
            None if counted == 0 => Box::new([0; WORDS]),
            None => return Err(RecordError::damaged_space(self.brick, group as u32).into()),
        };
        let mut busy = used.clone();
        // Blocks beyond the end of the brick are never free.
        let end = self.blocks - group as u64 * GROUP_BLOCKS;
        if end < GROUP_BLOCKS {
            set(&mut busy, end, GROUP_BLOCKS - end);
        }
        groups[group].bitmaps = Some(Bitmaps { used, busy });
        Ok(())
    }

    /// The blocks in use of a group, of which there are `counted`, none beyond the end of the brick.
    fn parse(&self, group: u64, bytes: &[u8], counted: u32) -> Result<Words, RecordError> {
        let used = records::parse_blocks(self.brick, group as u32, bytes)?;
        let count: u32 = used.iter().map(|word| word.count_ones()).sum();
        let end = self.blocks.saturating_sub(group * GROUP_BLOCKS);
        if count != counted || next_bit(&used, end, true) < GROUP_BLOCKS {
            return Err(RecordError::damaged_space(self.brick, group as u32));
        }
        Ok(used)
    }

    /// Reserves `blocks` consecutive blocks, at most those of a group, until they are
    /// [confirmed](Space::confirm) or [released](Space::release); `whole`: a whole stripe, aligned if possible.
    /// `None`: there is no such run.
    ///
    /// # Errors
    /// When the store fails or a record is damaged.
    pub(super) async fn reserve(
        &self,
        transactions: &Transactions,
        blocks: u64,
        whole: bool,
    ) -> Result<Option<u64>, SpaceError> {
        if blocks > self.free_now() {
            return Ok(None);
        }
        let count = self.groups.borrow().len();
        let first = if whole {
            (self.cursor.get() / GROUP_BLOCKS) as usize
        } else {
            self.short_group.get()
        };
        // Aligned first; a second round takes what there is.
        let aligned = [true, false];
        for align in &aligned[usize::from(!whole || !blocks.is_power_of_two())..] {
            for step in 0..=count {
                let group =
                    if whole { (first + step) % count } else { (first + count * 2 - step) % count };
                if self.room_of(group) < blocks {
                    continue;
                }
                self.load_group(transactions, group).await?;
                let from = match whole && step == 0 && *align {
                    true => self.cursor.get() % GROUP_BLOCKS,
                    false => 0,
                };
                if let Some(at) = self.find(group, from, blocks, *align) {
                    let start = group as u64 * GROUP_BLOCKS + at;
                    self.hold(start, blocks);
                    if whole {
                        self.cursor.set(start + blocks);
                    } else {
                        self.short_group.set(group);
                    }
                    return Ok(Some(start));
                }
            }
        }
        Ok(None)
    }

    /// Reserves the first free run that lies in `within`, for as long as its device is told that it is free
    /// ([`trimmed`](Space::trimmed)). It ends with its group at the latest. `None`: there is none, or the end of the brick is
    /// being given up.
    ///
    /// # Errors
    /// When the store fails or a record is damaged.
    pub(super) async fn reserve_to_trim(
        &self,
        transactions: &Transactions,
        within: std::ops::Range<u64>,
    ) -> Result<Option<Run>, SpaceError> {
        let mut at = within.start;
        while at < within.end.min(self.fence.get()) && self.fence.get() == self.end.get() {
            let group = (at / GROUP_BLOCKS) as usize;
            self.load_group(transactions, group).await?;
            let first = group as u64 * GROUP_BLOCKS;
            let end = within.end.min(self.end.get()).min(first + GROUP_BLOCKS);
            let found = self.groups.borrow()[group].bitmaps.as_ref().map(|bitmaps| {
                let start = next_bit(&bitmaps.busy, at - first, false);
                (first + start, first + next_bit(&bitmaps.busy, start, true))
            });
            if let Some((start, behind)) = found.filter(|(start, _)| *start < end) {
                let run = (start, behind.min(end) - start);
                self.hold(run.0, run.1);
                self.trimmed.borrow_mut().push(run);
                return Ok(Some(run));
            }
            at = first + GROUP_BLOCKS;
        }
        Ok(None)
    }

    /// The device knows that a run is free: it can be used again.
    pub(super) fn trimmed(&self, run: Run) {
        self.trims.set(self.trims.get() + 1);
        self.trimmed.borrow_mut().retain(|held| *held != run);
        self.release(run.0, run.1);
    }

    /// Runs of which the device has been told so far; `None`: none is held for that now.
    pub(super) fn trims(&self) -> Option<u64> {
        (!self.trimmed.borrow().is_empty()).then(|| self.trims.get())
    }

    fn room_of(&self, group: usize) -> u64 {
        let groups = self.groups.borrow();
        let size = GROUP_BLOCKS.min(self.blocks - group as u64 * GROUP_BLOCKS);
        size - u64::from(groups[group].busy)
    }

    fn find(&self, group: usize, from: u64, blocks: u64, align: bool) -> Option<u64> {
        let groups = self.groups.borrow();
        let busy = &groups[group].bitmaps.as_ref()?.busy;
        find_run(busy, from, blocks, if align { blocks } else { 1 })
    }

    /// The search for shorter runs begins at the top again.
    pub(super) fn rewind_short(&self) {
        self.short_group.set(self.groups.borrow().len().saturating_sub(1));
    }

    /// True when a shorter run lies better at `new` than at `old`: nearer to the others of its kind, so that room for
    /// whole stripes is left elsewhere. Anywhere is better than behind the [fence](Space::fence_off).
    pub fn is_better(&self, old: u64, new: u64, blocks: u64) -> bool {
        if old + blocks > self.fence.get() {
            return true;
        }
        let (from, to) = (old / GROUP_BLOCKS, new / GROUP_BLOCKS);
        to > from || (to == from && new < old)
    }

    /// Reserves the `more` blocks that follow `end`, if they are free. Their group must be in memory
    /// ([`load_for`](Space::load_for)).
    pub(super) fn extend(&self, end: u64, more: u64) -> bool {
        if end + more > self.blocks {
            return false;
        }
        let is_free = {
            let groups = self.groups.borrow();
            (end..end + more).all(|block| {
                let bitmaps = groups[(block / GROUP_BLOCKS) as usize].bitmaps.as_ref();
                bitmaps.is_some_and(|bitmaps| !get(&bitmaps.busy, block % GROUP_BLOCKS))
            })
        };
        if is_free {
            self.hold(end, more);
        }
        is_free
    }

    fn hold(&self, start: u64, blocks: u64) {
        self.each_group(start, blocks, |group, at, len, bitmaps| {
            debug_assert!((at..at + len).all(|block| !get(&bitmaps.busy, block)), "reserved twice");
            set(&mut bitmaps.busy, at, len);
            group.1 += len as i64;
        });
    }

    /// A run that is reserved is in use from the open transaction on, in which an extent names it.
    pub(super) fn confirm(&self, start: u64, blocks: u64) {
        self.each_group(start, blocks, |group, at, len, bitmaps| {
            set(&mut bitmaps.used, at, len);
            group.0 += len as i64;
        });
    }

    /// A block that an extent names was recorded as free; its group is in memory.
    pub(super) fn mark_named(&self, block: u64) {
        let is_busy = self.is_busy(block);
        if !is_busy {
            self.hold(block, 1);
        }
        self.confirm(block, 1);
    }

    fn is_busy(&self, block: u64) -> bool {
        let groups = self.groups.borrow();
        let group = groups.get((block / GROUP_BLOCKS) as usize);
        let bitmaps = group.and_then(|group| group.bitmaps.as_ref());
        bitmaps.is_some_and(|bitmaps| get(&bitmaps.busy, block % GROUP_BLOCKS))
    }

    /// All blocks of the run are in use, and their groups in memory.
    fn is_run_used(&self, start: u64, blocks: u64) -> bool {
        let end = start.checked_add(blocks).filter(|end| *end <= self.blocks);
        end.is_some_and(|end| (start..end).all(|block| self.is_used(block)))
    }

    /// A run that was reserved, or freed, is free for all.
    pub(super) fn release(&self, start: u64, blocks: u64) {
        let behind = (start + blocks).saturating_sub(self.fence.get().max(start));
        self.fenced.set(self.fenced.get() + behind);
        self.each_group(start, blocks - behind, |group, at, len, bitmaps| {
            debug_assert!((at..at + len).all(|block| !get(&bitmaps.used, block)), "still in use");
            clear(&mut bitmaps.busy, at, len);
            group.1 -= len as i64;
        });
    }

    /// Frees a run in the open transaction. Its groups must be in memory. What damaged metadata frees and is not in use
    /// stays as it is, all of it: better lost than given away twice.
    pub(super) fn free(&self, start: u64, blocks: u64) {
        if !self.is_run_used(start, blocks) {
            tracing::error!(
                brick = self.brick,
                start,
                blocks,
                "blocks are freed that are not in use: the metadata is damaged; run: braid volume check --repair"
            );
            return;
        }
        self.each_group(start, blocks, |group, at, len, bitmaps| {
            clear(&mut bitmaps.used, at, len);
            group.0 -= len as i64;
        });
        if blocks > 0 {
            if planted("early-reuse") {
                return self.release(start, blocks);
            }
            self.freed.borrow_mut().push((start, blocks));
        }
    }

    /// Gives no block from `limit` on out any more; those that are in use stay so until they are freed.
    ///
    /// # Errors
    /// When the store fails or a record is damaged.
    pub(super) async fn fence_off(
        &self,
        transactions: &Transactions,
        limit: u64,
    ) -> Result<(), SpaceError> {
        let limit = limit.min(self.fence.get());
        self.load_for(transactions, limit, self.fence.get() - limit).await?;
        for (start, blocks) in self.unset_behind(limit, |bitmaps| &bitmaps.busy) {
            self.hold(start, blocks);
            self.fenced.set(self.fenced.get() + blocks);
        }
        self.fence.set(limit);
        Ok(())
    }

    /// All blocks up to the end are given out again. Nobody may have reserved blocks meanwhile.
    pub(super) fn lift_fence(&self) {
        let fence = self.fence.replace(self.end.get());
        let mut waiting = self.freed.borrow().clone();
        waiting.extend_from_slice(&self.settling.borrow());
        waiting.extend_from_slice(&self.trimmed.borrow());
        let is_free =
            |block: u64| waiting.iter().all(|(start, len)| !(*start..start + len).contains(&block));
        for (start, blocks) in self.unset_behind(fence, |bitmaps| &bitmaps.used) {
            for block in (start..start + blocks).filter(|block| is_free(*block)) {
                self.release(block, 1);
                self.fenced.set(self.fenced.get().saturating_sub(1));
            }
        }
    }

    /// Blocks behind the fence that are in use.
    pub fn used_behind_fence(&self) -> u64 {
        let fence = self.fence.get();
        let all = self.end.get() - fence;
        let unused = self.unset_behind(fence, |bitmaps| &bitmaps.used);
        all - unused.iter().map(|(_, blocks)| blocks).sum::<u64>()
    }

    /// The data area ends at the fence from now on; nothing is in use behind it.
    pub(super) fn cut_off(&self) {
        self.end.set(self.fence.get());
    }

    /// The runs of blocks from `limit` to the end that are not set in one of the bitmaps, which are in memory.
    fn unset_behind(&self, limit: u64, which: impl Fn(&Bitmaps) -> &Words) -> Vec<Run> {
        let groups = self.groups.borrow();
        let (mut found, mut at, end) = (Vec::new(), limit, self.end.get());
        while at < end {
            let first = at - at % GROUP_BLOCKS;
            let until = GROUP_BLOCKS.min(end - first);
            let group = groups.get((at / GROUP_BLOCKS) as usize);
            if let Some(bitmaps) = group.and_then(|group| group.bitmaps.as_ref()) {
                let mut unset = Box::new([u64::MAX; WORDS]);
                clear(&mut unset, 0, at - first);
                for (word, set) in unset.iter_mut().zip(which(bitmaps).iter()) {
                    *word &= !set;
                }
                found.extend(runs(&unset, until, first));
            }
            at = first + until;
        }
        found
    }

    /// Calls `change` for the part of the run in each group; it tells by how much used and busy changed.
    fn each_group(
        &self,
        start: u64,
        blocks: u64,
        mut change: impl FnMut(&mut (i64, i64), u64, u64, &mut Bitmaps),
    ) {
        let mut groups = self.groups.borrow_mut();
        let (mut at, end) = (start, start + blocks);
        while at < end {
            let number = at / GROUP_BLOCKS;
            let within = at % GROUP_BLOCKS;
            let len = (end - at).min(GROUP_BLOCKS - within);
            let mut by = (0, 0);
            if let Some(group) = groups.get_mut(number as usize)
                && let Some(bitmaps) = &mut group.bitmaps
            {
                change(&mut by, within, len, bitmaps);
                group.used = group.used.wrapping_add_signed(by.0 as i32);
                group.busy = group.busy.wrapping_add_signed(by.1 as i32);
                self.used.set(self.used.get().wrapping_add_signed(by.0));
                self.busy.set(self.busy.get().wrapping_add_signed(by.1));
                if by.0 != 0 {
                    self.dirty.borrow_mut().insert(number as u32);
                }
            } else {
                debug_assert!(false, "group {number} of brick {} is not in memory", self.brick);
            }
            at += len;
        }
    }

    /// True when something has changed since the last [`close`](Space::close).
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }

    /// The records that the transaction that is being closed changes.
    pub(super) fn close(&self) -> Vec<Change> {
        let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        let groups = self.groups.borrow();
        let mut changes = Vec::new();
        for number in &dirty {
            if let Some(bitmaps) = &groups[*number as usize].bitmaps {
                changes.push((keys::blocks(self.brick, *number), encode_blocks(&bitmaps.used)));
            }
        }
        let indexes: BTreeSet<u32> = dirty.iter().map(|number| number / PER_USAGE).collect();
        for index in indexes {
            let first = index as usize * PER_USAGE as usize;
            let last = groups.len().min(first + PER_USAGE as usize);
            // A group has 32,768 blocks: the count fits.
            let used: Vec<u16> =
                groups[first..last].iter().map(|group| group.used as u16).collect();
            changes.push((keys::usage(self.brick, index), encode_usage(&used)));
        }
        self.settling.borrow_mut().append(&mut self.freed.borrow_mut());
        changes
    }

    /// The closed transaction is durable: what it freed may be used.
    pub(super) fn committed(&self) {
        for (start, blocks) in self.settling.take() {
            self.release(start, blocks);
        }
    }

    /// True when the block is recorded as in use; its group must be in memory.
    pub fn is_used(&self, block: u64) -> bool {
        let groups = self.groups.borrow();
        let group = groups.get((block / GROUP_BLOCKS) as usize);
        let bitmaps = group.and_then(|group| group.bitmaps.as_ref());
        bitmaps.is_some_and(|bitmaps| get(&bitmaps.used, block % GROUP_BLOCKS))
    }
}
