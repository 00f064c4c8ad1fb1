//! Listening sockets: binding them, taking connections from them, leaving nothing behind.
//!
//! Owns the socket file. Does not know what a connection is for. Invariant: a socket file is
//! removed only when it is this listener's own or nobody listens on it.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::Address;

/// Why nothing can listen at an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error("{0} is in use by a running server: stop it or choose another address")]
    InUse(Address),
    /// The path is taken by something that is not a socket.
    #[error("{} exists and is not a socket: choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error(
        "listening on {address}: {source}; check that the address is this machine's and the path's folder exists and is writable"
    )]
    System {
        /// Where.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A socket that listens.
pub(super) struct Listener {
    socket: Socket,
    address: Address,
    /// Device and inode of our socket file.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Binds `address`; a socket file that nobody listens on is replaced.
    pub fn bind(address: &Address) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::System { address: address.clone(), source };
        let listener = match address {
            Address::Unix(path) => {
                clear_stale(path, address)?;
                let socket = UnixListener::bind(path).map_err(failed)?;
                let file = fs::symlink_metadata(path).map_err(failed)?;
                Listener {
                    socket: Socket::Unix(socket),
                    address: address.clone(),
                    file: Some((file.dev(), file.ino())),
                }
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

    /// The next connection, in blocking mode; `WouldBlock` when none is waiting.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        Ok(match &self.socket {
            Socket::Unix(socket) => socket.accept()?.0.into(),
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                // Replies must not wait for acknowledgements (proto.md, "Protocol phases").
                stream.set_nodelay(true)?;
                stream.into()
            }
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (Address::Unix(path), Some(own)) = (&self.address, self.file) else { return };
        let still_ours =
            fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == own);
        if still_ours {
            // A file that cannot be removed is replaced by the next server.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket file that a dead server left behind.
fn clear_stale(path: &Path, address: &Address) -> Result<(), ListenError> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|source| ListenError::System { address: address.clone(), source }),
        // Full backlog and denied permission mean a live server as well.
        _ => Err(ListenError::InUse(address.clone())),
    }
}
