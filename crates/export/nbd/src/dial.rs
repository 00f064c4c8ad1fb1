//! Connections made and greeted within a time, by blocking calls: on an ordinary thread, never on a shard's.
//!
//! Owns everything before the first request: names resolved, the socket and its options, the handshake. Invariant:
//! whatever the other side does or leaves, it is over when the time is.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use braid_export::tls::{BlockingTls, CertificatesError, ClientTls, Handed, TlsError};
use braid_shard::Shard;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};

use crate::Address;
use crate::protocol::{
    ClientHandshake, ClientHandshakeError, ClientHandshakeStep, ClientOptions, Headers, Request,
    ServerOffer,
};
use crate::uri::{ExportUri, Place, UriTls};

/// A server has so long for all that comes before the first request.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A peer that is silent for so long is asked whether it is there, …
const ASKED_AFTER: Duration = Duration::from_secs(10);
/// … again so often, …
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// … so many times, and is gone then. The same time holds for what it does not take: 30 seconds in all.
const ASKED_TIMES: u32 = 4;
const GONE_AFTER_MS: u32 = 30_000;

/// Bytes that are received at once during a handshake.
const RECEIVE_BYTES: usize = 4096;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there, or the way is barred.
    #[error("connecting to {address}: {source}; check that a server listens there")]
    Connect {
        /// Where.
        address: Address,
        /// The error of the system call.
        source: io::Error,
    },
    /// The host has no address, as far as can be known now.
    #[error("looking for host {host}: {why}; check its name, or give an IP address")]
    Resolve {
        /// The host.
        host: String,
        /// The answer of the resolver.
        why: String,
    },
    /// The server did not answer in time.
    #[error(
        "the NBD server at {0} does not answer; check that it runs, and that it takes one client more"
    )]
    Silent(Address),
    /// The server ended the connection, or it broke.
    #[error("the NBD server at {address} ended the handshake: {source}")]
    Cut {
        /// Where.
        address: Address,
        /// The error of the system call.
        source: io::Error,
    },
    /// There are no certificates for TLS.
    #[error("the certificates for the NBD server: {0}")]
    Certificates(#[from] CertificatesError),
    /// The server is not who it should be, or does not accept this client.
    #[error(
        "TLS with the NBD server at {address}: {source}; check the certificates of both, and that the server's is for the \
         host's name (tls-hostname in the URI says another)"
    )]
    Tls {
        /// Where.
        address: Address,
        /// The reason.
        source: TlsError,
    },
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] ClientHandshakeError),
    /// The export is not what it was when it was looked at.
    #[error(
        "the export at {0} has changed its size, its block sizes or what it can do since it was looked at: open it anew"
    )]
    Changed(Address),
    /// The shard has no io_uring.
    #[error("shard {0} has no io_uring, so it has no sockets: start shards with a ring")]
    NoRing(u16),
    /// There can be no thread to connect on.
    #[error("starting a thread to connect to an NBD server: {0}; check the limit of processes")]
    Thread(io::Error),
}

/// A connection that has entered an export and has sent no request yet.
pub(crate) struct Dialled {
    /// A connected socket in blocking mode.
    pub fd: OwnedFd,
    /// Whom it is connected to.
    pub address: Address,
    /// The server's offer.
    pub offer: ServerOffer,
    /// The TLS that has begun on it.
    pub secure: Option<Handed>,
}

/// Whom to connect to.
#[derive(Debug, Clone)]
pub(crate) enum Callee {
    /// An address, and what is wanted there.
    Address(Address, ClientOptions),
    /// An export, its host not resolved yet.
    Uri(ExportUri),
}

impl Callee {
    /// Connects and enters the export.
    ///
    /// # Errors
    /// Nobody listens, the server refuses or is none, or it has not answered by `until`.
    pub fn dial(&self, until: Instant) -> Result<Dialled, ConnectError> {
        match self {
            Callee::Address(address, options) => dial(address, options.clone(), None, until),
            Callee::Uri(uri) => {
                // Read each time, since certificates are renewed.
                let tls = uri.tls().map(|tls| client_tls(tls, uri.place())).transpose()?;
                let export = uri.export().to_string();
                let options = ClientOptions { export, headers: Headers::Extended };
                let mut addresses = addresses(uri.place(), until)?;
                let last = addresses.pop();
                for (at, address) in addresses.iter().enumerate() {
                    // One that does not answer leaves time for the others.
                    let others = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
                    let share = left(until).unwrap_or_default() / others.saturating_add(1);
                    match dial(address, options.clone(), tls.as_ref(), Instant::now() + share) {
                        Err(ConnectError::Connect { .. } | ConnectError::Silent(_)) => {}
                        done => return done,
                    }
                }
                let last = last.ok_or_else(|| no_address(uri.place()))?;
                dial(&last, options, tls.as_ref(), until)
            }
        }
    }

    /// The same on a thread of its own, for a task of `shard` to wait for.
    ///
    /// # Errors
    /// As [`Callee::dial`].
    pub async fn dial_from(self, shard: &Shard) -> Result<Dialled, ConnectError> {
        let (send, receive) = mpsc::sync_channel(1);
        let (task, remote) = (shard.current_task(), shard.remote());
        let work = move || {
            // The caller may be gone, and the shard too.
            let _ = send.send(self.dial(Instant::now() + ANSWER_WITHIN));
            remote.run(move |shard| shard.wake(task));
        };
        thread::Builder::new()
            .name("nbd-connect".to_string())
            .spawn(work)
            .map_err(ConnectError::Thread)?;
        poll_fn(|_| match receive.try_recv() {
            Ok(done) => Poll::Ready(done),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => {
                let ended = io::Error::other("it ended without a result");
                Poll::Ready(Err(ConnectError::Thread(ended)))
            }
        })
        .await
    }
}

/// The offer of the export: connects, asks and disconnects.
///
/// # Errors
/// As [`Callee::dial`].
pub(crate) fn ask(uri: &ExportUri, within: Duration) -> Result<ServerOffer, ConnectError> {
    let dialled = Callee::Uri(uri.clone()).dial(Instant::now() + within)?;
    if dialled.secure.is_none() {
        // The offer is known by now; a server that has gone meanwhile need not be told.
        let mut goodbye = Vec::new();
        Request::put_disconnect(dialled.offer.headers, &mut goodbye);
        let _ = rustix::net::send(&dialled.fd, &goodbye, SendFlags::NOSIGNAL);
    }
    Ok(dialled.offer)
}

/// The TLS that a URI asks for. A socket in the file system is on this host.
fn client_tls(tls: &UriTls, place: &Place) -> Result<ClientTls, ConnectError> {
    let host = match (&tls.hostname, place) {
        (Some(name), _) => name,
        (None, Place::Tcp { host, .. }) => host,
        (None, Place::Unix(_)) => "localhost",
    };
    Ok(ClientTls::load(&tls.certificates, host)?)
}

/// The time that is left; `None`: none.
fn left(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

fn no_address(place: &Place) -> ConnectError {
    let host = match place {
        Place::Tcp { host, .. } => host.clone(),
        Place::Unix(path) => path.display().to_string(),
    };
    ConnectError::Resolve { host, why: "it has no address".to_string() }
}

/// The addresses of a server, those to be tried first at the front.
fn addresses(place: &Place, until: Instant) -> Result<Vec<Address>, ConnectError> {
    let (host, port) = match place {
        Place::Unix(path) => return Ok(vec![Address::Unix(path.clone())]),
        Place::Tcp { host, port } => (host, *port),
    };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![Address::Tcp(SocketAddr::new(ip, port))]);
    }
    let failed = |why: String| ConnectError::Resolve { host: host.clone(), why };
    let (send, receive) = mpsc::sync_channel(1);
    let wanted = host.clone();
    // The resolver has times of its own, and nobody can stop it: it is left behind when it takes too long.
    let work = move || {
        let found = (wanted.as_str(), port).to_socket_addrs();
        let _ = send.send(found.map(|found| found.map(Address::Tcp).collect::<Vec<_>>()));
    };
    let started = thread::Builder::new().name("nbd-resolve".to_string()).spawn(work);
    started.map_err(ConnectError::Thread)?;
    match receive.recv_timeout(left(until).unwrap_or_default()) {
        Ok(Ok(found)) if found.is_empty() => Err(no_address(place)),
        Ok(found) => found.map_err(|error| failed(error.to_string())),
        Err(RecvTimeoutError::Timeout) => Err(failed("no answer in time".to_string())),
        Err(RecvTimeoutError::Disconnected) => Err(failed("the resolver failed".to_string())),
    }
}

fn dial(
    address: &Address,
    options: ClientOptions,
    tls: Option<&ClientTls>,
    until: Instant,
) -> Result<Dialled, ConnectError> {
    let mut handshake = ClientHandshake::new(options)?;
    if tls.is_some() {
        handshake = handshake.within_tls();
    }
    let connected = match address {
        Address::Unix(path) => connect_unix(path, until),
        Address::Tcp(place) => connect_tcp(place, until),
    };
    let failed = |source: io::Error| match is_late(&source) {
        true => ConnectError::Silent(address.clone()),
        false => ConnectError::Connect { address: address.clone(), source },
    };
    let fd = connected.map_err(failed)?;
    let cut = |source: io::Error| match is_late(&source) {
        true => ConnectError::Silent(address.clone()),
        false => ConnectError::Cut { address: address.clone(), source },
    };
    let of_tls = |source: TlsError| match source {
        TlsError::Socket(source) => cut(source),
        source => ConnectError::Tls { address: address.clone(), source },
    };
    let too_early = || cut(io::Error::other("it sent a reply before any request"));
    let (mut out, mut bytes) = (Vec::new(), vec![0; RECEIVE_BYTES]);
    let mut secure: Option<BlockingTls> = None;
    let mut socket = Timed { fd: &fd, until };
    let offer = loop {
        let received = match &mut secure {
            None => receive(&fd, &mut bytes, until).map_err(cut)?,
            Some(secure) => secure.receive(&mut socket, &mut bytes).map_err(of_tls)?,
        };
        let mut input = bytes.get(..received).unwrap_or_default();
        let step = handshake.step(&mut input, &mut out)?;
        match (step, tls) {
            (ClientHandshakeStep::Transmission(offer), _) if input.is_empty() => break *offer,
            (ClientHandshakeStep::Transmission(_), _) => return Err(too_early()),
            (ClientHandshakeStep::StartTls, Some(tls)) => {
                if !input.is_empty() {
                    return Err(cut(io::Error::other(
                        "it said something between its words and TLS",
                    )));
                }
                secure = Some(BlockingTls::connect(tls, &mut socket).map_err(of_tls)?);
                handshake.go_on(&mut out);
            }
            _ => {}
        }
        match &mut secure {
            None => send_all(&fd, &out, until).map_err(cut)?,
            Some(secure) => secure.send(&mut socket, &out).map_err(of_tls)?,
        }
        out.clear();
    };
    let secure = match secure {
        None => None,
        Some(secure) => Some(secure.hand_over().ok_or_else(too_early)?),
    };
    // From here on who uses it decides how long it waits.
    for direction in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(&fd, direction, None).map_err(|error| failed(error.into()))?;
    }
    Ok(Dialled { fd, address: address.clone(), offer, secure })
}

/// A socket whose reads and writes are over when the time is.
struct Timed<'a> {
    fd: &'a OwnedFd,
    until: Instant,
}

impl io::Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        receive(self.fd, bytes, self.until)
    }
}

impl io::Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send_all(self.fd, bytes, self.until).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn connect_unix(path: &Path, until: Instant) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A server that does not accept lets its queue fill up, and who connects waits for room in it.
    sockopt::set_socket_timeout(&fd, Timeout::Send, Some(left(until).ok_or(Errno::TIMEDOUT)?))?;
    rustix::net::connect(&fd, &address)?;
    Ok(fd)
}

fn connect_tcp(place: &SocketAddr, until: Instant) -> io::Result<OwnedFd> {
    let fd = OwnedFd::from(TcpStream::connect_timeout(place, left(until).ok_or(Errno::TIMEDOUT)?)?);
    sockopt::set_tcp_nodelay(&fd, true)?;
    // A machine that loses power says nothing. Without these, requests under way would wait for ever.
    sockopt::set_socket_keepalive(&fd, true)?;
    sockopt::set_tcp_keepidle(&fd, ASKED_AFTER)?;
    sockopt::set_tcp_keepintvl(&fd, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(&fd, ASKED_TIMES)?;
    sockopt::set_tcp_user_timeout(&fd, GONE_AFTER_MS)?;
    // What the server has not acknowledged when the connection ends, with the process too, must not reach it later: by then
    // another host may have the export. Without this the kernel would go on sending it.
    sockopt::set_socket_linger(&fd, Some(Duration::ZERO))?;
    Ok(fd)
}

/// Receives at least one byte.
fn receive(fd: &OwnedFd, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let wait = left(until).ok_or(Errno::TIMEDOUT)?;
        sockopt::set_socket_timeout(fd, Timeout::Recv, Some(wait))?;
        match rustix::net::recv(fd, &mut *bytes, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((received, _)) => return Ok(received.min(bytes.len())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn send_all(fd: &OwnedFd, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let wait = left(until).ok_or(Errno::TIMEDOUT)?;
        sockopt::set_socket_timeout(fd, Timeout::Send, Some(wait))?;
        match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn uri(text: &str) -> ExportUri {
        text.parse().unwrap()
    }

    /// A time that is over before anybody can answer, and long enough to connect.
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn a_server_that_never_answers_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mute.sock");
        let _unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        for text in [
            format!("nbd+unix:///x?socket={}", path.display()),
            format!("nbd://127.0.0.1:{port}/x"),
            format!("nbd://localhost:{port}/x"),
        ] {
            let said = ask(&uri(&text), SHORT).unwrap_err();
            let mute = matches!(said, ConnectError::Silent(_) | ConnectError::Connect { .. });
            assert!(mute, "{text}: {said}");
        }
        assert!(matches!(
            ask(&uri(&format!("nbd://127.0.0.1:{port}/x")), Duration::ZERO),
            Err(ConnectError::Silent(_))
        ));
    }

    #[test]
    fn where_nobody_listens_the_message_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        drop(tcp);
        for text in [
            format!("nbd+unix:///x?socket={}", missing.display()),
            format!("nbd://127.0.0.1:{port}/x"),
        ] {
            let said = ask(&uri(&text), ANSWER_WITHIN).unwrap_err().to_string();
            assert!(said.contains("check that a server listens there"), "{said}");
        }
        let long = format!("nbd+unix:///x?socket=/{}", "a".repeat(200));
        assert!(matches!(ask(&uri(&long), ANSWER_WITHIN), Err(ConnectError::Connect { .. })));
    }

    #[test]
    fn a_server_that_is_none_is_named() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            use std::io::Write;
            for greeting in ["SSH-2.0-OpenSSH_9.9 hello\r\n", ""] {
                tcp.accept().unwrap().0.write_all(greeting.as_bytes()).unwrap();
            }
        });
        let text = format!("nbd://127.0.0.1:{port}/x");
        let said = ask(&uri(&text), ANSWER_WITHIN).unwrap_err().to_string();
        assert!(said.contains("not that of a newstyle NBD server"), "{said}");
        assert!(matches!(ask(&uri(&text), ANSWER_WITHIN), Err(ConnectError::Cut { .. })));
        server.join().unwrap();
    }
}
