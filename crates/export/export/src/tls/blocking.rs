//! A client's TLS on a blocking socket of an ordinary thread, from its handshake until a shard goes on with it.
//!
//! Does not know how long a read or write may take: whoever gives the socket does. Invariant: no plain byte is lost on the way
//! to the shard.

use std::io::{ErrorKind, Read, Write};

use braid_shard::Pool;

use super::identity::{ClientTls, TlsError};
use super::session::{Handed, Session, sealed_bytes};

/// See the module's documentation.
pub struct BlockingTls {
    session: Session,
    pool: Pool,
}

impl BlockingTls {
    /// Shakes hands over `socket`.
    ///
    /// # Errors
    /// The server is not the one that is expected, does not accept the client, or breaks the protocol; the socket's.
    pub fn connect(tls: &ClientTls, socket: &mut (impl Read + Write)) -> Result<Self, TlsError> {
        // Of this thread alone, like all that comes from it.
        let pool = Pool::new(0);
        let mut own = BlockingTls { session: Session::of_client(tls, &pool)?, pool };
        loop {
            let step = own.session.shake_hands();
            let flight = own.session.take_pending();
            let sent = socket.write_all(&flight);
            let done = step?;
            sent?;
            if done {
                return Ok(own);
            }
            own.fill(socket)?;
        }
    }

    fn fill(&mut self, socket: &mut impl Read) -> Result<(), TlsError> {
        let Some(mut room) = self.session.room() else {
            let error =
                std::io::Error::new(ErrorKind::InvalidData, "a TLS message that is too long");
            return Err(TlsError::Socket(error));
        };
        let received = socket.read(&mut room);
        let bytes = received.as_ref().map_or(0, |bytes| *bytes);
        self.session.received(room, bytes);
        match received? {
            0 => Err(TlsError::Socket(ErrorKind::UnexpectedEof.into())),
            _ => Ok(()),
        }
    }

    /// Receives at least one byte.
    ///
    /// # Errors
    /// The connection broke, or has ended.
    pub fn receive(
        &mut self,
        socket: &mut (impl Read + Write),
        bytes: &mut [u8],
    ) -> Result<usize, TlsError> {
        loop {
            match self.session.open(bytes)? {
                Some(0) => self.fill(socket)?,
                Some(count) => return Ok(count),
                None => return Err(TlsError::Socket(ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The connection broke, or its keys are used up.
    pub fn send(&mut self, socket: &mut impl Write, bytes: &[u8]) -> Result<(), TlsError> {
        let mut bufs = std::iter::once(self.pool.copy_of(bytes).freeze()).collect();
        let mut records = vec![0; sealed_bytes(bytes.len())];
        loop {
            match self.session.seal(&mut bufs, &mut records)? {
                0 => return Ok(()),
                made => socket.write_all(records.get(..made).unwrap_or_default())?,
            }
        }
    }

    /// Gives it away, for a shard. `None` when something has come that nobody has received.
    #[must_use]
    pub fn hand_over(self) -> Option<Handed> {
        self.session.hand_over()
    }
}
