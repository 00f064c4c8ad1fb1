//! One connected socket on a shard: bytes in and out, without allocation once it runs.
//!
//! Owns the receive buffer, the batching of outgoing heads and payloads into vectored sends, and
//! the rule how much to receive at once. Does not know what the bytes mean. Once TLS has begun on it
//! ([`Receiver::start_tls`]) the same calls move the same bytes, and what passes the socket are records.
//! Invariant: at most one receive and one send are in flight, each from a single task.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;

use braid_shard::ring::{Bufs, Ring, RingOp, RingSink, SEGMENTS_MAX, socket};
use braid_shard::{Buf, BufMut, Shard, TaskId};
use rustix::net::{SendFlags, Shutdown};

use crate::pace::Pace;
use crate::tls::{Handed, Session, Tls, TlsError, drop_first, sealed_bytes};

/// Bytes that one receive may bring when small messages are expected: room for over a thousand
/// requests, small enough to stay in the L2 cache.
const RECEIVE_BYTES: usize = 64 << 10;
/// Payloads from this size on are received in place as a whole: before the next message only its
/// head is received, so no payload byte passes through the receive buffer. That costs one more
/// receive per message; copying is cheaper up to here (measured: 16 KiB copied takes two thirds of
/// the CPU time of 16 KiB in place, 32 KiB about the same, 64 KiB more).
const IN_PLACE_BYTES: usize = 32 << 10;

/// Bytes that may wait in a TCP socket to be sent: what a client is slow to take stays here, where it is bounded, and what it
/// takes is still in a cache. (1 MiB reads over TLS on one machine: the client takes a sixth less of its processor's time than with
/// the kernel's 4 MiB.)
const UNSENT_BYTES: u32 = 512 << 10;
/// In the middle of a payload a receive waits for so many bytes, if so many are to come: the peer, which wakes us on its
/// own time where it is on the same machine, does so less often.
const WAKE_BYTES: usize = 64 << 10;

/// Where the result of the one operation in flight of one direction arrives.
struct Slot {
    shard: Shard,
    done: Cell<Option<(i32, RingOp)>>,
    waiter: Cell<TaskId>,
}

impl RingSink for Slot {
    fn ring_done(&self, _: u64, result: i32, op: RingOp) {
        self.done.set(Some((result, op)));
        self.shard.wake(self.waiter.replace(TaskId::NONE));
    }
}

impl Slot {
    fn new(shard: &Shard) -> Rc<Slot> {
        let (done, waiter) = (Cell::new(None), Cell::new(TaskId::NONE));
        Rc::new(Slot { shard: shard.clone(), done, waiter })
    }

    async fn perform(self: &Rc<Self>, ring: &Ring, op: RingOp) -> (io::Result<usize>, RingOp) {
        ring.submit(op, Rc::clone(self) as Rc<dyn RingSink>, 0);
        let (result, op) = poll_fn(|_| match self.done.take() {
            Some(done) => Poll::Ready(done),
            None => {
                self.waiter.set(self.shard.current_task());
                Poll::Pending
            }
        })
        .await;
        // A negative result is a negated errno.
        let result = usize::try_from(result)
            .map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()));
        (result, op)
    }
}

/// A connected stream socket.
pub struct Stream {
    fd: Rc<OwnedFd>,
    ring: Rc<Ring>,
    shard: Shard,
    incoming: Rc<Slot>,
    outgoing: Rc<Slot>,
    session: RefCell<Option<Session>>,
    interrupted: Cell<bool>,
    /// Bytes that a receive waits for now; `None` where the socket has no such thing.
    wakes_with: Cell<Option<u32>>,
}

/// A payload of which not all has come.
#[derive(Debug)]
pub struct Cut {
    /// The error that ended it.
    pub error: io::Error,
    /// The bytes that have come.
    pub received: BufMut,
}

impl Stream {
    /// Takes over a connected socket in blocking mode. `None` when the shard has no io_uring.
    #[must_use]
    pub fn new(shard: &Shard, fd: OwnedFd) -> Option<Stream> {
        // Only TCP knows these. One that another server has had may wait for more yet.
        let is_tcp = socket::limit_unsent(&fd, UNSENT_BYTES).is_ok();
        let wakes_with = (is_tcp && socket::wake_with(&fd, 1).is_ok()).then_some(1);
        Some(Stream {
            fd: Rc::new(fd),
            ring: Rc::clone(shard.ring()?),
            shard: shard.clone(),
            incoming: Slot::new(shard),
            outgoing: Slot::new(shard),
            session: RefCell::new(None),
            interrupted: Cell::new(false),
            wakes_with: Cell::new(wakes_with),
        })
    }

    /// Ends what is being received with `ECANCELED`, and lets nothing be received any more. No byte is lost: what has not been
    /// received stays in the socket, for whoever has it next.
    ///
    /// # Errors
    /// When the kernel cannot (before Linux 6.0): a receive that waits goes on waiting.
    pub fn interrupt(&self) -> io::Result<()> {
        self.interrupted.set(true);
        self.ring.cancel_on(&self.fd)
    }

    /// Ends both directions: what is in flight completes, the peer sees the end.
    pub fn shutdown(&self) {
        // Fails only when the peer has ended the connection already.
        let _ = rustix::net::shutdown(&*self.fd, Shutdown::Both);
    }

    /// [`shutdown`](Stream::shutdown), after the peer was told by TLS that this is the end. No send may be in flight. Waits for
    /// nobody: a peer that takes nothing is not told.
    pub fn close(&self) {
        if let Some(session) = self.session.borrow_mut().as_mut() {
            self.send_if_taken(&session.close());
        }
        self.shutdown();
    }

    /// Goes on with TLS that another thread has begun: from here on what is received and sent are plain bytes.
    pub fn go_on_with(&self, handed: Handed) {
        *self.session.borrow_mut() = Some(Session::adopt(handed, self.shard.pool()));
    }

    fn send_if_taken(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            // The connection ends in any case.
            let _ = rustix::net::send(&*self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// True once TLS has begun.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.session.borrow().is_some()
    }

    /// Does a step of the session; one runs, or the step fails.
    fn with_session<T>(
        &self,
        step: impl FnOnce(&mut Session) -> Result<T, TlsError>,
    ) -> io::Result<T> {
        let mut session = self.session.borrow_mut();
        let session = session.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(step(session)?)
    }

    async fn shake_hands(&self, mut session: Session) -> Result<(), TlsError> {
        loop {
            let step = Pace::compute(&self.shard, || session.shake_hands()).await;
            let flight = session.take_pending();
            match step {
                Ok(done) => {
                    if !flight.is_empty() {
                        let flight = self.shard.pool().copy_of(&flight).freeze();
                        self.send_all(&mut [flight].into_iter().collect()).await?;
                    }
                    if done {
                        *self.session.borrow_mut() = Some(session);
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.send_if_taken(&flight);
                    return Err(error);
                }
            }
            let room = session.room().ok_or_else(too_long)?;
            let (received, room) = self.receive_plain(room, 1).await?;
            session.received(room, received);
            if received == 0 {
                return Err(TlsError::Socket(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Receives into `buf`; all of it is to come if it is `due`.
    async fn receive(&self, mut buf: BufMut, due: bool) -> io::Result<(usize, BufMut)> {
        let due = if due { buf.len() } else { 1 };
        if !self.is_secure() {
            return self.receive_plain(buf, due).await;
        }
        loop {
            match self.with_session(|session| session.open(&mut buf))? {
                Some(0) => {}
                Some(bytes) => return Ok((bytes, buf)),
                None => return Ok((0, buf)),
            }
            let (kept, room) = self.with_session(|session| {
                Ok((session.kept(), session.room().ok_or_else(too_long)?))
            })?;
            // Records are longer than what is in them.
            let (received, room) = self.receive_plain(room, due.saturating_sub(kept)).await?;
            self.with_session(|session| {
                session.received(room, received);
                Ok(())
            })?;
            if received == 0 {
                return Ok((0, buf));
            }
        }
    }

    /// Receives into `buf`, where at least `due` bytes are to come.
    async fn receive_plain(&self, buf: BufMut, due: usize) -> io::Result<(usize, BufMut)> {
        if self.interrupted.get() {
            return Err(rustix::io::Errno::CANCELED.into());
        }
        // For less, saying so would cost more than it spares.
        let worth = due.min(buf.len()) >= WAKE_BYTES;
        self.wake_with(if worth { WAKE_BYTES as u32 } else { 1 });
        let op = RingOp::Receive { fd: Rc::clone(&self.fd), buf };
        match self.incoming.perform(&self.ring, op).await {
            (result, RingOp::Receive { buf, .. }) => Ok((result?, buf)),
            // A ring gives back the operation that it was given.
            _ => Err(io::Error::other("the ring gave back another operation")),
        }
    }

    fn wake_with(&self, bytes: u32) {
        if self.wakes_with.get().is_some_and(|now| now != bytes) {
            let set = socket::wake_with(&self.fd, bytes);
            self.wakes_with.set(set.is_ok().then_some(bytes));
        }
    }

    async fn send(&self, bufs: Bufs) -> io::Result<(usize, Bufs)> {
        let op = RingOp::Send { fd: Rc::clone(&self.fd), bufs };
        match self.outgoing.perform(&self.ring, op).await {
            (result, RingOp::Send { bufs, .. }) => Ok((result?, bufs)),
            // A ring gives back the operation that it was given.
            _ => Err(io::Error::other("the ring gave back another operation")),
        }
    }

    /// Sends all of `bufs`, as they are, and leaves it empty.
    async fn send_all(&self, bufs: &mut Bufs) -> io::Result<()> {
        while !bufs.is_empty() {
            let (sent, mut rest) = self.send(std::mem::take(bufs)).await?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            drop_first(&mut rest, sent);
            *bufs = rest;
        }
        Ok(())
    }

    /// Sends all of `bufs` as records, and leaves it empty.
    async fn send_sealed(&self, bufs: &mut Bufs) -> io::Result<()> {
        while !bufs.is_empty() {
            let plain = bufs.iter().map(|buf| buf.len()).sum();
            let mut records = self.shard.pool().get(sealed_bytes(plain));
            let made = self.with_session(|session| session.seal(bufs, &mut records))?;
            records.truncate(made);
            self.send_all(&mut [records.freeze()].into_iter().collect()).await?;
        }
        Ok(())
    }
}

fn too_long() -> TlsError {
    let message = "a TLS message that is longer than any may be";
    TlsError::Socket(io::Error::new(io::ErrorKind::InvalidData, message))
}

/// The receiving side: a buffer for many small messages, and payloads received in place.
pub struct Receiver {
    stream: Rc<Stream>,
    /// `None` only while a receive has it, or after one failed.
    buf: Option<BufMut>,
    at: usize,
    end: usize,
    /// Bytes that the next receive may bring.
    window: usize,
    /// Bytes of the head that precedes a payload.
    head_bytes: usize,
    /// Bytes that came before those of the socket, and how many of them have been taken.
    before: (Vec<u8>, usize),
}

impl Receiver {
    /// Receives messages whose heads have `head_bytes` (at most 64 KiB) bytes.
    #[must_use]
    pub fn new(stream: &Rc<Stream>, head_bytes: usize) -> Receiver {
        let buf = Some(stream.shard.pool().get(RECEIVE_BYTES));
        let head_bytes = head_bytes.clamp(1, RECEIVE_BYTES);
        Receiver {
            stream: Rc::clone(stream),
            buf,
            at: 0,
            end: 0,
            window: RECEIVE_BYTES,
            head_bytes,
            before: (Vec::new(), 0),
        }
    }

    /// From here on messages' heads have so many bytes; as in [`new`](Receiver::new).
    pub fn set_head_bytes(&mut self, head_bytes: usize) {
        self.head_bytes = head_bytes.clamp(1, RECEIVE_BYTES);
    }

    /// Puts `bytes` before what is going to be received. Only before the first receive.
    pub fn begin_with(&mut self, bytes: Vec<u8>) {
        self.before = (bytes, 0);
    }

    /// Takes all that has been received and not been taken.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // First the bytes from before, then those of the socket.
        for _ in 0..2 {
            self.take(|input| rest.extend_from_slice(std::mem::take(input)));
        }
        rest
    }

    /// Begins TLS as its server: from here on what is received and sent are plain bytes, and records pass the socket. What
    /// was received and not taken yet counts as the peer's first bytes of TLS, so that nothing that was said before it can be
    /// taken for something that was said within.
    ///
    /// # Errors
    /// The handshake failed; the peer has been told by an alert, and the connection can only be ended.
    pub async fn start_tls(&mut self, tls: &Tls) -> Result<(), TlsError> {
        let stream = Rc::clone(&self.stream);
        let mut session = Session::new(tls, stream.shard.pool())?;
        self.take(|input| {
            // There is room for more than was received.
            let taken = session.put(input);
            *input = input.get(taken..).unwrap_or_default();
        });
        stream.shake_hands(session).await
    }

    /// Shows the bytes that have been received and not taken yet to `take`, which shortens the slice
    /// from the front by the bytes that it has used.
    pub fn take<T>(&mut self, take: impl FnOnce(&mut &[u8]) -> T) -> T {
        let (before, taken) = &mut self.before;
        if let Some(mut input) = before.get(*taken..).filter(|input| !input.is_empty()) {
            let value = take(&mut input);
            *taken = before.len() - input.len().min(before.len());
            if *taken == before.len() {
                self.before = (Vec::new(), 0);
            }
            return value;
        }
        let mut input =
            self.buf.as_deref().and_then(|buf| buf.get(self.at..self.end)).unwrap_or_default();
        let value = take(&mut input);
        let left = input.len();
        self.at = self.end - left.min(self.end);
        value
    }

    /// Receives more once everything has been taken; false at the end of the stream.
    ///
    /// # Errors
    /// The socket's.
    pub async fn fill(&mut self) -> io::Result<bool> {
        let mut buf = self.buf.take().ok_or(io::ErrorKind::NotConnected)?;
        let rest = buf.split_off(self.window.min(buf.len()));
        let (received, mut buf) = self.stream.receive(buf, false).await?;
        // Cut from this very buffer above, so it joins again.
        if let Err(rest) = buf.rejoin(rest) {
            drop(rest);
        }
        self.buf = Some(buf);
        (self.at, self.end) = (0, received);
        self.window = RECEIVE_BYTES;
        Ok(received > 0)
    }

    /// Fills `into` with the next bytes: first those received already, then straight from the
    /// socket.
    ///
    /// # Errors
    /// `UnexpectedEof` when the stream ends before it is full.
    pub async fn read_into(&mut self, into: BufMut) -> io::Result<BufMut> {
        self.read_or_cut(into).await.map_err(|cut| cut.error)
    }

    /// [`read_into`](Receiver::read_into) that keeps what has come.
    ///
    /// # Errors
    /// As there.
    pub async fn read_or_cut(&mut self, mut into: BufMut) -> Result<BufMut, Cut> {
        let mut filled = self.take(|input| {
            let (piece, rest) = input.split_at(into.len().min(input.len()));
            // `piece` is at most as long as `into`.
            into[..piece.len()].copy_from_slice(piece);
            *input = rest;
            piece.len()
        });
        if into.len() >= IN_PLACE_BYTES {
            self.window = self.head_bytes;
        }
        while filled < into.len() {
            let rest = into.split_off(filled);
            let (received, rest) = match self.stream.receive(rest, true).await {
                Ok((0, _)) => {
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Err(Cut { error, received: into });
                }
                Ok(received) => received,
                Err(error) => return Err(Cut { error, received: into }),
            };
            filled += received;
            // Cut from `into` in this round, so it joins again.
            if into.rejoin(rest).is_err() {
                let error =
                    io::Error::other("a buffer came back that is not the one received into");
                return Err(Cut { error, received: into });
            }
        }
        Ok(into)
    }
}

enum Part {
    /// Heads up to this position of the head bytes.
    Heads(usize),
    Data(Buf),
}

/// A batch of outgoing messages, sent with as few system calls as the socket allows.
///
/// ```text
///  head head head+payload head   ->  [heads 0..3] [payload] [head 4]   one sendmsg
/// ```
pub struct Outgoing {
    heads: Vec<u8>,
    parts: Vec<Part>,
    bytes: usize,
    bufs: Bufs,
}

impl Default for Outgoing {
    fn default() -> Outgoing {
        Outgoing::new()
    }
}

impl Outgoing {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Outgoing {
        Outgoing { heads: Vec::new(), parts: Vec::new(), bytes: 0, bufs: Bufs::new() }
    }

    /// Where heads are appended.
    pub fn heads(&mut self) -> &mut Vec<u8> {
        &mut self.heads
    }

    /// Appends payload after the heads appended so far.
    pub fn data(&mut self, buf: Buf) {
        self.bytes += buf.len();
        self.parts.push(Part::Heads(self.heads.len()));
        self.parts.push(Part::Data(buf));
    }

    /// Nothing is to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.parts.is_empty()
    }

    /// Bytes of payload in the batch.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.bytes
    }

    /// True if a message with `payloads` payload buffers still fits into one system call.
    #[must_use]
    pub fn has_room(&self, payloads: usize) -> bool {
        // Each payload may need one segment of heads before it, and one may follow the last.
        self.parts.len() + 2 * payloads < SEGMENTS_MAX
    }

    /// Forgets the batch without sending it.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.parts.clear();
        self.bufs.clear();
        self.bytes = 0;
    }

    /// Sends everything and leaves the batch empty; its payloads are released.
    ///
    /// # Errors
    /// The socket's; the batch is empty then, too.
    pub async fn send(&mut self, stream: &Stream) -> io::Result<()> {
        let mut bufs = std::mem::take(&mut self.bufs);
        self.segments(stream, &mut bufs);
        self.heads.clear();
        self.bytes = 0;
        let sent = match stream.is_secure() {
            true => stream.send_sealed(&mut bufs).await,
            false => stream.send_all(&mut bufs).await,
        };
        bufs.clear();
        self.bufs = bufs;
        sent
    }

    fn segments(&mut self, stream: &Stream, bufs: &mut Bufs) {
        let heads = stream.shard.pool().copy_of(&self.heads).freeze();
        let mut from = 0;
        let last = Part::Heads(heads.len());
        for part in self.parts.drain(..).chain([last]) {
            match part {
                Part::Heads(to) if to > from => {
                    bufs.push(heads.slice(from..to));
                    from = to;
                }
                Part::Heads(_) => {}
                Part::Data(buf) if !buf.is_empty() => bufs.push(buf),
                Part::Data(_) => {}
            }
        }
    }
}
