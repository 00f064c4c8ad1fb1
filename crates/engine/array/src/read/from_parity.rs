//! Reads of a chunk whose member cannot give it: computed from the rest of the stripe.

use crate::engine::Engine;
use crate::engine::work::RecoverArgs;
use crate::redundancy::blocks::Blocks;
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Place, Slot, StripeMap};
use braid_shard::BufMut;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

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
    let Some(parity) = engine.geometry.parity() else {
        return Err(IoError::new(IoErrorKind::Invalid));
    };
    let (stripe, k, within) = parity.locate(offset);
    let len = buf.len() as u64;
    let _held = engine.locks.lock(stripe, within, within + len).await;
    let _scratch = engine.scratch.take(len * parity.slots() as u64).await;
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
        let block = engine.geometry.logical_block as usize;
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
            // The others may have lost different rows, each of which can be had.
            Err(_) if buf.len() > block && !engine.view().broken => {
                self.block_by_block(engine, buf, block).await
            }
            result => result,
        }
    }

    /// The component bytes of `len` bytes of rows.
    fn bytes(&self, len: usize) -> Range<u64> {
        self.at..self.at + len as u64
    }

    /// Some block cannot be read: the others are, since parity may be wrong where a resync has not
    /// come by yet, and what can be read is right.
    async fn block_by_block(
        &self,
        engine: &Rc<Engine>,
        buf: &mut BufMut,
        block: usize,
    ) -> Result<(), IoError> {
        let mut at = 0;
        while at < buf.len() {
            let end = (at + block).min(buf.len());
            let one = self.from(self.at + at as u64);
            let mut piece = engine.shard.pool().get(end - at);
            one.fill(engine, &mut piece, None).await?;
            buf[at..end].copy_from_slice(&piece);
            at = end;
        }
        Ok(())
    }

    /// Reads the rows, or computes them from the rest of the stripe.
    async fn fill(
        &self,
        engine: &Rc<Engine>,
        buf: &mut BufMut,
        error: Option<IoError>,
    ) -> Result<(), IoError> {
        let bytes = self.bytes(buf.len());
        let mut avoid: SmallVec<[Slot; 4]> = SmallVec::new();
        let mut unreadable = false;
        loop {
            let view = engine.view();
            if view.readable(self.slot, &bytes) && !avoid.contains(&self.slot) {
                let Err(error) = self.read_directly(engine, &view, buf).await else {
                    return Ok(());
                };
                avoid.push(self.slot);
                unreadable = error.kind == IoErrorKind::Medium;
                if error.means_gone() {
                    engine.fail_member(self.slot, &view, error).await;
                }
                continue;
            }
            if view.broken {
                // More has failed than the level survives, perhaps in the middle of a write to this
                // stripe: what would be computed may be anything.
                return Err(error.unwrap_or(view.no_copy_left()));
            }
            let before = avoid.len();
            if self.compute(engine, &view, buf, &mut avoid).await? {
                if unreadable {
                    let place = Place { slot: self.slot, offset: self.at };
                    // The block on the member may differ from the stripe cache's copy.
                    let rows = self.within..self.within + buf.len() as u64;
                    engine.cache_forget(self.stripe, rows);
                    engine.mend(&view, place, IoError::new(IoErrorKind::Medium), buf, true).await;
                }
                return Ok(());
            }
            if avoid.len() == before {
                return Err(error.unwrap_or(engine.view().no_copy_left()));
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
                    avoid.push(slot);
                    let error = result.err().unwrap_or(IoError::new(IoErrorKind::Medium));
                    failed.get_or_insert(error);
                    if error.means_gone() {
                        engine.fail_member(slot, view, error).await;
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
