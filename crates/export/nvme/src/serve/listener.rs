//! Listening sockets: binding them, taking connections from them, leaving nothing behind.
//!
//! Does not know what a connection is for.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt;

use crate::{Address, AddressError};
use braid_export::socket_file::{Rights, SocketFile, SocketFileError};
use braid_export::{Accept, Listening};

/// Why nothing can listen at an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error("{0} is in use by a running server: stop it or choose another address")]
    InUse(Address),
    /// The path is taken by something that is not a socket.
    #[error("{} exists and is not a socket: choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The socket file cannot be made.
    #[error("{0}; check that its folder exists and is writable")]
    File(SocketFileError),
    /// The system refused.
    #[error("listening on {address}: {source}; check that the address is this machine's")]
    System {
        /// Where.
        address: Address,
        /// The error of the system call.
        source: io::Error,
    },
    /// A socket came with an address that is none of NVMe's.
    #[error("taking over a socket: {0}")]
    Address(#[from] AddressError),
}

/// Silence after which a peer is asked whether it is there, how often it is asked, and how many answers may be missing: a
/// machine that is gone is noticed after two minutes.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A socket that listens.
pub(super) struct Listener {
    socket: Socket,
    address: Address,
    file: Option<SocketFile>,
}

impl Listener {
    /// Binds `address`; a socket file gets the permissions `mode`, one that nobody listens on is replaced.
    pub fn bind(address: &Address, mode: u32) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::System { address: address.clone(), source };
        let listener = match address {
            Address::Unix(path) => {
                let rights = Rights { mode, group: None };
                let (socket, file) =
                    SocketFile::bind(path, rights).map_err(|error| match error {
                        SocketFileError::InUse(_) => ListenError::InUse(address.clone()),
                        SocketFileError::NotASocket(path) => ListenError::NotASocket(path),
                        error => ListenError::File(error),
                    })?;
                let (socket, address) = (Socket::Unix(socket), address.clone());
                Listener { socket, address, file: Some(file) }
            }
            Address::Tcp(place) => {
                let socket = TcpListener::bind(place).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => ListenError::InUse(address.clone()),
                    _ => failed(error),
                })?;
                let address = Address::Tcp(socket.local_addr().map_err(failed)?);
                Listener { socket: Socket::Tcp(socket), address, file: None }
            }
        };
        let nonblocking = match &listener.socket {
            Socket::Unix(socket) => socket.set_nonblocking(true),
            Socket::Tcp(socket) => socket.set_nonblocking(true),
        };
        nonblocking.map_err(failed)?;
        Ok(listener)
    }

    /// Takes over a socket that another server listened on.
    pub fn adopt(listening: Listening) -> Result<Listener, ListenError> {
        let address: Address = listening.address.parse()?;
        let file = match &address {
            Address::Unix(path) => SocketFile::adopt(path),
            Address::Tcp(_) => None,
        };
        let socket = match address {
            Address::Unix(_) => Socket::Unix(listening.socket.into()),
            Address::Tcp(_) => Socket::Tcp(listening.socket.into()),
        };
        Ok(Listener { socket, address, file })
    }

    /// Where it listens; a TCP port chosen by the system is filled in.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A further descriptor of the socket, to wait on or to shut it down.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(match &self.socket {
            Socket::Unix(socket) => socket.try_clone()?.into(),
            Socket::Tcp(socket) => socket.try_clone()?.into(),
        })
    }
}

impl Accept for Listener {
    fn accept(&self) -> io::Result<OwnedFd> {
        Ok(match &self.socket {
            Socket::Unix(socket) => socket.accept()?.0.into(),
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                // Completions must not wait for acknowledgements.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                stream.into()
            }
        })
    }

    fn leave_file(&mut self) {
        self.file = None;
    }

    fn address(&self) -> String {
        self.address.to_string()
    }
}

/// Has the kernel ask whether the peer is still there when nothing comes from it: an idle client stays, one whose
/// machine is gone does not keep its connection for ever.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_say_nothing_are_asked_whether_they_are_there() {
        let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap(), 0o600).unwrap();
        let Address::Tcp(place) = listener.address().clone() else { panic!("not TCP") };
        let _client = TcpStream::connect(place).unwrap();
        let accepted = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), PROBE_AFTER);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), PROBES);
    }
}
