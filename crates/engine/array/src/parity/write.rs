//! Writes of part or all of one stripe.
//!
//! Lock the rows, plan, read what the plan needs, compute parity, write data and parity, reply.
//! A member that fails on the way is recorded as failed before the reply, and the write goes on
//! without it.

use super::blocks::Blocks;
use super::plan::{Plan, Situation, TooManyMissing, parity_slots};
use super::segment::{Extent, Segment};
use crate::engine::Engine;
use crate::lock::Held;
use crate::spawners::{WriteArgs, WritePayload};
use crate::view::View;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Parity, Slot, StripeMap};
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Reads that fail make the write plan anew; each time another slot is avoided.
const ATTEMPTS_MAX: usize = 8;

/// Carries out one write and tells `done`.
pub(crate) async fn write(args: WriteArgs) {
    let WriteArgs { engine, unit, extent, payload, fua, done, held, intent: _intent } = args;
    let result = write_stripe(&engine, unit, extent, &payload, fua, held).await;
    let payload = match payload {
        WritePayload::Data(buf) => Some(buf),
        WritePayload::Zeroes { .. } => None,
    };
    done.finish(&engine, result, None, payload);
}

/// One stripe, where its chunks are, and what is to be written of it.
struct Stripe<'a> {
    engine: &'a Rc<Engine>,
    parity: &'a Parity,
    map: StripeMap,
    /// Component byte of the stripe's first row.
    base: u64,
    chunk: u64,
    extent: Extent,
    payload: &'a WritePayload,
    fua: bool,
}

/// A segment under way: what was read for it, and the parity to be written.
struct Work {
    segment: Segment,
    plan: Plan,
    reads: SmallVec<[(Slot, Option<BufMut>); 8]>,
    parity: SmallVec<[(Slot, Buf); 2]>,
}

async fn write_stripe(
    engine: &Rc<Engine>,
    stripe: u64,
    extent: Extent,
    payload: &WritePayload,
    fua: bool,
    held: Option<Held>,
) -> Result<(), IoError> {
    let Some(parity) = super::geometry(engine) else {
        return Err(IoError::new(IoErrorKind::Invalid));
    };
    let chunk = parity.chunk_size();
    let rows = extent.rows(chunk);
    let _held = match held.or_else(|| engine.locks.try_lock(stripe, rows.start, rows.end)) {
        Some(held) => held,
        None => engine.locks.lock(stripe, rows.start, rows.end).await,
    };
    let _writing = match engine.try_begin_write() {
        Some(writing) => writing,
        None => engine.begin_write().await?,
    };
    let scratch = (rows.end - rows.start) * parity.slots() as u64;
    let _scratch = match engine.scratch.try_take(scratch) {
        Some(share) => share,
        None => engine.scratch.take(scratch).await,
    };
    let stripe = Stripe {
        engine,
        parity,
        map: parity.map_stripe(stripe),
        base: parity.member_offset(stripe),
        chunk,
        extent,
        payload,
        fua,
    };
    if let WritePayload::Zeroes { unmap } = payload
        && extent.start == 0
        && extent.end == parity.stripe_size()
        && let Some(result) = stripe.zero_members(*unmap).await
    {
        return result;
    }
    if let WritePayload::Data(data) = payload
        && let view = engine.view()
        && !view.broken
        && super::in_place::full_stripe(&view, parity, &stripe.map, stripe.base, data)
    {
        engine.count(|counters| counters.full_stripes += 1);
        return Ok(());
    }
    let mut avoid: SmallVec<[Slot; 4]> = SmallVec::new();
    for _ in 0..ATTEMPTS_MAX {
        let view = engine.view();
        if view.broken {
            return Err(IoError::new(IoErrorKind::Lost));
        }
        let mut works = stripe.plan(&view, &avoid)?;
        if stripe.read(&view, &mut works, &mut avoid).await {
            for work in &mut works {
                stripe.compute(&view, work)?;
            }
            return stripe.write_members(&view, works).await;
        }
    }
    Err(IoError::new(IoErrorKind::Medium))
}

impl Stripe<'_> {
    fn plan(&self, view: &View, avoid: &[Slot]) -> Result<SmallVec<[Work; 3]>, IoError> {
        let mut works = SmallVec::new();
        let segments = self.extent.segments(self.chunk).into_iter();
        for segment in segments.flat_map(|segment| segment.cut_at_bad(view, self.base)) {
            let (start, end) = (self.base + segment.rows.start, self.base + segment.rows.end);
            let situation = Situation {
                map: &self.map,
                written: segment.written.clone(),
                readable: &|slot| view.readable(slot, &(start..end)) && !avoid.contains(&slot),
                writable: &|slot| view.writable(slot),
                in_sync: end <= view.resynced,
            };
            let plan = situation.plan().map_err(lost)?;
            let reads = self.slots_to_read(plan, &segment, &situation);
            works.push(Work { segment, plan, reads, parity: SmallVec::new() });
        }
        Ok(works)
    }

    fn slots_to_read(
        &self,
        plan: Plan,
        segment: &Segment,
        situation: &Situation<'_>,
    ) -> SmallVec<[(Slot, Option<BufMut>); 8]> {
        let data = 0..self.map.data_chunks();
        let parity = parity_slots(&self.map);
        let unread = |slot: Slot| (slot, None);
        match plan {
            Plan::DataOnly | Plan::Full => SmallVec::new(),
            Plan::Rmw => segment
                .written
                .clone()
                .map(|k| self.map.data_slot(k))
                .chain(parity.into_iter().filter(|slot| (situation.writable)(*slot)))
                .map(unread)
                .collect(),
            Plan::Reconstruct => data
                .filter(|k| !segment.written.contains(k))
                .map(|k| unread(self.map.data_slot(k)))
                .collect(),
            Plan::Recover => data
                .map(|k| self.map.data_slot(k))
                .chain(parity)
                .filter(|slot| (situation.readable)(*slot))
                .map(unread)
                .collect(),
        }
    }

    /// Reads what the plans need. False when a member could not give it: it is in `avoid` now.
    async fn read(&self, view: &View, works: &mut [Work], avoid: &mut SmallVec<[Slot; 4]>) -> bool {
        if works.iter().all(|work| work.reads.is_empty()) {
            return true;
        }
        let mut set = self.engine.sets.start();
        for (nr, work) in works.iter().enumerate() {
            let len = (work.segment.rows.end - work.segment.rows.start) as usize;
            for (at, (slot, _)) in work.reads.iter().enumerate() {
                let Some((device, data_offset)) = view.member(*slot) else {
                    avoid.push(*slot);
                    continue;
                };
                let offset = data_offset + self.base + work.segment.rows.start;
                let buf = self.engine.shard.pool().get(len);
                let tag = (nr as u32) << 16 | at as u32;
                set.submit(tag, &**device, Request::read(offset, buf));
            }
        }
        let known = avoid.len();
        for (tag, outcome) in set.finish().await {
            let (nr, at) = ((tag >> 16) as usize, (tag & 0xffff) as usize);
            let Some(read) = works.get_mut(nr).and_then(|work| work.reads.get_mut(at)) else {
                continue;
            };
            match (outcome.result, outcome.op) {
                (Ok(()), Op::Read(mut bufs)) => read.1 = bufs.pop(),
                (Err(error), _) => {
                    avoid.push(read.0);
                    if error.kind == IoErrorKind::Gone {
                        self.engine.fail_member(read.0, view, error).await;
                    }
                }
                (Ok(()), _) => avoid.push(read.0),
            }
        }
        avoid.len() == known && works.iter().all(|work| work.reads.iter().all(|(_, b)| b.is_some()))
    }

    /// The payload of rows `rows` of data chunk `k`.
    fn payload(&self, k: usize, rows: &Range<u64>) -> Buf {
        let len = (rows.end - rows.start) as usize;
        match self.payload {
            WritePayload::Zeroes { .. } => self.engine.zeroes(len),
            WritePayload::Data(buf) => {
                let start = (k as u64 * self.chunk + rows.start - self.extent.start) as usize;
                buf.slice(start..start + len)
            }
        }
    }

    fn compute(&self, view: &View, work: &mut Work) -> Result<(), IoError> {
        let segment = &work.segment;
        let len = (segment.rows.end - segment.rows.start) as usize;
        let low = segment.rows.start == 0 && segment.rows.end < self.chunk;
        if cfg!(feature = "plant-parity-segment") && low && segment.written.len() == 1 {
            return Ok(());
        }
        let p_slot = Some(self.map.p_slot()).filter(|slot| view.writable(*slot));
        let q_slot = self.map.q_slot().filter(|slot| view.writable(*slot));
        match work.plan {
            Plan::DataOnly => return Ok(()),
            Plan::Rmw => {
                self.engine.count(|counters| counters.rmw += 1);
                return self.read_modify(work, p_slot, q_slot);
            }
            Plan::Full => self.engine.count(|counters| counters.full_stripes += 1),
            Plan::Reconstruct | Plan::Recover => {
                self.engine.count(|counters| counters.reconstruct += 1);
            }
        }
        let mut blocks = Blocks::new(self.map, self.parity.q_width());
        for (slot, buf) in &mut work.reads {
            if let Some(buf) = buf.take() {
                blocks.set(*slot, buf.freeze());
            }
        }
        let pool = self.engine.shard.pool();
        if work.plan == Plan::Recover {
            blocks.complete_data(pool, len).map_err(lost)?;
        }
        for k in segment.written.clone() {
            blocks.set(self.map.data_slot(k), self.payload(k, &segment.rows));
        }
        let mut p = p_slot.map(|slot| (slot, pool.get(len)));
        let mut q = q_slot.map(|slot| (slot, pool.get(len)));
        blocks
            .parity(p.as_mut().map(|(_, buf)| &mut **buf), q.as_mut().map(|(_, buf)| &mut **buf))
            .map_err(lost)?;
        work.parity = p.into_iter().chain(q).map(|(slot, buf)| (slot, buf.freeze())).collect();
        Ok(())
    }

    fn read_modify(
        &self,
        work: &mut Work,
        p_slot: Option<Slot>,
        q_slot: Option<Slot>,
    ) -> Result<(), IoError> {
        let mut take = |slot: Slot| {
            let read = work.reads.iter_mut().find(|(read, _)| *read == slot);
            read.and_then(|(_, buf)| buf.take()).ok_or(IoError::new(IoErrorKind::Lost))
        };
        let mut p = p_slot.map(&mut take).transpose()?;
        let mut q = q_slot.map(&mut take).transpose()?;
        for k in work.segment.written.clone() {
            let old = take(self.map.data_slot(k))?;
            let new = self.payload(k, &work.segment.rows);
            // An exponent is below the number of slots, which `Layout` bounds by 257.
            let exponent = self.map.exponent(k) as u8;
            match (&mut p, &mut q) {
                (Some(p), Some(q)) => braid_parity::delta_pq(exponent, &old, &new, p, q),
                (Some(p), None) => braid_parity::delta_p(&old, &new, p),
                (None, Some(q)) => braid_parity::delta_q(exponent, &old, &new, q),
                (None, None) => {}
            }
        }
        let p = p_slot.zip(p);
        let q = q_slot.zip(q);
        work.parity = p.into_iter().chain(q).map(|(slot, buf)| (slot, buf.freeze())).collect();
        Ok(())
    }

    async fn write_members(
        &self,
        view: &Rc<View>,
        works: SmallVec<[Work; 3]>,
    ) -> Result<(), IoError> {
        let mut set = self.engine.sets.start();
        for k in self.extent.chunks(self.chunk) {
            let rows = self.extent.rows_of(k, self.chunk);
            let slot = self.map.data_slot(k);
            if let Some((device, data_offset)) = view.member(slot) {
                let offset = data_offset + self.base + rows.start;
                let request = Request::write(offset, self.payload(k, &rows), self.fua);
                set.submit(slot as u32, &**device, request);
            }
        }
        for work in works {
            for (slot, buf) in work.parity {
                if let Some((device, data_offset)) = view.member(slot) {
                    let offset = data_offset + self.base + work.segment.rows.start;
                    set.submit(slot as u32, &**device, Request::write(offset, buf, self.fua));
                }
            }
        }
        self.engine.settle_writes(view, set.finish().await).await
    }

    /// Zeroes the whole stripe by the members' own means: parity of zeroes is zero. `None` when a
    /// member cannot.
    async fn zero_members(&self, unmap: bool) -> Option<Result<(), IoError>> {
        let view = self.engine.view();
        if !view.devices().all(|(_, device)| device.info().writes_zeroes) {
            return None;
        }
        let mut set = self.engine.sets.start();
        for slot in 0..view.slots() {
            if let Some((device, data_offset)) = view.member(slot) {
                let op = Op::WriteZeroes { len: self.chunk, unmap, fua: self.fua };
                let request = Request { offset: data_offset + self.base, op };
                set.submit(slot as u32, &**device, request);
            }
        }
        let outcomes = set.finish().await;
        if outcomes.any_error(|error| error.kind == IoErrorKind::Unsupported) {
            return None;
        }
        Some(self.engine.settle_writes(&view, outcomes).await)
    }
}

fn lost(_: TooManyMissing) -> IoError {
    IoError::new(IoErrorKind::Lost)
}
