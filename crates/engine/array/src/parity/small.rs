//! The small write: part of one chunk, all members healthy, by read-modify-write.
//!
//! It is the commonest write of a database, so its task is kept small and its path straight. In
//! any other situation it hands over, with the range it holds, to the general [`super::write`].

use super::segment::Extent;
use crate::engine::Engine;
use crate::lock::Held;
use crate::spawners::{WriteArgs, WritePayload};
use crate::view::View;
use braid_device::{IoError, Op, Outcomes, Request};
use braid_layout::{Parity, Slot};
use braid_shard::{Buf, BufMut};
use std::rc::Rc;

/// True when the write is of the shape that this module is for: within one chunk of a stripe wide
/// enough that reading old data and parity is less than reading the other chunks.
pub(crate) fn fits(parity: &Parity, args: &WriteArgs) -> bool {
    let Extent { start, end } = args.extent;
    let chunk = parity.chunk_size();
    let one_chunk = start / chunk == (end - 1) / chunk;
    one_chunk
        && parity.data_chunks() - 1 > 1 + parity.parity_count()
        && matches!(args.payload, WritePayload::Data(_))
}

/// Carries out one small write, or hands it over, and tells `done`.
pub(crate) async fn write(args: WriteArgs) {
    let (held, ended) = attempt(&args).await;
    match ended {
        Ended::Written(result) => {
            drop(held);
            let WriteArgs { engine, payload, done, .. } = args;
            let payload = match payload {
                WritePayload::Data(buf) => Some(buf),
                WritePayload::Zeroes { .. } => None,
            };
            done.finish(&engine, result, None, payload);
        }
        Ended::NotHere => {
            let engine = Rc::clone(&args.engine);
            engine.spawners().parity_write.spawn(WriteArgs { held, ..args });
        }
    }
}

enum Ended {
    Written(Result<(), IoError>),
    NotHere,
}

/// Where the blocks are: data, P, Q.
pub(super) struct Places {
    pub(super) data: Slot,
    pub(super) p: Slot,
    pub(super) q: Option<Slot>,
    /// The data block's.
    pub(super) exponent: u8,
    /// Component byte.
    pub(super) at: u64,
}

async fn attempt(args: &WriteArgs) -> (Option<Held>, Ended) {
    let engine = &args.engine;
    let (Some(parity), WritePayload::Data(new)) = (super::geometry(engine), &args.payload) else {
        return (None, Ended::NotHere);
    };
    let chunk = parity.chunk_size();
    let within = args.extent.start % chunk;
    let end = within + new.len() as u64;
    let held = match engine.locks.try_lock(args.unit, within, end) {
        Some(held) => held,
        None => engine.locks.lock(args.unit, within, end).await,
    };
    let _writing = match engine.try_begin_write() {
        Some(writing) => writing,
        None => match engine.begin_write().await {
            Ok(writing) => writing,
            Err(error) => return (Some(held), Ended::Written(Err(error))),
        },
    };
    let places = Places::of(parity, args);
    let view = engine.view();
    if !places.healthy(&view, new.len()) {
        return (Some(held), Ended::NotHere);
    }
    if super::in_place::small(&view, &places, new) {
        engine.count(|counters| counters.rmw += 1);
        return (Some(held), Ended::Written(Ok(())));
    }
    let scratch = 3 * new.len() as u64;
    let _scratch = match engine.scratch.try_take(scratch) {
        Some(share) => share,
        None => engine.scratch.take(scratch).await,
    };
    let view = engine.view();
    let Some(reads) = read(engine, &view, &places, new.len()).await else {
        return (Some(held), Ended::NotHere);
    };
    let Some((p, q)) = places.update(reads, new) else {
        return (Some(held), Ended::NotHere);
    };
    engine.count(|counters| counters.rmw += 1);
    let mut set = engine.sets.start();
    let writes = [(Some(places.data), Some(new.clone())), (Some(places.p), Some(p)), (places.q, q)];
    for (slot, buf) in writes {
        if let (Some(slot), Some(buf)) = (slot, buf)
            && let Some((device, data_offset)) = view.member(slot)
        {
            let request = Request::write(data_offset + places.at, buf, args.fua);
            set.submit(slot as u32, &**device, request);
        }
    }
    let mut outcomes = set.finish().await;
    let result = if outcomes.any_error(|_| true) {
        engine.settle_writes(&view, outcomes).await
    } else {
        outcomes.by_ref().for_each(drop);
        Ok(())
    };
    (Some(held), Ended::Written(result))
}

/// Reads old data and parity; `None` when some member is not healthy there.
async fn read(engine: &Rc<Engine>, view: &View, places: &Places, len: usize) -> Option<Outcomes> {
    if !places.healthy(view, len) {
        return None;
    }
    let mut set = engine.sets.start();
    for slot in [Some(places.data), Some(places.p), places.q].into_iter().flatten() {
        let (device, data_offset) = view.member(slot)?;
        let buf = engine.shard.pool().get(len);
        set.submit(slot as u32, &**device, Request::read(data_offset + places.at, buf));
    }
    let outcomes = set.finish().await;
    // The general path finds out anew what is wrong, and deals with it.
    if outcomes.any_error(|_| true) { None } else { Some(outcomes) }
}

impl Places {
    fn of(parity: &Parity, args: &WriteArgs) -> Places {
        let chunk = parity.chunk_size();
        let map = parity.map_stripe(args.unit);
        let k = (args.extent.start / chunk) as usize;
        Places {
            data: map.data_slot(k),
            p: map.p_slot(),
            q: map.q_slot(),
            // An exponent is below the number of slots, which `Layout` bounds by 257.
            exponent: map.exponent(k) as u8,
            at: parity.member_offset(args.unit) + args.extent.start % chunk,
        }
    }

    /// True when all members concerned have valid blocks of `len` bytes there, and parity matches.
    fn healthy(&self, view: &View, len: usize) -> bool {
        let end = self.at + len as u64;
        let mut slots = [Some(self.data), Some(self.p), self.q].into_iter().flatten();
        let bytes = self.at..end;
        !view.broken && end <= view.resynced && slots.all(|slot| view.readable(slot, &bytes))
    }

    /// The new P and Q.
    fn update(&self, reads: Outcomes, new: &Buf) -> Option<(Buf, Option<Buf>)> {
        let (mut data, mut p, mut q) = (None, None, None);
        for (slot, outcome) in reads {
            let Op::Read(mut bufs) = outcome.op else { return None };
            let buf: BufMut = bufs.pop()?;
            let slot = slot as usize;
            if slot == self.data {
                data = Some(buf);
            } else if slot == self.p {
                p = Some(buf);
            } else {
                q = Some(buf);
            }
        }
        let (data, mut p) = (data?, p?);
        match (self.q, q) {
            (Some(_), Some(mut q)) => {
                braid_parity::delta_pq(self.exponent, &data, new, &mut p, &mut q);
                Some((p.freeze(), Some(q.freeze())))
            }
            (None, None) => {
                braid_parity::delta_p(&data, new, &mut p);
                Some((p.freeze(), None))
            }
            _ => None,
        }
    }
}
