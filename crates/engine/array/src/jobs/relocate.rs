//! One window of a reshape: array bytes that get the places of the new geometry, filled with what the array holds there.
//!
//! The data is read in the same steps as for a client, so that lost members and unreadable blocks are made good;
//! data, and parity or all copies, are written to the places of the new geometry, over which nothing lies that is still read.
//! Behind the old end of the array there are zeroes.
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
use braid_layout::{Layout, Parity, Raid10, Slot};
use braid_shard::Buf;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Bytes that are read at once, at most.
const READ_MAX: u64 = 1 << 20;

/// Blocks of one request to a member, at most.
const BLOCKS_MAX: usize = 1000;

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

/// Fills array bytes `bytes` of the geometry `new`, which are next after the border, from the array of `old_size` bytes. Where
/// there is parity they are whole stripes.
///
/// # Errors
/// Data that no member gives and redundancy does not have, and more members failing than the array survives.
pub(crate) async fn window(
    engine: &Rc<Engine>,
    new: &Layout,
    bytes: Range<u64>,
    old_size: u64,
) -> Result<(), IoError> {
    let block = block_of(new, &bytes);
    let data = contents(engine, block, &bytes, old_size).await?;
    // Not before: what is read may have to be recovered, which takes its own.
    let rows = new.needed_until(bytes.end).saturating_sub(new.needed_from(bytes.start));
    let _scratch = engine.scratch.take(rows.saturating_mul(new.slots() as u64)).await;
    for _ in 0..ATTEMPTS_MAX {
        let view = engine.view();
        if view.broken || view.read_only || engine.is_stopping() {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        let failed = view.missing().count();
        match new {
            Layout::Parity(parity) => {
                let stripe = parity.stripe_size();
                let stripes = bytes.start / stripe..bytes.end / stripe;
                write_stripes(engine, &view, parity, &stripes, &data).await?;
            }
            Layout::Raid10(raid10) => write_copies(engine, &view, raid10, &bytes, &data).await?,
            // Nothing else is reshaped.
            _ => return Err(IoError::new(IoErrorKind::Invalid)),
        }
        if engine.view().missing().count() == failed {
            return Ok(());
        }
    }
    Err(IoError::new(IoErrorKind::Lost))
}

/// Bytes of each buffer of a window: a chunk, or what its ends are multiples of where they are not those of chunks.
fn block_of(new: &Layout, bytes: &Range<u64>) -> u64 {
    let ends = 1 << (bytes.start | bytes.end).trailing_zeros().min(62);
    new.chunk_size().min(ends)
}

/// The data of these bytes, `block` by `block`.
async fn contents(
    engine: &Rc<Engine>,
    block: u64,
    bytes: &Range<u64>,
    old_size: u64,
) -> Result<Vec<Buf>, IoError> {
    let pool = engine.shard.pool();
    let start = bytes.start;
    let end = bytes.end.min(old_size).max(start);
    let device = Behind { engine: Rc::clone(engine) };
    let mut set = engine.sets.start();
    // Whole blocks: the old array ends with one, too.
    let at_once = (READ_MAX / block).max(1) * block;
    for (tag, at) in (0..).zip((start..end).step_by(at_once as usize)) {
        let len = at_once.min(end - at);
        let bufs: BufMuts = (0..len / block).map(|_| pool.get(block as usize)).collect();
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
    let wanted = (bytes.end - bytes.start) / block;
    while (data.len() as u64) < wanted {
        data.push(pool.zeroed(block as usize).freeze());
    }
    Ok(data)
}

/// Writes all copies of `bytes`, those of each member that lie one behind the other in one request.
async fn write_copies(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    new: &Raid10,
    bytes: &Range<u64>,
    data: &[Buf],
) -> Result<(), IoError> {
    let block = data.first().map_or(0, |first| first.len() as u64);
    let mut members: Vec<BTreeMap<u64, Buf>> = vec![BTreeMap::new(); new.slots()];
    for (at, buf) in (bytes.start..bytes.end).step_by(block.max(1) as usize).zip(data) {
        let (chunk, within) = new.locate(at);
        for place in new.copies(chunk) {
            if let Some(member) = members.get_mut(place.slot) {
                member.insert(place.offset + within, buf.clone());
            }
        }
    }
    let mut set = engine.sets.start();
    for (slot, blocks) in members.into_iter().enumerate() {
        let Some((device, data_offset)) = view.member(slot) else { continue };
        let mut send = |offset: u64, bufs: Bufs| {
            if !bufs.is_empty() {
                let op = Op::Write { bufs, fua: false };
                set.submit(slot as u32, &**device, Request { offset: data_offset + offset, op });
            }
        };
        let (mut first, mut run) = (0, Bufs::new());
        for (offset, buf) in blocks {
            if offset != first + run.len() as u64 * block || run.len() >= BLOCKS_MAX {
                send(first, std::mem::take(&mut run));
                first = offset;
            }
            run.push(buf);
        }
        send(first, run);
    }
    handle_job_write_errors(engine, view, set.finish().await).await
}

/// Computes parity, and writes what each member gets in one request.
async fn write_stripes(
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
