//! Writing the bitmap: pages for bits that shards ask for, the header with each update of the
//! superblocks, and the clearing of bits that nobody writes under.
//!
//! Pages go out in batches: what is asked for while a batch is being written goes with the next. The
//! *pen* is the right to write pages; who holds it waits for nothing but the members.
//!
//! Order, as in md: a bit before the data under it; the header before the superblocks that it agrees
//! with; a flush of all members, and `events_cleared`, before the bits that are cleared.

mod growing;

use crate::control::record::Record;
use crate::control::record::bitmap_pages::page_buf;
use crate::control::record::running_bitmap::Bitmap;
use crate::engine::Engine;
use crate::metadata::bitmap::BitmapNr;
use crate::metadata::bitmap::keeper::BatchNr;
use braid_device::{Device, IoError, IoErrorKind, Request};
use braid_format::superblock::Superblock;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

/// The write-intent bitmap of one array, which it may be given or lose while it runs.
pub struct WriteIntent {
    record: Rc<Record>,
}

impl WriteIntent {
    pub(super) fn new(record: &Rc<Record>) -> Rc<WriteIntent> {
        Rc::new(WriteIntent { record: Rc::clone(record) })
    }

    /// An engine wants to write under `bits` of bitmap `nr`: true when they are durable on all members, false when
    /// nothing may be written or there is no such bitmap (any more).
    pub(crate) async fn arm(self: &Rc<Self>, nr: BitmapNr, bits: &[u32]) -> bool {
        let Some(bitmap) = self.record.bitmap().filter(|bitmap| bitmap.nr == nr) else {
            return false;
        };
        if !self.record.may_record() {
            return false;
        }
        let batch = bitmap.keeper.borrow_mut().hold(bits);
        if let Some(batch) = batch {
            // The planted bug forgets the first line of the invariant in `bitmap`.
            if planted("bit-after-data") {
                self.start_writing(&bitmap);
                return true;
            }
            self.written(&bitmap, batch).await;
            self.record.changed.notify_all();
        }
        let recorded = self.record.may_record();
        if !recorded {
            bitmap.keeper.borrow_mut().release(bits);
        }
        recorded
    }

    /// Waits until a batch is durable.
    async fn written(self: &Rc<Self>, bitmap: &Rc<Bitmap>, batch: BatchNr) {
        self.start_writing(bitmap);
        let done = || bitmap.keeper.borrow().is_done(batch).then_some(());
        bitmap.written.wait_for(done).await;
    }

    /// Has what is dirty written, if nobody is at it.
    fn start_writing(self: &Rc<Self>, bitmap: &Rc<Bitmap>) {
        if !bitmap.writing.replace(true) {
            let (intent, bitmap) = (Rc::clone(self), Rc::clone(bitmap));
            self.record.shard.spawn(async move { intent.write_batches(&bitmap).await });
        }
    }

    async fn write_batches(self: &Rc<Self>, bitmap: &Bitmap) {
        loop {
            let pen = bitmap.pen.take(1).await;
            let Some((batch, pages)) = bitmap.keeper.borrow_mut().start_batch() else {
                bitmap.writing.set(false);
                bitmap.written.notify_all();
                return;
            };
            let failures = self.record.write_pages(bitmap, &pages).await;
            bitmap.batches.set(bitmap.batches.get() + 1);
            // A failure is recorded under the turn, whose holder may be waiting for the pen.
            drop(pen);
            for (nr, error) in failures {
                if self.record.is_unfinished(error) {
                    continue;
                }
                let why = format!("its bitmap could not be written: {error}");
                self.record.note_away(nr, error);
                self.record.fail_nr(nr, &why).await;
            }
            bitmap.keeper.borrow_mut().end_batch(batch);
            bitmap.written.notify_all();
        }
    }

    /// Writes the whole bitmap to a member that is about to get a slot, and gives the pen: whoever
    /// gives it the slot does so before it returns the pen, so that the member misses no page.
    pub(crate) async fn give_bitmap(
        &self,
        device: &Rc<dyn Device>,
        superblock: &Superblock,
    ) -> Result<Option<Share>, IoError> {
        let Some(bitmap) = self.record.bitmap() else { return Ok(None) };
        let invalid = IoError::new(IoErrorKind::Invalid);
        let at = bitmap.place(superblock).ok_or(invalid)?;
        let pen = bitmap.pen.take(1).await;
        let block = device.info().logical_block;
        let area: Vec<u8> = {
            let keeper = bitmap.keeper.borrow();
            (0..keeper.pages()).flat_map(|page| keeper.page(page)).collect()
        };
        let request = Request::write(at, page_buf(&self.record.shard, &area, block), true);
        request.check(device.info())?;
        self.record.engine.sets.one(&**device, request).await.result?;
        Ok(Some(pen))
    }

    // --- Clearing ------------------------------------------------------------------------------

    /// Clears bits every `daemon_sleep`, while there are any that may be cleared, until the bitmap is
    /// removed or the array stopped.
    pub(crate) async fn clear_now_and_then(self: Rc<Self>, bitmap: Rc<Bitmap>) {
        let over = || {
            let there = self.record.bitmap().is_some_and(|now| now.nr == bitmap.nr);
            self.record.end.has_begun() || !there
        };
        loop {
            let due = || {
                let set = bitmap.keeper.borrow().count() > 0;
                (over() || (set && self.may_clear())).then_some(())
            };
            self.record.changed.wait_for(due).await;
            self.record.shard.sleep(bitmap.daemon_sleep).await;
            if over() {
                return;
            }
            self.clear_idle_bits(false).await;
        }
    }

    /// While a slot lacks its member, bits say what that member lacks.
    fn may_clear(&self) -> bool {
        self.record.may_record()
            && self.record.roster.borrow().degraded(self.record.geometry().slots()) == 0
    }

    /// One round: shards give up bits without writes, and what nobody holds is cleared. `all`: without
    /// waiting for a second round, and until it is durable.
    pub(crate) async fn clear_idle_bits(self: &Rc<Self>, all: bool) {
        let Some(bitmap) = self.record.bitmap() else { return };
        let _round = bitmap.round.take(1).await;
        if !self.may_clear() {
            return;
        }
        let nr = bitmap.nr;
        let given = self
            .record
            .engines
            .ask(move |engine: &Engine| engine.consistency.give_up_bits(nr, all))
            .await;
        let mut earlier_writes = false;
        for bits in given.into_iter().flatten() {
            earlier_writes |= bits.is_none();
            bitmap.keeper.borrow_mut().release(&bits.unwrap_or_default());
        }
        if earlier_writes {
            return;
        }
        let bits = bitmap.keeper.borrow().clearable();
        if bits.is_empty() {
            return;
        }
        let turn = self.record.turn().await;
        if !planted("bits-cleared-unflushed") {
            self.record.flush_members(&turn, |_| true).await;
        }
        // It may have been removed while this waited for its turn.
        if self.record.bitmap().is_none_or(|now| now.nr != nr) {
            return;
        }
        if !self.may_clear() || !self.raise_events_cleared(&bitmap, &turn).await {
            return;
        }
        bitmap.keeper.borrow_mut().clear(&bits);
        drop(turn);
        self.start_writing(&bitmap);
        if all {
            let idle = || (!bitmap.writing.get()).then_some(());
            bitmap.written.wait_for(idle).await;
        }
    }

    /// Records that a member which saw less than the present event count may lack what bits no longer
    /// say. False when a member could not be told. The caller holds the turn.
    async fn raise_events_cleared(&self, bitmap: &Bitmap, turn: &Share) -> bool {
        if planted("events-cleared-not-raised") {
            return true;
        }
        let events = self.record.roster.borrow().shared.events;
        {
            let mut keeper = bitmap.keeper.borrow_mut();
            if keeper.superblock.events_cleared >= events {
                return true;
            }
            keeper.superblock.events_cleared = events;
        }
        let failures = self.record.write_bitmap_header().await;
        let all_told = failures.is_empty();
        for (nr, error) in failures {
            self.record.note_away(nr, error);
            self.record.drop_member(nr, &format!("its bitmap could not be written: {error}"));
        }
        if !all_told {
            self.record.record_dropped(turn).await;
        }
        all_told
    }

    /// A resync has made redundancy hold below byte `bytes`, durably.
    pub(crate) fn synced_below(&self, bytes: u64) {
        if let Some(bitmap) = self.record.bitmap() {
            bitmap.keeper.borrow_mut().synced_below(bytes);
        }
    }
}
