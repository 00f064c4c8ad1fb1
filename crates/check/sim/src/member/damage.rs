//! Blocks of a member that cannot be read, or take no write.

use super::{Cached, Member, SECTOR, State};
use std::ops::Range;

impl Member {
    /// Logical blocks of the data area from component byte `offset` on become unreadable.
    pub fn make_unreadable(&self, offset: u64, blocks: u64) {
        let data = self.data.borrow().clone();
        let mut state = self.state.borrow_mut();
        for nr in 0..blocks {
            let at = data.start + offset + nr * self.kind.tear;
            if at + self.kind.tear <= data.end {
                state.bad.insert(at / self.kind.tear);
                self.was_bad.set(true);
            }
        }
    }

    /// Logical blocks of the data area from component byte `offset` on take no write any more; with
    /// `unreadable` they cannot be read either.
    pub fn make_defective(&self, offset: u64, blocks: u64, unreadable: bool) {
        if unreadable {
            self.make_unreadable(offset, blocks);
        }
        let data = self.data.borrow().clone();
        let mut state = self.state.borrow_mut();
        for nr in 0..blocks {
            let at = data.start + offset + nr * self.kind.tear;
            if at + self.kind.tear <= data.end {
                state.defects.insert(at / self.kind.tear);
                self.was_bad.set(true);
            }
        }
    }

    /// Blocks that cannot be read, or that the array may have recorded as bad, as component bytes. It
    /// records aligned pieces of 4096 bytes.
    pub fn unreadable(&self) -> Vec<Range<u64>> {
        const PIECE: u64 = 4096;
        let (state, data, tear) = (self.state.borrow(), self.data.borrow(), self.kind.tear);
        let at = |block: &u64| (block * tear).saturating_sub(data.start);
        let in_data = |block: &&u64| data.contains(&(**block * tear));
        let unreadable = state.bad.iter().filter(in_data).map(|block| at(block)..at(block) + tear);
        let defects = state
            .defects
            .iter()
            .map(|block| at(block) / PIECE * PIECE..(at(block) + tear).next_multiple_of(PIECE));
        unreadable.chain(defects).collect()
    }

    /// A write failure is ordered, or there are blocks of its data that cannot be read.
    pub fn is_weak(&self) -> bool {
        let state = self.state.borrow();
        let (data, tear) = (self.data.borrow(), self.kind.tear);
        let blocks = state.defects.is_empty()
            && state.bad.range(data.start / tear..data.end.div_ceil(tear)).next().is_none();
        let ordered = state.fail_write_in.is_some() || state.fail_flushes > 0 || self.hung.get();
        state.gone || ordered || !blocks || self.scarred.get()
    }

    /// Whatever overlaps these bytes of the device, metadata included, becomes unreadable.
    pub fn make_unreadable_at(&self, range: Range<u64>) {
        let tear = self.kind.tear;
        self.state.borrow_mut().bad.extend(range.start / tear..range.end.div_ceil(tear));
    }

    /// Some of these bytes of the device cannot be read.
    pub fn cannot_read(&self, range: &Range<u64>) -> bool {
        let tear = self.kind.tear;
        let blocks = range.start / tear..range.end.div_ceil(tear);
        self.state.borrow().bad.range(blocks).next().is_some()
    }

    /// The bytes of the live image, with zeroes where they cannot be read.
    pub fn readable_image(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = self.image(range.clone());
        if self.cannot_read(&range) {
            for (at, sector) in
                (range.start..).step_by(SECTOR as usize).zip(bytes.chunks_mut(SECTOR as usize))
            {
                if self.cannot_read(&(at..at + SECTOR)) {
                    sector.fill(0);
                }
            }
        }
        bytes
    }

    /// From now on reads give what was durable, of what a failed flush has lost. What was written later stays, in the order
    /// in which it was: a write with FUA is durable before some that came earlier, and is not in the cache.
    pub fn show_loss(&self) {
        self.lost_at.set(None);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.durable.is_none() {
            return;
        }
        // It stays lost until the power fails.
        let lost = std::mem::take(&mut state.lost);
        state.take_back(&lost);
        state.lost = lost;
        let State { live, cache, fresh, durable_seq, .. } = state;
        for Cached { seq, offset, data, .. } in cache.iter() {
            for (at, bytes) in
                (*offset..).step_by(SECTOR as usize).zip(data.chunks(SECTOR as usize))
            {
                let sector = (at / SECTOR) as usize;
                if durable_seq[sector] > *seq {
                    continue;
                }
                live.get_mut(at..at + bytes.len() as u64).copy_from_slice(bytes);
                if let Some(fresh) = fresh {
                    fresh.live[sector] = true;
                }
            }
        }
    }

    /// All of its metadata can be read again. False when it could before.
    pub fn heal_metadata(&self) -> bool {
        let (mut state, data, tear) = (self.state.borrow_mut(), self.data.borrow(), self.kind.tear);
        let before = state.bad.len();
        state.bad.retain(|block| data.contains(&(block * tear)));
        state.bad.len() < before
    }
}
