//! A client's socket: a buffer for small messages, data in place, and messages with their data in one call.
//!
//! Clients of all protocols that have sockets use it, so that what they cost says nothing about their protocols.

use std::io::{self, BufReader, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The time that the rest of a message may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the buffer: several small messages, and little of a large one, which is received where it is to lie.
const BUFFER_BYTES: usize = 32 << 10;

/// Why there is no message.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing came in time.
    Nothing,
    /// The server has ended the connection.
    Disconnected,
}

/// See the module's documentation.
pub struct Wire {
    socket: BufReader<UnixStream>,
    /// The time limit that the socket has.
    limit: Option<Duration>,
}

impl Wire {
    /// Of a connected socket.
    #[must_use]
    pub fn new(socket: UnixStream) -> Wire {
        Wire { socket: BufReader::with_capacity(BUFFER_BYTES, socket), limit: None }
    }

    fn limit(&mut self, limit: Duration) {
        if self.limit != Some(limit) {
            self.socket.get_ref().set_read_timeout(Some(limit)).expect("a time limit");
            self.limit = Some(limit);
        }
    }

    /// Waits until a message begins, and gives its first bytes.
    ///
    /// # Errors
    /// None comes.
    pub fn begin(&mut self, head: &mut [u8], within: Duration) -> Result<(), Silence> {
        if self.socket.buffer().is_empty() {
            self.limit(within);
        }
        let read = match self.socket.read(head) {
            Ok(0) => return Err(Silence::Disconnected),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Silence::Nothing);
            }
            Err(_) => return Err(Silence::Disconnected),
        };
        if within < PATIENCE {
            self.limit(PATIENCE);
        }
        self.fill(&mut head[read..])
    }

    /// Goes on with a message.
    ///
    /// # Errors
    /// The server has left in the middle of it.
    pub fn fill(&mut self, into: &mut [u8]) -> Result<(), Silence> {
        self.socket.read_exact(into).map_err(|_| Silence::Disconnected)
    }

    /// `length` bytes of a message.
    ///
    /// # Errors
    /// The server has left in the middle of it.
    pub fn data(&mut self, length: usize) -> Result<Vec<u8>, Silence> {
        let mut data = vec![0; length];
        self.fill(&mut data)?;
        Ok(data)
    }

    /// Sends a message and the data behind it.
    ///
    /// # Errors
    /// The socket's. A server that has left is noticed by what it answers, too.
    pub fn send(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let mut socket = self.socket.get_ref();
        let mut sent = 0;
        while sent < head.len() {
            match socket.write_vectored(&[IoSlice::new(&head[sent..]), IoSlice::new(data)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        socket.write_all(data.get(sent - head.len()..).unwrap_or_default())
    }
}
