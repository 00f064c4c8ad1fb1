//! Requests in flight of one connection, from admission until their reply has been sent.
//!
//! Owns the bound on how many requests a client may have outstanding, the outcomes that wait for the writer,
//! and the writer: every outcome that is there goes out in one vectored send.
//! Does not know where requests come from. Invariant: an admitted request holds its slot until its
//! reply has left or the connection is dead, so memory is bounded even if the client never reads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use braid_device::{
    BufMuts, Completion, Device, IoError, IoErrorKind, Op, Outcome, Request as DeviceRequest, Sink,
};
use braid_export::gate::Pass;
use braid_export::memory::{Account, Way};
use braid_export::stream::{Outgoing, Stream};
use braid_export::unaligned::PIECE;
use braid_export::{Figures, Hold};
use braid_shard::Shard;
use braid_shard::sync::Notify;

use super::exports::error_code;
use crate::protocol::{Asked, Command, ErrorCode, Headers, Refusal, ReplyEncoder, Request};

/// Requests in flight per connection; further ones stay in the socket.
const REQUESTS_MAX: usize = 128;
/// Payload bytes of finished reads above which no further request is taken until they have been
/// sent: what was read last should still be in the cache when it goes out.
const UNSENT_BYTES_MAX: u64 = 512 << 10;
/// Payload bytes of one send; with them, buffers come back while a long batch goes on.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Names an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u32);

#[derive(Debug, Clone, Copy)]
struct Slot {
    request: Request,
    bytes: u64,
    /// It changes content, and the device has it.
    writing: bool,
    /// The write is done, and a flush that makes it durable is on its way.
    flushing: bool,
    /// It gets no answer here.
    abandoned: bool,
}

#[derive(Debug)]
enum Answer {
    /// The device is done; a read's data, if it gave any.
    Outcome(Result<(), IoError>, BufMuts),
    Refused(ErrorCode, &'static str),
    /// Of a block status request.
    Extents(Vec<(u64, u32)>),
}

/// The state shared by a connection's reader, its writer and its device's completions.
pub(super) struct Replies {
    encoder: ReplyEncoder,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<Token>>,
    ready: RefCell<VecDeque<(Token, Answer)>>,
    in_flight: Cell<usize>,
    account: Rc<Account>,
    pass: Rc<Pass>,
    figures: Arc<Figures>,
    unsent: Cell<u64>,
    /// Nothing is admitted for the moment.
    held: Cell<bool>,
    /// The server stops.
    stopping: Cell<bool>,
    /// A successor goes on with the client.
    leaving: Cell<bool>,
    /// Nothing further will be admitted.
    closing: Cell<bool>,
    /// Nothing can be sent any more.
    dead: Cell<bool>,
    /// The client has gone without a goodbye.
    gone: Cell<bool>,
    to_write: Notify,
    room: Notify,
}

impl Replies {
    pub fn new(
        shard: &Shard,
        headers: Headers,
        account: Rc<Account>,
        pass: Rc<Pass>,
        figures: Arc<Figures>,
    ) -> Rc<Replies> {
        Rc::new(Replies {
            encoder: ReplyEncoder::new(headers),
            slots: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            ready: RefCell::new(VecDeque::new()),
            in_flight: Cell::new(0),
            account,
            pass,
            figures,
            unsent: Cell::new(0),
            held: Cell::new(false),
            stopping: Cell::new(false),
            leaving: Cell::new(false),
            closing: Cell::new(false),
            dead: Cell::new(false),
            gone: Cell::new(false),
            to_write: Notify::new(shard),
            room: Notify::new(shard),
        })
    }

    /// Waits until `request` may be taken, and counts it in; `None` when the server stops or the client leaves it.
    /// `ragged`: it does not fit the device's blocks.
    pub async fn admit(&self, request: Request, ragged: bool) -> Option<Token> {
        let payload = match request.command {
            // Both fit: the rules allow no more payload than the largest, which has 32 bits.
            Command::Read | Command::Write => Account::size_of(request.length as u32),
            Command::Cache => Account::size_of(request.length.min(PIECE) as u32),
            _ => 0,
        };
        let bytes = payload + if ragged { PIECE } else { 0 };
        let admitted = || match self.stopping.get() || self.leaving.get() {
            true => Some(false),
            false => self.has_room(bytes).then_some(true),
        };
        loop {
            if !self.room.wait_for(admitted).await {
                return None;
            }
            self.account.take(bytes).await;
            // It may have been held while it waited for memory.
            if !self.held.get() && !self.stopping.get() && !self.leaving.get() {
                break;
            }
            self.account.give(bytes);
        }
        self.figures.began();
        self.in_flight.set(self.in_flight.get() + 1);
        let slot = Slot { request, bytes, writing: false, flushing: false, abandoned: false };
        let mut slots = self.slots.borrow_mut();
        let token = match self.free.borrow_mut().pop() {
            Some(token) => {
                if let Some(place) = slots.get_mut(token.0 as usize) {
                    *place = slot;
                }
                token
            }
            None => {
                slots.push(slot);
                // At most REQUESTS_MAX slots exist, so the index fits.
                Token(slots.len() as u32 - 1)
            }
        };
        Some(token)
    }

    fn has_room(&self, bytes: u64) -> bool {
        let fits = self.in_flight.get() < REQUESTS_MAX
            && self.account.allows(bytes)
            && self.unsent.get() <= UNSENT_BYTES_MAX;
        // One request alone is always taken.
        !self.held.get() && (fits || self.in_flight.get() == 0)
    }

    /// It takes requests, for the moment or longer.
    pub fn takes_requests(&self) -> bool {
        !(self.held.get() || self.stopping.get() || self.closing.get() || self.dead.get())
    }

    /// Nobody waits for the answers of long requests any more: the client has gone, or the server stops.
    pub fn gives_up(&self) -> bool {
        self.gone.get() || self.dead.get() || self.stopping.get()
    }

    /// The client has gone without a goodbye.
    pub fn client_gone(&self) {
        self.gone.set(true);
    }

    /// The obligation to complete an admitted request.
    pub fn completion(self: &Rc<Self>, token: Token) -> Completion {
        Completion::new(Rc::clone(self) as Rc<dyn Sink>, u64::from(token.0))
    }

    /// Takes no further request: a successor goes on with the client.
    pub fn leave(&self) {
        self.leaving.set(true);
        self.room.notify_all();
    }

    /// A successor goes on with the client.
    pub fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// An admitted request is to get no answer here when it ends.
    pub fn abandon(&self, token: Token) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(token.0 as usize) {
            slot.abandoned = true;
        }
    }

    /// Answers an admitted request with an error.
    pub fn refuse(&self, token: Token, refusal: Refusal) {
        self.answer(token, Answer::Refused(refusal.code, refusal.message));
    }

    /// Answers an admitted block status request, with the lengths and states of extents.
    pub fn extents(&self, token: Token, extents: Vec<(u64, u32)>) {
        self.answer(token, Answer::Extents(extents));
    }

    /// Waits until an admitted request that changes content may go to the device, and notes that it does.
    pub async fn begin_write(&self, token: Token) {
        self.pass.write().await;
        if let Some(slot) = self.slots.borrow_mut().get_mut(token.0 as usize) {
            slot.writing = true;
        }
    }

    fn answer(&self, token: Token, answer: Answer) {
        let read = self.slot(token).filter(|slot| slot.request.command == Command::Read);
        self.unsent.set(self.unsent.get() + read.map_or(0, |slot| slot.request.length));
        self.ready.borrow_mut().push_back((token, answer));
        self.to_write.notify_all();
    }

    fn slot(&self, token: Token) -> Option<Slot> {
        self.slots.borrow().get(token.0 as usize).copied()
    }

    /// No further request will be admitted: the writer ends after the last reply.
    pub fn close(&self) {
        self.closing.set(true);
        self.to_write.notify_all();
    }

    /// Waits until the writer has ended.
    pub async fn finished(&self) {
        self.room.wait_for(|| self.is_finished().then_some(())).await;
    }

    fn is_finished(&self) -> bool {
        self.closing.get() && self.in_flight.get() == 0
    }

    /// The writer: sends replies until [`close`](Self::close) and the last of them. When sending
    /// fails it shuts the socket down, so that the reader ends too, and drops what follows.
    pub async fn write(self: Rc<Self>, stream: Rc<Stream>, device: Rc<dyn Device>) {
        let mut out = Outgoing::new();
        let mut sent = Vec::with_capacity(REQUESTS_MAX);
        loop {
            self.to_write
                .wait_for(|| (!self.ready.borrow().is_empty() || self.is_finished()).then_some(()))
                .await;
            if self.ready.borrow().is_empty() {
                // Finished: the reader may be waiting for that.
                self.room.notify_all();
                return;
            }
            self.collect(&device, &mut out, &mut sent);
            if self.dead.get() {
                out.clear();
            } else if !out.is_empty() {
                self.account.begin(Way::Out, out.payload_bytes() as u64);
                if out.send(&stream).await.is_err() {
                    self.dead.set(true);
                    out.clear();
                    stream.shutdown();
                }
                self.account.done(Way::Out);
            }
            self.release(&mut sent);
        }
    }

    /// Encodes replies that are ready, as many as one send should carry.
    fn collect(
        self: &Rc<Self>,
        device: &Rc<dyn Device>,
        out: &mut Outgoing,
        sent: &mut Vec<Token>,
    ) {
        while out.has_room(1) && out.payload_bytes() < BATCH_BYTES_MAX {
            let Some((token, answer)) = self.ready.borrow_mut().pop_front() else { return };
            let Some(slot) = self.slot(token) else { continue };
            if wants_flush(&slot, &answer) {
                if let Some(slot) = self.slots.borrow_mut().get_mut(token.0 as usize) {
                    slot.flushing = true;
                }
                device.submit(DeviceRequest::flush(), self.completion(token));
                continue;
            }
            if slot.abandoned {
                self.figures.ended(0, 0, false);
            } else {
                self.count(&slot.request, &answer);
                self.encode(&slot.request, answer, out);
            }
            sent.push(token);
        }
    }

    fn count(&self, request: &Request, answer: &Answer) {
        let length = request.length;
        let failed = match answer {
            Answer::Outcome(Err(error), _) => {
                request.command != Command::Trim || error.kind != IoErrorKind::Unsupported
            }
            Answer::Refused(..) => true,
            Answer::Outcome(Ok(()), _) | Answer::Extents(_) => false,
        };
        let moved = |command| if request.command == command && !failed { length } else { 0 };
        self.figures.ended(moved(Command::Read), moved(Command::Write), failed);
    }

    fn encode(&self, request: &Request, answer: Answer, out: &mut Outgoing) {
        let Request { cookie, offset, length, .. } = *request;
        let (encoder, asked) = (self.encoder, Asked { cookie, offset });
        match answer {
            Answer::Refused(code, message) => encoder.error(asked, code, message, out.heads()),
            Answer::Extents(extents) => encoder.extents(asked, &extents, out.heads()),
            // A discard is a hint: nothing is lost when the device cannot do it.
            Answer::Outcome(Err(IoError { kind: IoErrorKind::Unsupported, .. }), _)
                if request.command == Command::Trim =>
            {
                encoder.done(asked, out.heads());
            }
            Answer::Outcome(Err(error), _) => {
                let message = error.to_string();
                encoder.error(asked, error_code(error.kind), &message, out.heads());
            }
            Answer::Outcome(Ok(()), bufs) if request.command == Command::Read => {
                let filled: usize = bufs.iter().map(|buf| buf.len()).sum();
                if filled as u64 != length || !out.has_room(bufs.len()) {
                    let message = "the device gave back another read than was asked for";
                    encoder.error(asked, ErrorCode::Io, message, out.heads());
                    return;
                }
                // It fits: see `admit`.
                encoder.read(asked, length as u32, out.heads());
                for buf in bufs {
                    out.data(buf.freeze());
                }
            }
            Answer::Outcome(Ok(()), _) => encoder.done(asked, out.heads()),
        }
    }

    fn release(&self, sent: &mut Vec<Token>) {
        for token in sent.drain(..) {
            if let Some(slot) = self.slot(token) {
                self.account.give(slot.bytes);
                if slot.request.command == Command::Read {
                    self.unsent.set(self.unsent.get() - slot.request.length);
                }
            }
            self.in_flight.set(self.in_flight.get() - 1);
            self.free.borrow_mut().push(token);
        }
        self.room.notify_all();
    }
}

/// True if the reply must wait for a flush: a discard has no durable form of its own.
fn wants_flush(slot: &Slot, answer: &Answer) -> bool {
    let done = matches!(answer, Answer::Outcome(Ok(()), _));
    done && slot.request.command == Command::Trim && slot.request.fua() && !slot.flushing
}

impl Hold for Replies {
    /// Counts requests whose reply has not left.
    fn hold(&self, held: bool) -> u64 {
        self.held.set(held);
        if !held {
            self.room.notify_all();
        }
        self.in_flight.get() as u64
    }

    fn stop(&self) {
        self.stopping.set(true);
        self.room.notify_all();
    }
}

impl Sink for Replies {
    fn complete(&self, token: u64, outcome: Outcome) {
        let Outcome { result, op } = outcome;
        // A write's payload is let go of here: the next request gets its buffer while it is hot.
        let bufs = if let Op::Read(bufs) = op { bufs } else { BufMuts::new() };
        let writing = |slot: &mut Slot| std::mem::take(&mut slot.writing);
        if self.slots.borrow_mut().get_mut(token as usize).is_some_and(writing) {
            self.pass.wrote();
        }
        self.answer(Token(token as u32), Answer::Outcome(result, bufs));
    }
}
