//! The HTTP of the metrics: `GET /metrics` is answered, the connection closed, one thread for each.
//!
//! Requests are parsed by httparse. Owns the listening socket. Does not know what is served.

use anyhow::{Context, Result, anyhow};
use braid_export::socket_file::{Rights, SocketFile};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections at a time; further ones are closed.
const CONNECTIONS_MAX: usize = 16;
/// A request must have come, and an answer have been taken, within this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request at most.
const REQUEST_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Makes what is served.
pub type Page = dyn Fn() -> Result<String> + Send + Sync;

/// Where metrics are served.
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
            format!("{text:?} is no address for metrics: write ADDR:PORT, as 127.0.0.1:9810, or unix:PATH")
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
            Place::Tcp(address) => write!(f, "http://{address}/metrics"),
        }
    }
}

/// A server of metrics; dropping it ends it.
pub struct MetricsServer {
    listener: Arc<Listener>,
    place: Place,
    closed: Arc<AtomicBool>,
    file: Option<SocketFile>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

trait Stream: Read + Write + Send {
    fn patience(&self, left: Duration) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn patience(&self, left: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

impl Stream for TcpStream {
    fn patience(&self, left: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }
}

impl Listener {
    fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Unix(listener) => Box::new(listener.accept()?.0),
            Listener::Tcp(listener) => Box::new(listener.accept()?.0),
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl MetricsServer {
    /// Listens at `place` and answers with what `page` makes.
    ///
    /// # Errors
    /// When the address is taken or may not be used, or the system refuses a thread.
    pub fn start(place: &Place, page: Arc<Page>) -> Result<MetricsServer> {
        let doing = || format!("listening for metrics at {place}");
        let mut file = None;
        let (listener, place) = match place {
            Place::Unix(path) => {
                let (listener, bound) = SocketFile::bind(path, Rights::OWNER)
                    .map_err(|error| anyhow!("{error}; choose another place with --metrics"))?;
                file = Some(bound);
                (Listener::Unix(listener), place.clone())
            }
            Place::Tcp(address) => {
                let listener = TcpListener::bind(address).with_context(doing)?;
                let own = listener.local_addr().with_context(doing)?;
                (Listener::Tcp(listener), Place::Tcp(own))
            }
        };
        let (listener, closed) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (accepts, ends) = (Arc::clone(&listener), Arc::clone(&closed));
        std::thread::Builder::new()
            .name("metrics".to_string())
            .spawn(move || accept_all(&accepts, &ends, &page))
            .context("starting the thread of the metrics")?;
        Ok(MetricsServer { listener, place, closed, file })
    }

    /// Where it listens.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the thread that accepts; a listener that failed has ended already.
        let _ = rustix::net::shutdown(self.listener.fd(), rustix::net::Shutdown::Both);
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

fn accept_all(listener: &Listener, closed: &AtomicBool, page: &Arc<Page>) {
    let connections = Arc::new(AtomicUsize::new(0));
    while !closed.load(Ordering::Acquire) {
        match listener.accept() {
            Ok(stream) => start(stream, page, &connections),
            Err(_) if closed.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection for metrics failed");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Counts a connection for as long as it lasts.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn start(mut stream: Box<dyn Stream>, page: &Arc<Page>, connections: &Arc<AtomicUsize>) {
    let before = connections.fetch_add(1, Ordering::AcqRel);
    let counted = Counted(Arc::clone(connections));
    if before >= CONNECTIONS_MAX {
        return;
    }
    let page = Arc::clone(page);
    let work = move || {
        // A client that is slow or gone has no use for the error.
        let _ = converse(&mut *stream, &*page);
        drop(counted);
    };
    if let Err(error) = std::thread::Builder::new().name("metrics-client".to_string()).spawn(work) {
        tracing::warn!(%error, "starting a thread for a connection for metrics failed");
    }
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// The metrics; with `body`, more than the head of the answer.
    Metrics { body: bool },
    /// Something else, answered with a status and a sentence.
    Other(&'static str, &'static str),
}

fn converse(stream: &mut dyn Stream, page: &Page) -> std::io::Result<()> {
    let asked = read_request(stream, Instant::now() + PATIENCE)?;
    stream.patience(PATIENCE)?;
    let (status, kind, text, body) = match asked {
        Asked::Metrics { body } => match page() {
            Ok(text) => ("200 OK", OPENMETRICS, text, body),
            Err(error) => {
                ("500 Internal Server Error", PLAIN, format!("making metrics: {error:#}\n"), body)
            }
        },
        Asked::Other(status, why) => (status, PLAIN, format!("{why}\n"), true),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if body {
        answer.push_str(&text);
    }
    stream.write_all(answer.as_bytes())?;
    stream.flush()
}

fn read_request(stream: &mut dyn Stream, until: Instant) -> std::io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        if let Some(asked) = parse(&bytes) {
            return Ok(asked);
        }
        if bytes.len() >= REQUEST_MAX {
            return Ok(Asked::Other(
                "431 Request Header Fields Too Large",
                "the request is too long",
            ));
        }
        // One byte now and then does not make it last longer.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.patience(left)?;
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(part.get(..len).unwrap_or_default()),
        }
    }
}

/// `None` while there must come more.
fn parse(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Asked::Other("400 Bad Request", "this is no HTTP request")),
    }
    let path = request.path.and_then(|path| path.split('?').next());
    Some(match (request.method, path) {
        (Some("GET"), Some("/metrics")) => Asked::Metrics { body: true },
        (Some("HEAD"), Some("/metrics")) => Asked::Metrics { body: false },
        (Some("GET" | "HEAD"), _) => Asked::Other("404 Not Found", "metrics are at /metrics"),
        _ => Asked::Other("405 Method Not Allowed", "GET /metrics is all there is"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::path::Path;

    fn say(path: &Path, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // One that was refused is hung up on before all is read.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn served(page: Arc<Page>) -> (tempfile::TempDir, PathBuf, MetricsServer) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.sock");
        let server = MetricsServer::start(&Place::Unix(path.clone()), page).unwrap();
        (folder, path, server)
    }

    #[test]
    fn metrics_are_given_and_anything_else_is_told_where_they_are() {
        let (_folder, path, server) = served(Arc::new(|| Ok("figures\n".to_string())));
        let answer = say(&path, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nfigures\n"));
        assert!(answer.contains("Content-Length: 8\r\n"), "{answer}");
        let head = say(&path, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\u{1}\u{2}\r\n\r\n", "400"),
        ] {
            let answer = say(&path, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(2 * REQUEST_MAX));
        assert!(say(&path, long.as_bytes()).starts_with("HTTP/1.1 431"));
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn clients_that_say_nothing_keep_no_other_from_its_answer() {
        let (_folder, path, _server) = served(Arc::new(|| bail!("no figures")));
        let silent: Vec<UnixStream> =
            (0..CONNECTIONS_MAX - 1).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut half = &silent[0];
        half.write_all(b"GET /met").unwrap();
        let answer = say(&path, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("no figures"), "{answer}");
    }

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

    #[test]
    fn a_place_that_is_taken_is_left_alone() {
        let (folder, path, _server) = served(Arc::new(|| Ok(String::new())));
        let again = MetricsServer::start(&Place::Unix(path), Arc::new(|| Ok(String::new())));
        assert!(format!("{:#}", again.err().unwrap()).contains("in use"));
        let file = folder.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        let other =
            MetricsServer::start(&Place::Unix(file.clone()), Arc::new(|| Ok(String::new())));
        assert!(other.is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }
}
