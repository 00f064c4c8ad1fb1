//! The commonest write: a part of one chunk, by itself, whose parity is updated by read-modify-write.
//!
//! It goes through the same steps as any other write of a stripe (see [`crate::write::batch`]): plan, read, compute, write,
//! remember. But it has one segment and at most three blocks, so nothing needs a list here. Where the plan would be another
//! one, where a member cannot give its block, or memory is short, nothing has been written yet and the general way is taken.

use crate::cache::StripeLines;
use crate::consistency::WriteInFlight;
use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::engine::Engine;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::redundancy::blocks::change_parity;
use crate::state::extent::Extent;
use crate::state::view::View;
use crate::write::members::write_members;
use crate::write::segment::whole_lines;
use crate::write::write_errors::handle_write_errors;
use braid_device::{IoError, Op, Request};
use braid_layout::{Parity, Slot, StripeMap};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut};
use std::ops::Range;
use std::rc::Rc;

/// The write, and where its block and the parity of it lie.
struct OneBlock<'a> {
    engine: &'a Rc<Engine>,
    view: &'a Rc<View>,
    map: StripeMap,
    stripe: u64,
    /// The data chunk.
    k: usize,
    /// Data, P and Q.
    slots: [Option<Slot>; 3],
    /// Bytes within the chunk.
    rows: Range<u64>,
    /// Component byte of the first.
    at: u64,
}

/// The old content of data, P and Q.
type Old = [Option<Buf>; 3];

/// Carries out the one write `piece` of stripe `stripe`, whose rows are held for lines of this height, and which has begun
/// as `writing`. `None`: nothing was written, and the general way is to be taken.
pub(crate) async fn carry_out(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    writing: &WriteInFlight,
    parity: &Parity,
    (stripe, line): (u64, Option<u64>),
    piece: &WriteArgs,
) -> Option<Result<(), IoError>> {
    let WritePayload::Data(new) = &piece.payload else { return None };
    let chunk = parity.chunk_size();
    let k = piece.extent.start / chunk;
    let rows = piece.extent.start - k * chunk..piece.extent.end - k * chunk;
    if rows.end > chunk || whole_lines(rows.clone(), line, chunk) != rows {
        return None;
    }
    let map = parity.map_stripe(stripe);
    let at = parity.member_offset(stripe) + rows.start;
    let slots = [Some(map.data_slot(k as usize)), Some(map.p_slot()), map.q_slot()];
    let one = OneBlock { engine, view, map, stripe, k: k as usize, slots, rows, at };
    if !one.is_plain() {
        return None;
    }
    let _scratch = engine.scratch.try_take(one.len() as u64 * 3)?;
    let mut old = one.plan()?;
    one.read(&mut old).await?;
    let [Some(data), Some(p), q] = old else { return None };
    // The stripe cache may hold the same buffer, and keeps its old content until the write has ended.
    let own = |parity: Buf| {
        parity.try_into_mut().unwrap_or_else(|shared| engine.shard.pool().copy_of(&shared))
    };
    let (mut p, mut q) = (own(p), q.map(own));
    one.compute(&data, new, &mut p, q.as_mut());
    drop(data);
    let (p, q) = (Some(p.freeze()), q.map(BufMut::freeze));
    let blocks = [Some(new), p.as_ref(), q.as_ref()];
    let going = Going { one: &one, extent: piece.extent, blocks, fua: piece.fua };
    Some(going.write(writing).await)
}

impl OneBlock<'_> {
    fn len(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter().flatten()
    }

    /// The block and its parity are there, whole, and match.
    fn is_plain(&self) -> bool {
        let bytes = self.at..self.at + self.len() as u64;
        !self.view.broken
            && !self.view.any_bad()
            && bytes.end <= self.view.resynced
            && self.slots().all(|slot| self.view.readable(slot, &bytes))
    }

    /// The blocks that the stripe cache has; `None` when another plan than read-modify-write reads less.
    fn plan(&self) -> Option<Old> {
        let mut cache = self.engine.cache.borrow_mut();
        let found = cache.as_ref().and_then(|cache| cache.stripe(self.stripe));
        let wanted = self.slots().count();
        let (misses, reconstruct) = match &found {
            None => (wanted, self.map.data_chunks() - 1),
            Some(found) => self.missing(found),
        };
        if !self.engine.settings.get().rmw_level.prefers_rmw(misses, reconstruct) {
            return None;
        }
        let old = match found {
            Some(found) if misses < wanted => self.slots.map(|slot| {
                slot.and_then(|slot| found.get(slot, &self.rows, self.engine.shard.pool()))
            }),
            _ => [None, None, None],
        };
        if let Some(cache) = cache.as_mut() {
            let lines = (self.len() as u64).div_ceil(cache.line_size());
            cache.wanted(self.stripe, (wanted - misses) as u64 * lines, misses as u64 * lines);
        }
        Some(old)
    }

    /// The blocks that would have to be read for read-modify-write, and for reconstruct-write.
    #[inline(never)]
    fn missing(&self, found: &StripeLines<'_>) -> (usize, usize) {
        let is_missing = |slot: &Slot| !found.has(*slot, &self.rows);
        let others = (0..self.map.data_chunks()).filter(|k| *k != self.k);
        let others = others.map(|k| self.map.data_slot(k));
        (self.slots().filter(is_missing).count(), others.filter(is_missing).count())
    }

    /// Reads the blocks that are missing; `None` when a member could not give one.
    async fn read(&self, old: &mut Old) -> Option<()> {
        let missing =
            self.slots.iter().zip(&*old).filter(|(slot, old)| slot.is_some() && old.is_none());
        let missing = missing.count();
        if missing == 0 {
            return Some(());
        }
        let mut set = self.engine.sets.start();
        for (nr, slot) in self.slots.iter().enumerate() {
            if let (Some(slot), None) = (slot, &old[nr]) {
                let (device, data_offset) = self.view.member(*slot)?;
                let buf = self.engine.shard.pool().get(self.len());
                set.submit(nr as u32, &**device, Request::read(data_offset + self.at, buf));
            }
        }
        self.engine.measured.count(|counters| counters.member_reads += missing as u64);
        for (nr, outcome) in set.finish().await {
            let (Ok(()), Op::Read(mut bufs)) = (outcome.result, outcome.op) else { return None };
            *old.get_mut(nr as usize)? = bufs.pop().map(BufMut::freeze);
        }
        Some(())
    }

    /// Makes new parity of the old.
    fn compute(&self, old: &[u8], new: &[u8], p: &mut [u8], q: Option<&mut BufMut>) {
        self.engine.measured.count(|counters| {
            counters.rmw += 1;
            counters.lookups += 1;
        });
        if planted("parity-of-a-segment") && self.rows.start == 0 {
            return;
        }
        let q = q.map(|q| &mut q[..]);
        change_parity(&self.map, self.k, (old, new), (Some(p), q));
    }

    /// The stripe cache takes over what the members hold now.
    fn remember(&self, blocks: [Option<&Buf>; 3]) {
        let mut cache = self.engine.cache.borrow_mut();
        let Some(cache) = cache.as_mut() else { return };
        let taken = cache.takes_over(self.stripe, &self.rows, self.view.missing(), true);
        let Some(admit) = taken else { return };
        let parity = self.slots.iter().zip(blocks).skip(1).filter(|_| !planted("stale-line"));
        let data = self.slots.iter().zip(blocks).take(1);
        let blocks = data.chain(parity).filter_map(|(slot, block)| Some(((*slot)?, block?)));
        cache.store_blocks(self.stripe, &self.rows, blocks, admit);
    }
}

/// The write with its new parity.
struct Going<'a> {
    one: &'a OneBlock<'a>,
    extent: Extent,
    /// Data, P and Q.
    blocks: [Option<&'a Buf>; 3],
    fua: bool,
}

impl Outgoing for Going<'_> {
    fn unit(&self) -> u64 {
        self.one.stripe
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        std::iter::once(self.extent)
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let blocks = self.one.slots.iter().zip(self.blocks).enumerate();
        blocks.filter_map(|(nr, (slot, block))| {
            let role = if nr == 0 { Role::Data } else { Role::Parity };
            let content = Content::Bytes(block?.clone());
            Some(Block { slot: (*slot)?, at: self.one.at, role, content })
        })
    }

    fn fua(&self) -> bool {
        self.fua
    }
}

impl Going<'_> {
    async fn write(&self, writing: &WriteInFlight) -> Result<(), IoError> {
        let OneBlock { engine, view, .. } = self.one;
        let outcomes = write_members(engine, view, writing, self).await;
        engine.measured.count(|counters| counters.member_writes += outcomes.len() as u64);
        if outcomes.any_error(|_| true) {
            engine.cache.forget(self.one.stripe, self.one.rows.clone());
            return handle_write_errors(engine, view, self.one.stripe, outcomes).await;
        }
        drop(outcomes);
        self.one.remember(self.blocks);
        Ok(())
    }
}
