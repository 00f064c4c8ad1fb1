//! One window of a reshape: stripes of the new geometry, numbered from 0, filled with what the array holds there.
//!
//! The data is read in the same steps as for a client, so that lost members and unreadable blocks are made good;
//! data and parity are written to the places of the new geometry, over which nothing lies that is still read. Behind the
//! old end of the array there are zeroes.
//!
//! Requests to these bytes wait, so no rows are locked here. Where the border stands, and when it may move, is control's
//! business.

use crate::engine::Engine;
use crate::read::start::read;
use crate::redundancy::blocks::Blocks;
use crate::state::view::View;
use crate::write::write_errors::handle_job_write_errors;
use braid_device::{
    BufMuts, Bufs, Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, Request,
};
use braid_layout::{Parity, Slot};
use braid_shard::Buf;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Bytes that are read at once, at most.
const READ_MAX: u64 = 1 << 20;

/// Attempts to write a window, each without one member more.
const ATTEMPTS_MAX: usize = 8;

/// The array for reads that wait for no window: those of a window itself.
struct Behind {
    engine: Rc<Engine>,
}

impl Device for Behind {
    fn info(&self) -> &DeviceInfo {
        &self.engine.info
    }

    fn submit(&self, request: Request, done: Completion) {
        match (&request.op, request.len()) {
            (Op::Read(_), len) if len > 0 => read(&self.engine, request, len, done),
            _ => done.finish(Err(IoError::new(IoErrorKind::Invalid)), request.op),
        }
    }
}

/// Fills `stripes` of the geometry `new`, which are next after the border, from the array of `old_size` bytes.
///
/// # Errors
/// Data that no member gives and redundancy does not have, and more members failing than the array survives.
pub(crate) async fn window(
    engine: &Rc<Engine>,
    new: &Parity,
    stripes: Range<u64>,
    old_size: u64,
) -> Result<(), IoError> {
    let data = contents(engine, new, &stripes, old_size).await?;
    // Not before: what is read may have to be recovered, which takes its own.
    let rows = (stripes.end - stripes.start).saturating_mul(new.chunk_size());
    let _scratch = engine.scratch.take(rows.saturating_mul(new.slots() as u64)).await;
    for _ in 0..ATTEMPTS_MAX {
        let view = engine.view();
        if view.broken || view.read_only || engine.is_stopping() {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        let failed = view.missing().count();
        write(engine, &view, new, &stripes, &data).await?;
        if engine.view().missing().count() == failed {
            return Ok(());
        }
    }
    Err(IoError::new(IoErrorKind::Lost))
}

/// The data of the stripes, chunk by chunk.
async fn contents(
    engine: &Rc<Engine>,
    new: &Parity,
    stripes: &Range<u64>,
    old_size: u64,
) -> Result<Vec<Buf>, IoError> {
    let (chunk, pool) = (new.chunk_size(), engine.shard.pool());
    let start = stripes.start * new.stripe_size();
    let end = (stripes.end * new.stripe_size()).min(old_size).max(start);
    let device = Behind { engine: Rc::clone(engine) };
    let mut set = engine.sets.start();
    // Whole chunks: the old array ends with one, too.
    let at_once = (READ_MAX / chunk).max(1) * chunk;
    for (tag, at) in (0..).zip((start..end).step_by(at_once as usize)) {
        let len = at_once.min(end - at);
        let bufs: BufMuts = (0..len / chunk).map(|_| pool.get(chunk as usize)).collect();
        set.submit(tag, &device, Request { offset: at, op: Op::Read(bufs) });
    }
    let mut read: Vec<(u32, BufMuts)> = Vec::new();
    for (tag, outcome) in set.finish().await {
        outcome.result?;
        match outcome.op {
            Op::Read(bufs) => read.push((tag, bufs)),
            _ => return Err(IoError::new(IoErrorKind::Invalid)),
        }
    }
    read.sort_by_key(|(tag, _)| *tag);
    let mut data: Vec<Buf> =
        read.into_iter().flat_map(|(_, bufs)| bufs).map(|buf| buf.freeze()).collect();
    let wanted = (stripes.end - stripes.start) * new.data_chunks() as u64;
    while (data.len() as u64) < wanted {
        data.push(pool.zeroed(chunk as usize).freeze());
    }
    Ok(data)
}

/// Computes parity, and writes what each member gets in one request.
async fn write(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    new: &Parity,
    stripes: &Range<u64>,
    data: &[Buf],
) -> Result<(), IoError> {
    let pool = engine.shard.pool();
    let chunk = new.chunk_size() as usize;
    let mut members: Vec<Bufs> = vec![SmallVec::new(); new.slots()];
    for (stripe, data) in stripes.clone().zip(data.chunks(new.data_chunks())) {
        let map = new.map_stripe(stripe);
        let mut blocks = Blocks::new(map, new.q_width());
        let mut put = |slot: Slot, block: Buf| {
            if let Some(member) = members.get_mut(slot) {
                member.push(block);
            }
        };
        for (k, block) in data.iter().enumerate() {
            blocks.set(map.data_slot(k), block.clone());
            put(map.data_slot(k), block.clone());
        }
        let mut p = pool.get(chunk);
        let mut q = map.q_slot().map(|slot| (slot, pool.get(chunk)));
        let computed = blocks.parity(Some(&mut p), q.as_mut().map(|(_, buf)| &mut buf[..]));
        computed.map_err(|_| IoError::new(IoErrorKind::Lost))?;
        put(map.p_slot(), p.freeze());
        if let Some((slot, q)) = q {
            put(slot, q.freeze());
        }
    }
    let at = new.member_offset(stripes.start);
    let mut set = engine.sets.start();
    for (slot, bufs) in members.into_iter().enumerate() {
        if let Some((device, data_offset)) = view.member(slot) {
            let op = Op::Write { bufs, fua: false };
            set.submit(slot as u32, &**device, Request { offset: data_offset + at, op });
        }
    }
    handle_job_write_errors(engine, view, set.finish().await).await
}
