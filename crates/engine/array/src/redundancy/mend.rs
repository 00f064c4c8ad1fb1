//! Good data is written over blocks of a member that could not be read; blocks that a member cannot hold are recorded as
//! bad.
//!
//! Does not know the bad-block log: control keeps it.

use crate::engine::Engine;
use crate::engine::home::{BadBytes, News, Question};
use crate::state::extent::pieces;
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind, Request};
use braid_format::SECTOR;
use braid_layout::{Place, Slot};
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Blocks are tried, and recorded as bad, in pieces of so many bytes, aligned: the physical block of most
/// devices, and what Linux md records at parity levels.
const PIECE: u64 = 4096;

/// The outcome of [`mend`].
#[derive(Default)]
pub(crate) struct Mended {
    /// Component bytes that were written and can be read now.
    pub(crate) written: Vec<Range<u64>>,
    /// The member gives all that was asked for.
    pub(crate) all: bool,
}

/// Bytes of the pieces in which blocks are tried and recorded.
pub(crate) fn piece_size(engine: &Engine) -> u64 {
    PIECE.max(engine.info.logical_block.into())
}

/// Has control record component bytes as bad on the member of `slot`; comes back when its log says so
/// and all shards know. When that cannot be, the member fails if `or_fail`. True when they are recorded.
pub(crate) async fn record_bad(
    engine: &Rc<Engine>,
    slot: Slot,
    view: &View,
    bad: Vec<Range<u64>>,
    error: IoError,
    or_fail: bool,
) -> bool {
    let Some(nr) = view.member_nr(slot) else { return false };
    if bad.is_empty() {
        return true;
    }
    let bad = BadBytes { bytes: bad, error, or_fail };
    // No answer means that the array was stopped meanwhile.
    engine.home.ask(Question::RecordBad(nr, bad)).await == Some(true)
}

/// Records the blocks that a rebuild of `slot` could not recover as bad there.
///
/// # Errors
/// [`IoErrorKind::Lost`] when that cannot be: a rebuild without those blocks would be a lie.
pub(crate) async fn record_lost(
    engine: &Rc<Engine>,
    slot: Slot,
    lost: Vec<Range<u64>>,
) -> Result<(), IoError> {
    let (view, error) = (engine.view(), IoError::new(IoErrorKind::Lost));
    let recorded = record_bad(engine, slot, &view, lost, error, false).await;
    if recorded { Ok(()) } else { Err(error) }
}

/// Component bytes of the member of `slot` were written: what was bad of them is good. Nobody waits for
/// the log to say so, as in md: what it lists needlessly is had from the others.
pub(crate) fn good_again(engine: &Engine, view: &View, slot: Slot, bytes: Range<u64>) {
    if !view.any_bad() || !view.is_bad(slot, &bytes) {
        return;
    }
    let Some(nr) = view.member_nr(slot) else { return };
    engine.home.tell(News::GoodAgain(nr, bytes));
}

/// Writes good data over component bytes that gave `error` when they were read. What the member does
/// not take, or does not give back afterwards, is recorded as bad, or the member has failed (as in md); so
/// has one with too many read errors, and one that is to fail fast. With `leave` what can be read is left as it
/// is, as in md; not where it may differ from the other copies, and whoever asked gets those.
pub(crate) async fn mend(
    engine: &Rc<Engine>,
    view: &View,
    place: Place,
    error: IoError,
    good: &[u8],
    leave: bool,
) -> Mended {
    let Place { slot, offset } = place;
    if error.means_gone() {
        engine.home.fail_member(view.member_nr(slot), error).await;
        return Mended::default();
    }
    let Some((device, data_offset)) = view.member(slot) else { return Mended::default() };
    if view.read_only || failed_for_read_error(engine, slot, view, error).await {
        return Mended::default();
    }
    let has_log = view.has_log(slot);
    let bytes = offset..offset + good.len() as u64;
    let (mut bad, mut written) = (Vec::new(), Vec::new());
    let mut why = error;
    let all = pieces(&bytes, piece_size(engine));
    let leave = leave && all.len() > 1;
    for piece in all {
        let within = (piece.start - offset) as usize..(piece.end - offset) as usize;
        let len = within.len();
        if leave {
            let buf = engine.shard.pool().get(len);
            let read = Request::read(data_offset + piece.start, buf);
            if engine.sets.one(&**device, read).await.result.is_ok() {
                continue;
            }
        }
        let copy = engine.shard.pool().copy_of(&good[within]).freeze();
        let write = Request::write(data_offset + piece.start, copy, false);
        let mut result = engine.sets.one(&**device, write).await.result;
        if result.is_ok() {
            let again = engine.shard.pool().get(len);
            let read = Request::read(data_offset + piece.start, again);
            result = engine.sets.one(&**device, read).await.result;
        }
        match result {
            Ok(()) => written.push(piece),
            Err(error) if has_log && error.kind == IoErrorKind::Medium => {
                why = error;
                bad.push(piece);
            }
            Err(error) => {
                engine.home.fail_member(view.member_nr(slot), error).await;
                return Mended { written, all: false };
            }
        }
    }
    let all = bad.is_empty();
    if all {
        engine.measured.count(|counters| counters.corrected_reads += 1);
    }
    if let Some(nr) = view.member_nr(slot) {
        let corrected: u64 = written.iter().map(|piece| piece.end - piece.start).sum();
        engine.home.tell(News::Corrected(nr, (corrected / SECTOR as u64) as u32));
    }
    if !bad.is_empty() {
        record_bad(engine, slot, view, bad, why, true).await;
    }
    Mended { written, all }
}

/// Writes good bytes over what a member has, and what is to replace it.
pub(crate) async fn write_over(engine: &Rc<Engine>, view: &View, place: Place, good: &[u8]) {
    if view.read_only || planted("agreeing-not-written") {
        return;
    }
    let mut failed: SmallVec<[(Place, IoError); 2]> = SmallVec::new();
    for slot in view.written_with(place.slot) {
        let Some((device, data_offset)) = view.member(slot) else { continue };
        let copy = engine.shard.pool().copy_of(good).freeze();
        let request = Request::write(data_offset + place.offset, copy, false);
        if let Err(error) = engine.sets.one(&**device, request).await.result {
            failed.push((Place { slot, ..place }, error));
        }
    }
    for (place, error) in failed {
        match error.kind {
            // It is tried once more, and the member's log, if it has one, says what it cannot hold.
            IoErrorKind::Medium if !view.is_replacement(place.slot) => {
                mend(engine, view, place, error, good, false).await;
            }
            _ => engine.home.fail_member(view.member_nr(place.slot), error).await,
        }
    }
    engine.measured.count(|counters| counters.corrected_reads += 1);
}

/// True when the member of `slot` has failed because it could not be read, so that it needs no mending.
async fn failed_for_read_error(
    engine: &Rc<Engine>,
    slot: Slot,
    view: &View,
    error: IoError,
) -> bool {
    let Some(nr) = view.member_nr(slot) else { return false };
    engine.home.ask(Question::ReadError(nr, error)).await == Some(true)
}
