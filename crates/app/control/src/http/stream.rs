//! A connection.

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::cell::Cell;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes from a peer and to it.
pub trait Stream: Read + Write + Send {
    /// The time that what is read or written next may take.
    ///
    /// # Errors
    /// When the system refuses it.
    fn patience(&self, time: Duration) -> Result<()>;
}

impl Stream for UnixStream {
    fn patience(&self, time: Duration) -> Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }
}

impl Stream for TcpStream {
    fn patience(&self, time: Duration) -> Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }
}

/// A socket below TLS, where one call may read many times: all of them end at the same time.
struct Timed {
    socket: TcpStream,
    until: Cell<Instant>,
}

impl Timed {
    fn hurry(&self) -> Result<()> {
        let left = self.until.get().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.patience(left)
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.hurry()?;
        self.socket.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.hurry()?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.socket.flush()
    }
}

/// A connection over TLS; hands are shaken with the first bytes.
struct OverTls(StreamOwned<ServerConnection, Timed>);

impl Read for OverTls {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for OverTls {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

impl Stream for OverTls {
    fn patience(&self, time: Duration) -> Result<()> {
        self.0.sock.until.set(Instant::now() + time);
        Ok(())
    }
}

impl Drop for OverTls {
    fn drop(&mut self) {
        // The peer sees that nothing was cut off, if it still looks.
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
    }
}

/// The server's side of TLS on a socket.
///
/// # Errors
/// A configuration that cannot be used.
pub fn over_tls(config: &Arc<ServerConfig>, socket: TcpStream) -> Result<Box<dyn Stream>> {
    let session = ServerConnection::new(Arc::clone(config)).map_err(Error::other)?;
    let timed = Timed { socket, until: Cell::new(Instant::now()) };
    Ok(Box::new(OverTls(StreamOwned::new(session, timed))))
}
