//! A device whose connection may be lost and made anew, where nothing can have been lost with it.
//!
//! It lies over clients that are dead when their connection ends. Another is made only when no write and no flush was
//! under way on the dead one, and all that it had acknowledged was flushed; and it is used only when the export's first
//! block is as it was last read or written here, so that it is the same export and nobody else has written to it. Requests
//! that come meanwhile wait, for [`PATIENCE`] at most. In every other case what is lost stays lost.
//!
//! A user that was told that the device is gone may have released it, and would flush it no more. After that a
//! read, or a write that
//! is durable when it ends, still has one try each; writes that need a flush fail until one of those has found the export.
//!
//! A server without flush is never connected to anew after a write: nobody can tell what it still has. Does not know what
//! is in the first block.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, Outcome, Request, Sink,
};
use braid_shard::Shard;
use slab::Slab;

/// Nanoseconds that a request waits for a connection.
pub(crate) const PATIENCE: u64 = 10_000_000_000;
/// Nanoseconds between two tries, at first and at most.
const TRY_FIRST: u64 = 50_000_000;
const TRY_MOST: u64 = 1_000_000_000;
/// Bytes by which an export is known again.
const FIRST_BLOCK: usize = 4096;

/// A device over one connection, and whether that has ended.
pub(crate) trait Connected: Device {
    /// It has ended: every request fails from now on.
    fn is_gone(&self) -> bool;
}

/// Makes a device over a connection that its first request makes.
type Connect = Box<dyn Fn() -> Rc<dyn Connected>>;

/// See the module's documentation.
pub(crate) struct Returning {
    info: DeviceInfo,
    inner: Rc<Inner>,
}

/// The meaning of a request for what may be lost, once it has ended.
enum Meaning {
    /// Of all of the first block, or not.
    Read { whole: bool },
    /// Of the first block: what it holds afterwards. Durable at its end, or not.
    Write { first: Option<Option<Vec<u8>>>, durable: bool },
    /// With the writes that had ended when it was submitted.
    Flush { written: u64 },
}

struct Pending {
    done: Completion,
    meaning: Meaning,
}

struct Inner {
    shard: Shard,
    sets: IoSets,
    connect: Connect,
    /// The connection that is used, or was last.
    now: RefCell<Rc<dyn Connected>>,
    pending: RefCell<Slab<Pending>>,
    /// Requests that wait for a connection, while one is being made.
    waiting: RefCell<Option<Vec<(Request, Completion)>>>,
    /// The first block, as it was last read or written.
    first: RefCell<Option<Vec<u8>>>,
    has_flush: bool,
    /// Writes that have ended, and how many of them are durable.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// Nobody was there for so long that requests have failed, and that the next ones do not wait.
    given_up: Cell<bool>,
    /// Something may be lost: no other connection is made.
    lost: Cell<bool>,
}

impl Returning {
    /// Over what `connect` makes.
    pub fn new(shard: &Shard, connect: impl Fn() -> Rc<dyn Connected> + 'static) -> Returning {
        let now = connect();
        let info = now.info().clone();
        let inner = Inner {
            shard: shard.clone(),
            sets: IoSets::new(shard),
            connect: Box::new(connect),
            now: RefCell::new(now),
            pending: RefCell::default(),
            waiting: RefCell::default(),
            first: RefCell::default(),
            has_flush: info.volatile_cache,
            written: Cell::new(0),
            flushed: Cell::new(0),
            given_up: Cell::new(false),
            lost: Cell::new(false),
        };
        Returning { info, inner: Rc::new(inner) }
    }
}

impl Device for Returning {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let inner = &self.inner;
        if let Some(waiting) = &mut *inner.waiting.borrow_mut() {
            waiting.push((request, done));
            return;
        }
        let now = Rc::clone(&inner.now.borrow());
        if !now.is_gone() {
            return inner.hand_on(&*now, request, done);
        }
        if !inner.may_return() {
            if !inner.lost.replace(true) && inner.first.borrow().is_some() {
                tracing::error!(
                    brick = %self.info.name,
                    "the connection was lost, and writes may be lost with it: it is not made anew before the next mount"
                );
            }
        } else if !inner.given_up.get() || inner.leaves_nothing(&request.op) {
            return inner.wait(request, done);
        }
        done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
    }
}

impl Inner {
    /// Nothing that was written can be lost, and the export would be known again.
    fn may_return(&self) -> bool {
        let pending = self.pending.borrow();
        let reads_only = pending.iter().all(|(_, one)| matches!(one.meaning, Meaning::Read { .. }));
        !self.lost.get()
            && reads_only
            && self.flushed.get() == self.written.get()
            && self.first.borrow().is_some()
    }

    /// Nothing has to be flushed when it has ended.
    fn leaves_nothing(&self, op: &Op) -> bool {
        match op {
            Op::Read(_) => true,
            Op::Write { fua, .. } | Op::WriteZeroes { fua, .. } => *fua && self.has_flush,
            Op::Flush | Op::Discard { .. } => false,
        }
    }

    fn hand_on(self: &Rc<Self>, device: &dyn Device, request: Request, done: Completion) {
        let meaning = self.meaning_of(&request);
        let token = self.pending.borrow_mut().insert(Pending { done, meaning });
        let sink = Rc::clone(self) as Rc<dyn Sink>;
        device.submit(request, Completion::new(sink, token as u64));
    }

    fn meaning_of(&self, request: &Request) -> Meaning {
        let starts = request.offset < FIRST_BLOCK as u64;
        let durable = self.leaves_nothing(&request.op);
        match &request.op {
            Op::Read(bufs) => {
                let len: usize = bufs.iter().map(|buf| buf.len()).sum();
                let whole = request.offset == 0 && len >= FIRST_BLOCK;
                Meaning::Read { whole }
            }
            Op::Write { bufs, .. } => {
                let first = starts.then(|| {
                    let mut bytes = Vec::with_capacity(FIRST_BLOCK);
                    for buf in bufs {
                        let left = FIRST_BLOCK - bytes.len();
                        bytes.extend_from_slice(&buf[..buf.len().min(left)]);
                    }
                    (request.offset == 0 && bytes.len() == FIRST_BLOCK).then_some(bytes)
                });
                Meaning::Write { first, durable }
            }
            Op::Discard { .. } | Op::WriteZeroes { .. } => {
                Meaning::Write { first: starts.then_some(None), durable }
            }
            Op::Flush => Meaning::Flush { written: self.written.get() },
        }
    }

    /// Keeps a request until there is a connection, and has one made if nobody is at it.
    fn wait(self: &Rc<Self>, request: Request, done: Completion) {
        let mut waiting = self.waiting.borrow_mut();
        let begins = waiting.is_none();
        waiting.get_or_insert_with(Vec::new).push((request, done));
        drop(waiting);
        if begins {
            let own = Rc::clone(self);
            self.shard.spawn(async move { own.come_back().await });
        }
    }

    /// Makes a connection and hands on what waits; or gives up, and it fails.
    async fn come_back(self: Rc<Self>) {
        let patience = if self.given_up.get() { 0 } else { PATIENCE };
        let until = self.shard.now().saturating_add(patience);
        let mut pause = TRY_FIRST;
        let found = loop {
            // Requests that were under way when the connection ended may have shown by now that something is lost.
            if !self.may_return() {
                break None;
            }
            let device = (self.connect)();
            match self.first_block(&*device).await {
                Ok(block) if Some(&block) == self.first.borrow().as_ref() => break Some(device),
                Ok(_) => {
                    tracing::error!(
                        brick = %device.info().name,
                        "the connection was lost, and what is there now is not what was there: it is not used before the next mount"
                    );
                    self.lost.set(true);
                    break None;
                }
                Err(_) if self.shard.now() < until => {
                    self.shard.sleep(pause).await;
                    pause = (pause * 2).min(TRY_MOST);
                }
                Err(_) => break None,
            }
        };
        self.given_up.set(found.is_none());
        let waiting = self.waiting.borrow_mut().take().unwrap_or_default();
        let Some(device) = found.filter(|_| self.may_return()) else {
            for (request, done) in waiting {
                done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
            }
            return;
        };
        tracing::warn!(brick = %device.info().name, "its connection was lost and is there again");
        *self.now.borrow_mut() = Rc::clone(&device);
        for (request, done) in waiting {
            self.hand_on(&*device, request, done);
        }
    }

    async fn first_block(&self, device: &dyn Device) -> Result<Vec<u8>, IoError> {
        let request = Request::read(0, self.shard.pool().get(FIRST_BLOCK));
        let outcome = self.sets.one(device, request).await;
        outcome.result?;
        match outcome.op {
            Op::Read(bufs) => Ok(bufs.iter().flat_map(|buf| buf.to_vec()).collect()),
            _ => Err(IoError::new(IoErrorKind::Invalid)),
        }
    }

    fn note(&self, meaning: &Meaning, outcome: &Outcome) {
        let ended_well = outcome.result.is_ok();
        match meaning {
            Meaning::Read { whole } => {
                if let (true, true, Op::Read(bufs)) = (*whole, ended_well, &outcome.op) {
                    let bytes = bufs.iter().flat_map(|buf| buf.to_vec());
                    *self.first.borrow_mut() = Some(bytes.take(FIRST_BLOCK).collect());
                }
            }
            Meaning::Write { first, durable } => {
                if let Some(first) = first {
                    *self.first.borrow_mut() = first.clone().filter(|_| ended_well);
                }
                if !durable {
                    self.written.set(self.written.get() + 1);
                }
                if outcome.result.is_err_and(|error| error.means_gone()) {
                    // The server may do it yet.
                    self.lost.set(true);
                }
            }
            Meaning::Flush { written } if ended_well && self.has_flush => {
                self.flushed.set(self.flushed.get().max(*written));
            }
            Meaning::Flush { .. } => {
                // No later flush brings back the writes that a failed one has lost.
                self.lost.set(self.lost.get() || !ended_well);
            }
        }
    }
}

impl Sink for Inner {
    fn complete(&self, token: u64, outcome: Outcome) {
        let pending = self.pending.borrow_mut().try_remove(token as usize);
        // Each request completes once.
        let Some(Pending { done, meaning }) = pending else { return };
        self.note(&meaning, &outcome);
        done.complete(outcome);
    }
}

#[cfg(test)]
#[path = "returning_tests.rs"]
mod tests;
