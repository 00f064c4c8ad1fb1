//! Reads of a salvaged array: which members hold a byte, in which geometry, and what to compute when none of
//! them can give it.
//!
//! A piece that cannot be had as a whole is tried block by block, so one bad block costs one block.

use braid_device::{
    BufMuts, Completion, Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, Outcome, Request,
};
use braid_layout::{Layout, Place, Slot, StripeMap};
use braid_shard::{BufMut, Shard};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most that is read of a member at once.
const PIECE: u64 = 256 << 10;

/// The geometry and the sources that an array is read by.
pub(crate) struct Plan {
    /// Bytes of the array.
    pub(crate) size: u64,
    /// The geometry; the old one during a reshape.
    pub(crate) old: Side,
    /// The new geometry of a reshape.
    pub(crate) new: Option<Side>,
    /// Array byte that the reshape has reached.
    pub(crate) boundary: u64,
    /// The new geometry is that of the bytes from `boundary` on, not of those before it.
    pub(crate) backwards: bool,
}

/// One geometry with its members.
pub(crate) struct Side {
    pub(crate) layout: Layout,
    /// By slot who can give it, best first.
    pub(crate) slots: Vec<Vec<Source>>,
}

/// A member as one geometry sees it.
#[derive(Clone)]
pub(crate) struct Source {
    /// Index of the member.
    pub(crate) member: usize,
    /// Member byte at which the component starts.
    pub(crate) data_offset: u64,
    /// Component bytes below this are valid.
    pub(crate) valid: u64,
    /// Member bytes that are lost.
    pub(crate) bad: Vec<Range<u64>>,
}

impl Plan {
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.old).chain(&self.new)
    }

    /// The geometry of an array byte, and how many bytes from there on have the same.
    fn side_at(&self, offset: u64) -> (&Side, u64) {
        let Some(new) = &self.new else { return (&self.old, u64::MAX) };
        let below = offset < self.boundary;
        let side = if below != self.backwards { new } else { &self.old };
        (side, if below { self.boundary - offset } else { u64::MAX })
    }
}

/// Where bytes of one piece are.
enum Where {
    /// On any of these.
    Copies(SmallVec<[Place; 4]>),
    /// Data chunk `k` of a stripe, from component byte `at` on.
    Stripe { map: StripeMap, k: usize, at: u64, width: usize },
}

impl Where {
    /// The same, `by` bytes further on.
    fn further(&self, by: u64) -> Where {
        match self {
            Where::Copies(places) => {
                let place = |p: &Place| Place { slot: p.slot, offset: p.offset + by };
                Where::Copies(places.iter().map(place).collect())
            }
            Where::Stripe { map, k, at, width } => {
                Where::Stripe { map: *map, k: *k, at: at + by, width: *width }
            }
        }
    }
}

impl Side {
    /// Slots that no member can give anything of.
    pub(crate) fn empty_slots(&self) -> Vec<Slot> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, sources)| sources.is_empty()).map(|(slot, _)| slot).collect()
    }

    /// Where array byte `offset` is, and for how many bytes on that holds.
    fn locate(&self, offset: u64) -> (Where, u64) {
        match &self.layout {
            Layout::Striped(striped) => {
                let (place, run) = striped.map(offset);
                (Where::Copies(smallvec![place]), run)
            }
            Layout::Linear(linear) => {
                let (place, run) = linear.map(offset);
                (Where::Copies(smallvec![place]), run)
            }
            Layout::Mirror(mirror) => {
                let places = (0..mirror.slots()).map(|slot| Place { slot, offset });
                (Where::Copies(places.collect()), u64::MAX)
            }
            Layout::Raid10(raid10) => {
                let (chunk, within) = raid10.locate(offset);
                let places = (0..raid10.copy_count()).map(|copy| {
                    let place = raid10.copy(chunk, copy);
                    Place { slot: place.slot, offset: place.offset + within }
                });
                (Where::Copies(places.collect()), raid10.chunk_size() - within)
            }
            Layout::Parity(parity) => {
                let (stripe, k, within) = parity.locate(offset);
                let at = parity.member_offset(stripe) + within;
                let (map, width) = (parity.map_stripe(stripe), parity.q_width());
                (Where::Stripe { map, k, at, width }, parity.chunk_size() - within)
            }
        }
    }
}

/// The array on one shard.
pub(crate) struct SalvageDevice {
    reader: Rc<Reader>,
    info: DeviceInfo,
    stopped: Arc<AtomicBool>,
}

impl SalvageDevice {
    pub(crate) fn new(
        shard: &Shard,
        info: &DeviceInfo,
        devices: Vec<Rc<dyn Device>>,
        plan: Arc<Plan>,
        stopped: Arc<AtomicBool>,
    ) -> SalvageDevice {
        let block = info.logical_block as usize;
        let reader =
            Reader { shard: shard.clone(), sets: IoSets::new(shard), devices, plan, block };
        SalvageDevice { reader: Rc::new(reader), info: info.clone(), stopped }
    }
}

impl Device for SalvageDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        if let Err(error) = request.check(&self.info) {
            return done.finish(Err(error), request.op);
        }
        if self.stopped.load(Ordering::Relaxed) {
            return done.finish(Err(IoError::new(IoErrorKind::Refused)), request.op);
        }
        match request.op {
            Op::Read(bufs) => {
                let reader = Rc::clone(&self.reader);
                let shard = reader.shard.clone();
                shard.spawn(async move { reader.read(request.offset, bufs, done).await });
            }
            // Nothing was written, so nothing is to be made durable.
            Op::Flush => done.complete(Outcome::ok(Op::Flush)),
            op => done.finish(Err(IoError::new(IoErrorKind::Refused)), op),
        }
    }
}

struct Reader {
    shard: Shard,
    sets: IoSets,
    devices: Vec<Rc<dyn Device>>,
    plan: Arc<Plan>,
    /// Bytes of a logical block.
    block: usize,
}

impl Reader {
    async fn read(&self, offset: u64, mut bufs: BufMuts, done: Completion) {
        let mut at = offset;
        let mut result = Ok(());
        for buf in &mut bufs {
            if result.is_ok() {
                result = self.fill(at, buf).await;
            }
            at += buf.len() as u64;
        }
        done.finish(result, Op::Read(bufs));
    }

    async fn fill(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let mut offset = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let (side, same) = self.plan.side_at(offset);
            let (place, run) = side.locate(offset);
            let len = run.min(same).min(PIECE).min(rest.len() as u64);
            if len == 0 {
                return Err(IoError::new(IoErrorKind::Invalid));
            }
            // At most the length of `rest`.
            let (piece, tail) = rest.split_at_mut(len as usize);
            if self.piece(side, &place, piece).await.is_err() {
                let mut by = 0;
                for block in piece.chunks_mut(self.block) {
                    self.piece(side, &place.further(by), block).await?;
                    by += block.len() as u64;
                }
            }
            rest = tail;
            offset += len;
        }
        Ok(())
    }

    async fn piece(&self, side: &Side, place: &Where, out: &mut [u8]) -> Result<(), IoError> {
        match place {
            Where::Copies(places) => {
                for place in places {
                    if let Some(buf) = self.member(side, place.slot, place.offset, out.len()).await
                    {
                        out.copy_from_slice(&buf);
                        return Ok(());
                    }
                }
                Err(IoError::new(IoErrorKind::Lost))
            }
            Where::Stripe { map, k, at, width } => {
                if let Some(buf) = self.member(side, map.data_slot(*k), *at, out.len()).await {
                    out.copy_from_slice(&buf);
                    return Ok(());
                }
                self.compute(side, map, *k, *at, *width, out).await
            }
        }
    }

    /// `len` bytes of a slot's component, from the first of its members that can give them.
    async fn member(&self, side: &Side, slot: Slot, at: u64, len: usize) -> Option<BufMut> {
        let end = at + len as u64;
        for source in side.slots.get(slot)? {
            let from = source.data_offset.checked_add(at)?;
            let bytes = from..from.checked_add(len as u64)?;
            let lost = source.bad.iter().any(|bad| bad.start < bytes.end && bytes.start < bad.end);
            let Some(device) = self.devices.get(source.member).filter(|_| !lost) else { continue };
            let request = Request::read(from, self.shard.pool().get(len));
            if end > source.valid || request.check(device.info()).is_err() {
                continue;
            }
            let outcome = self.sets.one(&**device, request).await;
            if let (Ok(()), Op::Read(mut bufs)) = (outcome.result, outcome.op)
                && let Some(buf) = bufs.pop().filter(|buf| buf.len() == len)
            {
                return Some(buf);
            }
        }
        None
    }

    /// Data chunk `k` of a stripe from the rest of it.
    async fn compute(
        &self,
        side: &Side,
        map: &StripeMap,
        k: usize,
        at: u64,
        width: usize,
        out: &mut [u8],
    ) -> Result<(), IoError> {
        let len = out.len();
        let mut data: Vec<Option<BufMut>> = Vec::with_capacity(map.data_chunks());
        for other in 0..map.data_chunks() {
            data.push(match other == k {
                true => None,
                false => self.member(side, map.data_slot(other), at, len).await,
            });
        }
        let missing: Vec<usize> = (0..data.len()).filter(|other| data[*other].is_none()).collect();
        let p = self.member(side, map.p_slot(), at, len).await;
        if let ([_], Some(p)) = (missing.as_slice(), &p) {
            let known: Vec<&[u8]> = data.iter().flatten().map(|buf| &**buf).chain([&**p]).collect();
            braid_parity::recover_data_with_p(&known, out);
            return Ok(());
        }
        let q = match map.q_slot() {
            Some(slot) => self.member(side, slot, at, len).await,
            None => None,
        };
        let mut by_exponent: Vec<Option<&[u8]>> = vec![None; width];
        for (other, buf) in data.iter().enumerate() {
            // An exponent is below the width.
            by_exponent[map.exponent(other)] = buf.as_deref();
        }
        match (missing.as_slice(), p, q) {
            ([_], None, Some(q)) => {
                braid_parity::recover_data_with_q(&by_exponent, map.exponent(k), &q, out);
                Ok(())
            }
            ([one, two], Some(p), Some(q)) => {
                let other = if *one == k { *two } else { *one };
                let mut unwanted = self.shard.pool().get(len);
                let (x, y) = (map.exponent(k), map.exponent(other));
                braid_parity::recover_two_data(&by_exponent, x, y, &p, &q, out, &mut unwanted);
                Ok(())
            }
            _ => Err(IoError::new(IoErrorKind::Lost)),
        }
    }
}
