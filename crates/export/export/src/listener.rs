//! Listening sockets: binding them, taking connections from them, leaving nothing behind.
//!
//! Does not know what a connection is for.

use std::ffi::OsStr;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketAddrUnix, SocketType, getsockname, sockopt};

use crate::socket_file::{Rights, SocketFile, SocketFileError};
use crate::{Accept, Address, AddressError, Allowed, Listening};

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
    #[error("listening on {address}: {error}; check that the address is this machine's")]
    System {
        /// Where.
        address: Address,
        /// The error of the system call.
        error: io::Error,
    },
    /// A socket that was passed to this process cannot be used.
    #[error(
        "a socket that was passed to this process cannot be used: {0}; it takes stream sockets that listen, TCP or unix \
         ones with a path"
    )]
    Passed(io::Error),
    /// A socket came with an address that is none.
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
pub struct Listener {
    socket: Socket,
    address: Address,
    file: Option<SocketFile>,
    allowed: Allowed,
}

impl Listener {
    /// Binds `address`; a socket file gets these rights, one that nobody listens on is replaced. Clients of networks that are
    /// not `allowed` are turned away.
    ///
    /// # Errors
    /// An address that is in use, taken by something else, or impossible.
    pub fn bind(
        address: &Address,
        rights: Rights,
        allowed: &Allowed,
    ) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::System { address: address.clone(), error };
        let listener = match address {
            Address::Unix(path) => {
                let (socket, file) =
                    SocketFile::bind(path, rights).map_err(|error| match error {
                        SocketFileError::InUse(_) => ListenError::InUse(address.clone()),
                        SocketFileError::NotASocket(path) => ListenError::NotASocket(path),
                        error => ListenError::File(error),
                    })?;
                let (socket, address) = (Socket::Unix(socket), address.clone());
                Listener { socket, address, file: Some(file), allowed: allowed.clone() }
            }
            Address::Tcp(place) => {
                let socket = TcpListener::bind(place).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => ListenError::InUse(address.clone()),
                    _ => failed(error),
                })?;
                let address = Address::Tcp(socket.local_addr().map_err(failed)?);
                Listener {
                    socket: Socket::Tcp(socket),
                    address,
                    file: None,
                    allowed: allowed.clone(),
                }
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
    ///
    /// # Errors
    /// Its address is none.
    pub fn adopt(listening: Listening, allowed: &Allowed) -> Result<Listener, ListenError> {
        let address: Address = listening.address.parse()?;
        let file = match &address {
            Address::Unix(path) => SocketFile::adopt(path),
            Address::Tcp(_) => None,
        };
        let socket = match address {
            Address::Unix(_) => Socket::Unix(listening.socket.into()),
            Address::Tcp(_) => Socket::Tcp(listening.socket.into()),
        };
        Ok(Listener { socket, address, file, allowed: allowed.clone() })
    }

    /// Listens at a socket that somebody else has bound, and whose file is not this one's to remove.
    ///
    /// # Errors
    /// It is no stream socket that listens, or has no address.
    pub fn inherit(socket: OwnedFd, allowed: &Allowed) -> Result<Listener, ListenError> {
        let failed = |source: Errno| ListenError::Passed(source.into());
        let listens = sockopt::socket_acceptconn(&socket).map_err(failed)?;
        let kind = sockopt::socket_type(&socket).map_err(failed)?;
        if !listens || kind != SocketType::STREAM {
            return Err(failed(Errno::NOTCONN));
        }
        let place = getsockname(&socket).map_err(failed)?;
        fcntl_setfl(&socket, fcntl_getfl(&socket).map_err(failed)? | OFlags::NONBLOCK)
            .map_err(failed)?;
        let path = |place: SocketAddrAny| {
            let place = SocketAddrUnix::try_from(place).ok()?;
            Some(PathBuf::from(OsStr::from_bytes(place.path()?.to_bytes())))
        };
        let (socket, address) = match SocketAddr::try_from(place.clone()) {
            Ok(place) => (Socket::Tcp(socket.into()), Address::Tcp(place)),
            Err(_) => {
                let path = path(place).ok_or_else(|| failed(Errno::AFNOSUPPORT))?;
                (Socket::Unix(socket.into()), Address::Unix(path))
            }
        };
        Ok(Listener { socket, address, file: None, allowed: allowed.clone() })
    }

    /// Where it listens; a TCP port chosen by the system is filled in.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A further descriptor of the socket, to wait on or to shut it down.
    ///
    /// # Errors
    /// When the system refuses one.
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
                // Answers must not wait for acknowledgements.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                stream.into()
            }
        })
    }

    fn admits(&self, connection: &OwnedFd) -> bool {
        self.allowed.admits(connection)
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
    fn sockets_that_were_passed_are_used_as_they_are_and_their_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let unix = OwnedFd::from(UnixListener::bind(&path).unwrap());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = tcp.local_addr().unwrap();
        for (socket, address) in
            [(unix, Address::Unix(path.clone())), (OwnedFd::from(tcp), Address::Tcp(place))]
        {
            let listener = Listener::inherit(socket, &Allowed::default()).unwrap();
            assert_eq!(*listener.address(), address);
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        assert!(path.exists());
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let udp = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let connected = OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0);
        for wrong in [file, udp, connected] {
            let error = Listener::inherit(wrong, &Allowed::default()).err().unwrap();
            assert!(error.to_string().contains("stream sockets that listen"), "{error}");
        }
    }

    #[test]
    fn peers_that_say_nothing_are_asked_whether_they_are_there() {
        let listener =
            Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap(), Rights::OWNER, &Allowed::default())
                .unwrap();
        let Address::Tcp(place) = listener.address().clone() else { panic!("not TCP") };
        let _client = TcpStream::connect(place).unwrap();
        let accepted = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), PROBE_AFTER);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), PROBES);
    }
}
