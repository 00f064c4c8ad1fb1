//! One client: handshake, then requests to the device and replies back.
//!
//! Owns the order of a connection's life and the hand-over of payloads between socket and device.
//! Does not know listeners or other connections. Invariant: whatever a client does ends at most
//! its own connection, and every request handed to the device is waited for.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use braid_device::{Completion, Device, Op, OpenError, Request as DeviceRequest};
use braid_export::deadline::Deadline;
use braid_export::gate::Pass;
use braid_export::memory::{self, Account, Way};
use braid_export::stream::{Cut, Outgoing, Receiver, Stream};
use braid_export::tls::TlsError;
use braid_export::unaligned::{Unaligned, is_ragged};
use braid_export::{Connected, Connections, Disk, Hold};
use braid_shard::Shard;

use super::limits::TlsMode;
use super::long;
use super::offer::{Entered, Offer};
use super::passed::State;
use super::replies::{Replies, Token};
use super::status::extents_of;
use super::visit::Visit;
use crate::protocol::constants::{EXTENDED_REQUEST_BYTES, REQUEST_BYTES};
use crate::protocol::{
    Command, ErrorCode, Export, ExportTable, ExportTableError, Headers, Negotiated, Refusal,
    Request, RequestDecoder, RequestEvent, RequestRules, RequestViolation, ServerHandshake,
    ServerHandshakeError, ServerHandshakeStep,
};

/// The log says so when a client's time for that is over.
const LATE: &str = "NBD client did not finish its handshake";

/// Why a connection ended other than by the client's wish.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("{0}")]
    Handshake(#[from] ServerHandshakeError),
    #[error("{0}")]
    Request(#[from] RequestViolation),
    #[error("NBD client went away in the middle of a message: {0}")]
    Cut(io::Error),
    #[error("receiving from an NBD client: {0}")]
    Receive(io::Error),
    #[error("TLS handshake with an NBD client: {0}; the client is disconnected")]
    Tls(TlsError),
    #[error("the exports cannot be offered: {0}")]
    Table(#[from] ExportTableError),
    #[error("{0}; the NBD client that asked for it is disconnected")]
    Open(#[from] OpenError),
    #[error(
        "a client was taken over with the export {0:?}, which is not offered: it is disconnected"
    )]
    NotHere(String),
    #[error("shard {0} has no io_uring, so it cannot serve sockets: start shards with a ring")]
    NoRing(u16),
}

impl ConnectionError {
    /// The client was not let in.
    pub fn is_refusal(&self) -> bool {
        use ServerHandshakeError::TlsRequired;
        matches!(self, ConnectionError::Tls(_) | ConnectionError::Handshake(TlsRequired))
    }
}

/// The parts that all connections of a server share.
pub(super) struct Shared {
    pub offer: Arc<Offer>,
    pub memory: Arc<memory::Shared>,
    pub tls: Arc<TlsMode>,
    /// The time for a handshake.
    pub handshake: Duration,
}

/// Serves a connected socket until its client leaves, breaks a rule, what it uses is offered no longer, or the
/// server stops. Gives what a successor has to know when one goes on with the client.
pub(super) async fn serve(
    shard: Shard,
    fd: OwnedFd,
    connected: &Connected,
    shared: Shared,
    client: &str,
) -> Result<Option<State>, ConnectionError> {
    let stream = Stream::new(&shard, fd).ok_or(ConnectionError::NoRing(shard.id()))?;
    let stream = Rc::new(stream);
    let entering = Entering::new(&shard, connected);
    let mut receiver = Receiver::new(&stream, REQUEST_BYTES);
    let exports = shared.offer.table()?;
    let clock = Deadline::start(&shard, &stream, shared.handshake, LATE);
    let negotiated = shake_hands(&stream, &mut receiver, &exports, &shared.tls).await;
    drop(clock);
    entering.stays.set(stream.is_secure());
    let negotiated = negotiated.inspect_err(|_| stream.close())?;
    let Some(negotiated) = negotiated else { return Ok(None) };
    let Some(export) = exports.get(negotiated.export) else { return Ok(None) };
    let begin = Begin { export, negotiated, skip: 0 };
    transmit(&shard, (stream, receiver), connected, shared, (begin, client)).await
}

/// Goes on with a client of another server; as [`serve`] from there on.
pub(super) async fn go_on(
    shard: Shard,
    fd: OwnedFd,
    connected: &Connected,
    shared: Shared,
    (state, client): (State, &str),
) -> Result<Option<State>, ConnectionError> {
    let stream = Stream::new(&shard, fd).ok_or(ConnectionError::NoRing(shard.id()))?;
    let stream = Rc::new(stream);
    let _entering = Entering::new(&shard, connected);
    let mut receiver = Receiver::new(&stream, REQUEST_BYTES);
    receiver.begin_with(state.unread);
    let exports = shared.offer.table()?;
    let found = exports.find(&state.export).and_then(|index| exports.get(index));
    let Some(export) = found else {
        return Err(ConnectionError::NotHere(state.export));
    };
    let begin = Begin { export, negotiated: state.negotiated, skip: state.skip };
    transmit(&shard, (stream, receiver), connected, shared, (begin, client)).await
}

/// The beginning of a connection's requests.
struct Begin<'a> {
    export: &'a Export,
    negotiated: Negotiated,
    skip: u32,
}

async fn transmit(
    shard: &Shard,
    (stream, mut receiver): (Rc<Stream>, Receiver),
    connected: &Connected,
    shared: Shared,
    (begin, client): (Begin<'_>, &str),
) -> Result<Option<State>, ConnectionError> {
    let Begin { export, negotiated, skip } = begin;
    let Shared { offer, memory, .. } = shared;
    let Some(entered) = offer.enter(&export.name, connected.socket()) else { return Ok(None) };
    let Entered { target, gate, figures, using: _using } = entered;
    let _visit = Visit::begin(shard, client, &export.name, stream.is_secure(), &figures);
    let disk = Disk::open(&target, shard)?;
    let device = disk.device();
    let pass = gate.enter(shard).await;
    let decoder = RequestDecoder::resume(RequestRules::new(export, negotiated), skip);
    if negotiated.headers == Headers::Extended {
        receiver.set_head_bytes(EXTENDED_REQUEST_BYTES);
    }
    let ended = Rc::downgrade(&stream);
    let account = Account::open(&memory, shard, move || {
        if let Some(stream) = ended.upgrade() {
            stream.shutdown();
        }
    });
    let unaligned = Unaligned::new(shard, &device, &pass);
    let of_replies = Rc::clone(&pass);
    let replies = Replies::new(shard, negotiated.headers, Rc::clone(&account), of_replies, figures);
    let held: Rc<dyn Hold> =
        Rc::new(Held { replies: Rc::clone(&replies), stream: Rc::clone(&stream) });
    Connections::enter(shard, connected.register(), &held);
    shard.spawn(Rc::clone(&replies).write(Rc::clone(&stream), Rc::clone(&device)));
    let shard = shard.clone();
    let mut reader =
        Reader { shard, receiver, decoder, disk, device, unaligned, replies, account, pass };
    let result = reader.run().await;
    if result.is_err() {
        reader.replies.client_gone();
    }
    // After a disconnect request all outstanding requests are still answered (`NBD_CMD_DISC`).
    reader.replies.close();
    reader.replies.finished().await;
    match result {
        Ok(Ended::Left(unread)) => {
            let (skip, unread) = reader.left(unread);
            Ok(Some(State { export: export.name.clone(), negotiated, skip, unread }))
        }
        result => {
            stream.close();
            result.map(|_| None)
        }
    }
}

/// A connection from its beginning to its end, also while it has no requests: whoever wants all to leave waits for those that
/// still shake hands.
struct Entering {
    /// It does not leave.
    stays: Cell<bool>,
}

impl Entering {
    fn new(shard: &Shard, connected: &Connected) -> Rc<Entering> {
        let entering = Rc::new(Entering { stays: Cell::new(false) });
        let held = Rc::clone(&entering) as Rc<dyn Hold>;
        Connections::enter(shard, connected.register(), &held);
        entering
    }
}

impl Hold for Entering {
    fn hold(&self, _held: bool) -> u64 {
        0
    }

    fn stop(&self) {}

    fn leave(&self) -> bool {
        !self.stays.get()
    }
}

/// The way to hold a connection from outside.
struct Held {
    replies: Rc<Replies>,
    stream: Rc<Stream>,
}

impl Hold for Held {
    fn hold(&self, held: bool) -> u64 {
        self.replies.hold(held)
    }

    fn stop(&self) {
        self.replies.stop();
    }

    fn leave(&self) -> bool {
        // The keys of TLS stay here.
        if self.stream.is_secure() {
            return false;
        }
        self.replies.leave();
        if let Err(error) = self.stream.interrupt() {
            tracing::warn!(%error, "an NBD client that sends nothing cannot be passed to another server: Linux 6.0 can");
            return false;
        }
        true
    }
}

async fn shake_hands(
    stream: &Stream,
    receiver: &mut Receiver,
    exports: &ExportTable,
    tls: &TlsMode,
) -> Result<Option<Negotiated>, ConnectionError> {
    let mut out = Outgoing::new();
    let mut handshake = ServerHandshake::new(tls.offer(), out.heads());
    loop {
        if !out.is_empty() {
            out.send(stream).await.map_err(ConnectionError::Receive)?;
        }
        match receiver.take(|input| handshake.step(exports, input, out.heads()))? {
            ServerHandshakeStep::NeedMore => {
                if !receiver.fill().await.map_err(ConnectionError::Receive)? {
                    return Ok(None);
                }
            }
            ServerHandshakeStep::Answered => {}
            ServerHandshakeStep::StartTls => {
                out.send(stream).await.map_err(ConnectionError::Receive)?;
                // Without certificates it is not offered.
                let Some(tls) = tls.tls() else { return Ok(None) };
                receiver.start_tls(tls).await.map_err(ConnectionError::Tls)?;
                handshake.tls_begun();
            }
            ServerHandshakeStep::Transmission(negotiated) => {
                if !out.is_empty() {
                    out.send(stream).await.map_err(ConnectionError::Receive)?;
                }
                return Ok(Some(negotiated));
            }
            ServerHandshakeStep::Closed => {
                // A client may have closed without waiting for the acknowledgement
                // (proto.md, `NBD_OPT_ABORT`), so a failure to send it is none.
                let _ = out.send(stream).await;
                stream.close();
                return Ok(None);
            }
        }
    }
}

struct Reader {
    shard: Shard,
    receiver: Receiver,
    decoder: RequestDecoder,
    disk: Disk,
    device: Rc<dyn Device>,
    unaligned: Rc<Unaligned>,
    replies: Rc<Replies>,
    account: Rc<Account>,
    pass: Rc<Pass>,
}

/// The end of a client's requests.
enum Ended {
    /// There will be none any more.
    Over,
    /// A successor goes on, with these bytes first.
    Left(Vec<u8>),
}

impl Reader {
    async fn run(&mut self) -> Result<Ended, ConnectionError> {
        loop {
            match self.next_request()? {
                RequestEvent::NeedMore => match self.receiver.fill().await {
                    Ok(true) => {}
                    Ok(false) => return self.end_of_stream(),
                    Err(_) if self.replies.is_leaving() => return Ok(Ended::Left(Vec::new())),
                    Err(error) => return Err(ConnectionError::Receive(error)),
                },
                RequestEvent::Request(request) => {
                    let ragged = is_ragged(&*self.device, request.offset, request.length);
                    let Some(token) = self.replies.admit(request, ragged).await else {
                        return Ok(self.not_admitted());
                    };
                    if let Some(left) = self.carry_out(request, token).await? {
                        return Ok(left);
                    }
                }
                RequestEvent::Refuse(refusal) => {
                    if !self.refuse(refusal).await {
                        return Ok(self.not_admitted());
                    }
                }
                RequestEvent::Disconnect => return Ok(Ended::Over),
            }
        }
    }

    /// The next step of the stream. A request past the end that was known has the device opened anew if it has grown.
    fn next_request(&mut self) -> Result<RequestEvent, RequestViolation> {
        let (disk, decoder) = (&self.disk, &mut self.decoder);
        let mut has_grown = false;
        let mut size = || {
            has_grown = disk.has_grown();
            disk.device().info().size
        };
        let event = self.receiver.take(|input| decoder.step_growing(input, &mut size))?;
        if has_grown {
            self.device = self.disk.device();
            self.unaligned = Unaligned::new(&self.shard, &self.device, &self.pass);
        }
        Ok(event)
    }

    /// The newest request is the successor's, if there is one.
    fn not_admitted(&mut self) -> Ended {
        match self.replies.is_leaving() {
            true => {
                let newest = self.decoder.newest().to_vec();
                self.decoder.forget_newest();
                Ended::Left(newest)
            }
            false => Ended::Over,
        }
    }

    /// The bytes that are to be skipped, and those that come before what is still in the socket; `first` before all.
    fn left(&mut self, first: Vec<u8>) -> (u32, Vec<u8>) {
        let (skip, come) = self.decoder.position();
        let mut unread = first;
        unread.extend_from_slice(come);
        unread.extend(self.receiver.rest());
        (skip, unread)
    }

    fn end_of_stream(&self) -> Result<Ended, ConnectionError> {
        // It may have closed its own direction only, and still gets what is ready soon.
        self.replies.client_gone();
        if self.decoder.at_boundary() {
            return Ok(Ended::Over);
        }
        Err(ConnectionError::Cut(io::ErrorKind::UnexpectedEof.into()))
    }

    /// False when the server stops.
    async fn refuse(&mut self, refusal: Refusal) -> bool {
        // Only the cookie and the offset matter for the reply.
        let Refusal { cookie, offset, .. } = refusal;
        let request = Request { cookie, command: Command::Flush, flags: 0, offset, length: 0 };
        let Some(token) = self.replies.admit(request, false).await else { return false };
        self.replies.refuse(token, refusal);
        true
    }

    /// Gives the end when a successor goes on with the request.
    async fn carry_out(
        &mut self,
        request: Request,
        token: Token,
    ) -> Result<Option<Ended>, ConnectionError> {
        let Request { cookie, offset, length: len, .. } = request;
        let op = match request.command {
            Command::Read => Op::Read([self.shard.pool().get(len as usize)].into_iter().collect()),
            Command::Write => {
                // Held while the payload arrives: dropped, it gives the slot back.
                let done = self.replies.completion(token);
                let buf = self.shard.pool().get(len as usize);
                self.account.begin(Way::In, len);
                let received = self.receiver.read_or_cut(buf).await;
                self.account.done(Way::In);
                let buf = match received {
                    Ok(buf) => buf,
                    Err(Cut { received, .. }) if self.replies.is_leaving() => {
                        self.replies.abandon(token);
                        return Ok(Some(Ended::Left([self.decoder.newest(), &received].concat())));
                    }
                    Err(Cut { error, .. }) => return Err(ConnectionError::Cut(error)),
                };
                let bufs = [buf.freeze()].into_iter().collect();
                let op = Op::Write { bufs, fua: request.fua() };
                self.submit(request, token, op, done).await;
                return Ok(None);
            }
            Command::Flush => Op::Flush,
            Command::Trim => Op::Discard { len },
            Command::WriteZeroes => {
                if request.fast_zero() && !self.device.info().writes_zeroes {
                    let message = "zeroing is no faster than writing here";
                    let code = ErrorCode::NotSupported;
                    self.replies.refuse(token, Refusal { cookie, offset, code, message });
                    return Ok(None);
                }
                Op::WriteZeroes { len, unmap: !request.no_hole(), fua: request.fua() }
            }
            Command::BlockStatus => {
                let (bytes, one) = (offset..offset + len, request.only_one());
                let (device, replies) = (Rc::clone(&self.device), Rc::clone(&self.replies));
                self.shard.spawn(async move {
                    let enough = || !replies.takes_requests();
                    let extents = extents_of(&*device, bytes, one, enough).await;
                    replies.extents(token, extents);
                });
                return Ok(None);
            }
            Command::Cache => {
                let done = self.replies.completion(token);
                let (unaligned, replies) = (Rc::clone(&self.unaligned), Rc::clone(&self.replies));
                self.shard.spawn(async move {
                    // A hint: it is not worth to let anybody wait.
                    let result =
                        unaligned.prefetch(offset, len, || !replies.takes_requests()).await;
                    done.finish(result, Op::Flush);
                });
                return Ok(None);
            }
        };
        if let Some(changes) = long::pieces(offset, &op) {
            let (unaligned, replies) = (Rc::clone(&self.unaligned), Rc::clone(&self.replies));
            self.shard.spawn(long::carry_out(unaligned, replies, token, request, changes));
            return Ok(None);
        }
        let done = self.replies.completion(token);
        self.submit(request, token, op, done).await;
        Ok(None)
    }

    async fn submit(&self, request: Request, token: Token, op: Op, done: Completion) {
        let Request { command, offset, length, .. } = request;
        if is_ragged(&*self.device, offset, length) {
            let unaligned = Rc::clone(&self.unaligned);
            self.shard.spawn(async move {
                done.complete(unaligned.carry_out(offset, op).await);
            });
            return;
        }
        if command.modifies() {
            self.replies.begin_write(token).await;
        }
        self.device.submit(DeviceRequest { offset, op }, done);
    }
}
