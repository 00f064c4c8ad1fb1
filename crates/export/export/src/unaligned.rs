//! Requests of any bytes over a device of blocks.
//!
//! An NBD client that has not asked for block sizes may count in bytes (proto.md, "Block size constraints"), and so may
//! whoever has a target as a file. What is read is cut out of whole blocks. What is written of a block is put into what
//! the block holds, while nobody else writes to the target ([`Pass::alone`]).
//!
//! Invariant: no byte outside the request changes, whatever others write at the same time.

use std::rc::Rc;

use braid_device::{
    BufMuts, Bufs, Device, IoError, IoErrorKind, IoSets, Op, Outcome, Request as DeviceRequest,
};
use braid_shard::{BufMut, Shard};

use crate::gate::Pass;

/// Bytes that are read or written at a time, over many blocks: all the memory that such a request takes beside its
/// payload.
pub const PIECE: u64 = 256 << 10;

/// True if a request with these bounds begins or ends inside a block of `device`.
pub fn is_ragged(device: &dyn Device, offset: u64, length: u64) -> bool {
    (offset | length) & (block_of(device) - 1) != 0
}

/// A power of two: an export's block sizes are.
fn block_of(device: &dyn Device) -> u64 {
    u64::from(device.info().logical_block.max(1))
}

/// Requests of one connection that fit no blocks.
pub struct Unaligned {
    shard: Shard,
    device: Rc<dyn Device>,
    sets: IoSets,
    pass: Rc<Pass>,
}

impl Unaligned {
    /// Those of one client of `device`.
    pub fn new(shard: &Shard, device: &Rc<dyn Device>, pass: &Rc<Pass>) -> Rc<Unaligned> {
        let (device, pass) = (Rc::clone(device), Rc::clone(pass));
        Rc::new(Unaligned { shard: shard.clone(), device, sets: IoSets::new(shard), pass })
    }

    /// Does `op` to the bytes from `offset` on.
    pub async fn carry_out(&self, offset: u64, op: Op) -> Outcome {
        match op {
            Op::Read(bufs) => self.read(offset, bufs).await,
            Op::Write { bufs, fua } => {
                let result = self.write(offset, &bufs, fua).await;
                Outcome { result, op: Op::Write { bufs, fua } }
            }
            Op::WriteZeroes { len, unmap, fua } => {
                let result = self.zero(offset, len, unmap, fua).await;
                Outcome { result, op: Op::WriteZeroes { len, unmap, fua } }
            }
            Op::Discard { len } => {
                let result = self.discard(offset, len).await;
                Outcome { result, op: Op::Discard { len } }
            }
            Op::Flush => self.sets.one(&*self.device, DeviceRequest::flush()).await,
        }
    }

    /// Does `op`, a discard or zeroes, to the bytes from `offset` on, whether it fits blocks or not.
    ///
    /// # Errors
    /// The device's.
    pub async fn change(&self, offset: u64, op: Op) -> Result<(), IoError> {
        let len = match op {
            Op::Discard { len } | Op::WriteZeroes { len, .. } => len,
            _ => 0,
        };
        if is_ragged(&*self.device, offset, len) {
            return self.carry_out(offset, op).await.result;
        }
        self.pass.write().await;
        let outcome = self.sets.one(&*self.device, DeviceRequest { offset, op }).await;
        self.pass.wrote();
        outcome.result
    }

    /// Reads `len` bytes at `offset` and forgets them, so that whatever keeps what was read below has them, until `enough`.
    ///
    /// # Errors
    /// The device's.
    pub async fn prefetch(
        &self,
        offset: u64,
        len: u64,
        enough: impl Fn() -> bool,
    ) -> Result<(), IoError> {
        for Piece { lo, hi, .. } in self.pieces(offset, offset + len) {
            if enough() {
                break;
            }
            self.read_blocks(lo, (hi - lo) as usize).await?;
        }
        Ok(())
    }

    fn block(&self) -> u64 {
        block_of(&*self.device)
    }

    /// The whole blocks that hold `from..to`, in pieces; with each, the part of it that is within.
    fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + use<> {
        let block = self.block();
        let (start, end) = (from - from % block, to.next_multiple_of(block));
        let step = PIECE.max(block);
        (start..end).step_by(step as usize).map(move |lo| {
            let hi = (lo + step).min(end);
            Piece { lo, hi, from: from.max(lo), to: to.min(hi) }
        })
    }

    async fn read(&self, offset: u64, mut bufs: BufMuts) -> Outcome {
        let mut result = Ok(());
        let mut at = offset;
        for buf in &mut bufs {
            let end = at + buf.len() as u64;
            for piece in self.pieces(at, end) {
                match self.read_blocks(piece.lo, (piece.hi - piece.lo) as usize).await {
                    Ok(blocks) => buf[span(piece.from - at, piece.to - at)]
                        .copy_from_slice(&blocks[span(piece.from - piece.lo, piece.to - piece.lo)]),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            at = end;
        }
        Outcome { result, op: Op::Read(bufs) }
    }

    async fn read_blocks(&self, offset: u64, length: usize) -> Result<BufMut, IoError> {
        let request = DeviceRequest::read(offset, self.shard.pool().get(length));
        let outcome = self.sets.one(&*self.device, request).await;
        outcome.result?;
        match outcome.op {
            Op::Read(mut bufs) if bufs.first().is_some_and(|buf| buf.len() == length) => {
                // There is a first one.
                bufs.pop().ok_or(IoError::new(IoErrorKind::Gone))
            }
            _ => Err(IoError::new(IoErrorKind::Gone)),
        }
    }

    async fn write(&self, offset: u64, bufs: &Bufs, fua: bool) -> Result<(), IoError> {
        let _alone = self.pass.alone().await;
        let mut at = offset;
        for buf in bufs {
            let end = at + buf.len() as u64;
            for piece in self.pieces(at, end) {
                let bytes = &buf[span(piece.from - at, piece.to - at)];
                self.put(&piece, |place| place.copy_from_slice(bytes), fua).await?;
            }
            at = end;
        }
        Ok(())
    }

    async fn zero(&self, offset: u64, len: u64, unmap: bool, fua: bool) -> Result<(), IoError> {
        let _alone = self.pass.alone().await;
        let (end, block) = (offset + len, self.block());
        let (lo, hi) = (offset.next_multiple_of(block), end - end % block);
        if lo >= hi {
            // Nothing but parts of one block or two.
            return self.clear(offset, end, fua).await;
        }
        self.clear(offset, lo, fua).await?;
        let op = Op::WriteZeroes { len: hi - lo, unmap, fua };
        self.sets.one(&*self.device, DeviceRequest { offset: lo, op }).await.result?;
        self.clear(hi, end, fua).await
    }

    async fn clear(&self, from: u64, to: u64, fua: bool) -> Result<(), IoError> {
        if from < to {
            for piece in self.pieces(from, to) {
                self.put(&piece, |place| place.fill(0), fua).await?;
            }
        }
        Ok(())
    }

    /// Writes a piece, with what `fill` puts into the part of it that is meant and what the rest of its blocks holds.
    async fn put(
        &self,
        piece: &Piece,
        fill: impl FnOnce(&mut [u8]),
        fua: bool,
    ) -> Result<(), IoError> {
        let Piece { lo, hi, from, to } = *piece;
        let block = self.block();
        let mut blocks = self.shard.pool().get((hi - lo) as usize);
        let (first, last) = (lo, hi - block);
        let edges = [Some(first), (last != first).then_some(last)];
        for edge in edges.into_iter().flatten().filter(|edge| *edge < from || *edge + block > to) {
            let old = self.read_blocks(edge, block as usize).await?;
            blocks[span(edge - lo, edge + block - lo)].copy_from_slice(&old);
        }
        fill(&mut blocks[span(from - lo, to - lo)]);
        let request = DeviceRequest::write(lo, blocks.freeze(), fua);
        self.sets.one(&*self.device, request).await.result
    }

    /// The blocks that are wholly within: the rest of a discard would be a hint about nothing.
    async fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let (end, block) = (offset + len, self.block());
        let (lo, hi) = (offset.next_multiple_of(block), end - end % block);
        if lo >= hi {
            return Ok(());
        }
        self.pass.write().await;
        let request = DeviceRequest { offset: lo, op: Op::Discard { len: hi - lo } };
        let outcome = self.sets.one(&*self.device, request).await;
        self.pass.wrote();
        outcome.result
    }
}

/// Whole blocks `lo..hi`, of which `from..to` is meant.
struct Piece {
    lo: u64,
    hi: u64,
    from: u64,
    to: u64,
}

/// A range in a buffer, whose length is less than 4 GiB.
fn span(from: u64, to: u64) -> std::ops::Range<usize> {
    from as usize..to as usize
}
