//! Two halves of an image: which holds what, how the second becomes equal to the first, and how another joins.
//!
//! A block that was never written has no sum, and is neither compared nor copied.

use super::Image;
use super::error::failed;
use super::header::State;
use crate::region::{BLOCK, Region, Write};
use crate::store::StoreError;
use crate::sums::{Sums, UNKNOWN};
use braid_device::IoError;
use std::sync::Arc;

/// Blocks that are compared or copied at once.
const WINDOW: u64 = 256;

impl Image {
    /// Reads the table, from any half that has it: all are equal.
    pub(super) fn load_sums(&mut self) -> Result<(), StoreError> {
        for number in 0..self.layout.tables() {
            let offset = self.layout.table_at(number);
            let mut bytes = vec![0; BLOCK];
            let half =
                self.mirror.read(offset, &mut bytes).map_err(|error| failed("reading", &error))?;
            let damaged = self.sums.load(number, &bytes);
            if damaged.is_empty() {
                continue;
            }
            self.dirty.insert(number);
            if !self.load_elsewhere(number, half, &damaged)? {
                self.sums_are_lost(half, offset);
            }
        }
        Ok(())
    }

    /// Reads the table of the first half that is readable throughout. Those before it are detached.
    pub(super) fn load_sums_of_first(&mut self) -> Result<(), StoreError> {
        while let Some(half) = self.mirror.held().next() {
            self.sums = Sums::new(self.layout.blocks());
            self.sums_lost = false;
            match self.load_sums_of(half) {
                Ok(()) => return Ok(()),
                Err(error) => self.detach(half, "reading", &error)?,
            }
        }
        Ok(())
    }

    fn load_sums_of(&mut self, half: usize) -> Result<(), IoError> {
        for number in 0..self.layout.tables() {
            let offset = self.layout.table_at(number);
            let mut bytes = vec![0; BLOCK];
            self.mirror.read_half(half, offset, &mut bytes)?;
            if !self.sums.load(number, &bytes).is_empty() {
                self.dirty.insert(number);
                self.sums_are_lost(half, offset);
            }
        }
        Ok(())
    }

    fn sums_are_lost(&mut self, half: usize, offset: u64) {
        self.sums_lost = true;
        let region = self.mirror.name(half);
        tracing::warn!(
            region,
            offset,
            "sums of the metadata are damaged; the database is verified"
        );
    }

    /// Loads damaged sectors of the table from the other half, which is equal.
    fn load_elsewhere(
        &mut self,
        number: u64,
        half: usize,
        damaged: &[u64],
    ) -> Result<bool, StoreError> {
        let offset = self.layout.table_at(number);
        let others: Vec<usize> = self.mirror.held().filter(|other| *other != half).collect();
        for other in others {
            let mut bytes = vec![0; BLOCK];
            match self.mirror.read_half(other, offset, &mut bytes) {
                // Both copies have the same sums where both are sound.
                Ok(()) => {
                    let theirs = self.sums.load(number, &bytes);
                    if damaged.iter().all(|sector| !theirs.contains(sector)) {
                        self.mended += 1;
                        return Ok(true);
                    }
                }
                Err(error) => self.detach(other, "reading", &error)?,
            }
        }
        Ok(false)
    }

    /// Makes the second half equal to the first: reads both, writes what differs. The header of the second says so before
    /// anything else is written there: cut short, it may hold neither what it held before nor what the first does, and the
    /// next start might take it for the first.
    pub(super) fn compare(&mut self) -> Result<(), StoreError> {
        let held: Vec<usize> = self.mirror.held().collect();
        let [source, target] = held[..] else { return Ok(()) };
        let mut unreadable = None;
        let mut at = 0;
        while at < self.layout.blocks() && self.mirror.held().any(|half| half == target) {
            let left = self.layout.blocks() - at;
            let count = self.layout.in_a_row(at, WINDOW.min(left));
            if self.any_known(at, count)
                && let Err(error) = self.compare_window(source, target, at, count)?
            {
                unreadable = Some(error);
            }
            at += count;
        }
        if self.mirror.held().any(|half| half == target) {
            for number in 0..self.layout.tables() {
                let write = self.table_write(number);
                self.rewrite(target, write.offset, write.data)?;
            }
            self.flush_region()?;
            self.state = State::Whole;
            let header = self.header();
            self.rewrite(target, header.offset, header.data)?;
        }
        self.state = State::Whole;
        self.flush_region()?;
        // Only now, when the other holds all that could be read of it.
        match unreadable {
            Some(error) => self.detach(source, "reading", &error),
            None => Ok(()),
        }
    }

    /// Before anything of the second half is overwritten.
    fn begin_rewrite(&mut self, target: usize) -> Result<(), StoreError> {
        if self.state == State::Unequal {
            return Ok(());
        }
        self.state = State::Unequal;
        let header = self.header();
        self.rewrite(target, header.offset, header.data)?;
        self.flush_region()
    }

    /// True when some of these blocks have ever been written.
    fn any_known(&self, first: u64, count: u64) -> bool {
        first == 0
            || self.sums_lost
            || (first..first + count).any(|block| self.sums.get(block) != UNKNOWN)
    }

    /// The inner error is of a block that the first half cannot read and the second does not have.
    fn compare_window(
        &mut self,
        source: usize,
        target: usize,
        first: u64,
        count: u64,
    ) -> Result<Result<(), IoError>, StoreError> {
        let offset = self.place(first);
        let mut ours = vec![0; count as usize * BLOCK];
        let mut theirs = ours.clone();
        if let Err(error) = self.mirror.read_half(target, offset, &mut theirs) {
            self.detach(target, "reading", &error)?;
            return Ok(Ok(()));
        }
        if let Err(error) = self.mirror.read_half(source, offset, &mut ours) {
            return match count {
                1 if first > 0
                    && self.sums.get(first) != UNKNOWN
                    && self.agrees(first, &theirs) =>
                {
                    Ok(Ok(()))
                }
                1 => Ok(Err(error)),
                _ => {
                    let mut result = Ok(());
                    for block in first..first + count {
                        result = self.compare_window(source, target, block, 1)?.and(result);
                    }
                    // The first half is detached for this in the end.
                    Ok(result.and(Err(error)))
                }
            };
        }
        let pairs = ours.chunks_exact(BLOCK).zip(theirs.chunks_exact(BLOCK));
        for (block, (ours, theirs)) in (first..).zip(pairs) {
            if ours == theirs || (block > 0 && !self.sums_lost && self.sums.get(block) == UNKNOWN) {
                continue;
            }
            // The second half may still have the blocks that the first has lost.
            if !self.agrees(block, ours) && self.agrees(block, theirs) {
                self.mended += 1;
                self.rewrite(source, self.place(block), theirs.to_vec())?;
            } else {
                self.begin_rewrite(target)?;
                self.rewrite(target, self.place(block), ours.to_vec())?;
            }
        }
        Ok(Ok(()))
    }

    /// Has `region` written from now on, to become a half when all is copied to it.
    ///
    /// # Errors
    /// When there are two halves already, or it is too small.
    pub(crate) fn join(&mut self, region: Box<dyn Region>) -> Result<(), StoreError> {
        let needed = self.layout.size();
        let (name, size) = (region.name().to_string(), region.size());
        if size < needed {
            return Err(StoreError::Failed(format!(
                "the metadata region on {name} has {size} bytes, and a copy takes {needed}"
            )));
        }
        self.mirror.join(region).map_err(|_| {
            StoreError::Failed(
                "the metadata has two copies already, or a second is being made".to_string(),
            )
        })
    }

    /// Copies the window of blocks from `first` on to the region that joins. Gives the block to go on with, or `None`
    /// when the region has become a half.
    ///
    /// # Errors
    /// When the region that joins fails, or what is to be copied cannot be read. Either way it joins no more.
    pub(crate) fn copy_window(&mut self, first: u64) -> Result<Option<u64>, StoreError> {
        let copied = self.copy_blocks(first);
        if copied.is_err() {
            self.mirror.stop_joining();
        }
        copied
    }

    fn copy_blocks(&mut self, first: u64) -> Result<Option<u64>, StoreError> {
        let told = |error| failed("writing the second copy of", &error);
        if first >= self.layout.blocks() {
            let mut writes: Vec<Write> =
                (0..self.layout.tables()).map(|number| self.table_write(number)).collect();
            writes.push(self.header());
            self.mirror.write_joining(&Arc::new(writes)).map_err(told)?;
            self.mirror.finish_joining().map_err(told)?;
            return Ok(None);
        }
        let left = self.layout.blocks() - first;
        let count = self.layout.in_a_row(first, WINDOW.min(left));
        if self.any_known(first, count) {
            let mut bytes = vec![0; count as usize * BLOCK];
            // As it is: of a commit that a power cut ended, blocks may be left that agree with nothing.
            self.leave_checking_to_database();
            let read = self.read_blocks(first, &mut bytes);
            self.check_sums()?;
            read?;
            let write = Write { offset: self.place(first), data: bytes };
            self.mirror.write_joining(&Arc::new(vec![write])).map_err(told)?;
        }
        Ok(Some(first + count))
    }
}
