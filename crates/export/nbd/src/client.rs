//! An NBD client that is a [`Device`]: the same load or engine runs over it as over a local disk.
//!
//! Owns one connection: batching of requests, matching of replies, buffers received in place. How it is made is
//! `dial`'s; it is made at once ([`Client::connect`]) or with the first request ([`Client::when_needed`]), and once: what
//! is lost stays lost, and whoever wants another connection makes another client. Does not know what it is used for. Invariant: every request completes exactly once, with
//! [`IoErrorKind::Gone`] when the connection ends first.
//!
//! Limits: one request carries at most the server's maximum block size of data (32 MiB with
//! braid's server), and at most 4 GiB of zeroes or discards, unless headers are extended; longer ones
//! fail as invalid. The caller bounds how many requests are in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_device::{
    BufMuts, Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, Request as DeviceRequest,
};
use braid_export::stream::{Outgoing, Receiver, Stream};
use braid_shard::sync::Notify;
use braid_shard::{Nanos, Shard};
use slab::Slab;

use crate::Address;
use crate::NbdUri;
use crate::coverage::Coverage;
use crate::dial::{Callee, Dialled};
use crate::protocol::constants::{CMD_FLAG_FUA, CMD_FLAG_NO_HOLE, EXTENDED_CHUNK_BYTES};
use crate::protocol::{
    ClientOptions, Command, ErrorCode, Features, Headers, ReplyDecoder, ReplyEvent, ReplyViolation,
    Request, ServerOffer,
};
use crate::uri::ExportUri;

pub use crate::dial::{ANSWER_WITHIN, ConnectError};

/// The first reply has to come within so many nanoseconds: a disk behind the server may have to spin up.
const FIRST_REPLY_WITHIN: Nanos = 30_000_000_000;
/// Nanoseconds between two looks whether it has.
const LOOK_EVERY: Nanos = 1_000_000_000;

/// Payload bytes of one send.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A connection to one export.
pub struct Client {
    info: DeviceInfo,
    offer: ServerOffer,
    state: Rc<State>,
    shard: Shard,
    /// Whom the first request connects to.
    callee: Cell<Option<Callee>>,
}

struct Pending {
    done: Option<Completion>,
    offset: u64,
    op: Option<Op>,
    /// The parts of a read that have come, or are being received.
    come: Coverage,
    /// The error that a chunk of its reply has reported.
    error: Option<IoError>,
}

struct State {
    pending: RefCell<Slab<Pending>>,
    unsent: RefCell<VecDeque<usize>>,
    to_send: Notify,
    features: Features,
    maximum: u64,
    /// Those of the connection: other than those of the offer when it is another server that is found there.
    headers: Cell<Headers>,
    /// The client was dropped: say goodbye when everything has been sent.
    leaving: Cell<bool>,
    /// The connection is of no further use.
    gone: Cell<bool>,
    /// A reply has come.
    answered: Cell<bool>,
    /// Set when it is lost, and when another that shares it is: then it is lost, too.
    fate: Arc<AtomicBool>,
}

impl Client {
    /// Connects to `address` and enters the export that `options` name. Waits without blocking the shard, for
    /// [`ANSWER_WITHIN`] at most.
    ///
    /// # Errors
    /// Nobody listens or answers, the server refuses, or it is no NBD server.
    pub async fn connect(
        shard: &Shard,
        address: &Address,
        options: ClientOptions,
    ) -> Result<Rc<Client>, ConnectError> {
        let callee = Callee::Address(address.clone(), options);
        let dialled = callee.dial_from(shard).await?;
        let name = dialled.address.uri(&dialled.offer.export.name);
        let client = Client::new(shard, name, dialled.offer.clone(), None, Arc::default());
        client.state.begin(shard, dialled)?;
        Ok(client)
    }

    /// The export at `uri`, which has offered `offer` before. The first request connects; it, and all others, fail with
    /// [`IoErrorKind::Gone`] when that cannot be done within [`ANSWER_WITHIN`], or something else is offered by then.
    #[must_use]
    pub fn when_needed(shard: &Shard, uri: &ExportUri, offer: ServerOffer) -> Rc<Client> {
        Client::sharing(shard, uri, offer, Arc::default())
    }

    /// The same; it shares its `fate` with others, on whatever shards: when one of them is lost, which sets it, all are, and none
    /// that is made later connects.
    #[must_use]
    pub fn sharing(
        shard: &Shard,
        uri: &ExportUri,
        offer: ServerOffer,
        fate: Arc<AtomicBool>,
    ) -> Rc<Client> {
        Client::new(shard, uri.to_string(), offer, Some(Callee::Uri(uri.clone())), fate)
    }

    fn new(
        shard: &Shard,
        name: String,
        offer: ServerOffer,
        callee: Option<Callee>,
        fate: Arc<AtomicBool>,
    ) -> Rc<Client> {
        let state = Rc::new(State {
            pending: RefCell::new(Slab::new()),
            unsent: RefCell::new(VecDeque::new()),
            to_send: Notify::new(shard),
            features: offer.export.features,
            maximum: u64::from(offer.export.block.maximum),
            headers: Cell::new(offer.headers),
            leaving: Cell::new(false),
            gone: Cell::new(false),
            answered: Cell::new(false),
            fate,
        });
        let (info, shard) = (info_of(name, &offer), shard.clone());
        Rc::new(Client { info, offer, state, shard, callee: Cell::new(callee) })
    }

    /// The server's offer.
    #[must_use]
    pub fn offer(&self) -> &ServerOffer {
        &self.offer
    }

    /// True if the connection has ended, or could not be made: every request fails from now on.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state.is_gone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.state.leaving.set(true);
        self.state.to_send.notify_all();
    }
}

impl Device for Client {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: DeviceRequest, done: Completion) {
        if self.state.is_gone() {
            done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
            return;
        }
        if let Err(kind) = self.state.admissible(&request) {
            done.finish(Err(IoError::new(kind)), request.op);
            return;
        }
        let DeviceRequest { offset, op } = request;
        let pending = Pending {
            done: Some(done),
            offset,
            op: Some(op),
            come: Coverage::default(),
            error: None,
        };
        let key = self.state.pending.borrow_mut().insert(pending);
        self.state.unsent.borrow_mut().push_back(key);
        self.state.to_send.notify_all();
        if let Some(callee) = self.callee.take() {
            let (state, shard) = (Rc::clone(&self.state), self.shard.clone());
            self.shard.spawn(state.call(shard, callee, self.offer.clone()));
        }
    }
}

fn info_of(name: String, offer: &ServerOffer) -> DeviceInfo {
    let export = &offer.export;
    DeviceInfo {
        logical_block: export.block.minimum,
        physical_block: export.block.preferred,
        discards: export.features.trim,
        writes_zeroes: export.features.write_zeroes,
        volatile_cache: export.features.flush,
        rotational: export.features.rotational,
        ..DeviceInfo::plain(name, export.size)
    }
}

impl State {
    /// Connects, and sends what has come meanwhile.
    async fn call(self: Rc<Self>, shard: Shard, callee: Callee, offer: ServerOffer) {
        let begun = match callee.dial_from(&shard).await {
            Ok(dialled) if is_same(&dialled.offer, &offer) => self.begin(&shard, dialled),
            Ok(dialled) => Err(ConnectError::Changed(dialled.address)),
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            tracing::warn!("{error}");
            self.lose();
        }
    }

    fn begin(self: &Rc<Self>, shard: &Shard, dialled: Dialled) -> Result<(), ConnectError> {
        let stream = Stream::new(shard, dialled.fd).ok_or(ConnectError::NoRing(shard.id()))?;
        let stream = Rc::new(stream);
        self.headers.set(dialled.offer.headers);
        if let Some(secure) = dialled.secure {
            stream.go_on_with(secure);
        }
        // The longest head before data: a chunk's header and its offset.
        let receiver = Receiver::new(&stream, EXTENDED_CHUNK_BYTES + 8);
        shard.spawn(Rc::clone(self).send(Rc::clone(&stream)));
        shard.spawn(Rc::clone(self).receive(Rc::clone(&stream), receiver));
        shard.spawn(Rc::clone(self).expect_reply(shard.clone(), stream));
        Ok(())
    }

    /// Loses the connection when the first reply does not come: nobody else may watch what is asked before an array runs.
    async fn expect_reply(self: Rc<Self>, shard: Shard, stream: Rc<Stream>) {
        let mut asked = None;
        while !self.answered.get() && !self.gone.get() && !self.leaving.get() {
            let now = shard.now();
            match self.pending.borrow().is_empty() {
                true => asked = None,
                false if now - *asked.get_or_insert(now) < FIRST_REPLY_WITHIN => {}
                false => break,
            }
            shard.sleep(LOOK_EVERY).await;
        }
        if asked.is_some_and(|asked| shard.now() - asked >= FIRST_REPLY_WITHIN)
            && !self.answered.get()
        {
            tracing::warn!("an NBD server does not answer: its connection is ended");
            stream.shutdown();
            self.lose();
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.get() || self.fate.load(Ordering::Acquire)
    }

    /// The connection is of no further use: what is under way ends.
    fn lose(&self) {
        self.gone.set(true);
        if !self.leaving.get() {
            self.fate.store(true, Ordering::Release);
        }
        self.to_send.notify_all();
        let mut pending = std::mem::take(&mut *self.pending.borrow_mut());
        for request in pending.drain() {
            finish(request, Err(IoError::new(IoErrorKind::Gone)));
        }
    }

    /// True if the server takes such a request.
    fn admissible(&self, request: &DeviceRequest) -> Result<(), IoErrorKind> {
        let features = self.features;
        let cleared = longest_cleared(self.headers.get());
        let (offered, durable, maximum) = match &request.op {
            Op::Read(_) => (true, false, self.maximum),
            Op::Write { fua, .. } => (!features.read_only, *fua, self.maximum),
            Op::Flush => (features.flush, false, 0),
            Op::Discard { .. } => (features.trim, false, cleared),
            Op::WriteZeroes { fua, .. } => (features.write_zeroes, *fua, cleared),
        };
        if !offered || (durable && !features.fua) {
            return Err(IoErrorKind::Unsupported);
        }
        if request.len() > maximum {
            return Err(IoErrorKind::Invalid);
        }
        Ok(())
    }

    async fn send(self: Rc<Self>, stream: Rc<Stream>) {
        let mut out = Outgoing::new();
        loop {
            let something = || {
                let stop = self.leaving.get() || self.gone.get();
                (stop || !self.unsent.borrow().is_empty()).then_some(())
            };
            self.to_send.wait_for(something).await;
            self.collect(&mut out);
            if self.gone.get() {
                return;
            }
            let goodbye = out.is_empty() && self.leaving.get();
            if goodbye {
                Request::put_disconnect(self.headers.get(), out.heads());
            }
            if !out.is_empty() && out.send(&stream).await.is_err() {
                // The receiving task sees the end and completes what is pending.
                stream.shutdown();
                return;
            }
            if goodbye {
                if self.pending.borrow().is_empty() {
                    // A server that is stuck would else keep the connection, and with it the receiving task.
                    stream.shutdown();
                }
                return;
            }
        }
    }

    fn collect(&self, out: &mut Outgoing) {
        let pending = self.pending.borrow();
        let mut unsent = self.unsent.borrow_mut();
        while let Some(key) = unsent.front().copied() {
            let Some((op, offset)) =
                pending.get(key).and_then(|request| Some((request.op.as_ref()?, request.offset)))
            else {
                unsent.pop_front();
                continue;
            };
            let payloads = if let Op::Write { bufs, .. } = op { bufs.len() } else { 0 };
            let full = !out.has_room(payloads) || out.payload_bytes() >= BATCH_BYTES_MAX;
            if full && !out.is_empty() {
                return;
            }
            unsent.pop_front();
            encode(key, offset, op).put(self.headers.get(), out.heads());
            if let Op::Write { bufs, .. } = op {
                for buf in bufs {
                    out.data(buf.clone());
                }
            }
        }
    }

    async fn receive(self: Rc<Self>, stream: Rc<Stream>, mut receiver: Receiver) {
        let mut decoder = ReplyDecoder::new(self.headers.get());
        if let Err(error) = self.take_replies(&mut decoder, &mut receiver).await {
            tracing::warn!(%error, "NBD connection lost");
        }
        stream.shutdown();
        self.lose();
    }

    /// Completes requests until the server ends the stream between two replies.
    async fn take_replies(
        &self,
        decoder: &mut ReplyDecoder,
        receiver: &mut Receiver,
    ) -> Result<(), LostError> {
        loop {
            let event = receiver.take(|input| decoder.step(input))?;
            self.answered.set(self.answered.get() || event != ReplyEvent::NeedMore);
            match event {
                ReplyEvent::NeedMore => {
                    if !receiver.fill().await? {
                        return Ok(());
                    }
                }
                ReplyEvent::Simple { cookie, error: Some(code) } => {
                    self.note_error(cookie, code)?;
                    self.complete(cookie)?;
                }
                ReplyEvent::Simple { cookie, error: None } => {
                    if let Some((offset, length)) = self.read_range(cookie)? {
                        self.take_data(receiver, cookie, offset, length).await?;
                    }
                    self.complete(cookie)?;
                }
                ReplyEvent::Data { cookie, offset, length, done } => {
                    self.take_data(receiver, cookie, offset, u64::from(length)).await?;
                    self.complete_if(done, cookie)?;
                }
                ReplyEvent::Hole { cookie, offset, length, done } => {
                    self.zero(cookie, offset, u64::from(length))?;
                    self.complete_if(done, cookie)?;
                }
                ReplyEvent::Error { cookie, code, done } => {
                    self.note_error(cookie, code)?;
                    self.complete_if(done, cookie)?;
                }
                ReplyEvent::Done { cookie } => self.complete(cookie)?,
                // Never asked for.
                ReplyEvent::Extent { cookie, .. } => return Err(LostError::Cookie(cookie)),
            }
        }
    }

    fn with<T>(
        &self,
        cookie: u64,
        act: impl FnOnce(&mut Pending) -> Option<T>,
    ) -> Result<T, LostError> {
        let mut pending = self.pending.borrow_mut();
        let key = usize::try_from(cookie).ok();
        let found = key.and_then(|key| pending.get_mut(key)).and_then(act);
        found.ok_or(LostError::Cookie(cookie))
    }

    fn note_error(&self, cookie: u64, code: ErrorCode) -> Result<(), LostError> {
        self.with(cookie, |request| {
            request.error.get_or_insert(io_error(code));
            Some(())
        })
    }

    /// Offset and length of a read; `None` for another command.
    fn read_range(&self, cookie: u64) -> Result<Option<(u64, u64)>, LostError> {
        self.with(cookie, |request| {
            Some(match request.op.as_ref()? {
                Op::Read(bufs) => Some((request.offset, total(bufs))),
                _ => None,
            })
        })
    }

    /// The buffers of a read whose range holds `offset..offset + length`, of which nothing has come before, and
    /// where it starts.
    fn take_bufs(
        &self,
        cookie: u64,
        offset: u64,
        length: u64,
    ) -> Result<(BufMuts, usize), LostError> {
        self.with(cookie, |request| {
            let start = offset.checked_sub(request.offset)?;
            let Some(Op::Read(bufs)) = &mut request.op else { return None };
            let inside = start.checked_add(length).is_some_and(|end| end <= total(bufs));
            (inside && request.come.add(start, length))
                .then(|| (std::mem::take(bufs), start as usize))
        })
    }

    fn put_bufs(&self, cookie: u64, bufs: BufMuts) -> Result<(), LostError> {
        self.with(cookie, |request| {
            request.op = Some(Op::Read(bufs));
            Some(())
        })
    }

    async fn take_data(
        &self,
        receiver: &mut Receiver,
        cookie: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), LostError> {
        let (mut bufs, mut start) = self.take_bufs(cookie, offset, length)?;
        let mut left = length as usize;
        let mut at = 0;
        while left > 0 && at < bufs.len() {
            let size = bufs.get(at).map_or(0, |buf| buf.len());
            if start >= size {
                start -= size;
                at += 1;
                continue;
            }
            let piece = left.min(size - start);
            let mut head = bufs.remove(at);
            let tail = head.split_off(start + piece);
            let part = head.split_off(start);
            let part = receiver.read_into(part).await?;
            // Both were cut from `head` above, so they join again.
            if head.rejoin(part).is_err() || head.rejoin(tail).is_err() {
                return Err(LostError::Cookie(cookie));
            }
            bufs.insert(at, head);
            (left, start, at) = (left - piece, 0, at + 1);
        }
        self.put_bufs(cookie, bufs)
    }

    fn zero(&self, cookie: u64, offset: u64, length: u64) -> Result<(), LostError> {
        let (mut bufs, mut start) = self.take_bufs(cookie, offset, length)?;
        let mut left = length as usize;
        for buf in &mut bufs {
            let from = start.min(buf.len());
            let to = buf.len().min(from + left);
            // `from <= to <= buf.len()` by the two bounds above.
            buf[from..to].fill(0);
            left -= to - from;
            start -= from;
        }
        self.put_bufs(cookie, bufs)
    }

    fn complete_if(&self, done: bool, cookie: u64) -> Result<(), LostError> {
        if done { self.complete(cookie) } else { Ok(()) }
    }

    fn complete(&self, cookie: u64) -> Result<(), LostError> {
        let key = usize::try_from(cookie).ok();
        let request = key.and_then(|key| self.pending.borrow_mut().try_remove(key));
        let request = request.ok_or(LostError::Cookie(cookie))?;
        let missing = match &request.op {
            Some(Op::Read(bufs)) => !request.come.is_all_of(total(bufs)),
            _ => false,
        };
        let result = match request.error {
            Some(error) => Err(error),
            None if missing => Err(IoError::new(IoErrorKind::Medium)),
            None => Ok(()),
        };
        finish(request, result);
        Ok(())
    }
}

/// Why a connection ended with requests perhaps in flight.
#[derive(Debug, thiserror::Error)]
enum LostError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Reply(#[from] ReplyViolation),
    #[error(
        "the server's reply with cookie {0} fits no request in flight, or what of it came before"
    )]
    Cookie(u64),
}

fn finish(request: Pending, result: Result<(), IoError>) {
    let Pending { done, op, .. } = request;
    if let (Some(done), Some(op)) = (done, op) {
        done.finish(result, op);
    }
}

fn total(bufs: &BufMuts) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// Bytes that one request zeroes or discards at most.
pub(crate) fn longest_cleared(headers: Headers) -> u64 {
    match headers {
        Headers::Simple | Headers::Structured => u32::MAX.into(),
        Headers::Extended => u64::MAX,
    }
}

/// True if a device that was described by one offer is described just as well by the other, and takes the same requests.
fn is_same(one: &ServerOffer, other: &ServerOffer) -> bool {
    if longest_cleared(other.headers) < longest_cleared(one.headers) {
        return false;
    }
    let (one, other) = (&one.export, &other.export);
    (one.size, one.block, one.features) == (other.size, other.block, other.features)
}

/// The wire's form of an operation whose length was found admissible.
fn encode(key: usize, offset: u64, op: &Op) -> Request {
    let (command, flags, length) = match op {
        Op::Read(bufs) => (Command::Read, 0, total(bufs)),
        Op::Write { bufs, fua } => {
            let length = bufs.iter().map(|buf| buf.len() as u64).sum();
            (Command::Write, if *fua { CMD_FLAG_FUA } else { 0 }, length)
        }
        Op::Flush => (Command::Flush, 0, 0),
        Op::Discard { len } => (Command::Trim, 0, *len),
        Op::WriteZeroes { len, unmap, fua } => {
            let durable = if *fua { CMD_FLAG_FUA } else { 0 };
            (Command::WriteZeroes, durable | if *unmap { 0 } else { CMD_FLAG_NO_HOLE }, *len)
        }
    };
    let offset = if command == Command::Flush { 0 } else { offset };
    Request { cookie: key as u64, command, flags, offset, length }
}

/// The device's error for an error of the server.
fn io_error(code: ErrorCode) -> IoError {
    let kind = match code {
        ErrorCode::Io | ErrorCode::NoMemory | ErrorCode::Overflow => IoErrorKind::Medium,
        ErrorCode::NotPermitted => IoErrorKind::Refused,
        ErrorCode::Invalid => IoErrorKind::Invalid,
        ErrorCode::NoSpace => IoErrorKind::NoSpace,
        ErrorCode::NotSupported => IoErrorKind::Unsupported,
        ErrorCode::Shutdown => IoErrorKind::Gone,
    };
    IoError::new(kind)
}
