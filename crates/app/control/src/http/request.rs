//! A request as it comes in.

use super::stream::Stream;
use std::io::{ErrorKind, Result};
use std::time::{Duration, Instant};

/// Bytes of the head at most.
const HEAD_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Bytes that are read at a time.
const PART: usize = 16 << 10;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// GET, POST, …
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, as it stands behind the question mark.
    pub query: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// The bytes behind the head.
    pub body: Vec<u8>,
    /// The connection goes on after it.
    pub keep: bool,
}

impl Request {
    /// A header, where there is one just once: one that comes twice may mean either.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }
}

/// The next thing that came.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// A request.
    Request(Request),
    /// Bytes that cannot be answered as a request is: a status, and a sentence.
    Wrong(u16, &'static str),
    /// A line that begins as JSON does, and so is no HTTP.
    Line,
    /// The peer has hung up between requests.
    End,
}

/// The bytes that came and belong to later requests.
#[derive(Default)]
pub struct Incoming(Vec<u8>);

impl Incoming {
    /// The next request, which must have come as a whole within `patience`; its body has `body_max` bytes at most.
    ///
    /// # Errors
    /// A connection that broke, or a peer that took too long.
    pub fn next(
        &mut self,
        stream: &mut dyn Stream,
        body_max: usize,
        patience: Duration,
    ) -> Result<Came> {
        let until = Instant::now() + patience;
        let (mut request, len) = loop {
            if self.0.first() == Some(&b'{') {
                while !self.0.contains(&b'\n') && self.0.len() < body_max {
                    if self.read(stream, until)? == 0 {
                        break;
                    }
                }
                return Ok(Came::Line);
            }
            match head(&self.0) {
                Head::Whole(request, len) => break (request, len),
                Head::Wrong(status, why) => return Ok(Came::Wrong(status, why)),
                Head::Partial if self.0.len() >= HEAD_MAX => {
                    return Ok(Came::Wrong(431, "the head of the request is too long"));
                }
                Head::Partial => {}
            }
            if self.read(stream, until)? == 0 {
                return match self.0.is_empty() {
                    true => Ok(Came::End),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        };
        self.0.drain(..len);
        if request.headers.iter().any(|(name, _)| name == "transfer-encoding") {
            return Ok(Came::Wrong(411, "send the body with a Content-Length, not in chunks"));
        }
        let announced = request.headers.iter().filter(|(name, _)| name == "content-length");
        let len = match announced.map(|(_, value)| value.parse::<usize>()).collect::<Vec<_>>()[..] {
            [] => 0,
            [Ok(len)] => len,
            _ => return Ok(Came::Wrong(400, "the Content-Length is no number")),
        };
        if len > body_max {
            return Ok(Came::Wrong(413, "the body of the request is too long"));
        }
        if len > 0 && request.header("expect").is_some_and(|what| what == "100-continue") {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        while self.0.len() < len {
            if self.read(stream, until)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        request.body = self.0.drain(..len).collect();
        Ok(Came::Request(request))
    }

    /// One byte now and then does not make it last longer, and neither does a signal.
    fn read(&mut self, stream: &mut dyn Stream, until: Instant) -> Result<usize> {
        let before = self.0.len();
        self.0.resize(before + PART, 0);
        let read = loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(ErrorKind::TimedOut.into());
            }
            let part = self.0.get_mut(before..).unwrap_or_default();
            let read = stream.patience(left).and_then(|()| stream.read(part));
            // Reads with a time limit are not begun again by the system.
            if !matches!(&read, Err(error) if error.kind() == ErrorKind::Interrupted) {
                break read;
            }
        };
        self.0.truncate(before + *read.as_ref().unwrap_or(&0));
        read
    }
}

enum Head {
    Partial,
    Whole(Request, usize),
    Wrong(u16, &'static str),
}

fn head(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => return Head::Partial,
        Ok(httparse::Status::Complete(len)) => len,
        Err(httparse::Error::TooManyHeaders) => {
            return Head::Wrong(431, "the request has too many headers");
        }
        Err(_) => return Head::Wrong(400, "this is no HTTP request"),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: Vec<(String, String)> = parsed
        .headers
        .iter()
        .map(|header| {
            let value = String::from_utf8_lossy(header.value).trim().to_string();
            (header.name.to_ascii_lowercase(), value)
        })
        .collect();
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_string(),
        path: path.to_string(),
        query: query.to_string(),
        headers,
        body: Vec::new(),
        keep: false,
    };
    let asked = request.header("connection").unwrap_or_default().to_ascii_lowercase();
    request.keep = parsed.version == Some(1) && asked != "close";
    Head::Whole(request, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn came(bytes: &[u8]) -> Vec<Came> {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        let mut incoming = Incoming::default();
        let mut all = Vec::new();
        while let Ok(came) = incoming.next(&mut ours, 100, PATIENCE) {
            let last = !matches!(came, Came::Request(_));
            all.push(came);
            if last {
                break;
            }
        }
        all
    }

    #[test]
    fn requests_follow_each_other_on_one_connection() {
        let all = came(
            b"POST /v1/a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{1}GET / HTTP/1.1\r\nconnection: Close\r\n\r\n",
        );
        let [Came::Request(first), Came::Request(second), Came::End] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/v1/a"));
        assert_eq!((first.query.as_str(), first.body.as_slice()), ("b=c", b"{1}".as_slice()));
        assert_eq!(first.header("host"), Some("x"));
        assert!(first.keep && !second.keep);
    }

    #[test]
    fn requests_that_cannot_be_read_get_a_status_of_their_own() {
        for (bytes, status) in [
            ("\u{1}\u{2}\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
            (&format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(2 * HEAD_MAX)), 431),
        ] {
            let all = came(bytes.as_bytes());
            assert!(matches!(&all[..], [Came::Wrong(found, _)] if *found == status), "{all:?}");
        }
        assert_eq!(came(b"{\"verb\":\"list\"}\n"), [Came::Line]);
        assert!(came(b"GET / HT").is_empty(), "it broke off");
    }

    #[test]
    fn a_peer_that_drips_bytes_runs_out_of_time() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let drips = std::thread::spawn(move || {
            while theirs.write_all(b"G").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let begun = Instant::now();
        let came = Incoming::default().next(&mut ours, 100, Duration::from_millis(200));
        assert!(came.is_err() && begun.elapsed() < PATIENCE);
        drop(ours);
        drips.join().unwrap();
    }
}
