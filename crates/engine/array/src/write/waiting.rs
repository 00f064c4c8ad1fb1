//! Writes that wait for their stripe, to be carried out together.
//!
//! The first write of a stripe starts a leader. It lets what else is runnable go first, and what that
//! brings, so that other writes can join; then it locks the rows and takes along all that has come for
//! the stripe by then: what came while the rows were locked by others, too. Nothing waits for a clock:
//! alone on an idle shard a write waits for a few turns of nothing, a microsecond.

use crate::engine::Engine;
use crate::request::spawners::{LeadArgs, WriteArgs};
use crate::state::extent::Extent;
use crate::write::lock::Held;
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Writes carried out together, at most.
const TOGETHER_MAX: usize = 256;

/// Turns without another write of the stripe after which none is expected. A request that lies in a
/// socket takes two: its header, and what it carries.
const TURNS_WITHOUT: u32 = 2;
/// Turns after which a stripe is carried out although writes keep coming.
const TURNS_MAX: u32 = 64;

/// The writes that wait for one stripe, in the order of arrival. Every queue has a leader.
struct Queue {
    pieces: VecDeque<WriteArgs>,
    /// Of all pieces; pieces that overlap count twice.
    bytes: u64,
}

/// Writes that are carried out together, and where they lie: lists whose memory is kept for the next.
#[derive(Default)]
pub(crate) struct Room {
    /// Ascending, apart.
    pub(crate) pieces: Vec<WriteArgs>,
    pub(crate) extents: Vec<Extent>,
    /// See [`super::segment::find_cuts`].
    pub(crate) cuts: Vec<u64>,
}

/// The waiting writes of one array on one shard.
#[derive(Default)]
pub(crate) struct Waiting {
    stripes: RefCell<HashMap<u64, Queue>>,
    /// Stripes that have all their data, about.
    whole: Cell<u32>,
    /// Memory that is kept for reuse.
    queues: RefCell<Vec<VecDeque<WriteArgs>>>,
    rooms: RefCell<Vec<Room>>,
}

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
    let (unit, stripe_size) = (args.unit, parity.stripe_size());
    let waiting = &engine.waiting;
    let mut stripes = waiting.stripes.borrow_mut();
    let bytes = args.extent.end - args.extent.start;
    if let Some(queue) = stripes.get_mut(&unit) {
        let before = queue.bytes;
        queue.bytes += bytes;
        if before < stripe_size && queue.bytes >= stripe_size {
            waiting.whole.set(waiting.whole.get() + 1);
        }
        queue.pieces.push_back(args);
        return;
    }
    let whole = if bytes == stripe_size {
        Some(args)
    } else {
        let mut pieces = waiting.queues.borrow_mut().pop().unwrap_or_default();
        pieces.push_back(args);
        stripes.insert(unit, Queue { pieces, bytes });
        None
    };
    drop(stripes);
    let engine_of_task = Rc::clone(engine);
    engine.spawners().parity_write.spawn(LeadArgs { engine: engine_of_task, unit, whole });
}

/// Locks the rows of what waits for a stripe, carries it out, and tells each write.
pub(crate) async fn lead(args: LeadArgs) {
    let LeadArgs { engine, unit, whole } = args;
    let Some(parity) = engine.geometry.parity() else { return };
    let chunk = parity.chunk_size();
    let mut room = engine.waiting.rooms.borrow_mut().pop().unwrap_or_default();
    let (held, line) = match whole {
        Some(piece) => {
            room.pieces.push(piece);
            lock(&engine, unit, 0..chunk, chunk).await
        }
        None => {
            engine.waiting.gather(&engine, unit, parity.stripe_size()).await;
            let rows = engine.waiting.rows(unit, chunk);
            let held = lock(&engine, unit, rows, chunk).await;
            engine.waiting.take(&engine, unit, parity.stripe_size(), &mut room.pieces);
            held
        }
    };
    if !room.pieces.is_empty() {
        crate::write::batch::carry_out(&engine, unit, (held, line), &mut room).await;
    }
    engine.waiting.rooms.borrow_mut().push(room);
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

/// `rows` of a stripe, widened to whole lines when their height is set.
pub(crate) fn whole_lines(rows: Range<u64>, line: Option<u64>, chunk: u64) -> Range<u64> {
    match line {
        None => rows,
        Some(line) => rows.start / line * line..rows.end.next_multiple_of(line).min(chunk),
    }
}

impl Waiting {
    /// Waits for other writes of `unit` while they can still come: until turns have passed without a new
    /// one, or the stripe has all its data. Stripes that need nothing read go ahead, a few.
    async fn gather(&self, engine: &Engine, unit: u64, stripe_size: u64) {
        if !engine.aggregate {
            return;
        }
        let threshold = engine.settings.get().bypass_threshold();
        let (mut known, mut passed, mut without) = (0, 0, 0);
        for _ in 0..TURNS_MAX {
            if self.is_whole(unit, stripe_size) {
                return;
            }
            engine.shard.next_turn().await;
            let now = self.stripes.borrow().get(&unit).map_or(0, |queue| queue.pieces.len());
            without = if now > known { 0 } else { without + 1 };
            known = now;
            if without < TURNS_WITHOUT {
                continue;
            }
            if passed >= threshold || self.whole.get() == 0 {
                return;
            }
            passed += 1;
        }
    }

    fn is_whole(&self, unit: u64, stripe_size: u64) -> bool {
        self.stripes.borrow().get(&unit).is_some_and(|queue| queue.bytes >= stripe_size)
    }

    /// Rows that what waits for `unit` touches.
    fn rows(&self, unit: u64, chunk: u64) -> Range<u64> {
        let stripes = self.stripes.borrow();
        let pieces = stripes.get(&unit).map(|queue| &queue.pieces);
        let rows = pieces.into_iter().flatten().map(|piece| piece.extent.rows(chunk));
        rows.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..chunk)
    }

    /// Takes what waits for `unit` and can be carried out at once, ascending and apart, in any order
    /// that keeps writes that overlap in the order of their arrival. The rest gets a new leader.
    fn take(&self, engine: &Rc<Engine>, unit: u64, stripe_size: u64, into: &mut Vec<WriteArgs>) {
        let Some(mut queue) = self.stripes.borrow_mut().remove(&unit) else { return };
        if queue.bytes >= stripe_size {
            self.whole.set(self.whole.get() - 1);
        }
        let mut left: VecDeque<WriteArgs> = VecDeque::new();
        while let Some(piece) = queue.pieces.pop_front() {
            let at = into.partition_point(|other| other.extent.end <= piece.extent.start);
            let over = |other: Option<&WriteArgs>| {
                other.is_some_and(|other| other.extent.overlaps(&piece.extent))
            };
            if into.len() >= TOGETHER_MAX
                || over(into.get(at))
                || left.iter().any(|other| other.extent.overlaps(&piece.extent))
            {
                left.push_back(piece);
            } else {
                into.insert(at, piece);
            }
        }
        self.queues.borrow_mut().push(queue.pieces);
        for piece in left {
            join(engine, piece);
        }
    }
}
