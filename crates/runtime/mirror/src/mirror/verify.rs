//! Blocks and sums that a power failure has separated: the user says which blocks are right.
//!
//! A write that was under way when the power failed may have reached a region while the sector of the table with its sum did
//! not, or the other way round. The mirror cannot tell that from damage. A user with checksums of its own can: it reads
//! with verification begun, and adopts what it found right. Others take everything as it is.

use super::Mirror;
use crate::header::State;
use crate::region::BLOCK;
use crate::sums::Sums;
use braid_device::IoError;
use braid_shard::range_locks::WHOLE;
use std::collections::BTreeSet;

/// Blocks that are read or adopted at once.
const TOGETHER: usize = 256;

impl Mirror {
    /// True when sums were lost, or a leg was opened that was being made equal to another: then blocks that never were
    /// part of the same state may agree with what is known. Until [`note_verified`](Mirror::note_verified) the user has to
    /// verify all that it relies on.
    pub fn must_verify(&self) -> bool {
        self.state.borrow().must_verify
    }

    /// From now on the user verifies what it reads: a block that agrees with no sum is had from the first leg instead of an
    /// error, and remembered.
    pub fn begin_verification(&self) {
        let state = &mut *self.state.borrow_mut();
        state.verifying = true;
        state.doubtful.clear();
        state.disagreed = false;
    }

    /// The blocks that were read since verification began, and whose sums are missing or different, are right: makes
    /// them durable with their sums, on all legs. Before the user writes anything that leaves no older state to go
    /// back to: so a later start has them, whichever leg is then the first.
    ///
    /// # Errors
    /// When they cannot be read, or no leg takes them.
    pub async fn adopt(&self) -> Result<(), IoError> {
        let doubtful: Vec<u64> = {
            let state = &mut *self.state.borrow_mut();
            state.disagreed = false;
            std::mem::take(&mut state.doubtful).into_iter().collect()
        };
        if doubtful.is_empty() {
            return Ok(());
        }
        let _held = self.locks.exclusive(WHOLE).await;
        let _turn = self.turn.take(1).await;
        for some in doubtful.chunks(TOGETHER) {
            let mut pieces = Vec::with_capacity(some.len());
            for &block in some {
                let (offset, mut bytes) = (self.place(block), self.legs.buffer(BLOCK));
                self.legs.read(offset, &mut bytes).await?;
                let state = &mut *self.state.borrow_mut();
                state.sums.set(block, &bytes);
                state.dirty.insert(Sums::place(block));
                pieces.push((offset, bytes.freeze()));
            }
            self.put(&pieces).await?;
        }
        self.sync_with(Vec::new()).await
    }

    /// From now on the sums decide again. False when a block was read since verification began that agreed with no
    /// sum, and was not adopted.
    pub fn end_verification(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.verifying = false;
        state.doubtful.clear();
        !std::mem::take(&mut state.disagreed)
    }

    /// The user has verified all that it relies on: the header says so, if it did not.
    ///
    /// # Errors
    /// When no leg takes that.
    pub async fn note_verified(&self) -> Result<(), IoError> {
        if self.state.borrow().whole == State::Whole {
            return Ok(());
        }
        let _held = self.locks.exclusive(WHOLE).await;
        let _turn = self.turn.take(1).await;
        self.sync_with(Vec::new()).await?;
        self.state.borrow_mut().whole = State::Whole;
        self.put(&[self.header_piece()]).await?;
        self.sync_with(Vec::new()).await
    }

    /// Takes every block as it is, on the leg that is read first where all disagree with the sum or there is none, and
    /// reads all of every leg for that: for a user without checksums of its own, after a crash. Each block that was being written then is old or
    /// new, or a mixture, as on any disk. Damage that came about by that time cannot be told from it, except where
    /// another leg has what was written.
    ///
    /// # Errors
    /// When the legs cannot be read or written.
    pub async fn adopt_all(&self) -> Result<(), IoError> {
        self.begin_verification();
        let blocks = self.state.borrow().layout.blocks();
        let mut at = 1;
        while at < blocks {
            let left = (blocks - at).min(TOGETHER as u64);
            let count = self.state.borrow().layout.in_a_row(at, left);
            let mut bytes = self.legs.buffer(count as usize * BLOCK);
            self.read_blocks(at, &mut bytes).await?;
            self.adopt_equal(at, &bytes).await?;
            self.adopt().await?;
            at += count;
        }
        self.end_verification();
        self.flush().await?;
        self.note_verified().await?;
        self.state.borrow_mut().must_verify = false;
        Ok(())
    }

    /// Adopts what need not be written, because the legs agree about it.
    async fn adopt_equal(&self, first: u64, bytes: &[u8]) -> Result<(), IoError> {
        let mut theirs = self.legs.buffer(bytes.len());
        let mut differ = BTreeSet::new();
        for other in self.legs.held().skip(1) {
            if let Err(error) = self.legs.read_leg(other, self.place(first), &mut theirs).await {
                self.detach_failed(other, "reading", error)?;
                continue;
            }
            let pairs = bytes.chunks_exact(BLOCK).zip(theirs.chunks_exact(BLOCK));
            let numbered = (first..).zip(pairs);
            differ.extend(
                numbered.filter(|(_, (ours, theirs))| ours != theirs).map(|(block, _)| block),
            );
        }
        let state = &mut *self.state.borrow_mut();
        for (block, ours) in (first..).zip(bytes.chunks_exact(BLOCK)) {
            if !differ.contains(&block) && state.doubtful.remove(&block) {
                state.sums.set(block, ours);
                state.dirty.insert(Sums::place(block));
            }
        }
        Ok(())
    }
}
