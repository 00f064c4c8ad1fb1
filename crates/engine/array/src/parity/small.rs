//! The small write to members that are memory: part of one chunk, all of them healthy.
//!
//! There it is no more than the update of a few bytes and their parity, so its task is kept small and
//! its path straight, and it waits for no other write to join. In any other situation it hands over,
//! with its range let go, to the general [`super::write`].

use super::segment::Extent;
use crate::engine::Engine;
use crate::lock::Held;
use crate::spawners::{WriteArgs, WritePayload};
use crate::view::View;
use braid_device::IoError;
use braid_layout::{Parity, Slot};
use std::rc::Rc;

/// The largest such write in bytes. Above, what comes for the same stripe in one turn is better carried
/// out together: whole stripes need nothing read.
const LEN_MAX: u64 = 16 << 10;

/// True when the write is of the shape that this module is for.
pub(crate) fn fits(engine: &Engine, parity: &Parity, args: &WriteArgs) -> bool {
    let Extent { start, end } = args.extent;
    let chunk = parity.chunk_size();
    engine.on_memory()
        && end - start <= LEN_MAX
        && start / chunk == (end - 1) / chunk
        && matches!(args.payload, WritePayload::Data(_))
}

/// Carries out one small write, or hands it over, and tells `done`.
pub(crate) async fn write(args: WriteArgs) {
    let (held, ended) = attempt(&args).await;
    drop(held);
    match ended {
        Ended::Written(result) => {
            let WriteArgs { engine, payload, done, .. } = args;
            let payload = match payload {
                WritePayload::Data(buf) => Some(buf),
                WritePayload::Zeroes { .. } => None,
            };
            done.finish(&engine, result, None, payload);
        }
        Ended::NotHere => {
            let engine = Rc::clone(&args.engine);
            super::waiting::enter(&engine, args);
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
        engine.count(|counters| {
            counters.rmw += 1;
            counters.pieces += 1;
            counters.batches += 1;
        });
        engine.cache_forget(args.unit, within..end);
        return (Some(held), Ended::Written(Ok(())));
    }
    (Some(held), Ended::NotHere)
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
}
