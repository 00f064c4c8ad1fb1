//! Writes that wait for their stripe, to be carried out together.
//!
//! The first write of a stripe waits: what else is runnable goes first, and what that
//! brings, so that other writes can join. One task watches all stripes that wait so, and starts a leader for each
//! when no more is expected. The leader locks the rows and takes along all that has come for
//! the stripe by then: what came while the rows were locked by others, too. Nothing waits for a clock:
//! on an idle shard a lone write waits for a few empty turns, a microsecond; a stripe of a stream waits longer, while
//! stripes before it are being carried out whose answers will bring the rest of it.

use super::batch::{self, Locked};
use super::one_block;
use super::segment::whole_lines;
use crate::engine::Engine;
use crate::engine::queues::{Joined, Key, Leading, Sizes};
use crate::engine::work::WriteArgs;
use crate::state::extent::Extent;
use std::rc::Rc;

/// Has `args` carried out, with whatever else comes for its stripe.
#[inline(always)]
pub(crate) fn enter(engine: &Rc<Engine>, sizes: Sizes, args: WriteArgs) {
    engine.measured.count(|counters| {
        counters.pieces += 1;
        counters.lookups += 1;
    });
    join(engine, sizes, args);
}

// A write is large: called, it would be moved for that.
#[inline(always)]
fn join(engine: &Rc<Engine>, sizes: Sizes, args: WriteArgs) {
    let turn = engine.shard.turns();
    let joined = engine.waiting.join(args, sizes, turn);
    if let Joined::Leads(key) = joined
        && engine.members.aggregates()
    {
        if engine.waiting.batch(key, turn) {
            start_watch(engine);
        }
        return;
    }
    let key = match joined {
        Joined::Follows => return,
        Joined::Leads(key) | Joined::Whole(key) | Joined::Completes(key) => key,
    };
    engine.tasks().lead.spawn((Rc::clone(engine), key));
}

#[cold]
fn start_watch(engine: &Rc<Engine>) {
    engine.tasks().watch.spawn(Rc::clone(engine));
}

/// Starts leaders of stripes that wait for other writes, each when no more is expected, until no stripe waits.
pub(crate) async fn watch(engine: Rc<Engine>) {
    let lead = |key| engine.tasks().lead.spawn((Rc::clone(&engine), key));
    let mut more = true;
    while more {
        engine.shard.next_turn().await;
        let threshold = engine.settings.get().bypass_threshold();
        more = engine.waiting.due(engine.shard.turns(), threshold, lead);
    }
}

/// Locks the rows of what waits for a stripe in queue `key`, carries it out, and tells each write.
pub(crate) async fn lead(engine: Rc<Engine>, key: Key) {
    let Some(Leading { unit, sizes, rows, lone }) = engine.waiting.leading(key) else { return };
    let chunk = sizes.chunk;
    let line = engine.settings.get().line();
    let locked = engine.locked_lines();
    if !lone && start_apart(&engine, key, locked, chunk) {
        return;
    }
    let rows = whole_lines(rows, locked, chunk);
    let held = match engine.locks.try_lock(unit, rows.start, rows.end) {
        Some(held) => held,
        // Somebody else has some of them: by the time that they are free there may be more to do here.
        None => engine.locks.lock(unit, 0, chunk).await,
    };
    // Where it lies, since it is large: taken out of this, it would be moved for that.
    let lone = engine.waiting.take_lone(key);
    if let Some(piece) = &lone {
        engine.measured.count(|counters| counters.batches += 1);
        let is_small = piece.extent.end - piece.extent.start <= chunk;
        let done = match is_small {
            true => one_block::carry_out(&engine, line, piece).await,
            false => None,
        };
        let result = match done {
            Some(result) => result,
            None => batch::carry_out_one(&engine, line, piece).await,
        };
        drop(held);
        if let Some(piece) = lone {
            piece.finish(&engine.mesh, result);
        }
        return;
    }
    let locked = Locked { held, line };
    let mut pieces = engine.waiting.list();
    // The rest overlaps these, or is too much at once: it waits anew.
    for piece in engine.waiting.take(key, &mut pieces) {
        join(&engine, sizes, piece);
    }
    if !pieces.is_empty() {
        batch::carry_out(&engine, unit, locked, &mut pieces).await;
    }
    engine.waiting.keep_list(pieces);
    if engine.waiting.ended(unit, engine.shard.turns()) {
        start_watch(&engine);
    }
}

impl Engine {
    /// The height of the lines in which rows are locked: where there is no other, that of the journal's blocks.
    fn locked_lines(&self) -> Option<u64> {
        match (self.settings.get().line(), self.consistency.block()) {
            (None, block) => block,
            (line, None) => line,
            (Some(line), Some(block)) => Some(line.max(block)),
        }
    }
}

/// Has the writes in queue `key` carried out each by itself, when they have no rows in common.
fn start_apart(engine: &Rc<Engine>, key: Key, line: Option<u64>, chunk: u64) -> bool {
    let mut pieces = engine.waiting.list();
    let rows_of = |extent: &Extent| whole_lines(extent.rows(chunk), line, chunk);
    let are_apart = engine.waiting.take_apart(key, rows_of, &mut pieces);
    for piece in pieces.drain(..) {
        engine.tasks().write_alone.spawn((Rc::clone(engine), piece));
    }
    engine.waiting.keep_list(pieces);
    are_apart
}

/// Locks the rows of a write that others do not join, carries it out and tells it.
pub(crate) async fn write_alone(engine: Rc<Engine>, piece: WriteArgs) {
    let chunk = engine.view().geometry_of(piece.unit).layout.chunk_size();
    let line = engine.settings.get().line();
    let rows = whole_lines(piece.extent.rows(chunk), engine.locked_lines(), chunk);
    let held = engine.locks.lock(piece.unit, rows.start, rows.end).await;
    engine.measured.count(|counters| counters.batches += 1);
    let result = match one_block::carry_out(&engine, line, &piece).await {
        Some(result) => result,
        None => batch::carry_out_one(&engine, line, &piece).await,
    };
    drop(held);
    piece.finish(&engine.mesh, result);
}
