//! One client: handshake, then requests to the device and replies back.
//!
//! Owns the order of a connection's life and the hand-over of payloads between socket and device.
//! Does not know listeners or other connections. Invariant: whatever a client does ends at most
//! its own connection, and every request handed to the device is waited for.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use braid_device::{Completion, Device, Op, OpenError, Request as DeviceRequest};
use braid_export::memory::{self, Account, Way};
use braid_export::stream::{Outgoing, Receiver, Stream};
use braid_export::tls::TlsError;
use braid_export::unaligned::{Unaligned, is_ragged};
use braid_export::{Connected, Connections, Hold};
use braid_shard::Shard;
use braid_shard::sync::{Promise, promise};

use super::limits::TlsMode;
use super::offer::{Entered, Offer};
use super::replies::{Replies, Token};
use super::status::extents_of;
use super::visit::Visit;
use crate::protocol::constants::REQUEST_BYTES;
use crate::protocol::{
    Command, ErrorCode, ExportTable, ExportTableError, Negotiated, Refusal, Request,
    RequestDecoder, RequestEvent, RequestRules, RequestViolation, ServerHandshake,
    ServerHandshakeError, ServerHandshakeStep,
};

/// The time that a client may take over its handshake, in nanoseconds.
const HANDSHAKE_NANOS_MAX: u64 = 30_000_000_000;

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

/// What all connections of a server have.
pub(super) struct Shared {
    pub offer: Arc<Offer>,
    pub memory: Arc<memory::Shared>,
    pub tls: Arc<TlsMode>,
}

/// Serves a connected socket until its client leaves, breaks a rule, what it uses is offered no longer, or the
/// server stops.
pub(super) async fn serve(
    shard: Shard,
    fd: OwnedFd,
    connected: &Connected,
    shared: Shared,
    client: &str,
) -> Result<(), ConnectionError> {
    let Shared { offer, memory, tls } = shared;
    let stream = Stream::new(&shard, fd).ok_or(ConnectionError::NoRing(shard.id()))?;
    let stream = Rc::new(stream);
    let mut receiver = Receiver::new(&stream, REQUEST_BYTES);
    let exports = offer.table()?;
    let clock = Clock::start(&shard, &stream);
    let negotiated = shake_hands(&stream, &mut receiver, &exports, &tls).await;
    drop(clock);
    let negotiated = negotiated.inspect_err(|_| stream.close())?;
    let Some(negotiated) = negotiated else { return Ok(()) };
    let Some(export) = exports.get(negotiated.export) else { return Ok(()) };
    let Some(entered) = offer.enter(&export.name, connected.socket()) else { return Ok(()) };
    let Entered { target, gate, figures, using: _using } = entered;
    let _visit = Visit::begin(&shard, client, &export.name, stream.is_secure(), &figures);
    let device = target.open(&shard)?;
    let pass = gate.enter(&shard).await;
    let decoder = RequestDecoder::new(RequestRules::new(export, negotiated));
    let ended = Rc::downgrade(&stream);
    let account = Account::open(&memory, &shard, move || {
        if let Some(stream) = ended.upgrade() {
            stream.shutdown();
        }
    });
    let unaligned = Unaligned::new(&shard, &device, &pass);
    let replies = Replies::new(&shard, negotiated.structured, Rc::clone(&account), pass, figures);
    let held = Rc::clone(&replies) as Rc<dyn Hold>;
    Connections::enter(&shard, connected.register(), &held);
    shard.spawn(Rc::clone(&replies).write(Rc::clone(&stream), Rc::clone(&device)));
    let mut reader = Reader { shard, receiver, decoder, device, unaligned, replies, account };
    let result = reader.run().await;
    // After a disconnect request all outstanding requests are still answered (`NBD_CMD_DISC`).
    reader.replies.close();
    reader.replies.finished().await;
    stream.close();
    result
}

/// Ends a connection whose handshake takes too long; dropping it stops the clock.
struct Clock {
    _running: Promise<()>,
}

impl Clock {
    fn start(shard: &Shard, stream: &Rc<Stream>) -> Clock {
        let (running, mut stopped) = promise(shard);
        let stream = Rc::downgrade(stream);
        let mut sleep = shard.sleep(HANDSHAKE_NANOS_MAX);
        shard.spawn(async move {
            let late = poll_fn(|cx| match Pin::new(&mut stopped).poll(cx) {
                Poll::Ready(_) => Poll::Ready(false),
                Poll::Pending => Pin::new(&mut sleep).poll(cx).map(|()| true),
            })
            .await;
            if let (true, Some(stream)) = (late, stream.upgrade()) {
                tracing::warn!("NBD client did not finish its handshake in 30 s: disconnecting it");
                stream.shutdown();
            }
        });
        Clock { _running: running }
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
    device: Rc<dyn Device>,
    unaligned: Rc<Unaligned>,
    replies: Rc<Replies>,
    account: Rc<Account>,
}

impl Reader {
    async fn run(&mut self) -> Result<(), ConnectionError> {
        loop {
            match self.receiver.take(|input| self.decoder.step(input))? {
                RequestEvent::NeedMore => {
                    if !self.receiver.fill().await.map_err(ConnectionError::Receive)? {
                        return self.end_of_stream();
                    }
                }
                RequestEvent::Request(request) => {
                    let ragged = is_ragged(&*self.device, request.offset, request.length.into());
                    let Some(token) = self.replies.admit(request, ragged).await else {
                        return Ok(());
                    };
                    self.carry_out(request, token).await?;
                }
                RequestEvent::Refuse(refusal) => {
                    if !self.refuse(refusal).await {
                        return Ok(());
                    }
                }
                RequestEvent::Disconnect => return Ok(()),
            }
        }
    }

    fn end_of_stream(&self) -> Result<(), ConnectionError> {
        if self.decoder.at_boundary() {
            return Ok(());
        }
        Err(ConnectionError::Cut(io::ErrorKind::UnexpectedEof.into()))
    }

    /// False when the server stops.
    async fn refuse(&mut self, refusal: Refusal) -> bool {
        // Only the cookie matters for the reply.
        let Refusal { cookie, .. } = refusal;
        let request = Request { cookie, command: Command::Flush, flags: 0, offset: 0, length: 0 };
        let Some(token) = self.replies.admit(request, false).await else { return false };
        self.replies.refuse(token, refusal);
        true
    }

    async fn carry_out(&mut self, request: Request, token: Token) -> Result<(), ConnectionError> {
        let Request { cookie, offset, length, .. } = request;
        let len = u64::from(length);
        let op = match request.command {
            Command::Read => {
                Op::Read([self.shard.pool().get(length as usize)].into_iter().collect())
            }
            Command::Write => {
                // Held while the payload arrives: dropped, it gives the slot back.
                let done = self.replies.completion(token);
                let buf = self.shard.pool().get(length as usize);
                self.account.begin(Way::In, len);
                let received = self.receiver.read_into(buf).await;
                self.account.done(Way::In);
                let buf = received.map_err(ConnectionError::Cut)?;
                let bufs = [buf.freeze()].into_iter().collect();
                let op = Op::Write { bufs, fua: request.fua() };
                self.submit(request, token, op, done).await;
                return Ok(());
            }
            Command::Flush => Op::Flush,
            Command::Trim => Op::Discard { len },
            Command::WriteZeroes => {
                if request.fast_zero() && !self.device.info().writes_zeroes {
                    let message = "zeroing is no faster than writing here";
                    let code = ErrorCode::NotSupported;
                    self.replies.refuse(token, Refusal { cookie, code, message });
                    return Ok(());
                }
                Op::WriteZeroes { len, unmap: !request.no_hole(), fua: request.fua() }
            }
            Command::BlockStatus => {
                let (bytes, one) = (offset..offset + len, request.only_one());
                let block = u64::from(self.device.info().logical_block.max(1));
                let (holes, replies) = (self.device.holes(bytes.clone()), Rc::clone(&self.replies));
                self.shard.spawn(async move {
                    let holes = holes.await;
                    replies.extents(token, extents_of(&bytes, &holes, block, one));
                });
                return Ok(());
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
                return Ok(());
            }
        };
        let done = self.replies.completion(token);
        self.submit(request, token, op, done).await;
        Ok(())
    }

    async fn submit(&self, request: Request, token: Token, op: Op, done: Completion) {
        let Request { command, offset, length, .. } = request;
        if is_ragged(&*self.device, offset, length.into()) {
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
