//! A device over a client that takes every request that [`Device`] knows, whatever the server offers.
//!
//! Owns what is done in place of what the server lacks: requests longer than it takes are cut, force unit access becomes
//! a flush, zeroes are written. A server without flush has no volatile cache, as far as the protocol can tell: there is
//! nothing to do. Invariant: a request that the server takes as it is goes through untouched.

use std::rc::Rc;

use braid_device::{
    BufMuts, Bufs, Completion, Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, Outcome,
    Request,
};
use braid_shard::{BufMut, Shard};

use crate::protocol::{Features, Headers, ServerOffer};

/// The smallest block of a device.
const BLOCK_MIN: u32 = 512;
/// The largest block of a device, and what a server must take at once.
pub(crate) const BLOCK_MAX: u32 = 4096;
/// Bytes that one request zeroes or discards at most where the protocol has 32 bits for them.
const CLEARED_MAX: u64 = 1 << 30;
/// Bytes of zeroes that are written at once where the server cannot zero.
const ZEROES_BYTES: u64 = 1 << 20;

/// See the module's documentation.
pub(crate) struct Fitted {
    info: DeviceInfo,
    inner: Rc<Inner>,
}

struct Inner {
    client: Rc<dyn Device>,
    shard: Shard,
    sets: IoSets,
    features: Features,
    /// Bytes of the longest read or write, a multiple of [`BLOCK_MAX`].
    maximum: u64,
    /// Bytes of the longest discard or zeroes.
    cleared: u64,
}

impl Fitted {
    /// Over `client`, whose server has offered this; it takes [`BLOCK_MAX`] bytes at once at least.
    pub fn new(shard: &Shard, client: Rc<dyn Device>, offer: &ServerOffer) -> Fitted {
        let (features, maximum) = (offer.export.features, offer.export.block.maximum);
        let cleared = match offer.headers {
            Headers::Simple | Headers::Structured => CLEARED_MAX,
            Headers::Extended => u64::MAX,
        };
        let below = client.info();
        let block = below.logical_block.max(BLOCK_MIN);
        let info = DeviceInfo {
            size: below.size - below.size % u64::from(block),
            logical_block: block,
            physical_block: below.physical_block.max(block),
            ..below.clone()
        };
        let maximum = u64::from(maximum / BLOCK_MAX * BLOCK_MAX).max(BLOCK_MAX.into());
        let (shard, sets) = (shard.clone(), IoSets::new(shard));
        Fitted { info, inner: Rc::new(Inner { client, shard, sets, features, maximum, cleared }) }
    }

    /// The same; it asks for requests that are collected and merged, since each costs a message.
    pub fn plugged(mut self) -> Fitted {
        self.info.wants_plug = true;
        self
    }
}

impl Device for Fitted {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let inner = &self.inner;
        if request.check(&self.info).is_err() {
            return done.finish(Err(IoError::new(IoErrorKind::Invalid)), request.op);
        }
        match inner.way_of(&request) {
            Way::AsItIs => inner.client.submit(request, done),
            Way::Nothing => done.finish(Ok(()), request.op),
            Way::InPieces => {
                let inner = Rc::clone(inner);
                inner.shard.clone().spawn(async move {
                    done.complete(inner.in_pieces(request).await);
                });
            }
        }
    }
}

enum Way {
    AsItIs,
    /// There is nothing that could be done.
    Nothing,
    InPieces,
}

impl Inner {
    fn way_of(&self, request: &Request) -> Way {
        let features = self.features;
        let fits = match &request.op {
            _ if features.read_only && !matches!(request.op, Op::Read(_) | Op::Flush) => true,
            Op::Read(_) => request.len() <= self.maximum,
            Op::Write { fua, .. } => request.len() <= self.maximum && (!fua || features.fua),
            Op::Flush if !features.flush => return Way::Nothing,
            Op::Flush => true,
            // A discard promises nothing.
            Op::Discard { .. } if !features.trim => return Way::Nothing,
            Op::Discard { len } => *len <= self.cleared,
            Op::WriteZeroes { len, fua, .. } => {
                features.write_zeroes && *len <= self.cleared && (!fua || features.fua)
            }
        };
        if fits { Way::AsItIs } else { Way::InPieces }
    }

    async fn in_pieces(&self, request: Request) -> Outcome {
        let Request { offset, op } = request;
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
                let piece = |len| Op::Discard { len };
                let result = self.clear(offset, len, self.cleared, piece).await;
                Outcome { result, op: Op::Discard { len } }
            }
            Op::Flush => self.sets.one(&*self.client, Request::flush()).await,
        }
    }

    async fn read(&self, offset: u64, bufs: BufMuts) -> Outcome {
        let lengths: Vec<usize> = bufs.iter().map(|buf| buf.len()).collect();
        let mut set = self.sets.start();
        let (mut at, mut count) = (offset, 0);
        for mut rest in bufs {
            while !rest.is_empty() {
                let tail = rest.split_off(self.piece(rest.len()));
                let len = rest.len() as u64;
                set.submit(count, &*self.client, Request::read(at, rest));
                (at, rest, count) = (at + len, tail, count + 1);
            }
        }
        let mut result = Ok(());
        let mut pieces: Vec<Option<BufMut>> = Vec::new();
        pieces.resize_with(count as usize, || None);
        for (tag, outcome) in set.finish().await {
            result = result.and(outcome.result);
            if let (Some(place), Op::Read(mut bufs)) = (pieces.get_mut(tag as usize), outcome.op) {
                *place = bufs.pop();
            }
        }
        let (bufs, whole) = joined(&lengths, pieces.into_iter().flatten());
        if !whole {
            // A client that was dropped keeps the buffers of what was under way.
            result = result.and(Err(IoError::new(IoErrorKind::Gone)));
        }
        Outcome { result, op: Op::Read(bufs) }
    }

    async fn write(&self, offset: u64, bufs: &Bufs, fua: bool) -> Result<(), IoError> {
        let mut set = self.sets.start();
        let mut at = offset;
        for buf in bufs {
            let mut from = 0;
            while from < buf.len() {
                let to = from + self.piece(buf.len() - from);
                let piece = buf.slice(from..to);
                let request = Request::write(at, piece, fua && self.features.fua);
                set.submit(0, &*self.client, request);
                at += (to - from) as u64;
                from = to;
            }
        }
        let mut result = Ok(());
        for (_, outcome) in set.finish().await {
            result = result.and(outcome.result);
        }
        result?;
        self.make_durable(fua).await
    }

    async fn zero(&self, offset: u64, len: u64, unmap: bool, fua: bool) -> Result<(), IoError> {
        let direct = fua && self.features.fua;
        if self.features.write_zeroes {
            let piece = |len| Op::WriteZeroes { len, unmap, fua: direct };
            self.clear(offset, len, self.cleared, piece).await?;
        } else {
            let step = ZEROES_BYTES.min(self.maximum);
            let zeroes = self.shard.pool().zeroed(step as usize).freeze();
            let piece = |len| {
                let bufs = std::iter::once(zeroes.slice(0..len as usize)).collect();
                Op::Write { bufs, fua: direct }
            };
            self.clear(offset, len, step, piece).await?;
        }
        self.make_durable(fua).await
    }

    /// Has `piece` done to at most `step` bytes after the other.
    async fn clear(
        &self,
        offset: u64,
        len: u64,
        step: u64,
        piece: impl Fn(u64) -> Op,
    ) -> Result<(), IoError> {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let len = step.min(end - at);
            let request = Request { offset: at, op: piece(len) };
            self.sets.one(&*self.client, request).await.result?;
            at += len;
        }
        Ok(())
    }

    /// Flushes a write with force unit access if the server has no such access.
    async fn make_durable(&self, fua: bool) -> Result<(), IoError> {
        if !fua || self.features.fua || !self.features.flush {
            return Ok(());
        }
        self.sets.one(&*self.client, Request::flush()).await.result
    }

    /// The number of bytes of `len` (not 0) that go into one request.
    fn piece(&self, len: usize) -> usize {
        usize::try_from(self.maximum).unwrap_or(len).min(len)
    }
}

/// Puts pieces together to buffers of these lengths; false when some are missing.
fn joined(lengths: &[usize], mut pieces: impl Iterator<Item = BufMut>) -> (BufMuts, bool) {
    let mut bufs = BufMuts::new();
    for length in lengths.iter().filter(|length| **length > 0) {
        let Some(mut buf) = pieces.next() else { return (bufs, false) };
        while buf.len() < *length {
            let Some(piece) = pieces.next() else { return (bufs, false) };
            if buf.rejoin(piece).is_err() {
                return (bufs, false);
            }
        }
        bufs.push(buf);
    }
    (bufs, true)
}

#[cfg(test)]
#[path = "fitted_tests.rs"]
mod tests;
