//! Writes that wait for their stripe, to be carried out together.
//!
//! The first write of a stripe starts a leader. It lets what else is runnable go first, and what that
//! brings, so that other writes can join; then it locks the rows and takes along all that has come for
//! the stripe by then: what came while the rows were locked by others, too. Nothing waits for a clock:
//! alone on an idle shard a write waits for a few turns of nothing, a microsecond.

use super::segment::whole_lines;
use crate::engine::Engine;
use crate::engine::lock::Held;
use crate::engine::queues::Joined;
use crate::engine::work::WriteArgs;
use std::ops::Range;
use std::rc::Rc;

/// Turns without another write of the stripe after which none is expected. A request that lies in a
/// socket takes two: its header, and what it carries.
const TURNS_WITHOUT: u32 = 2;
/// Turns after which a stripe is carried out although writes keep coming.
const TURNS_MAX: u32 = 64;

/// Has `args` carried out, with whatever else comes for its stripe.
pub(crate) fn enter(engine: &Rc<Engine>, args: WriteArgs) {
    engine.count(|counters| {
        counters.pieces += 1;
        counters.lookups += 1;
    });
    join(engine, args);
}

fn join(engine: &Rc<Engine>, args: WriteArgs) {
    let Some(parity) = engine.geometry.parity() else { return };
    let unit = args.unit;
    let leads = match engine.waiting.join(args, parity.stripe_size()) {
        Joined::Follows => return,
        Joined::Leads => None,
        Joined::Whole(args) => Some(args),
    };
    engine.tasks().lead.spawn((Rc::clone(engine), unit, leads));
}

/// Locks the rows of what waits for a stripe, carries it out, and tells each write.
pub(crate) async fn lead(engine: Rc<Engine>, unit: u64, whole: Option<WriteArgs>) {
    let Some(parity) = engine.geometry.parity() else { return };
    let chunk = parity.chunk_size();
    let mut room = engine.waiting.room();
    let (held, line) = match whole {
        Some(piece) => {
            room.pieces.push(piece);
            lock(&engine, unit, 0..chunk, chunk).await
        }
        None => {
            gather(&engine, unit, parity.stripe_size()).await;
            let rows = engine.waiting.rows(unit, chunk);
            let held = lock(&engine, unit, rows, chunk).await;
            // The rest overlaps these, or is too much at once: it gets a new leader.
            for piece in engine.waiting.take(unit, parity.stripe_size(), &mut room.pieces) {
                join(&engine, piece);
            }
            held
        }
    };
    if !room.pieces.is_empty() {
        crate::write::batch::carry_out(&engine, unit, (held, line), &mut room).await;
    }
    engine.waiting.keep(room);
}

/// Locks `rows`, in whole lines; all rows of the stripe when somebody else has some of them, since by the
/// time that they are free there may be more to do here. Also gives the height of a line that the rows
/// were locked for: whoever holds them keeps to it, whatever is set meanwhile.
async fn lock(engine: &Engine, unit: u64, rows: Range<u64>, chunk: u64) -> (Held, Option<u64>) {
    let rows = whole_lines(rows, engine.line(), chunk);
    let held = match engine.locks.try_lock(unit, rows.start, rows.end) {
        Some(held) => held,
        None => engine.locks.lock(unit, 0, chunk).await,
    };
    (held, engine.line())
}

/// Waits for other writes of `unit` while they can still come: until turns have passed without a new
/// one, or the stripe has all its data. Stripes that need nothing read go ahead, a few.
async fn gather(engine: &Engine, unit: u64, stripe_size: u64) {
    if !engine.aggregate {
        return;
    }
    let threshold = engine.settings.get().bypass_threshold();
    let (mut known, mut passed, mut without) = (0, 0, 0);
    for _ in 0..TURNS_MAX {
        if engine.waiting.is_whole(unit, stripe_size) {
            return;
        }
        engine.shard.next_turn().await;
        let now = engine.waiting.len(unit);
        without = if now > known { 0 } else { without + 1 };
        known = now;
        if without < TURNS_WITHOUT {
            continue;
        }
        if passed >= threshold || !engine.waiting.any_whole() {
            return;
        }
        passed += 1;
    }
}
