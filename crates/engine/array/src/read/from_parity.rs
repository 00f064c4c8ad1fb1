//! Reads of a chunk whose member cannot give it: computed from the rest of the stripe.

use crate::engine::Engine;
use crate::engine::work::RecoverArgs;
use crate::read::wide::Wide;
use crate::redundancy::blocks::Blocks;
use crate::redundancy::mend::{mend, piece_size, write_over};
use crate::state::extent::pieces;
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind, Op, Request, Sought};
use braid_layout::{Parity, Place, Slot, StripeMap};
use braid_shard::BufMut;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Looks for bytes of a chunk in what its member has, and in what the rest of the stripe makes of it: with P, and where there is Q
/// without each other member in turn. What is found is written to the member.
pub(crate) async fn find_agreeing(
    engine: &Rc<Engine>,
    parity: &Parity,
    sought: Sought,
) -> Option<BufMut> {
    let (stripe, k, within) = parity.locate(sought.offset);
    let end = within + sought.len as u64;
    let _held = engine.locks.lock(stripe, within, end).await;
    let _scratch = engine.scratch.take(sought.len as u64 * parity.slots() as u64).await;
    let map = parity.map_stripe(stripe);
    let slot = map.data_slot(k);
    let at = parity.member_offset(stripe) + within;
    let wanted = Wanted { map, slot, k, stripe, within, at, width: parity.q_width() };
    let view = engine.view();
    let mut buf = engine.shard.pool().get(sought.len);
    let is_there = view.readable(slot, &wanted.bytes(sought.len));
    if is_there && wanted.read_directly(engine, &view, &mut buf).await.is_ok() && sought.is(&buf) {
        // The bytes that were given before came from memory, or was not what the member has.
        engine.cache.forget(stripe, within..end);
        return Some(buf);
    }
    let others = (0..map.slots()).filter(|other| *other != slot && map.q_slot().is_some());
    for without in std::iter::once(None).chain(others.map(Some)) {
        let mut avoid: SmallVec<[Slot; 4]> = without.into_iter().collect();
        let computed = wanted.compute(engine, &view, &mut buf, &mut avoid).await;
        if matches!(computed, Ok(true)) && sought.is(&buf) {
            engine.cache.forget(stripe, within..end);
            if is_there {
                write_over(engine, &view, Place { slot, offset: at }, &buf).await;
            }
            return Some(buf);
        }
    }
    None
}

/// The rows of one chunk that are wanted.
struct Wanted {
    map: StripeMap,
    slot: Slot,
    k: usize,
    stripe: u64,
    /// The first row: byte of the chunk, and of the component.
    within: u64,
    at: u64,
    width: usize,
}

/// Where rows were had from.
#[derive(PartialEq)]
enum Source {
    /// Their member.
    Member,
    /// The rest of the stripe, since their member has them no more.
    Missing,
    /// The rest of the stripe: their member is there and cannot read them.
    Unreadable,
}

/// Carries out one recovery and tells `done`.
pub(crate) async fn recover(engine: Rc<Engine>, args: RecoverArgs) {
    let RecoverArgs { offset, mut buf, done, error } = args;
    let result = recover_chunk(&engine, offset, &mut buf, error).await;
    done.finish(&engine.mesh, result, Some(buf), None);
}

async fn recover_chunk(
    engine: &Rc<Engine>,
    offset: u64,
    buf: &mut BufMut,
    error: Option<IoError>,
) -> Result<(), IoError> {
    let view = engine.view();
    let Some(parity) = view.geometry_at(offset).parity() else {
        return Err(IoError::new(IoErrorKind::Invalid));
    };
    let (stripe, _, within) = parity.locate(offset);
    let wide = Wide::of(engine, within..within + buf.len() as u64, parity.chunk_size(), error);
    let Range { start, end } = wide.pieces;
    let _held = engine.locks.lock(stripe, start, end).await;
    let _scratch = engine.scratch.take((end - start) * parity.slots() as u64).await;
    let chunk = offset - within;
    let recover = async |start, buf: &mut BufMut| {
        recover_rows(engine, parity, chunk + start, buf, error).await
    };
    wide.recover(engine, buf, recover).await
}

/// Reads or recovers rows of one chunk, from array byte `offset` on, that are locked.
pub(crate) async fn recover_rows(
    engine: &Rc<Engine>,
    parity: &Parity,
    offset: u64,
    buf: &mut BufMut,
    error: Option<IoError>,
) -> Result<(), IoError> {
    let (stripe, k, within) = parity.locate(offset);
    let len = buf.len() as u64;
    let map = parity.map_stripe(stripe);
    let wanted = Wanted {
        map,
        slot: map.data_slot(k),
        k,
        stripe,
        within,
        at: parity.member_offset(stripe) + within,
        width: parity.q_width(),
    };
    let (mut at, end) = (wanted.at, wanted.at + len);
    loop {
        let until = engine.view().same_until(&(at..end));
        if (at, until) == (wanted.at, end) {
            return wanted.get(engine, buf, error).await;
        }
        // Blocks are bad here on one member and there on another: each part has its own sources.
        let mut piece = engine.shard.pool().get((until - at) as usize);
        wanted.from(at).get(engine, &mut piece, error).await?;
        let start = (at - wanted.at) as usize;
        buf[start..start + piece.len()].copy_from_slice(&piece);
        at = until;
        if at == end {
            return Ok(());
        }
    }
}

impl Wanted {
    /// The same from component byte `at` on.
    fn from(&self, at: u64) -> Wanted {
        Wanted { at, within: self.within + (at - self.at), ..*self }
    }

    /// Gets rows of which each member's are recorded as bad as a whole, or not at all.
    async fn get(
        &self,
        engine: &Rc<Engine>,
        buf: &mut BufMut,
        error: Option<IoError>,
    ) -> Result<(), IoError> {
        // Read again even after an error: while this waited for the range the chunk may have been
        // mended or overwritten, or the slot given to another member, and another member lost.
        let view = engine.view();
        let block = engine.info.logical_block as usize;
        if view.readable(self.slot, &self.bytes(buf.len())) && buf.len() > block {
            match self.read_directly(engine, &view, buf).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind == IoErrorKind::Medium => {
                    return self.block_by_block(engine, buf, block).await;
                }
                Err(_) => {}
            }
        }
        match self.fill(engine, buf, error).await {
            Ok(Source::Unreadable) => {
                self.mend(engine, buf, 0).await;
                Ok(())
            }
            Ok(_) => Ok(()),
            // The others may have lost different rows, each of which can be had.
            Err(_) if buf.len() > block && !engine.view().broken => {
                self.block_by_block(engine, buf, block).await
            }
            Err(error) => Err(error),
        }
    }

    /// The component bytes of `len` bytes of rows.
    fn bytes(&self, len: usize) -> Range<u64> {
        self.at..self.at + len as u64
    }

    /// Some block cannot be read: the others are, since parity may be wrong where a resync has not
    /// come by yet, and what can be read is right. Blocks beside each other are mended in one write: a disk may lose
    /// more than a logical block at once, and take no write of less.
    async fn block_by_block(
        &self,
        engine: &Rc<Engine>,
        buf: &mut BufMut,
        block: usize,
    ) -> Result<(), IoError> {
        for piece in pieces(&self.bytes(buf.len()), piece_size(engine)) {
            let (mut at, end) = ((piece.start - self.at) as usize, (piece.end - self.at) as usize);
            let mut mended = at;
            while at < end {
                let until = (at + block).min(end);
                let mut part = engine.shard.pool().get(until - at);
                let source = self.from(self.at + at as u64).fill(engine, &mut part, None).await?;
                buf[at..until].copy_from_slice(&part);
                if source != Source::Unreadable {
                    self.mend(engine, &buf[mended..at], mended).await;
                    mended = until;
                }
                at = until;
            }
            self.mend(engine, &buf[mended..end], mended).await;
        }
        Ok(())
    }

    /// Rows from byte `at` of what is wanted on could not be read, and are `good`: they are written to their member.
    async fn mend(&self, engine: &Rc<Engine>, good: &[u8], at: usize) {
        if good.is_empty() {
            return;
        }
        let place = Place { slot: self.slot, offset: self.at + at as u64 };
        // The block on the member may differ from the stripe cache's copy.
        let start = self.within + at as u64;
        engine.cache.forget(self.stripe, start..start + good.len() as u64);
        let error = IoError::new(IoErrorKind::Medium);
        mend(engine, &engine.view(), place, error, good, true).await;
    }

    /// Reads the rows, or computes them from the rest of the stripe; says which, since rows that could not be read are to
    /// be mended.
    async fn fill(
        &self,
        engine: &Rc<Engine>,
        buf: &mut BufMut,
        error: Option<IoError>,
    ) -> Result<Source, IoError> {
        let bytes = self.bytes(buf.len());
        let mut avoid: SmallVec<[Slot; 4]> = SmallVec::new();
        let mut unreadable = false;
        loop {
            let view = engine.view();
            if view.readable(self.slot, &bytes) && !avoid.contains(&self.slot) {
                let Err(error) = self.read_directly(engine, &view, buf).await else {
                    return Ok(Source::Member);
                };
                unreadable = error.kind == IoErrorKind::Medium;
                if error.means_gone() {
                    engine.home.fail_member(view.member_nr(self.slot), error).await;
                }
                if engine.still_holds(&view, self.slot) {
                    avoid.push(self.slot);
                }
                continue;
            }
            if view.broken {
                // More has failed than the level survives, perhaps in the middle of a write to this
                // stripe: what would be computed may be anything.
                return Err(error.unwrap_or(view.no_copy_left()));
            }
            let before = avoid.len();
            match self.compute(engine, &view, buf, &mut avoid).await {
                Ok(true) => {
                    return Ok(if unreadable { Source::Unreadable } else { Source::Missing });
                }
                Ok(false) if avoid.len() > before => {}
                Ok(false) if !Rc::ptr_eq(&view, &engine.view()) => {}
                _ if view.any_suspect() && engine.suspects_recorded(&view).await => {}
                Ok(false) => return Err(error.unwrap_or(engine.view().no_copy_left())),
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_directly(
        &self,
        engine: &Rc<Engine>,
        view: &View,
        buf: &mut BufMut,
    ) -> Result<(), IoError> {
        let Some((device, data_offset)) = view.member(self.slot) else {
            return Err(IoError::new(IoErrorKind::Gone));
        };
        let request = Request::read(data_offset + self.at, buf.split_off(0));
        let outcome = engine.sets.one(&**device, request).await;
        take_back(buf, outcome.op);
        outcome.result
    }

    /// True when `buf` holds the data; false when a member failed on the way (it is in `avoid`).
    async fn compute(
        &self,
        engine: &Rc<Engine>,
        view: &View,
        buf: &mut BufMut,
        avoid: &mut SmallVec<[Slot; 4]>,
    ) -> Result<bool, IoError> {
        let len = buf.len();
        let bytes = self.bytes(len);
        let usable = |slot: Slot, avoid: &[Slot]| {
            slot != self.slot && view.readable(slot, &bytes) && !avoid.contains(&slot)
        };
        // Q is read only when P or another chunk is missing as well.
        let missing = (0..self.map.slots())
            .filter(|slot| Some(*slot) != self.map.q_slot() && !usable(*slot, avoid))
            .count();
        let sources = (0..self.map.slots()).filter(|slot| {
            usable(*slot, avoid) && (missing > 1 || Some(*slot) != self.map.q_slot())
        });
        let mut set = engine.sets.start();
        for slot in sources {
            if let Some((device, data_offset)) = view.member(slot) {
                let block = engine.shard.pool().get(len);
                set.submit(slot as u32, &**device, Request::read(data_offset + self.at, block));
            }
        }
        let mut blocks = Blocks::new(self.map, self.width);
        let mut failed = None;
        for (slot, outcome) in set.finish().await {
            let slot = slot as usize;
            match (outcome.result, outcome.op) {
                (Ok(()), Op::Read(mut bufs)) => {
                    if let Some(block) = bufs.pop() {
                        blocks.set(slot, block.freeze());
                    }
                }
                (result, _) => {
                    let error = result.err().unwrap_or(IoError::new(IoErrorKind::Medium));
                    failed.get_or_insert(error);
                    if error.means_gone() {
                        engine.home.fail_member(view.member_nr(slot), error).await;
                    }
                    if engine.still_holds(view, slot) {
                        avoid.push(slot);
                    }
                }
            }
        }
        match blocks.recover_data(self.k, buf) {
            Ok(()) => Ok(true),
            Err(_) if failed.is_some() => Ok(false),
            Err(_) => Err(engine.view().no_copy_left()),
        }
    }
}

fn take_back(buf: &mut BufMut, op: Op) {
    if let Op::Read(mut bufs) = op
        && let Some(part) = bufs.pop()
        && let Err(part) = buf.rejoin(part)
    {
        // All of it was given away, so nothing is left to join: a device that was given up keeps the buffer, and
        // gives another of the same length.
        *buf = part;
    }
}
