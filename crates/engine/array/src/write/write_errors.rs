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
use crate::engine::home::{BadBytes, News, Question};
use crate::state::extent::pieces;
use crate::state::geometry::REGION;
use crate::state::view::View;
use braid_device::{Bufs, IoError, IoErrorKind, Op, Outcomes, Request};
use braid_format::SECTOR;
use braid_layout::{Layout, Place, Slot};
use braid_shard::Buf;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Blocks are tried, and recorded as bad, in pieces of so many bytes, aligned: the physical block of most
/// devices, and what Linux md records at parity levels.
const PIECE: u64 = 4096;

/// A write that a member did not take.
struct Refused {
    slot: Slot,
    /// Component bytes.
    bytes: Range<u64>,
    op: Op,
    error: IoError,
}

/// The outcome of [`Engine::mend`].
#[derive(Default)]
pub(crate) struct Mended {
    /// Component bytes that were written and can be read now.
    pub(crate) written: Vec<Range<u64>>,
    /// The member gives all that was asked for.
    pub(crate) all: bool,
}

impl Engine {
    /// Looks at the outcomes of writes of `unit` tagged with their slots: what members did not take is recorded as
    /// bad, or the members as failed, before this comes back.
    ///
    /// # Errors
    /// When more members have failed than the level survives, or what was written is nowhere to be had.
    pub(crate) async fn handle_write_errors(
        self: &Rc<Engine>,
        view: &Rc<View>,
        unit: u64,
        outcomes: Outcomes,
    ) -> Result<(), IoError> {
        let Some((refused, first)) = self.handle_errors(view, outcomes).await else {
            return Ok(());
        };
        let now = self.view();
        let layout = &now.geometry_of(unit).layout;
        let kept =
            || refused.iter().all(|refused| kept(&now, layout, refused.slot, &refused.bytes));
        let unfinished = refused.iter().any(|refused| self.is_unfinished(refused.error));
        if unfinished || now.broken || !kept() { Err(first) } else { Ok(()) }
    }

    /// [`handle_write_errors`](Engine::handle_write_errors) for writes of a job, which nobody relies on.
    ///
    /// # Errors
    /// When more members have failed than the level survives.
    pub(crate) async fn handle_job_write_errors(
        self: &Rc<Engine>,
        view: &Rc<View>,
        outcomes: Outcomes,
    ) -> Result<(), IoError> {
        match self.handle_errors(view, outcomes).await {
            Some((_, first)) if self.view().broken => Err(first),
            _ => Ok(()),
        }
    }

    /// Handles the writes that members refused, and gives them with the first error; `None` when there are none.
    async fn handle_errors(
        self: &Rc<Engine>,
        view: &Rc<View>,
        outcomes: Outcomes,
    ) -> Option<(Vec<Refused>, IoError)> {
        let refused = self.take_refused(view, outcomes);
        let first = refused.first()?.error;
        // Boxed: it happens seldom, and would make the task of every write larger.
        Box::pin(self.handle_refused(view, &refused)).await;
        Some((refused, first))
    }

    fn take_refused(&self, view: &View, mut outcomes: Outcomes) -> Vec<Refused> {
        let mut refused = Vec::new();
        while let Some((slot, bytes, outcome)) = outcomes.next_placed() {
            let slot = slot as usize;
            let start = view.member(slot).map_or(0, |(_, data_offset)| data_offset);
            let bytes = bytes.start.saturating_sub(start)..bytes.end.saturating_sub(start);
            match outcome.result {
                Ok(()) => self.good_again(view, slot, bytes),
                // The planted bug goes on with an array that has lost too much.
                Err(error) if error.kind == IoErrorKind::Lost && planted("array-too-degraded") => {}
                Err(error) => refused.push(Refused { slot, bytes, op: outcome.op, error }),
            }
        }
        refused
    }

    async fn handle_refused(self: &Rc<Engine>, view: &Rc<View>, all: &[Refused]) {
        // As in md writes are no reason to fail a write-mostly member fast: it is likely to be slow.
        let fails_fast = |slot| view.failfast(slot) && !view.write_mostly(slot);
        let recordable = |refused: &Refused| {
            refused.error.kind == IoErrorKind::Medium && view.has_log(refused.slot)
        };
        // Before anything is waited for: what these make durable meanwhile counts for nothing.
        for refused in all.iter().filter(|refused| !recordable(refused)) {
            if !fails_fast(refused.slot) && !self.is_unfinished(refused.error) {
                self.suspect_member(refused.slot, view, refused.error);
            }
        }
        for refused in all {
            let Refused { slot, error, .. } = refused;
            if self.is_unfinished(*error) {
                continue;
            }
            if fails_fast(*slot) && self.fail_fast(*slot, view, *error).await {
                continue;
            }
            let bad =
                if recordable(refused) { self.narrow(view, refused).await } else { Err(*error) };
            match bad {
                Ok(bad) => {
                    self.record_bad(*slot, view, bad, *error, true).await;
                }
                Err(error) => self.fail_member(*slot, view, error).await,
            }
        }
    }

    /// True when the member of `slot` has failed for `error`; false when the data depends on it.
    async fn fail_fast(self: &Rc<Engine>, slot: Slot, view: &View, error: IoError) -> bool {
        let Some(nr) = view.member_nr(slot) else { return false };
        self.ask(Question::FailFast(nr, error)).await == Some(true)
    }

    /// True when the member of `slot` has failed because it could not be read, so that it needs no mending.
    async fn failed_for_read_error(
        self: &Rc<Engine>,
        slot: Slot,
        view: &View,
        error: IoError,
    ) -> bool {
        let Some(nr) = view.member_nr(slot) else { return false };
        self.ask(Question::ReadError(nr, error)).await == Some(true)
    }

    /// Writes again in small pieces, and gives those that the member does not take either.
    ///
    /// # Errors
    /// Decides if the errors mean that the member has failed. A durable write (FUA) that succeeds when tried again
    /// means so too: members make writes durable by a flush, and a failed flush is reported only once.
    async fn narrow(
        self: &Rc<Engine>,
        view: &View,
        refused: &Refused,
    ) -> Result<Vec<Range<u64>>, IoError> {
        let Refused { slot, bytes, op, error } = refused;
        let Some((device, data_offset)) = view.member(*slot) else { return Err(*error) };
        let mut bad = Vec::new();
        // One by one: a plug would make one request of them again.
        for piece in pieces(bytes, self.piece()) {
            let (start, len) = (piece.start - bytes.start, piece.end - piece.start);
            let payload = match op {
                Op::Write { bufs, .. } => slice(bufs, start as usize, len as usize),
                Op::WriteZeroes { .. } => {
                    Some([self.scratch.zeroes(len as usize)].into_iter().collect())
                }
                _ => None,
            };
            // A device that does not give the payload back leaves nothing to try again with.
            let Some(bufs) = payload else { return Ok(vec![bytes.clone()]) };
            let request =
                Request { offset: data_offset + piece.start, op: Op::Write { bufs, fua: false } };
            match self.sets.one(&**device, request).await.result {
                Ok(()) => self.good_again(view, *slot, piece),
                Err(error) if error.kind == IoErrorKind::Medium => bad.push(piece),
                Err(error) => return Err(error),
            }
        }
        let durable = matches!(op, Op::Write { fua: true, .. } | Op::WriteZeroes { fua: true, .. });
        if durable && bad.is_empty() {
            return Err(*error);
        }
        // By way of the home shard like every flush; it has failed the member if it did not end well.
        let flushed = if durable { self.flush_members().await } else { None };
        match flushed.and_then(|flushed| flushed.error) {
            Some(error) => Err(error),
            None => Ok(bad),
        }
    }

    /// Bytes of the pieces in which blocks are tried and recorded.
    pub(crate) fn piece(&self) -> u64 {
        PIECE.max(self.info.logical_block.into())
    }

    /// Has control record component bytes as bad on the member of `slot`; comes back when its log says so
    /// and all shards know. When that cannot be, the member fails if `or_fail`. True when they are recorded.
    pub(crate) async fn record_bad(
        self: &Rc<Engine>,
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
        self.ask(Question::RecordBad(nr, bad)).await == Some(true)
    }

    /// Records the blocks that a rebuild of `slot` could not recover as bad there.
    ///
    /// # Errors
    /// [`IoErrorKind::Lost`] when that cannot be: a rebuild without those blocks would be a lie.
    pub(crate) async fn record_lost(
        self: &Rc<Engine>,
        slot: Slot,
        lost: Vec<Range<u64>>,
    ) -> Result<(), IoError> {
        let (view, error) = (self.view(), IoError::new(IoErrorKind::Lost));
        let recorded = self.record_bad(slot, &view, lost, error, false).await;
        if recorded { Ok(()) } else { Err(error) }
    }

    /// Component bytes of the member of `slot` were written: what was bad of them is good. Nobody waits for
    /// the log to say so, as in md: what it lists needlessly is had from the others.
    fn good_again(&self, view: &View, slot: Slot, bytes: Range<u64>) {
        if !view.any_bad() || !view.is_bad(slot, &bytes) {
            return;
        }
        let Some(nr) = view.member_nr(slot) else { return };
        self.home.tell(News::GoodAgain(nr, bytes));
    }

    /// Writes good data over component bytes that gave `error` when they were read. What the member does
    /// not take, or does not give back afterwards, is recorded as bad, or the member has failed (as in md); so
    /// has one with too many read errors, and one that is to fail fast. With `leave` what can be read is left as it
    /// is, as in md; not where it may differ from the other copies, and whoever asked gets those.
    pub(crate) async fn mend(
        self: &Rc<Engine>,
        view: &View,
        place: Place,
        error: IoError,
        good: &[u8],
        leave: bool,
    ) -> Mended {
        let Place { slot, offset } = place;
        if error.means_gone() {
            self.fail_member(slot, view, error).await;
            return Mended::default();
        }
        let Some((device, data_offset)) = view.member(slot) else { return Mended::default() };
        if view.read_only || self.failed_for_read_error(slot, view, error).await {
            return Mended::default();
        }
        let has_log = view.has_log(slot);
        let bytes = offset..offset + good.len() as u64;
        let (mut bad, mut written) = (Vec::new(), Vec::new());
        let mut why = error;
        let all = pieces(&bytes, self.piece());
        let leave = leave && all.len() > 1;
        for piece in all {
            let within = (piece.start - offset) as usize..(piece.end - offset) as usize;
            let len = within.len();
            if leave {
                let buf = self.shard.pool().get(len);
                let read = Request::read(data_offset + piece.start, buf);
                if self.sets.one(&**device, read).await.result.is_ok() {
                    continue;
                }
            }
            let copy = self.shard.pool().copy_of(&good[within]).freeze();
            let write = Request::write(data_offset + piece.start, copy, false);
            let mut result = self.sets.one(&**device, write).await.result;
            if result.is_ok() {
                let again = self.shard.pool().get(len);
                let read = Request::read(data_offset + piece.start, again);
                result = self.sets.one(&**device, read).await.result;
            }
            match result {
                Ok(()) => written.push(piece),
                Err(error) if has_log && error.kind == IoErrorKind::Medium => {
                    why = error;
                    bad.push(piece);
                }
                Err(error) => {
                    self.fail_member(slot, view, error).await;
                    return Mended { written, all: false };
                }
            }
        }
        let all = bad.is_empty();
        if all {
            self.measured.count(|counters| counters.corrected_reads += 1);
        }
        if let Some(nr) = view.member_nr(slot) {
            let corrected: u64 = written.iter().map(|piece| piece.end - piece.start).sum();
            self.home.tell(News::Corrected(nr, (corrected / SECTOR as u64) as u32));
        }
        if !bad.is_empty() {
            self.record_bad(slot, view, bad, why, true).await;
        }
        Mended { written, all }
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
