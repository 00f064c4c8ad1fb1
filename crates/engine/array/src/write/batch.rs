//! Writes of part or all of one stripe: one write, or several that came together.
//!
//! With the rows locked: plan, read what the plans need and the stripe cache does not have, compute
//! parity, write data and parity, reply. A member that fails on the way is recorded as failed before
//! the reply, and the write goes on without it.

use crate::consistency::WriteInFlight;
use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::engine::Engine;
use crate::engine::lock::Held;
use crate::engine::queues::Room;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::state::extent::{Extent, rows_of_all};
use crate::state::view::View;
use crate::write::full_stripe;
use crate::write::members::write_members;
use crate::write::plan::{Plan, Situation, parity_slots};
use crate::write::segment::{Segment, divided, find_cuts, piece_at, segments, whole_lines};
use crate::write::widen::{is_whole, widen};
use crate::write::write_errors::handle_write_errors;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::{Parity, Slot, StripeMap};
use braid_shard::Buf;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Reads that fail make the write plan anew; each time another slot is avoided.
const ATTEMPTS_MAX: usize = 8;

/// Rows that a member could not give.
type Avoid = SmallVec<[(Slot, Range<u64>); 4]>;

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Locked rows of a stripe.
pub(crate) struct Locked {
    pub(crate) held: Held,
    /// The height of a line that the rows were locked for: whoever holds them keeps to it, whatever is set meanwhile.
    pub(crate) line: Option<u64>,
}

/// Carries out one write by itself that is not [one block](crate::write::one_block), and whose rows are locked for lines of
/// this height.
pub(crate) async fn carry_out_one(
    engine: &Rc<Engine>,
    line: Option<u64>,
    piece: &WriteArgs,
) -> Result<(), IoError> {
    together(engine, (piece.unit, line), std::slice::from_ref(piece)).await
}

/// Carries out `pieces` (at least one; ascending, apart) of stripe `unit`, whose rows are locked, and tells each that it
/// has ended.
pub(crate) async fn carry_out(
    engine: &Rc<Engine>,
    unit: u64,
    locked: Locked,
    pieces: &mut Vec<WriteArgs>,
) {
    engine.measured.count(|counters| counters.batches += 1);
    let Locked { held, line } = locked;
    let stripe = (unit, line);
    let apart = engine.consistency.wants_neighbours() && !are_neighbours(engine, unit, pieces);
    let result = match apart {
        true => Err(IoError::new(IoErrorKind::Unsupported)),
        false => together(engine, stripe, pieces).await,
    };
    let mut alone: SmallVec<[Result<(), IoError>; 4]> = SmallVec::new();
    if result.is_err() && pieces.len() > 1 {
        // They must not go together, or one of them cannot be done: try each by itself, so that the others succeed.
        for piece in pieces.iter() {
            alone.push(together(engine, stripe, std::slice::from_ref(piece)).await);
        }
    }
    drop(held);
    for (nr, piece) in pieces.drain(..).enumerate() {
        piece.finish(&engine.mesh, alone.get(nr).copied().unwrap_or(result));
    }
}

/// Of each row the chunks that `pieces` write stand side by side.
fn are_neighbours(engine: &Engine, unit: u64, pieces: &[WriteArgs]) -> bool {
    let view = engine.view();
    let Some(parity) = view.geometry_of(unit).parity().filter(|_| pieces.len() > 1) else {
        return true;
    };
    let (chunk, mut cuts) = (parity.chunk_size(), Vec::new());
    let extents: SmallVec<[Extent; 8]> = pieces.iter().map(|piece| piece.extent).collect();
    find_cuts(&extents, chunk, &mut cuts);
    let apart = |segment: &Segment| match (segment.full.first(), segment.full.last()) {
        (Some(first), Some(last)) => usize::from(last - first) + 1 != segment.full.len(),
        _ => false,
    };
    !segments((&extents, &cuts), chunk, None).iter().any(apart)
}

/// Begins a write of `pieces`, and carries them out.
async fn together(
    engine: &Rc<Engine>,
    (unit, line): (u64, Option<u64>),
    pieces: &[WriteArgs],
) -> Result<(), IoError> {
    let writing = match engine.try_begin_write() {
        Some(writing) => writing,
        None => engine.begin_write().await?,
    };
    let view = engine.view();
    let Some(parity) = view.geometry_of(unit).parity() else {
        return Err(IoError::new(IoErrorKind::Invalid));
    };
    let stripe = (unit, line);
    if let Some(block) = engine.consistency.block()
        && !pieces.iter().all(|piece| is_whole(piece, block))
    {
        let [piece] = pieces else { return Err(IoError::new(IoErrorKind::Unsupported)) };
        let whole = widen(engine, parity, unit, piece, block).await?;
        return Box::pin(begun(engine, &writing, stripe, std::slice::from_ref(&whole))).await;
    }
    begun(engine, &writing, stripe, pieces).await
}

/// Carries out `pieces`.
async fn begun(
    engine: &Rc<Engine>,
    writing: &WriteInFlight,
    stripe: (u64, Option<u64>),
    pieces: &[WriteArgs],
) -> Result<(), IoError> {
    let (unit, _) = stripe;
    let view = engine.view();
    let Some(parity) = view.geometry_of(unit).parity() else {
        return Err(IoError::new(IoErrorKind::Invalid));
    };
    if let [piece] = pieces
        && piece.extent.end - piece.extent.start == parity.stripe_size()
        && let Some(result) =
            full_stripe::carry_out(engine, &view, writing, parity, unit, piece).await
    {
        return result;
    }
    let mut room = engine.waiting.room();
    let result = planned(engine, writing, parity, stripe, pieces, &mut room).await;
    engine.waiting.keep(room);
    result
}

/// Carries out `pieces` by plans for their segments.
async fn planned(
    engine: &Rc<Engine>,
    writing: &WriteInFlight,
    parity: &Parity,
    (unit, line): (u64, Option<u64>),
    pieces: &[WriteArgs],
    Room { extents, cuts }: &mut Room,
) -> Result<(), IoError> {
    let chunk = parity.chunk_size();
    extents.clear();
    extents.extend(pieces.iter().map(|piece| piece.extent));
    find_cuts(extents, chunk, cuts);
    let rows = rows_of_all(extents.iter().copied(), chunk);
    let batch = Batch {
        engine,
        writing,
        parity,
        map: parity.map_stripe(unit),
        stripe: unit,
        base: parity.member_offset(unit),
        chunk,
        line,
        pieces,
        extents,
        cuts,
        rows: whole_lines(rows, line, chunk),
        fua: pieces.iter().any(|piece| piece.fua),
    };
    if let Some(result) = batch.zero_members().await {
        engine.cache.forget(unit, 0..chunk);
        return result;
    }
    batch.by_requests().await
}

/// Writes of one stripe that are carried out together, and where its chunks are.
pub(crate) struct Batch<'a> {
    pub(crate) engine: &'a Rc<Engine>,
    writing: &'a WriteInFlight,
    pub(crate) parity: &'a Parity,
    pub(crate) map: StripeMap,
    pub(crate) stripe: u64,
    /// Component byte of the stripe's first row.
    pub(crate) base: u64,
    pub(crate) chunk: u64,
    /// Height of a line, when it is fixed.
    pub(crate) line: Option<u64>,
    /// Ascending, apart.
    pieces: &'a [WriteArgs],
    extents: &'a [Extent],
    /// See [`find_cuts`].
    cuts: &'a [u64],
    /// Rows that are touched; whole lines where their height is fixed.
    rows: Range<u64>,
    fua: bool,
}

/// A segment under way: what was read for it, and the parity to be written.
pub(crate) struct Work {
    pub(crate) segment: Segment,
    pub(crate) plan: Plan,
    pub(crate) reads: SmallVec<[(Slot, Option<Buf>); 8]>,
    pub(crate) parity: SmallVec<[(Slot, Buf); 2]>,
}

impl Batch<'_> {
    /// The segments of the batch; `line`: the height of a line when it is fixed.
    pub(crate) fn segments(&self, line: Option<u64>) -> SmallVec<[Segment; 3]> {
        segments((self.extents, self.cuts), self.chunk, line)
    }

    /// `rows`, divided wherever the bytes of a chunk come from another write, or from none.
    pub(crate) fn bands(&self, rows: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        divided(rows, self.cuts)
    }

    /// The payload for rows `rows` of data chunk `k`, between two cuts; `None` if no write covers them.
    pub(crate) fn payload(&self, k: usize, rows: &Range<u64>) -> Option<Buf> {
        let len = (rows.end - rows.start) as usize;
        let at = k as u64 * self.chunk + rows.start;
        let nr = piece_at(self.extents, at)?;
        let piece = self.pieces.get(nr)?;
        Some(match &piece.payload {
            WritePayload::Zeroes { .. } => self.engine.scratch.zeroes(len),
            WritePayload::Data(buf) => {
                let start = (at - piece.extent.start) as usize;
                buf.slice(start..start + len)
            }
        })
    }

    async fn by_requests(&self) -> Result<(), IoError> {
        let engine = self.engine;
        let scratch = (self.rows.end - self.rows.start) * self.parity.slots() as u64;
        let _scratch = match engine.scratch.try_take(scratch) {
            Some(share) => share,
            None => engine.scratch.take(scratch).await,
        };
        let mut avoid = Avoid::new();
        for _ in 0..ATTEMPTS_MAX {
            let view = engine.view();
            if view.broken {
                return Err(IoError::new(IoErrorKind::Lost));
            }
            let mut works = match self.plan(&view, &avoid) {
                Err(_) if view.any_suspect() && engine.suspects_recorded(&view).await => continue,
                planned => planned?,
            };
            if self.read(&view, &mut works, &mut avoid).await {
                for work in &mut works {
                    self.compute(&view, work).map_err(|_| view.no_copy_left())?;
                }
                return self.write(&view, works, avoid.is_empty()).await;
            }
        }
        Err(IoError::new(IoErrorKind::Medium))
    }

    fn plan(
        &self,
        view: &View,
        avoid: &[(Slot, Range<u64>)],
    ) -> Result<SmallVec<[Work; 3]>, IoError> {
        let mut works = SmallVec::new();
        let mut cache = self.engine.cache.borrow_mut();
        let found = cache.as_ref().and_then(|cache| cache.stripe(self.stripe));
        let line = cache.as_ref().map_or(1, |cache| cache.line_size());
        let rmw_level = self.engine.settings.get().rmw_level.of_members(view.rotational());
        let (mut hits, mut misses) = (0, 0);
        let segments = self.segments(self.line).into_iter();
        for segment in segments.flat_map(|segment| segment.cut_at_bad(view, self.base, avoid)) {
            let rows = &segment.rows;
            let gave = |slot: Slot| !avoid.iter().any(|(s, bad)| *s == slot && overlap(bad, rows));
            let (start, end) = (self.base + rows.start, self.base + rows.end);
            let situation = Situation {
                map: &self.map,
                segment: &segment,
                readable: &|slot| view.readable(slot, &(start..end)) && gave(slot),
                cached: &|slot| found.as_ref().is_some_and(|found| found.has(slot, rows)),
                writable: &|slot| view.writable(slot),
                in_sync: end <= view.resynced,
                rmw_level,
            };
            let plan = situation.plan().map_err(|_| view.no_copy_left())?;
            let len = (rows.end - rows.start) as usize;
            let from_cache = |slot: Slot| found.as_ref()?.get(slot, rows, self.engine.shard.pool());
            let reads: SmallVec<[(Slot, Option<Buf>); 8]> =
                situation.to_read(plan).into_iter().map(|slot| (slot, from_cache(slot))).collect();
            let blocks = (len as u64).div_ceil(line);
            let cached = reads.iter().filter(|(_, buf)| buf.is_some()).count() as u64;
            hits += cached * blocks;
            misses += (reads.len() as u64 - cached) * blocks;
            works.push(Work { segment, plan, reads, parity: SmallVec::new() });
        }
        if let Some(cache) = cache.as_mut()
            && hits + misses > 0
        {
            cache.wanted(self.stripe, hits, misses);
        }
        self.engine.measured.count(|counters| counters.lookups += 1);
        Ok(works)
    }

    /// Reads what the plans need. False when a member could not give it: the rows that it cannot are in `avoid` now.
    async fn read(&self, view: &View, works: &mut [Work], avoid: &mut Avoid) -> bool {
        if works.iter().all(|work| work.reads.iter().all(|(_, buf)| buf.is_some())) {
            return true;
        }
        let mut set = self.engine.sets.start();
        let mut count = 0;
        for (nr, work) in works.iter().enumerate() {
            let len = (work.segment.rows.end - work.segment.rows.start) as usize;
            for (at, (slot, buf)) in work.reads.iter().enumerate() {
                if buf.is_some() {
                    continue;
                }
                let Some((device, data_offset)) = view.member(*slot) else {
                    avoid.push((*slot, work.segment.rows.clone()));
                    continue;
                };
                let offset = data_offset + self.base + work.segment.rows.start;
                let buf = self.engine.shard.pool().get(len);
                let tag = (nr as u32) << 16 | at as u32;
                set.submit(tag, &**device, Request::read(offset, buf));
                count += 1;
            }
        }
        self.engine.measured.count(|counters| counters.member_reads += count);
        let known = avoid.len();
        for (tag, outcome) in set.finish().await {
            let (nr, at) = ((tag >> 16) as usize, (tag & 0xffff) as usize);
            let Some(work) = works.get_mut(nr) else { continue };
            let rows = work.segment.rows.clone();
            let Some(read) = work.reads.get_mut(at) else { continue };
            match (outcome.result, outcome.op) {
                (Ok(()), Op::Read(mut bufs)) => read.1 = bufs.pop().map(|buf| buf.freeze()),
                (Err(error), _) if error.means_gone() => {
                    let slot = read.0;
                    self.engine.home.fail_member(view.member_nr(slot), error).await;
                    if self.engine.still_holds(view, slot) {
                        avoid.push((slot, rows));
                    }
                }
                _ => self.avoid_unreadable(view, read.0, rows, avoid).await,
            }
        }
        avoid.len() == known && works.iter().all(|work| work.reads.iter().all(|(_, b)| b.is_some()))
    }

    /// Finds out which of the rows a member cannot give: another may have lost others of them.
    async fn avoid_unreadable(&self, view: &View, slot: Slot, rows: Range<u64>, avoid: &mut Avoid) {
        let mut seen = self.engine.shard.pool().get((rows.end - rows.start) as usize);
        let at = self.base + rows.start;
        match crate::redundancy::holes::read_around(self.engine, view, slot, at, &mut seen).await {
            Ok(lost) if !lost.is_empty() => {
                let row = |at: usize| rows.start + at as u64;
                avoid.extend(lost.into_iter().map(|lost| (slot, row(lost.start)..row(lost.end))));
            }
            // Not to be read as a whole, though each block can be.
            _ => avoid.push((slot, rows)),
        }
    }

    /// `remember`: the stripe cache may take over what was read and written.
    async fn write(
        &self,
        view: &Rc<View>,
        works: SmallVec<[Work; 3]>,
        remember: bool,
    ) -> Result<(), IoError> {
        let going = Going { batch: self, works: &works };
        let set = self.engine.sets.start();
        let mut outcomes = match write_members(self.engine, view, self.writing, set, &going).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.engine.cache.forget(self.stripe, self.rows.clone());
                return Err(error);
            }
        };
        self.engine.measured.count(|counters| counters.member_writes += outcomes.len() as u64);
        let failed = self.writing.met_error() || outcomes.any_error(|_| true);
        if failed || view.any_bad() || !remember {
            self.engine.cache.forget(self.stripe, self.rows.clone());
            return handle_write_errors(self.engine, view, self.stripe, outcomes).await;
        }
        outcomes.by_ref().for_each(drop);
        self.remember(view, &works);
        Ok(())
    }

    /// The data of the pieces, chunk by chunk.
    fn data(&self) -> impl Iterator<Item = Block> + '_ {
        self.extents.iter().flat_map(move |extent| {
            extent.chunks(self.chunk).filter_map(move |k| {
                let rows = extent.rows_of(k, self.chunk);
                let content = Content::Bytes(self.payload(k, &rows)?);
                let (slot, at) = (self.map.data_slot(k), self.base + rows.start);
                Some(Block { slot, at, role: Role::Data, content })
            })
        })
    }

    /// The members hold what was read and what was written: the stripe cache takes it over. What was
    /// written without reading anything is dropped instead: keeping it would cost a copy of all of it,
    /// and saves nothing until a part of it is written again.
    fn remember(&self, view: &View, works: &[Work]) {
        if self.base + self.rows.end > view.resynced {
            // A resync may find another parity right.
            return self.engine.cache.forget(self.stripe, self.rows.clone());
        }
        let partly = works.iter().any(|work| !work.reads.is_empty());
        let mut cache = self.engine.cache.borrow_mut();
        let Some(cache) = cache.as_mut() else { return };
        let taken = cache.takes_over(self.stripe, &self.rows, view.missing(), partly);
        let Some(admit) = taken else { return };
        for work in works {
            let rows = &work.segment.rows;
            if work.reads.is_empty() {
                cache.forget(self.stripe, rows.clone());
                continue;
            }
            for (slot, buf) in &work.reads {
                if let Some(buf) = buf {
                    cache.store(self.stripe, *slot, rows.clone(), buf, admit);
                }
            }
            for rows in self.bands(rows) {
                for k in work.segment.touched.iter().map(|k| usize::from(*k)) {
                    let slot = self.map.data_slot(k);
                    if let Some(new) = self.payload(k, &rows).filter(|_| view.writable(slot)) {
                        cache.store(self.stripe, slot, rows.clone(), &new, admit);
                    }
                }
            }
            for (slot, buf) in work.parity.iter().filter(|_| !planted("stale-line")) {
                cache.store(self.stripe, *slot, rows.clone(), buf, admit);
            }
        }
    }

    /// Zeroes the whole stripe by the members' own means, when that is what is asked for: parity of
    /// zeroes is zero. `None` when it is not, or a member says that it cannot.
    async fn zero_members(&self) -> Option<Result<(), IoError>> {
        let [WriteArgs { payload: WritePayload::Zeroes { unmap }, extent, .. }] = self.pieces
        else {
            return None;
        };
        let view = self.engine.view();
        // With a journal it takes as much to log them.
        let journaled = self.engine.consistency.block().is_some();
        if journaled
            || extent.end - extent.start != self.parity.stripe_size()
            || !view.devices().all(|(_, device)| device.info().writes_zeroes)
        {
            return None;
        }
        let going = Zeroes { batch: self, unmap: *unmap };
        let set = self.engine.sets.start();
        let outcomes = match write_members(self.engine, &view, self.writing, set, &going).await {
            Ok(outcomes) => outcomes,
            Err(error) => return Some(Err(error)),
        };
        Some(handle_write_errors(self.engine, &view, self.stripe, outcomes).await)
    }
}

/// A batch with its new parity.
struct Going<'a> {
    batch: &'a Batch<'a>,
    works: &'a [Work],
}

impl Outgoing for Going<'_> {
    fn unit(&self) -> u64 {
        self.batch.stripe
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        self.batch.extents.iter().copied()
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let parity = self.works.iter().flat_map(|work| {
            let at = self.batch.base + work.segment.rows.start;
            work.parity.iter().map(move |(slot, buf)| {
                let content = Content::Bytes(buf.clone());
                Block { slot: *slot, at, role: Role::Parity, content }
            })
        });
        self.batch.data().chain(parity)
    }

    fn fua(&self) -> bool {
        self.batch.fua
    }
}

/// A whole stripe of zeroes, which the members make by themselves.
struct Zeroes<'a> {
    batch: &'a Batch<'a>,
    unmap: bool,
}

impl Outgoing for Zeroes<'_> {
    fn unit(&self) -> u64 {
        self.batch.stripe
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        self.batch.extents.iter().copied()
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let Batch { map, chunk, base, .. } = self.batch;
        let data = (0..map.data_chunks()).map(|k| (map.data_slot(k), Role::Data));
        let parity = parity_slots(map).into_iter().map(|slot| (slot, Role::Parity));
        data.chain(parity).map(|(slot, role)| {
            let content = Content::Zeroes { len: *chunk, unmap: self.unmap };
            Block { slot, at: *base, role, content }
        })
    }

    fn fua(&self) -> bool {
        self.batch.fua
    }
}
