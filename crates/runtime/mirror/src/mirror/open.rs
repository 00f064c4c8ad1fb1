//! A mirror is made, or opened: which leg holds what, and how the others become equal to the first.
//!
//! A block that was never written has no sum, and is not compared.

use super::Mirror;
use crate::error::{MirrorError, failed};
use crate::header::{self, State};
use crate::layout::{Layout, blocks_in};
use crate::legs::Legs;
use crate::region::{BLOCK, Region};
use crate::sums::{Sums, UNKNOWN};
use braid_device::IoError;
use braid_shard::{BufMut, Shard};
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
    /// The mirror was flushed after the last write, so all regions have the same content.
    AfterStop,
    /// It was not, or that is unknown: the other regions are made equal to the first. All must have been in use
    /// until the end.
    AfterCrash,
}

impl Mirror {
    /// Opens the mirror in `regions`, one to [`LEGS_MAX`](crate::LEGS_MAX), the one to be believed first, whose devices are open on
    /// `shard`. A leg whose header cannot be used is detached if that of another leg can.
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
        let legs = Legs::new(shard, regions);
        match how {
            Open::Create => Mirror::format(shard, legs).await,
            Open::AfterStop => Mirror::open_legs(shard, legs, false).await,
            Open::AfterCrash => Mirror::open_legs(shard, legs, true).await,
        }
    }

    async fn format(shard: &Shard, legs: Legs) -> Result<Rc<Mirror>, MirrorError> {
        let size = legs.size();
        let name = legs.held().next().map_or("no region".to_string(), |leg| legs.name(leg));
        let layout = Layout::of_ends(vec![blocks_in(size)]).ok_or_else(|| {
            MirrorError::Failed(format!("the region on {name} has {size} bytes, which are too few"))
        })?;
        let mirror = Mirror::over(shard, legs, layout);
        mirror.lay_out().await.map_err(|error| failed("writing", &error))?;
        mirror.state.borrow_mut().is_new = true;
        Ok(mirror)
    }

    /// The header is erased first and written last, so that an interrupted creation leaves no mirror.
    async fn lay_out(&self) -> Result<(), IoError> {
        let zeroes = || self.legs.copy_of(&[0; BLOCK]);
        self.put(&[(0, zeroes())]).await?;
        self.legs.sync().await?;
        let tables: Vec<u64> = (0..self.state.borrow().layout.tables()).collect();
        for numbers in tables.chunks(TABLES) {
            let pieces: Vec<_> = numbers.iter().map(|number| self.table_piece(*number)).collect();
            self.put(&pieces).await?;
        }
        self.put(&[(self.place(0), zeroes())]).await?;
        self.legs.sync().await?;
        self.put(&[self.header_piece()]).await?;
        self.legs.sync().await
    }

    async fn open_legs(
        shard: &Shard,
        legs: Legs,
        compare: bool,
    ) -> Result<Rc<Mirror>, MirrorError> {
        let (layout, whole, unlike) = header::read(&legs).await?;
        let mirror = Mirror::over(shard, legs, layout);
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

    /// Reads the table, from any leg that has it: all are equal.
    async fn load_sums(&self) -> Result<(), IoError> {
        let tables = self.state.borrow().layout.tables();
        for number in 0..tables {
            let offset = self.state.borrow().layout.table_at(number);
            let mut bytes = self.legs.buffer(BLOCK);
            let leg = self.legs.read(offset, &mut bytes).await?;
            let damaged = self.state.borrow_mut().sums.load(number, &bytes);
            if damaged.is_empty() {
                continue;
            }
            self.state.borrow_mut().dirty.insert(number);
            if !self.load_elsewhere(number, leg, &damaged).await? {
                self.sums_are_lost(leg, offset);
            }
        }
        Ok(())
    }

    /// Reads the table of the first leg that is readable throughout. Those before it are detached.
    async fn load_sums_of_first(&self) -> Result<(), IoError> {
        while let Some(leg) = self.legs.held().next() {
            {
                let mut state = self.state.borrow_mut();
                state.sums = Sums::new(state.layout.blocks());
                state.must_verify = false;
            }
            match self.load_sums_of(leg).await {
                Ok(()) => return Ok(()),
                Err(error) => self.detach_failed(leg, "reading", error)?,
            }
        }
        Ok(())
    }

    async fn load_sums_of(&self, leg: usize) -> Result<(), IoError> {
        let tables = self.state.borrow().layout.tables();
        for number in 0..tables {
            let offset = self.state.borrow().layout.table_at(number);
            let mut bytes = self.legs.buffer(BLOCK);
            self.legs.read_leg(leg, offset, &mut bytes).await?;
            let damaged = self.state.borrow_mut().sums.load(number, &bytes);
            if !damaged.is_empty() {
                self.state.borrow_mut().dirty.insert(number);
                self.sums_are_lost(leg, offset);
            }
        }
        Ok(())
    }

    fn sums_are_lost(&self, leg: usize, offset: u64) {
        self.state.borrow_mut().must_verify = true;
        let region = self.legs.name(leg);
        tracing::warn!(region, offset, "sums of a mirror are damaged; its user has to verify");
    }

    /// Loads damaged sectors of the table from the other legs, which are equal.
    async fn load_elsewhere(
        &self,
        number: u64,
        leg: usize,
        damaged: &[u64],
    ) -> Result<bool, IoError> {
        let offset = self.state.borrow().layout.table_at(number);
        let mut missing = damaged.to_vec();
        for other in self.legs.held().filter(|other| *other != leg) {
            let mut bytes = self.legs.buffer(BLOCK);
            match self.legs.read_leg(other, offset, &mut bytes).await {
                // All copies have the same sums where they are sound.
                Ok(()) => {
                    let state = &mut *self.state.borrow_mut();
                    let theirs = state.sums.load(number, &bytes);
                    missing.retain(|sector| theirs.contains(sector));
                    if missing.is_empty() {
                        state.mended += 1;
                        return Ok(true);
                    }
                }
                Err(error) => self.detach_failed(other, "reading", error)?,
            }
        }
        Ok(false)
    }

    /// Makes the other legs equal to the first, one after the other: of three, an interruption leaves two that are whole.
    async fn compare(&self) -> Result<(), IoError> {
        let held: Vec<usize> = self.legs.held().collect();
        let Some((source, targets)) = held.split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return Ok(());
        };
        let mut unreadable = None;
        for target in targets {
            unreadable = self.make_equal(*source, *target).await?.or(unreadable);
        }
        // Only now, when the others hold all that could be read of it.
        match unreadable {
            Some(error) => self.detach_failed(*source, "reading", error),
            None => Ok(()),
        }
    }

    /// Makes a leg equal to the first: reads both, writes what differs. Its header says so before
    /// anything else is written there: cut short, it may hold neither what it held before nor what the first does, and the
    /// next start might take it for the first. Gives the error of blocks that the first cannot read.
    async fn make_equal(&self, source: usize, target: usize) -> Result<Option<IoError>, IoError> {
        let mut unreadable = None;
        let (blocks, tables) = {
            let state = self.state.borrow();
            (state.layout.blocks(), state.layout.tables())
        };
        let mut at = 0;
        while at < blocks && self.legs.holds(target) {
            let count = self.state.borrow().layout.in_a_row(at, WINDOW.min(blocks - at));
            if self.any_known(at, count)
                && let Err(error) = self.compare_window(source, target, at, count).await?
            {
                unreadable = Some(error);
            }
            at += count;
        }
        if self.legs.holds(target) {
            for number in 0..tables {
                self.rewrite(target, self.table_piece(number)).await?;
            }
            self.legs.sync().await?;
            self.state.borrow_mut().whole = State::Whole;
            self.rewrite(target, self.header_piece()).await?;
        }
        self.state.borrow_mut().whole = State::Whole;
        self.legs.sync().await?;
        Ok(unreadable)
    }

    /// Before anything of a leg is overwritten.
    async fn begin_rewrite(&self, target: usize) -> Result<(), IoError> {
        if self.state.borrow().whole == State::Unequal {
            return Ok(());
        }
        self.state.borrow_mut().whole = State::Unequal;
        self.rewrite(target, self.header_piece()).await?;
        self.legs.sync().await
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

    /// The inner error is of blocks that the first leg cannot read.
    async fn compare_window(
        &self,
        source: usize,
        target: usize,
        first: u64,
        count: u64,
    ) -> Result<Result<(), IoError>, IoError> {
        let offset = self.place(first);
        let len = count as usize * BLOCK;
        let (mut ours, mut theirs) = (self.legs.buffer(len), self.legs.buffer(len));
        if let Err(error) = self.legs.read_leg(target, offset, &mut theirs).await {
            self.detach_failed(target, "reading", error)?;
            return Ok(Ok(()));
        }
        if let Err(error) = self.legs.read_leg(source, offset, &mut ours).await {
            if count == 1 {
                if let Some((right, _)) = self.elsewhere(source, first).await? {
                    self.rewrite_target(target, first, &theirs, &right).await?;
                }
            } else {
                for block in first..first + count {
                    let one = Box::pin(self.compare_window(source, target, block, 1));
                    // The first leg is detached in the end, whatever this finds.
                    let _ = one.await?;
                }
            }
            return Ok(Err(error));
        }
        let is_one_of_two = self.legs.held().count() == 2;
        let pairs = ours.chunks_exact(BLOCK).zip(theirs.chunks_exact(BLOCK));
        for (block, (ours, theirs)) in (first..).zip(pairs) {
            let must_verify = self.state.borrow().must_verify;
            if block > 0 && !must_verify && !self.is_known(block) {
                continue;
            }
            if ours == theirs && is_one_of_two {
                continue;
            }
            // Another leg may still have the blocks that the first has lost.
            let right = match self.agrees(block, ours) {
                true => None,
                false => self.elsewhere(source, block).await?.filter(|(_, agrees)| *agrees),
            };
            let Some((right, _)) = right else {
                self.rewrite_target(target, block, theirs, ours).await?;
                continue;
            };
            self.state.borrow_mut().mended += 1;
            self.rewrite(source, (self.place(block), self.legs.copy_of(&right))).await?;
            self.rewrite_target(target, block, theirs, &right).await?;
        }
        Ok(Ok(()))
    }

    /// Writes a block of a leg that is made equal, where it differs.
    async fn rewrite_target(
        &self,
        target: usize,
        block: u64,
        theirs: &[u8],
        right: &[u8],
    ) -> Result<(), IoError> {
        if theirs == right {
            return Ok(());
        }
        self.begin_rewrite(target).await?;
        self.rewrite(target, (self.place(block), self.legs.copy_of(right))).await
    }

    /// A block as the legs other than `source` have it: of the first where it agrees with its sum (true), else of the first that
    /// can be read.
    async fn elsewhere(
        &self,
        source: usize,
        block: u64,
    ) -> Result<Option<(BufMut, bool)>, IoError> {
        let mut found: Option<(BufMut, bool)> = None;
        for other in self.legs.held().filter(|other| *other != source) {
            let mut theirs = self.legs.buffer(BLOCK);
            if let Err(error) = self.legs.read_leg(other, self.place(block), &mut theirs).await {
                self.detach_failed(other, "reading", error)?;
            } else if self.agrees(block, &theirs) {
                return Ok(Some((theirs, true)));
            } else if found.is_none() {
                found = Some((theirs, false));
            }
        }
        Ok(found)
    }
}
