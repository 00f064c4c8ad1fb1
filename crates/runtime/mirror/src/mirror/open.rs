//! A mirror is made, or opened: which half holds what, and how the second becomes equal to the first.
//!
//! A block that was never written has no sum, and is not compared.

use super::Mirror;
use crate::error::{MirrorError, failed};
use crate::halves::Halves;
use crate::header::{self, State};
use crate::layout::{Layout, blocks_in};
use crate::region::{BLOCK, Region};
use crate::sums::{Sums, UNKNOWN};
use braid_device::IoError;
use braid_shard::Shard;
use std::rc::Rc;

/// Blocks that are compared at once.
const WINDOW: u64 = 256;

/// Blocks of the table that are written at once.
const TABLES: usize = 256;

/// The state in which the regions of a mirror were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// There is no mirror in them: they are formatted, and their content is lost.
    Create,
    /// The mirror was flushed after the last write, so two regions have the same content.
    AfterStop,
    /// It was not, or that is unknown: of two regions the second is made equal to the first. Both must have been in use
    /// until the end.
    AfterCrash,
}

impl Mirror {
    /// Opens the mirror in `regions`, one or two, the current one first, whose devices are open on `shard`. A half whose
    /// header cannot be used is detached if that of the other half can.
    ///
    /// After a crash blocks may disagree with their sums that were being written then; a read of such a block fails.
    /// [`begin_verification`](Mirror::begin_verification) is for users who can tell right blocks from wrong ones, and
    /// [`adopt_all`](Mirror::adopt_all) for all others.
    ///
    /// # Errors
    /// [`MirrorError::Damaged`] when there is no mirror, or it is of another version; [`MirrorError::Failed`] when a region is
    /// too small or cannot be read or written.
    pub async fn open(
        shard: &Shard,
        regions: Vec<Region>,
        how: Open,
    ) -> Result<Rc<Mirror>, MirrorError> {
        let halves = Halves::new(shard, regions);
        match how {
            Open::Create => Mirror::format(shard, halves).await,
            Open::AfterStop => Mirror::open_halves(shard, halves, false).await,
            Open::AfterCrash => Mirror::open_halves(shard, halves, true).await,
        }
    }

    async fn format(shard: &Shard, halves: Halves) -> Result<Rc<Mirror>, MirrorError> {
        let size = halves.size();
        let name = halves.held().next().map_or("no region".to_string(), |half| halves.name(half));
        let layout = Layout::of_ends(vec![blocks_in(size)]).ok_or_else(|| {
            MirrorError::Failed(format!("the region on {name} has {size} bytes, which are too few"))
        })?;
        let mirror = Mirror::over(shard, halves, layout);
        mirror.lay_out().await.map_err(|error| failed("writing", &error))?;
        mirror.state.borrow_mut().is_new = true;
        Ok(mirror)
    }

    /// The header is erased first and written last, so that an interrupted creation leaves no mirror.
    async fn lay_out(&self) -> Result<(), IoError> {
        let zeroes = || self.halves.copy_of(&[0; BLOCK]);
        self.put(&[(0, zeroes())]).await?;
        self.halves.sync().await?;
        let tables: Vec<u64> = (0..self.state.borrow().layout.tables()).collect();
        for numbers in tables.chunks(TABLES) {
            let pieces: Vec<_> = numbers.iter().map(|number| self.table_piece(*number)).collect();
            self.put(&pieces).await?;
        }
        self.put(&[(self.place(0), zeroes())]).await?;
        self.halves.sync().await?;
        self.put(&[self.header_piece()]).await?;
        self.halves.sync().await
    }

    async fn open_halves(
        shard: &Shard,
        halves: Halves,
        compare: bool,
    ) -> Result<Rc<Mirror>, MirrorError> {
        let (layout, whole, unlike) = header::read(&halves).await?;
        let mirror = Mirror::over(shard, halves, layout);
        {
            let mut state = mirror.state.borrow_mut();
            state.whole = whole;
            // A process that has died may have left writes in caches.
            state.unsynced = true;
        }
        if unlike {
            mirror.undo_growth().await.map_err(|error| failed("writing", &error))?;
        }
        let loaded = match compare {
            true => match mirror.load_sums_of_first().await {
                Ok(()) => mirror.compare().await,
                Err(error) => Err(error),
            },
            false => mirror.load_sums().await,
        };
        loaded.map_err(|error| failed("reading", &error))?;
        // Then the user has to say whether there is a state that is all there.
        mirror.state.borrow_mut().must_verify |= whole == State::Unequal;
        Ok(mirror)
    }

    /// Reads the table, from any half that has it: all are equal.
    async fn load_sums(&self) -> Result<(), IoError> {
        let tables = self.state.borrow().layout.tables();
        for number in 0..tables {
            let offset = self.state.borrow().layout.table_at(number);
            let mut bytes = self.halves.buffer(BLOCK);
            let half = self.halves.read(offset, &mut bytes).await?;
            let damaged = self.state.borrow_mut().sums.load(number, &bytes);
            if damaged.is_empty() {
                continue;
            }
            self.state.borrow_mut().dirty.insert(number);
            if !self.load_elsewhere(number, half, &damaged).await? {
                self.sums_are_lost(half, offset);
            }
        }
        Ok(())
    }

    /// Reads the table of the first half that is readable throughout. Those before it are detached.
    async fn load_sums_of_first(&self) -> Result<(), IoError> {
        while let Some(half) = self.halves.held().next() {
            {
                let mut state = self.state.borrow_mut();
                state.sums = Sums::new(state.layout.blocks());
                state.must_verify = false;
            }
            match self.load_sums_of(half).await {
                Ok(()) => return Ok(()),
                Err(error) => self.detach_failed(half, "reading", error)?,
            }
        }
        Ok(())
    }

    async fn load_sums_of(&self, half: usize) -> Result<(), IoError> {
        let tables = self.state.borrow().layout.tables();
        for number in 0..tables {
            let offset = self.state.borrow().layout.table_at(number);
            let mut bytes = self.halves.buffer(BLOCK);
            self.halves.read_half(half, offset, &mut bytes).await?;
            let damaged = self.state.borrow_mut().sums.load(number, &bytes);
            if !damaged.is_empty() {
                self.state.borrow_mut().dirty.insert(number);
                self.sums_are_lost(half, offset);
            }
        }
        Ok(())
    }

    fn sums_are_lost(&self, half: usize, offset: u64) {
        self.state.borrow_mut().must_verify = true;
        let region = self.halves.name(half);
        tracing::warn!(region, offset, "sums of a mirror are damaged; its user has to verify");
    }

    /// Loads damaged sectors of the table from the other half, which is equal.
    async fn load_elsewhere(
        &self,
        number: u64,
        half: usize,
        damaged: &[u64],
    ) -> Result<bool, IoError> {
        let offset = self.state.borrow().layout.table_at(number);
        for other in self.halves.held().filter(|other| *other != half) {
            let mut bytes = self.halves.buffer(BLOCK);
            match self.halves.read_half(other, offset, &mut bytes).await {
                // Both copies have the same sums where both are sound.
                Ok(()) => {
                    let state = &mut *self.state.borrow_mut();
                    let theirs = state.sums.load(number, &bytes);
                    if damaged.iter().all(|sector| !theirs.contains(sector)) {
                        state.mended += 1;
                        return Ok(true);
                    }
                }
                Err(error) => self.detach_failed(other, "reading", error)?,
            }
        }
        Ok(false)
    }

    /// Makes the second half equal to the first: reads both, writes what differs. The header of the second says so before
    /// anything else is written there: cut short, it may hold neither what it held before nor what the first does, and the
    /// next start might take it for the first.
    async fn compare(&self) -> Result<(), IoError> {
        let held: Vec<usize> = self.halves.held().collect();
        let [source, target] = held[..] else { return Ok(()) };
        let mut unreadable = None;
        let (blocks, tables) = {
            let state = self.state.borrow();
            (state.layout.blocks(), state.layout.tables())
        };
        let mut at = 0;
        while at < blocks && self.halves.holds(target) {
            let count = self.state.borrow().layout.in_a_row(at, WINDOW.min(blocks - at));
            if self.any_known(at, count)
                && let Err(error) = self.compare_window(source, target, at, count).await?
            {
                unreadable = Some(error);
            }
            at += count;
        }
        if self.halves.holds(target) {
            for number in 0..tables {
                self.rewrite(target, self.table_piece(number)).await?;
            }
            self.halves.sync().await?;
            self.state.borrow_mut().whole = State::Whole;
            self.rewrite(target, self.header_piece()).await?;
        }
        self.state.borrow_mut().whole = State::Whole;
        self.halves.sync().await?;
        // Only now, when the other holds all that could be read of it.
        match unreadable {
            Some(error) => self.detach_failed(source, "reading", error),
            None => Ok(()),
        }
    }

    /// Before anything of the second half is overwritten.
    async fn begin_rewrite(&self, target: usize) -> Result<(), IoError> {
        if self.state.borrow().whole == State::Unequal {
            return Ok(());
        }
        self.state.borrow_mut().whole = State::Unequal;
        self.rewrite(target, self.header_piece()).await?;
        self.halves.sync().await
    }

    /// True when some of these blocks have ever been written.
    pub(super) fn any_known(&self, first: u64, count: u64) -> bool {
        let state = self.state.borrow();
        first == 0
            || state.must_verify
            || (first..first + count).any(|block| state.sums.get(block) != UNKNOWN)
    }

    fn is_known(&self, block: u64) -> bool {
        self.state.borrow().sums.get(block) != UNKNOWN
    }

    /// The inner error is of a block that the first half cannot read and the second does not have.
    async fn compare_window(
        &self,
        source: usize,
        target: usize,
        first: u64,
        count: u64,
    ) -> Result<Result<(), IoError>, IoError> {
        let offset = self.place(first);
        let len = count as usize * BLOCK;
        let (mut ours, mut theirs) = (self.halves.buffer(len), self.halves.buffer(len));
        if let Err(error) = self.halves.read_half(target, offset, &mut theirs).await {
            self.detach_failed(target, "reading", error)?;
            return Ok(Ok(()));
        }
        if let Err(error) = self.halves.read_half(source, offset, &mut ours).await {
            let is_right = first > 0 && self.is_known(first) && self.agrees(first, &theirs);
            if count == 1 {
                return Ok(if is_right { Ok(()) } else { Err(error) });
            }
            let mut result = Ok(());
            for block in first..first + count {
                let one = Box::pin(self.compare_window(source, target, block, 1)).await?;
                result = one.and(result);
            }
            // The first half is detached for this in the end.
            return Ok(result.and(Err(error)));
        }
        let pairs = ours.chunks_exact(BLOCK).zip(theirs.chunks_exact(BLOCK));
        for (block, (ours, theirs)) in (first..).zip(pairs) {
            let must_verify = self.state.borrow().must_verify;
            if ours == theirs || (block > 0 && !must_verify && !self.is_known(block)) {
                continue;
            }
            let place = self.place(block);
            // The second half may still have the blocks that the first has lost.
            if !self.agrees(block, ours) && self.agrees(block, theirs) {
                self.state.borrow_mut().mended += 1;
                self.rewrite(source, (place, self.halves.copy_of(theirs))).await?;
            } else {
                self.begin_rewrite(target).await?;
                self.rewrite(target, (place, self.halves.copy_of(ours))).await?;
            }
        }
        Ok(Ok(()))
    }
}
