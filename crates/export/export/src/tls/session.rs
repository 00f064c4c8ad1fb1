//! The TLS of one connection, without I/O: what was received goes in, and plain bytes come out; plain bytes go in, and
//! what is to be sent comes out.
//!
//! Does not know sockets or what the plain bytes mean. Both directions may be used by different tasks, since no call waits.
//! Invariant: bytes to be sent come out in the order of their records' numbers, whichever direction made them; and memory
//! is bounded by constants, whatever the peer sends.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_shard::BufMut;
use braid_shard::buffer::Pool;
use braid_shard::ring::Bufs;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadTraffic, UnbufferedStatus,
};

use super::identity::{ClientTls, Tls, TlsError};

/// Bytes that may have been received and not decrypted: a handshake message may have 64 KiB (and is refused by rustls beyond),
/// records in transmission have 16 KiB.
const INCOMING_BYTES: usize = 128 << 10;
/// Plain bytes of a full record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Bytes that a record takes beside its plain bytes: its header, an explicit nonce, a type and a tag, and before it up to two
/// changes of keys (27 bytes each).
const RECORD_EXTRA: usize = 128;
/// Bytes of records that are made at a time: they should still be in the cache when they are sent.
const SEALED_BYTES: usize = 256 << 10;
/// Bytes that handshake messages and alerts may take that wait to be sent: a whole flight with a long chain of certificates.
const PENDING_BYTES_MAX: usize = 256 << 10;

/// See the module's documentation.
pub(crate) struct Session {
    connection: Connection,
    /// `at..end` has been received and not decrypted. While a receive has the tail, it is only the head.
    incoming: BufMut,
    at: usize,
    end: usize,
    /// Decrypted, and not taken yet.
    plain: VecDeque<u8>,
    /// Records of handshakes and alerts, to be sent before all that is sealed later.
    pending: Vec<u8>,
    /// Room for a record's plain bytes that come from several places.
    joined: Vec<u8>,
    peer_closed: bool,
    /// It has ended with this error, and must not be asked again: rustls does not expect that.
    failed: Option<rustls::Error>,
}

/// Either end.
enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Connection {
    fn is_handshaking(&self) -> bool {
        match self {
            Connection::Server(connection) => connection.is_handshaking(),
            Connection::Client(connection) => connection.is_handshaking(),
        }
    }

    fn wants_write(&self) -> bool {
        match self {
            Connection::Server(connection) => connection.wants_write(),
            Connection::Client(connection) => connection.wants_write(),
        }
    }
}

/// A session between two threads: that of one that has ended its handshake, for [`Session::adopt`].
pub struct Handed {
    connection: Connection,
    /// Received, and not decrypted.
    incoming: Vec<u8>,
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed").field("incoming", &self.incoming.len()).finish_non_exhaustive()
    }
}

/// The outcome of a look at what was received.
enum Looked {
    /// Nothing further without more bytes.
    Dry,
    /// The peer sends nothing further.
    Closed,
    /// Plain bytes have come, as many as fit.
    Plain,
}

/// Bytes that records with `plain` bytes take, at most [`SEALED_BYTES`]: room for [`Session::seal`].
pub(crate) fn sealed_bytes(plain: usize) -> usize {
    let records = plain.div_ceil(RECORD_BYTES);
    (plain + records * RECORD_EXTRA).clamp(4 << 10, SEALED_BYTES)
}

impl Session {
    /// The server's end of a new connection.
    ///
    /// # Errors
    /// None that a client could cause.
    pub fn new(tls: &Tls, pool: &Pool) -> Result<Session, TlsError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&tls.config))?;
        Ok(Session::of(Connection::Server(connection), pool))
    }

    /// The client's end of a new connection.
    ///
    /// # Errors
    /// None that a server could cause.
    pub fn of_client(tls: &ClientTls, pool: &Pool) -> Result<Session, TlsError> {
        let connection =
            UnbufferedClientConnection::new(Arc::clone(&tls.config), tls.server.clone())?;
        Ok(Session::of(Connection::Client(connection), pool))
    }

    fn of(connection: Connection, pool: &Pool) -> Session {
        Session {
            connection,
            incoming: pool.get(INCOMING_BYTES),
            at: 0,
            end: 0,
            plain: VecDeque::new(),
            pending: Vec::new(),
            joined: Vec::new(),
            peer_closed: false,
            failed: None,
        }
    }

    /// Takes the session to another thread. `None` when plain bytes have come that nobody has taken, when something is to be
    /// sent yet, or it has failed.
    pub fn hand_over(self) -> Option<Handed> {
        let Session { connection, incoming, at, end, plain, pending, failed, .. } = self;
        let idle = plain.is_empty() && pending.is_empty() && failed.is_none();
        let incoming = incoming.get(at..end).filter(|_| idle)?.to_vec();
        Some(Handed { connection, incoming })
    }

    /// Goes on with a session of another thread.
    pub fn adopt(handed: Handed, pool: &Pool) -> Session {
        let mut session = Session::of(handed.connection, pool);
        // It was in a buffer of the same size before.
        session.put(&handed.incoming);
        session
    }

    /// Bytes that have been received and are part of a record that has not come as a whole.
    pub fn kept(&self) -> usize {
        self.end - self.at
    }

    /// The place for bytes that are received next; [`received`](Session::received) gives it back. `None` when there is no
    /// room: the peer has sent a record or a message that is longer than any may be.
    pub fn room(&mut self) -> Option<BufMut> {
        if self.at > 0 {
            self.incoming.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        (self.end < self.incoming.len()).then(|| self.incoming.split_off(self.end))
    }

    /// Takes what [`room`](Session::room) gave, of which the first `bytes` bytes were received.
    pub fn received(&mut self, room: BufMut, bytes: usize) {
        self.end += bytes.min(room.len());
        // Cut from this very buffer, so it joins again.
        if let Err(room) = self.incoming.rejoin(room) {
            drop(room);
        }
    }

    /// Takes bytes that were received before TLS began, as many as there is room for.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let Some(mut room) = self.room() else { return 0 };
        let count = bytes.len().min(room.len());
        // `count` is at most the length of either.
        room[..count].copy_from_slice(&bytes[..count]);
        self.received(room, count);
        count
    }

    /// Goes on with the handshake; true when it is over. What [`take_pending`](Session::take_pending) gives must be sent then,
    /// also after an error.
    ///
    /// # Errors
    /// The peer's fault. It is told by an alert.
    pub fn shake_hands(&mut self) -> Result<bool, TlsError> {
        match self.look(&mut [])?.0 {
            Looked::Closed if self.connection.is_handshaking() => {
                Err(TlsError::Socket(std::io::ErrorKind::UnexpectedEof.into()))
            }
            _ => Ok(!self.connection.is_handshaking()),
        }
    }

    /// Puts the next plain bytes into `into`; zero when more must be received first, `None` when the peer sends nothing
    /// further.
    ///
    /// # Errors
    /// The bytes that were received are not those that the peer has sent.
    pub fn open(&mut self, into: &mut [u8]) -> Result<Option<usize>, TlsError> {
        let mut filled = self.take_plain(into);
        while filled < into.len() {
            let (looked, bytes) = self.look(&mut into[filled..])?;
            filled += bytes;
            match looked {
                Looked::Plain => {}
                Looked::Dry => break,
                Looked::Closed if filled == 0 => return Ok(None),
                Looked::Closed => break,
            }
        }
        Ok(Some(filled))
    }

    /// Makes records of the first bytes of `bufs`, as many as `out` has room for, and drops those bytes. Gives the bytes of
    /// the records; zero when `bufs` is empty.
    ///
    /// # Errors
    /// The connection has failed before, or its keys are used up (TLS 1.2 cannot change them).
    pub fn seal(&mut self, bufs: &mut Bufs, out: &mut [u8]) -> Result<usize, TlsError> {
        let mut made = 0;
        while let Some(first) = bufs.first() {
            if first.is_empty() {
                bufs.remove(0);
                continue;
            }
            // A key update, perhaps, that the peer has asked for; it must come first.
            while !matches!(self.look(&mut [])?.0, Looked::Dry | Looked::Closed) {}
            let pending = self.pending.len();
            let room = out.len() - made;
            let fits = |plain: usize| pending + plain + RECORD_EXTRA <= room;
            if !fits(RECORD_BYTES) && !fits(bufs.iter().map(|buf| buf.len()).sum()) {
                break;
            }
            let out = &mut out[made..];
            out[..pending].copy_from_slice(&self.pending);
            self.pending.clear();
            made += pending + self.seal_record(bufs, &mut out[pending..])?;
        }
        if made == 0 && !bufs.is_empty() {
            let message = "records do not fit the buffer that was made for them";
            return Err(TlsError::Protocol(rustls::Error::General(message.into())));
        }
        Ok(made)
    }

    /// Makes one record of the first bytes of `bufs` and drops them.
    fn seal_record(&mut self, bufs: &mut Bufs, out: &mut [u8]) -> Result<usize, TlsError> {
        // One buffer, or the beginnings of several: a head should not have a record of its own.
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        let whole =
            bufs.first().is_some_and(|first| first.len() >= RECORD_BYTES || bufs.len() == 1);
        let taken = if whole {
            bufs.first().map_or(0, |first| first.len().min(RECORD_BYTES))
        } else {
            for buf in bufs.iter() {
                let piece = buf.len().min(RECORD_BYTES - joined.len());
                joined.extend_from_slice(&buf[..piece]);
            }
            joined.len()
        };
        let sealed = match bufs.first() {
            Some(first) if whole => self.encrypt(&first[..taken], out),
            _ => self.encrypt(&joined, out),
        };
        self.joined = joined;
        let sealed = sealed?;
        drop_first(bufs, taken);
        Ok(sealed)
    }

    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, TlsError> {
        self.check()?;
        // Never with an empty slice: part of a handshake message may be known to lie in this one.
        let Session { connection, incoming, at, end, .. } = self;
        let received = &mut incoming[*at..*end];
        let (discard, sealed) = match connection {
            Connection::Server(c) => encrypt(c.process_tls_records(received), plain, out),
            Connection::Client(c) => encrypt(c.process_tls_records(received), plain, out),
        };
        let sealed = match sealed {
            Err(Fault::OfPeer(error)) => {
                self.failed = Some(error.clone());
                return Err(error.into());
            }
            Err(Fault::Own(error)) => Err(error),
            Ok(bytes) => Ok(bytes),
        };
        *at += discard;
        sealed
    }

    /// Says that nothing further will be sent. Gives the bytes of that.
    pub fn close(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.pending);
        if self.failed.is_some() {
            return out;
        }
        let Session { connection, incoming, at, end, .. } = self;
        let received = &mut incoming[*at..*end];
        match connection {
            Connection::Server(c) => say_goodbye(c.process_tls_records(received), &mut out),
            Connection::Client(c) => say_goodbye(c.process_tls_records(received), &mut out),
        }
        out
    }

    /// Records of the handshake that are to be sent now.
    pub fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    fn take_plain(&mut self, into: &mut [u8]) -> usize {
        let mut taken = 0;
        while taken < into.len() && !self.plain.is_empty() {
            let (piece, _) = self.plain.as_slices();
            let count = piece.len().min(into.len() - taken);
            into[taken..taken + count].copy_from_slice(&piece[..count]);
            self.plain.drain(..count);
            taken += count;
        }
        taken
    }

    /// Looks at what was received, up to the next plain bytes: these go into `into`, and what does not fit is kept. Gives
    /// the number of bytes in `into`.
    fn look(&mut self, into: &mut [u8]) -> Result<(Looked, usize), TlsError> {
        self.check()?;
        loop {
            let Session { connection, incoming, at, end, plain, pending, peer_closed, .. } = self;
            let received = &mut incoming[*at..*end];
            let mut taking = Taking { into: &mut *into, filled: 0, plain, pending, peer_closed };
            let (discard, looked) = match connection {
                Connection::Server(c) => taking.take(c.process_tls_records(received)),
                Connection::Client(c) => taking.take(c.process_tls_records(received)),
            };
            let filled = taking.filled;
            match looked {
                Err(Fault::OfPeer(error)) => {
                    *at += discard;
                    self.failed = Some(error.clone());
                    self.take_alert();
                    return Err(error.into());
                }
                Err(Fault::Own(error)) => return Err(error),
                Ok(looked) => {
                    *at += discard;
                    if let Some(looked) = looked {
                        return Ok((looked, filled));
                    }
                }
            }
        }
    }

    fn check(&self) -> Result<(), TlsError> {
        self.failed.clone().map_or(Ok(()), |error| Err(error.into()))
    }

    /// After an error: the alert that tells the peer.
    fn take_alert(&mut self) {
        let Session { connection, incoming, at, end, pending, .. } = self;
        // Records that are made come out before anything that was received is looked at again.
        while connection.wants_write() {
            let received = &mut incoming[*at..*end];
            let more = match connection {
                Connection::Server(c) => encode_one(c.process_tls_records(received), pending),
                Connection::Client(c) => encode_one(c.process_tls_records(received), pending),
            };
            if !more {
                return;
            }
        }
    }
}

/// Whose fault it is that a step failed.
enum Fault {
    /// The session has failed with it, and must not be asked again.
    OfPeer(rustls::Error),
    Own(TlsError),
}

impl From<TlsError> for Fault {
    fn from(error: TlsError) -> Fault {
        Fault::Own(error)
    }
}

/// Where the outcome of a step goes.
struct Taking<'a> {
    into: &'a mut [u8],
    /// Plain bytes in `into`.
    filled: usize,
    plain: &'a mut VecDeque<u8>,
    pending: &'a mut Vec<u8>,
    peer_closed: &'a mut bool,
}

impl Taking<'_> {
    /// Takes what a step gave, and how many received bytes it has used up. `Ok(None)`: there may be more without more bytes.
    fn take<D>(
        &mut self,
        UnbufferedStatus { discard, state }: UnbufferedStatus<'_, '_, D>,
    ) -> (usize, Result<Option<Looked>, Fault>) {
        let looked = match state {
            Ok(ConnectionState::ReadTraffic(reading)) => {
                self.read(reading).map(|()| Some(Looked::Plain))
            }
            Ok(ConnectionState::EncodeTlsData(mut encoding)) => {
                encode(&mut encoding, self.pending).map(|()| None).map_err(Fault::Own)
            }
            Ok(ConnectionState::TransmitTlsData(transmitting)) => {
                // They wait in `pending`, from where they are sent once.
                transmitting.done();
                Ok(None)
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                *self.peer_closed = true;
                Ok(Some(Looked::Closed))
            }
            Ok(ConnectionState::WriteTraffic(_)) if *self.peer_closed => Ok(Some(Looked::Closed)),
            // Data before the handshake is over is not offered.
            Ok(ConnectionState::ReadEarlyData(_)) => {
                Err(Fault::Own(general("early data that was not offered".into())))
            }
            Ok(_) => Ok(Some(Looked::Dry)),
            Err(error) => Err(Fault::OfPeer(error)),
        };
        (discard, looked)
    }

    fn read<D>(&mut self, mut reading: ReadTraffic<'_, '_, D>) -> Result<(), Fault> {
        while let Some(record) = reading.next_record() {
            let payload = record.map_err(TlsError::from)?.payload;
            let count = payload.len().min(self.into.len() - self.filled);
            self.into[self.filled..self.filled + count].copy_from_slice(&payload[..count]);
            self.filled += count;
            self.plain.extend(&payload[count..]);
        }
        Ok(())
    }
}

fn encrypt<D>(
    UnbufferedStatus { discard, state }: UnbufferedStatus<'_, '_, D>,
    plain: &[u8],
    out: &mut [u8],
) -> (usize, Result<usize, Fault>) {
    let sealed = match state {
        Ok(ConnectionState::WriteTraffic(mut writing)) => {
            writing.encrypt(plain, out).map_err(|error| Fault::Own(general(encrypting(error))))
        }
        Err(error) => Err(Fault::OfPeer(error)),
        Ok(_) => Err(Fault::Own(general("nothing can be sent in this state".into()))),
    };
    (discard, sealed)
}

fn say_goodbye<D>(status: UnbufferedStatus<'_, '_, D>, out: &mut Vec<u8>) {
    if let Ok(ConnectionState::WriteTraffic(mut writing)) = status.state {
        let mut alert = [0; 2 * RECORD_EXTRA];
        // Fails only when the keys are used up: then the peer sees the end of the stream only.
        if let Ok(bytes) = writing.queue_close_notify(&mut alert) {
            out.extend_from_slice(&alert[..bytes]);
        }
    }
}

/// Takes one message that is to be sent. False: there is none.
fn encode_one<D>(status: UnbufferedStatus<'_, '_, D>, pending: &mut Vec<u8>) -> bool {
    match status.state {
        Ok(ConnectionState::EncodeTlsData(mut encoding)) => encode(&mut encoding, pending).is_ok(),
        _ => false,
    }
}

fn general(message: String) -> TlsError {
    TlsError::Protocol(rustls::Error::General(message))
}

fn encrypting(error: EncryptError) -> String {
    format!("encrypting: {error}; the client has to connect again")
}

fn encode<D>(encoding: &mut EncodeTlsData<'_, D>, pending: &mut Vec<u8>) -> Result<(), TlsError> {
    let from = pending.len();
    let mut room = 4 << 10;
    loop {
        if from + room > PENDING_BYTES_MAX {
            return Err(general("handshake messages that are too long to be sent".into()));
        }
        pending.resize(from + room, 0);
        match encoding.encode(&mut pending[from..]) {
            Ok(bytes) => {
                pending.truncate(from + bytes);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(needed)) => room = needed.required_size,
            Err(error) => {
                pending.truncate(from);
                return Err(general(error.to_string()));
            }
        }
    }
}

/// Drops the first `bytes` bytes of `bufs`.
pub(crate) fn drop_first(bufs: &mut Bufs, mut bytes: usize) {
    let mut whole = 0;
    for buf in bufs.iter_mut() {
        if bytes < buf.len() {
            *buf = buf.slice(bytes..buf.len());
            break;
        }
        bytes -= buf.len();
        whole += 1;
    }
    bufs.drain(..whole);
}
