//! Handling of write errors, and of writes over blocks that were bad.
//!
//! A member with a bad-block log keeps its slot when some of its blocks cannot be written: they are recorded
//! as bad before the reply, and are had from the others from then on. A member without a log, one that is
//! gone, and one whose log is full or cannot be written, has failed. A write that succeeds
//! clears the bad-block entries that it covers.
//!
//! Does not know the log: control keeps it.
//!
//! Invariant: a write that a member did not take is acknowledged only when what it wrote can still be read.

use crate::engine::Engine;
use crate::engine::home::Question;
use crate::redundancy::mend::{good_again, piece_size, record_bad};
use crate::state::extent::pieces;
use crate::state::geometry::REGION;
use crate::state::view::View;
use braid_device::{Bufs, IoError, IoErrorKind, Op, Outcomes, Request};
use braid_layout::{Layout, Place, Slot};
use braid_shard::Buf;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// A write that a member did not take.
struct Refused {
    slot: Slot,
    /// Component bytes.
    bytes: Range<u64>,
    op: Op,
    error: IoError,
}

/// Looks at the outcomes of writes of `unit` tagged with their slots: what members did not take is recorded as
/// bad, or the members as failed, before this comes back.
///
/// # Errors
/// When more members have failed than the level survives, or what was written is nowhere to be had.
pub(crate) async fn handle_write_errors(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    unit: u64,
    outcomes: Outcomes,
) -> Result<(), IoError> {
    let Some((refused, first)) = handle_errors(engine, view, outcomes).await else {
        return Ok(());
    };
    let now = engine.view();
    let layout = &now.geometry_of(unit).layout;
    // The member that it is to replace has the bytes that a replacement did not take.
    let mut of_slots = refused.iter().filter(|refused| !view.is_replacement(refused.slot));
    let mut kept = || of_slots.all(|refused| kept(&now, layout, refused.slot, &refused.bytes));
    let unfinished = refused.iter().any(|refused| engine.home.is_unfinished(refused.error));
    if unfinished || now.broken || !kept() { Err(first) } else { Ok(()) }
}

/// [`handle_write_errors`] for writes of a job, which nobody relies on.
///
/// # Errors
/// When more members have failed than the level survives.
pub(crate) async fn handle_job_write_errors(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    outcomes: Outcomes,
) -> Result<(), IoError> {
    match handle_errors(engine, view, outcomes).await {
        Some((_, first)) if engine.view().broken => Err(first),
        _ => Ok(()),
    }
}

/// Handles the writes that members refused, and gives them with the first error; `None` when there are none.
async fn handle_errors(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    outcomes: Outcomes,
) -> Option<(Vec<Refused>, IoError)> {
    let refused = take_refused(engine, view, outcomes);
    let first = refused.first()?.error;
    // Boxed: it happens seldom, and would make the task of every write larger.
    Box::pin(handle_refused(engine, view, &refused)).await;
    Some((refused, first))
}

fn take_refused(engine: &Engine, view: &View, mut outcomes: Outcomes) -> Vec<Refused> {
    let mut refused = Vec::new();
    while let Some((slot, bytes, outcome)) = outcomes.next_placed() {
        let slot = slot as usize;
        let start = view.member(slot).map_or(0, |(_, data_offset)| data_offset);
        let bytes = bytes.start.saturating_sub(start)..bytes.end.saturating_sub(start);
        match outcome.result {
            Ok(()) => good_again(engine, view, slot, bytes),
            // The planted bug goes on with an array that has lost too much.
            Err(error) if error.kind == IoErrorKind::Lost && planted("array-too-degraded") => {}
            Err(error) => refused.push(Refused { slot, bytes, op: outcome.op, error }),
        }
    }
    refused
}

async fn handle_refused(engine: &Rc<Engine>, view: &Rc<View>, all: &[Refused]) {
    // As in md writes are no reason to fail a write-mostly member fast: it is likely to be slow.
    let fails_fast = |slot| view.failfast(slot) && !view.write_mostly(slot);
    let recordable =
        |refused: &Refused| refused.error.kind == IoErrorKind::Medium && view.has_log(refused.slot);
    // Before anything is waited for: what these make durable meanwhile counts for nothing.
    for refused in all.iter().filter(|refused| !recordable(refused)) {
        if !fails_fast(refused.slot)
            && let Some(nr) = view.member_nr(refused.slot)
        {
            engine.home.suspect_member(nr, refused.error);
        }
    }
    for refused in all {
        let Refused { slot, error, .. } = refused;
        if engine.home.is_unfinished(*error) {
            continue;
        }
        if fails_fast(*slot) && fail_fast(engine, *slot, view, *error).await {
            continue;
        }
        let bad =
            if recordable(refused) { narrow(engine, view, refused).await } else { Err(*error) };
        match bad {
            Ok(bad) => {
                record_bad(engine, *slot, view, bad, *error, true).await;
            }
            Err(error) => engine.home.fail_member(view.member_nr(*slot), error).await,
        }
    }
}

/// True when the member of `slot` has failed for `error`; false when the data depends on it.
async fn fail_fast(engine: &Rc<Engine>, slot: Slot, view: &View, error: IoError) -> bool {
    let Some(nr) = view.member_nr(slot) else { return false };
    engine.home.ask(Question::FailFast(nr, error)).await == Some(true)
}

/// Writes again in small pieces, and gives those that the member does not take either.
///
/// # Errors
/// Decides if the errors mean that the member has failed. A durable write (FUA) that succeeds when tried again
/// means so too: members make writes durable by a flush, and a failed flush is reported only once.
async fn narrow(
    engine: &Rc<Engine>,
    view: &View,
    refused: &Refused,
) -> Result<Vec<Range<u64>>, IoError> {
    let Refused { slot, bytes, op, error } = refused;
    let Some((device, data_offset)) = view.member(*slot) else { return Err(*error) };
    let mut bad = Vec::new();
    // One by one: a plug would make one request of them again.
    for piece in pieces(bytes, piece_size(engine)) {
        let (start, len) = (piece.start - bytes.start, piece.end - piece.start);
        let payload = match op {
            Op::Write { bufs, .. } => slice(bufs, start as usize, len as usize),
            Op::WriteZeroes { .. } => {
                Some([engine.scratch.zeroes(len as usize)].into_iter().collect())
            }
            _ => None,
        };
        // A device that does not give the payload back leaves nothing to try again with.
        let Some(bufs) = payload else { return Ok(vec![bytes.clone()]) };
        let request =
            Request { offset: data_offset + piece.start, op: Op::Write { bufs, fua: false } };
        match engine.sets.one(&**device, request).await.result {
            Ok(()) => good_again(engine, view, *slot, piece),
            Err(error) if error.kind == IoErrorKind::Medium => bad.push(piece),
            Err(error) => return Err(error),
        }
    }
    let durable = matches!(op, Op::Write { fua: true, .. } | Op::WriteZeroes { fua: true, .. });
    if durable && bad.is_empty() {
        return Err(*error);
    }
    // By way of the home shard like every flush; it has failed the member if it did not end well.
    let flushed = if durable { engine.home.flush_members().await } else { None };
    match flushed.and_then(|flushed| flushed.error) {
        Some(error) => Err(error),
        None => Ok(bad),
    }
}

/// True if the content of these component bytes of `slot` can be had, from there or from the others.
fn kept(view: &View, layout: &Layout, slot: Slot, bytes: &Range<u64>) -> bool {
    let mut at = bytes.start;
    // Members that failed as a whole are within the level's tolerance, or the array is broken.
    while view.any_bad() && at < bytes.end {
        let until = match layout {
            Layout::Parity(parity) => {
                let rows = at..view.same_until(&(at..bytes.end));
                let lost = (0..view.slots()).filter(|slot| !view.readable(*slot, &rows));
                if lost.count() > parity.parity_count() {
                    return false;
                }
                rows.end
            }
            Layout::Raid10(raid10) => {
                // Places that nothing lives in are not written.
                let Some(logical) = raid10.logical(slot, at) else { return true };
                let (chunk, within) = raid10.locate(logical);
                let len = (bytes.end - at).min(raid10.chunk_size() - within);
                match copies_kept(view, (chunk, within), len) {
                    Some(len) => at + len,
                    None => return false,
                }
            }
            _ => {
                let (unit, within) = (at / REGION, at % REGION);
                match copies_kept(view, (unit, within), (bytes.end - at).min(REGION - within)) {
                    Some(len) => at + len,
                    None => return false,
                }
            }
        };
        at = until;
    }
    true
}

/// Of how many of the bytes at `at` a copy can be read; `None` when the first cannot.
fn copies_kept(view: &View, at: (u64, u64), len: u64) -> Option<u64> {
    let len = crate::redundancy::copies::alike(view, at, len);
    let copies = crate::redundancy::copies::places(view, at.0, at.1);
    let readable = |place: &Place| view.readable(place.slot, &(place.offset..place.offset + len));
    copies.iter().any(readable).then_some(len)
}

/// The `len` bytes from `start` on of `bufs` laid end to end; `None` when they have not so many.
fn slice(bufs: &Bufs, start: usize, len: usize) -> Option<Bufs> {
    let (mut base, mut left) = (0, start..start + len);
    let mut parts: SmallVec<[Buf; 1]> = SmallVec::new();
    for buf in bufs {
        let until = left.end.min(base + buf.len());
        if left.start < until {
            parts.push(buf.slice(left.start - base..until - base));
            left.start = until;
        }
        base += buf.len();
    }
    left.is_empty().then(|| parts.into_iter().collect())
}
