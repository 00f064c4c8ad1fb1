//! A brick of a mounted volume: its device, its free space, what it is for.

use super::space::Space;
use crate::leases::Taken;
use braid_device::read_ahead::ReadAhead;
use braid_device::write_back::WriteBack;
use braid_device::{Device, IoError, Op, Request};
use braid_format::volume::BLOCK;
use braid_format::volume::brick_record::{BrickRecord, BrickState};
use braid_shard::Shard;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use uuid::Uuid;

/// Reads of which the time of one is a mean.
const READS: u64 = 16;

/// Requests and bytes of a brick since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrickCounts {
    /// Requests of reading.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Requests of writing.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// A brick, from when it is there to its failure. One that is taken back is another object of the same number: whoever has seen
/// the first fail does not take the second for it.
pub struct Brick {
    /// Its number, never used again for another.
    pub id: u16,
    /// Which device it is.
    pub uuid: Uuid,
    /// Its domain: bricks that may be lost together have the same; empty: it has none.
    pub domain: String,
    device: RefCell<Option<Rc<dyn Device>>>,
    /// The same, where it can keep small writes in memory.
    write_back: RefCell<Option<Rc<WriteBack>>>,
    /// That of a device that was detached, as long as it is still at work.
    leaving: RefCell<Weak<WriteBack>>,
    /// Writes under way that are not changes of files: nothing else waits for them.
    mending: Cell<u32>,
    /// First byte of the data area.
    data_offset: u64,
    /// Free space of the data area.
    pub space: Rc<Space>,
    state: Cell<BrickState>,
    weight: Cell<u64>,
    /// Writes that have completed, and how many of them had when the last flush that succeeded was submitted.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// The last of them that no other brick has, too.
    sole: Cell<u64>,
    /// Reads under way, and the time that one takes, about, in nanoseconds.
    reading: Cell<u32>,
    read_nanos: Cell<u64>,
    counts: Cell<BrickCounts>,
    /// Reads by other shards.
    elsewhere: Arc<Taken>,
    failure: RefCell<Option<IoError>>,
    /// The next mount will know of the failure.
    failure_noted: Cell<bool>,
    /// A flush of it has failed: what it gives of what was written before need not be durable, and no later flush makes it so.
    failed_flush: Cell<bool>,
    /// The same of the life before this one.
    gives_what_may_go: Cell<bool>,
}

impl Brick {
    /// With `device` (`None`: it is missing), whose data area begins at byte `data_offset`.
    pub(crate) fn new(
        shard: &Shard,
        id: u16,
        record: &BrickRecord,
        device: Option<Rc<dyn Device>>,
        data_offset: u64,
        space: Rc<Space>,
    ) -> Brick {
        // In memory there is nothing to wait for.
        let waits = device.as_ref().filter(|device| device.may_hang());
        let write_back =
            waits.map(|device| WriteBack::new(shard, ReadAhead::new(shard, Rc::clone(device))));
        let filtered = write_back.clone().map(|filter| filter as Rc<dyn Device>);
        Brick {
            id,
            uuid: record.uuid,
            domain: record.domain.clone(),
            device: RefCell::new(filtered.or(device)),
            write_back: RefCell::new(write_back),
            leaving: RefCell::default(),
            mending: Cell::new(0),
            data_offset,
            space,
            state: Cell::new(record.state),
            weight: Cell::new(record.weight),
            written: Cell::new(0),
            flushed: Cell::new(0),
            sole: Cell::new(0),
            reading: Cell::new(0),
            read_nanos: Cell::new(0),
            counts: Cell::default(),
            elsewhere: Arc::default(),
            failure: RefCell::new(None),
            failure_noted: Cell::new(false),
            failed_flush: Cell::new(false),
            gives_what_may_go: Cell::new(false),
        }
    }

    /// The same brick, which is there again as `device`, whose data area begins at byte `data_offset`. What it has counted goes on.
    pub(super) fn returned(
        &self,
        shard: &Shard,
        device: Rc<dyn Device>,
        data_offset: u64,
    ) -> Brick {
        let space = Rc::clone(&self.space);
        let brick = Brick::new(shard, self.id, &self.record(), Some(device), data_offset, space);
        brick.counts.set(self.counts());
        brick.gives_what_may_go.set(self.failed_flush.get() || self.gives_what_may_go.get());
        brick
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        match &*self.device.borrow() {
            Some(device) => device.info().name.clone(),
            None => format!("brick {} ({})", self.id, self.uuid),
        }
    }

    /// The device, unless it is missing or failed.
    pub fn device(&self) -> Option<Rc<dyn Device>> {
        self.device.borrow().clone()
    }

    /// Takes a write at once, as done, if it can be kept in memory until a flush. False: it is to be submitted.
    pub fn keep(&self, request: &Request) -> bool {
        self.write_back.borrow().as_ref().is_some_and(|filter| filter.keep(request))
    }

    /// True when it is there and has not failed.
    pub fn is_there(&self) -> bool {
        self.device.borrow().is_some()
    }

    /// Its state.
    pub fn state(&self) -> BrickState {
        self.state.get()
    }

    /// Changes what it is for; the caller tells the transaction.
    pub(super) fn set_state(&self, state: BrickState) {
        self.state.set(state);
    }

    /// Its part in placement.
    pub fn weight(&self) -> u64 {
        self.weight.get()
    }

    /// Changes its part in placement; the caller tells the transaction.
    pub(super) fn set_weight(&self, weight: u64) {
        self.weight.set(weight);
    }

    /// New stripes may go here.
    pub fn takes_data(&self) -> bool {
        self.is_there() && matches!(self.state.get(), BrickState::Data | BrickState::Proxy)
    }

    /// It has a part in placement.
    pub fn is_placed(&self) -> bool {
        self.state.get() == BrickState::Data
    }

    /// Its record.
    pub fn record(&self) -> BrickRecord {
        BrickRecord {
            uuid: self.uuid,
            state: self.state.get(),
            weight: self.weight.get(),
            blocks: self.space.blocks(),
            domain: self.domain.clone(),
        }
    }

    /// Where block `block` of the data area lies on the device, in bytes.
    pub fn byte_of(&self, block: u64) -> u64 {
        self.data_offset + block * BLOCK
    }

    /// Counts `request`.
    pub fn note(&self, request: &Request) {
        let mut counts = self.counts.get();
        match &request.op {
            Op::Read(_) => {
                counts.reads += 1;
                counts.bytes_read += request.len();
            }
            Op::Flush => {}
            _ => {
                counts.writes += 1;
                counts.bytes_written += request.len();
            }
        }
        self.counts.set(counts);
    }

    /// Its counts.
    pub fn counts(&self) -> BrickCounts {
        let mut counts = self.counts.get();
        let (reads, bytes) = self.elsewhere.get();
        counts.reads += reads;
        counts.bytes_read += bytes;
        counts
    }

    /// Where other shards count what they read.
    pub fn elsewhere(&self) -> Arc<Taken> {
        Arc::clone(&self.elsewhere)
    }

    /// Something of these bytes of the device is newer in memory than there.
    pub fn holds_back(&self, bytes: &Range<u64>) -> bool {
        self.write_back.borrow().as_ref().is_some_and(|filter| filter.holds_back(bytes))
    }

    /// A write has completed: a flush is needed before it is durable.
    pub(super) fn wrote(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// The last write is nowhere else.
    pub(super) fn wrote_sole(&self) {
        self.sole.set(self.written.get());
    }

    /// It has taken something that is nowhere else, and not made it durable.
    pub(super) fn has_sole(&self) -> bool {
        self.sole.get() > self.flushed.get()
    }

    /// Another brick has lost its copies of what this one has not made durable.
    pub(super) fn is_sole_now(&self) {
        if self.unflushed().is_some() {
            self.wrote_sole();
        }
    }

    /// A read begins.
    pub fn begin_read(&self) {
        self.reading.set(self.reading.get() + 1);
    }

    /// A read has ended, that took so many nanoseconds; `None`: it failed.
    pub fn end_read(&self, nanos: Option<u64>) {
        self.reading.set(self.reading.get().saturating_sub(1));
        if let Some(nanos) = nanos {
            let before = self.read_nanos.get();
            self.read_nanos.set(before - before / READS + nanos / READS);
        }
    }

    /// The time that one more read would take, about, in nanoseconds.
    pub fn read_wait(&self) -> u64 {
        self.read_nanos.get().saturating_mul(u64::from(self.reading.get()) + 1)
    }

    /// Writes that a flush now would make durable; `None` when there are none.
    pub(super) fn unflushed(&self) -> Option<u64> {
        (self.flushed.get() < self.written.get()).then(|| self.written.get())
    }

    /// The first `written` writes are durable.
    pub(super) fn has_flushed(&self, written: u64) -> bool {
        self.flushed.get() >= written
    }

    /// A flush that was submitted after `written` writes has succeeded.
    pub(super) fn flushed(&self, written: u64) {
        self.flushed.set(self.flushed.get().max(written));
    }

    /// A request failed. With `gone` the device is of no use any more: it is detached, and what lies on it cannot be
    /// reached until it is taken back.
    pub(super) fn failed(&self, error: IoError, gone: bool) {
        let mut counts = self.counts.get();
        counts.errors += 1;
        self.counts.set(counts);
        if gone {
            self.failure.borrow_mut().get_or_insert(error);
            self.device.borrow_mut().take();
            if let Some(filter) = self.write_back.borrow_mut().take() {
                *self.leaving.borrow_mut() = Rc::downgrade(&filter);
            }
        }
    }

    /// A flush of it has failed.
    pub(super) fn note_failed_flush(&self) {
        self.failed_flush.set(true);
    }

    /// A flush had failed when it was lost: of what it lost something may still be read, and be gone later. So what is put right is
    /// written also where it is there.
    pub fn gives_what_may_go(&self) -> bool {
        self.gives_what_may_go.get()
    }

    /// It has failed, and nothing is on its way to the device any more but what belongs to changes of files.
    pub(super) fn is_quiet(&self) -> bool {
        !self.is_there() && self.mending.get() == 0 && self.leaving.borrow().strong_count() == 0
    }

    /// A write begins that may be no part of a change of files.
    pub(super) fn begin_write(&self) {
        self.mending.set(self.mending.get() + 1);
    }

    /// It has ended.
    pub(super) fn end_write(&self) {
        self.mending.set(self.mending.get().saturating_sub(1));
    }

    /// Why it was detached.
    pub fn failure(&self) -> Option<IoError> {
        *self.failure.borrow()
    }

    /// It was detached with writes on it that may be missing when it is back, and the next mount would not know.
    pub(super) fn failed_unnoted(&self) -> bool {
        self.failure().is_some() && self.unflushed().is_some() && !self.failure_noted.get()
    }

    /// The next mount will know that it was detached.
    pub(super) fn failure_noted(&self) {
        self.failure_noted.set(true);
    }
}
