//! A listening address, with a thread for each connection.

use super::stream::{Stream, over_tls};
use anyhow::{Context, Result, anyhow};
use braid_export::socket_file::{Rights, SocketFile};
use rustls::ServerConfig;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An IP address and port; port 0 lets the system choose.
    Tcp(SocketAddr),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Place::Unix(path.into()));
        }
        let address = text.strip_prefix("tcp:").unwrap_or(text).parse();
        address.map(Place::Tcp).map_err(|_| {
            format!("{text:?} is no address: write ADDR:PORT, as 127.0.0.1:9810, or unix:PATH")
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
            Place::Tcp(address) => write!(f, "http://{address}/"),
        }
    }
}

/// Talks to a peer until it has gone.
pub type Talk = dyn Fn(&mut dyn Stream) + Send + Sync;

/// The server of something.
pub struct Wanted<'a> {
    /// The name of its threads, and the word for it in messages.
    pub name: &'static str,
    /// The option that says where it listens.
    pub option: &'static str,
    /// Where it listens.
    pub place: &'a Place,
    /// TLS, at an address of TCP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Connections at a time; further ones are closed.
    pub connections_max: usize,
}

/// A server; dropping it ends it. Those who are connected stay so.
pub struct Server {
    listener: Arc<Listener>,
    place: Place,
    closed: Arc<AtomicBool>,
    file: Option<SocketFile>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener, Option<Arc<ServerConfig>>),
}

impl Listener {
    fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Unix(listener) => Box::new(listener.accept()?.0),
            Listener::Tcp(listener, tls) => {
                let (socket, _) = listener.accept()?;
                // Answers are written in few pieces; one that waits for another is of no use.
                let _ = socket.set_nodelay(true);
                match tls {
                    Some(config) => over_tls(config, socket)?,
                    None => Box::new(socket),
                }
            }
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener, _) => listener.as_fd(),
        }
    }
}

impl Server {
    /// Listens, and has each peer talked to on a thread of its own.
    ///
    /// # Errors
    /// When the address is taken or may not be used, or the system refuses a thread.
    pub fn start(wanted: Wanted<'_>, talk: Arc<Talk>) -> Result<Server> {
        let Wanted { name, option, place, tls, connections_max } = wanted;
        let doing = || format!("listening for {name} at {place}");
        let mut file = None;
        let (listener, place) = match place {
            Place::Unix(path) => {
                let (listener, bound) = SocketFile::bind(path, Rights::OWNER)
                    .map_err(|error| anyhow!("{error}; choose another place with {option}"))?;
                file = Some(bound);
                (Listener::Unix(listener), place.clone())
            }
            Place::Tcp(address) => {
                let listener = TcpListener::bind(address).with_context(doing)?;
                let own = listener.local_addr().with_context(doing)?;
                (Listener::Tcp(listener, tls), Place::Tcp(own))
            }
        };
        let (listener, closed) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (accepts, ends) = (Arc::clone(&listener), Arc::clone(&closed));
        let connections = Connections::new(connections_max);
        let taken = move |mut stream: Box<dyn Stream>| {
            let Some(counted) = connections.enter() else { return };
            let talk = Arc::clone(&talk);
            counted.on_a_thread(name, move || talk(&mut *stream));
        };
        std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || accept_all(name, &ends, || accepts.accept(), taken))
            .with_context(|| format!("starting the thread of {name}"))?;
        Ok(Server { listener, place, closed, file })
    }

    /// Where it listens.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the thread that accepts; a listener that failed has ended already.
        let _ = rustix::net::shutdown(self.listener.fd(), rustix::net::Shutdown::Both);
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

/// Accepts connections with `accept` until `closed`, whose setting is followed by a wake-up, and gives each to `taken`; `name` is
/// the word for the server in messages.
pub fn accept_all<S>(
    name: &str,
    closed: &AtomicBool,
    accept: impl Fn() -> std::io::Result<S>,
    taken: impl Fn(S),
) {
    while !closed.load(Ordering::Acquire) {
        match accept() {
            Ok(stream) => taken(stream),
            Err(_) if closed.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection for {name} failed");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Bounds the connections of a listener.
pub struct Connections {
    now: Arc<AtomicUsize>,
    max: usize,
}

/// Counts a connection for as long as it lasts.
pub struct Counted(Arc<AtomicUsize>);

impl Connections {
    /// At most `max` at a time.
    pub fn new(max: usize) -> Connections {
        Connections { now: Arc::default(), max }
    }

    /// One more; `None` where there are too many.
    pub fn enter(&self) -> Option<Counted> {
        let before = self.now.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(Arc::clone(&self.now));
        (before < self.max).then_some(counted)
    }
}

impl Counted {
    /// Does the connection's work on a thread of its own.
    pub fn on_a_thread(self, name: &str, work: impl FnOnce() + Send + 'static) {
        let all = move || {
            work();
            drop(self);
        };
        let builder = std::thread::Builder::new().name(format!("{name}-client"));
        if let Err(error) = builder.spawn(all) {
            tracing::warn!(%error, "starting a thread for a connection for {name} failed");
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_others_say_what_to_write() {
        assert_eq!("unix:/run/m".parse(), Ok(Place::Unix("/run/m".into())));
        let tcp = Place::Tcp("127.0.0.1:9810".parse().unwrap());
        assert_eq!("127.0.0.1:9810".parse(), Ok(tcp.clone()));
        assert_eq!("tcp:127.0.0.1:9810".parse(), Ok(tcp));
        for text in ["", "unix:", "9810", "nowhere"] {
            assert!(text.parse::<Place>().unwrap_err().contains("unix:PATH"), "{text}");
        }
    }
}
