//! The commonest write: a part of one chunk, by itself, whose parity is updated by read-modify-write.
//!
//! It goes through the same steps as any other write of a stripe (see [`crate::write::batch`]): plan, read, compute, write,
//! remember. But it has one segment and at most three blocks, so nothing needs a list here. Where the plan would be another
//! one, where a member cannot give its block, or memory is short, nothing has been written yet and the general way is taken.

use crate::cache::StripeLines;
use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::engine::Engine;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::redundancy::blocks::change_parity;
use crate::state::extent::Extent;
use crate::state::view::View;
use crate::write::members::{try_submit, write_members};
use crate::write::segment::whole_lines;
use crate::write::widen::is_whole;
use crate::write::write_errors::handle_write_errors;
use braid_device::{IoError, IoErrorKind, IoSet};
use braid_layout::{Parity, Slot};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut};
use std::ops::Range;
use std::rc::Rc;

/// The write, and where its block and the parity of it lie.
struct OneBlock<'a> {
    engine: &'a Rc<Engine>,
    view: &'a Rc<View>,
    parity: &'a Parity,
    stripe: u64,
    /// The data chunk.
    k: usize,
    /// Data, P and, where there is one, Q: the first `count` of these.
    slots: [Slot; 3],
    count: usize,
    /// Bytes within the chunk.
    rows: Range<u64>,
    /// Component byte of the first.
    at: u64,
    /// The payload.
    new: &'a Buf,
}

/// The blocks of data, P and Q, as far as they are at hand.
type Blocks = [Option<Buf>; 3];

/// Carries out the one write `piece`, whose rows are held for lines of this height. `None`: nothing was written, and the
/// general way is to be taken.
#[inline]
pub(crate) async fn carry_out(
    engine: &Rc<Engine>,
    line: Option<u64>,
    piece: &WriteArgs,
) -> Option<Result<(), IoError>> {
    if engine.consistency.block().is_some_and(|block| !is_whole(piece, block)) {
        return None;
    }
    let writing = match engine.try_begin_write() {
        Some(writing) => writing,
        None => match engine.begin_write().await {
            Ok(writing) => writing,
            Err(error) => return Some(Err(error)),
        },
    };
    let view = &engine.view();
    let stripe = piece.unit;
    let parity = view.geometry_of(stripe).parity()?;
    let WritePayload::Data(new) = &piece.payload else { return None };
    let chunk = parity.chunk_size();
    let k = piece.extent.start / chunk;
    let rows = piece.extent.start - k * chunk..piece.extent.end - k * chunk;
    // With one data chunk in a stripe it may be all of that.
    if rows.end > chunk
        || (parity.data_chunks() == 1 && rows == (0..chunk))
        || (line.is_some() && whole_lines(rows.clone(), line, chunk) != rows)
    {
        return None;
    }
    let k = k as usize;
    let at = parity.member_offset(stripe) + rows.start;
    let (data, p, q) = parity.slots_of(stripe, k);
    let slots = [data, p, q.unwrap_or(Slot::MAX)];
    let count = 1 + parity.parity_count();
    let one = OneBlock { engine, view, parity, stripe, k, slots, count, rows, at, new };
    if !one.is_plain() {
        return None;
    }
    let _scratch = engine.scratch.try_take(one.len() as u64 * 3)?;
    let mut old = Blocks::default();
    if !one.plan(&mut old) {
        return None;
    }
    let mut set = engine.sets.start();
    one.read(&mut set, &old)?;
    if set.pending() > 0 {
        set.all().await;
    }
    let going = one.compute(&mut set, &mut old, piece)?;
    let permit = try_submit(engine, view, &writing, &mut set, &going);
    if permit.is_some() && set.pending() > 0 {
        set.all().await;
    }
    engine.measured.count(|counters| counters.member_writes += one.count as u64);
    if permit.is_none() || set.any_outcome() {
        let unlike = |error: &IoError| error.kind == IoErrorKind::Unsupported;
        let written = match permit.filter(|_| !set.any_error(unlike)) {
            Some(_permit) => Ok(set.finish().await),
            None => {
                set.clear();
                write_members(engine, view, &writing, set, &going).await
            }
        };
        let result = match written {
            Ok(outcomes) if writing.met_error() || outcomes.any_error(|_| true) => {
                Some(handle_write_errors(engine, view, one.stripe, outcomes).await)
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        };
        if result.is_some() {
            engine.cache.forget(one.stripe, one.rows.clone());
            return result;
        }
    }
    one.remember(&going);
    Some(Ok(()))
}

impl OneBlock<'_> {
    #[inline]
    fn len(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        self.slots.get(..self.count).unwrap_or_default()
    }

    /// The block and its parity are there, whole, and match.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let end = self.at + self.len() as u64;
        !self.view.broken
            && end <= self.view.resynced
            && !self.view.any_bad()
            && (self.view.all_readable() || self.is_readable(&(self.at..end)))
    }

    #[inline(never)]
    fn is_readable(&self, bytes: &Range<u64>) -> bool {
        self.slots().iter().all(|slot| self.view.readable(*slot, bytes))
    }

    /// Puts the blocks that the stripe cache has into `old`; false when another plan than read-modify-write reads less.
    #[inline(always)]
    fn plan(&self, old: &mut Blocks) -> bool {
        let rmw_level = self.engine.settings.get().rmw_level.of_members(self.view.rotational());
        let mut cache = self.engine.cache.borrow_mut();
        let found = cache.as_ref().and_then(|cache| cache.stripe(self.stripe));
        let (misses, reconstruct) = match &found {
            None => (self.count, self.parity.data_chunks() - 1),
            Some(found) => self.missing(found),
        };
        if !rmw_level.prefers_rmw(misses, reconstruct) {
            return false;
        }
        if let Some(found) = found
            && misses < self.count
        {
            for (slot, old) in self.slots().iter().zip(old) {
                *old = found.get(*slot, &self.rows, self.engine.shard.pool());
            }
        }
        if let Some(cache) = cache.as_mut() {
            let (len, line) = (self.len() as u64, cache.line_size());
            let lines = if len <= line { 1 } else { len.div_ceil(line) };
            let hits = (self.count - misses) as u64;
            cache.wanted(self.stripe, hits * lines, misses as u64 * lines);
        }
        true
    }

    /// The blocks that would have to be read for read-modify-write, and for reconstruct-write.
    #[inline(never)]
    fn missing(&self, found: &StripeLines<'_>) -> (usize, usize) {
        let is_missing = |slot: &Slot| !found.has(*slot, &self.rows);
        let map = self.parity.map_stripe(self.stripe);
        let others = (0..map.data_chunks()).filter(|k| *k != self.k);
        let others = others.map(|k| map.data_slot(k));
        let own = self.slots().iter().filter(|slot| is_missing(slot));
        (own.count(), others.filter(is_missing).count())
    }

    /// Has the blocks that are missing read by way of `set`; `None` when a member is not there.
    #[inline(always)]
    fn read(&self, set: &mut IoSet, old: &Blocks) -> Option<()> {
        let mut reads = 0;
        for (nr, (slot, old)) in self.slots.iter().zip(old).enumerate().take(self.count) {
            if old.is_none() {
                let (device, data_offset) = self.view.member(*slot)?;
                let buf = self.engine.shard.pool().get(self.len());
                set.submit_read(nr, &**device, data_offset + self.at, buf);
                reads += 1;
            }
        }
        self.engine.measured.count(|counters| counters.member_reads += reads);
        Some(())
    }

    /// Makes new parity of the old, of which `set` has read what the stripe cache did not have; `None` when a member could
    /// not give its block.
    #[inline(always)]
    fn compute(&self, set: &mut IoSet, old: &mut Blocks, piece: &WriteArgs) -> Option<Going<'_>> {
        for (nr, old) in old.iter_mut().enumerate().take(self.count) {
            if old.is_none() {
                *old = Some(set.take_read(nr)?.freeze());
            }
        }
        let [data, p, q] = old;
        let (data, p, q) = (data.take()?, p.take()?, q.take());
        // The stripe cache may hold the same buffer, and keeps its old content until the write has ended.
        let own = |parity: Buf| {
            let pool = self.engine.shard.pool();
            parity.try_into_mut().unwrap_or_else(|shared| pool.copy_of(&shared))
        };
        let (mut p, mut q) = (own(p), q.map(own));
        self.engine.measured.count(|counters| {
            counters.rmw += 1;
            counters.lookups += 1;
        });
        if !(planted("parity-of-a-segment") && self.rows.start == 0) {
            match q.as_mut() {
                None => braid_parity::delta_p(&data, self.new, &mut p),
                Some(q) => {
                    let map = self.parity.map_stripe(self.stripe);
                    change_parity(&map, self.k, (&data, self.new), (Some(&mut p), Some(q)));
                }
            }
        }
        let parity = [Some(p.freeze()), q.map(BufMut::freeze)];
        Some(Going { one: self, extent: piece.extent, parity, fua: piece.fua })
    }

    /// The stripe cache takes over what the members hold now.
    #[inline]
    fn remember(&self, going: &Going<'_>) {
        let mut cache = self.engine.cache.borrow_mut();
        let Some(cache) = cache.as_mut() else { return };
        let taken = cache.takes_over(self.stripe, &self.rows, self.view.missing(), true);
        let Some(admit) = taken else { return };
        let [p, q] = &going.parity;
        let blocks = [Some(self.new), p.as_ref(), q.as_ref()];
        let stored = if planted("stale-line") { 1 } else { self.count };
        let blocks = self.slots.iter().zip(blocks).take(stored);
        let blocks = blocks.filter_map(|(slot, block)| Some((*slot, block?)));
        cache.store_blocks(self.stripe, &self.rows, blocks, admit);
    }
}

/// The write with its new parity.
struct Going<'a> {
    one: &'a OneBlock<'a>,
    extent: Extent,
    /// P and Q.
    parity: [Option<Buf>; 2],
    fua: bool,
}

impl Outgoing for Going<'_> {
    fn unit(&self) -> u64 {
        self.one.stripe
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        std::iter::once(self.extent)
    }

    #[inline]
    fn blocks(&self) -> impl Iterator<Item = Block> {
        let (one, [p, q]) = (self.one, &self.parity);
        (0..one.count).filter_map(move |nr| {
            let (role, block) = match nr {
                0 => (Role::Data, Some(one.new)),
                1 => (Role::Parity, p.as_ref()),
                _ => (Role::Parity, q.as_ref()),
            };
            let content = Content::Bytes(block?.clone());
            Some(Block { slot: *one.slots.get(nr)?, at: one.at, role, content })
        })
    }

    fn fua(&self) -> bool {
        self.fua
    }
}
