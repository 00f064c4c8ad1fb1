//! The control API: HTTP of either side, as a byte that says how the stream is cut and then the peer's bytes, and what a
//! path and a body of JSON stand for.

use super::target::{PLAIN, Target, Verdict, head, must, no_checksum};
use braid_control::api::paths;
use braid_control::http::reply::{JSON, Reply};
use braid_control::http::request::Request;
use braid_control::http::response::{Incoming, NotHttp, Part};
use braid_control::http::stream::Stream;
use braid_control::http::{Ended, Limits, converse, plainly};
use std::io::{Read, Result as IoResult, Write};
use std::time::Duration;

/// Bytes that a client sends to the server.
pub const REQUESTS: Target = Target {
    name: "http-requests",
    what: "HTTP server: requests of a client",
    fix: no_checksum,
    run: requests,
    // The server reads 16 KiB at a time, and an answer has a head.
    memory: 4 << 20,
    ..PLAIN
};

/// Bytes that a server answers.
pub const ANSWERS: Target = Target {
    name: "http-answers",
    what: "HTTP client: answers of a server",
    fix: no_checksum,
    run: answers,
    ..PLAIN
};

/// A line with method and path, and a body.
pub const API: Target = Target {
    name: "api-requests",
    what: "control API: method, path and query, body of JSON",
    fix: readable,
    run: api,
    ..PLAIN
};

/// Time has no part in it.
const LIMITS: Limits = Limits { patience: Duration::from_secs(3600), body_max: 64 << 10 };

/// The peer's bytes, so many at a time, and those that it is sent.
struct Peer<'a> {
    bytes: &'a [u8],
    piece: usize,
    sent: Vec<u8>,
}

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> IoResult<usize> {
        let len = self.piece.min(self.bytes.len()).min(into.len());
        let (now, rest) = self.bytes.split_at(len);
        into[..len].copy_from_slice(now);
        self.bytes = rest;
        Ok(len)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.sent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

impl Stream for Peer<'_> {
    fn patience(&self, _: Duration) -> IoResult<()> {
        Ok(())
    }
}

/// The requests that came, how it ended, and what was answered.
fn conversation(bytes: &[u8], piece: usize) -> (Vec<Request>, Ended, Vec<u8>) {
    let mut peer = Peer { bytes, piece, sent: Vec::new() };
    let mut all = Vec::new();
    let mut answer = |request: &Request, reply: &mut Reply<'_>| {
        all.push(request.clone());
        // Nothing fails to be written here.
        let _ = match request.path.len() % 2 {
            0 => reply.whole(200, JSON, b"{}"),
            _ => reply.line(b"1").and_then(|()| reply.line(b"2")),
        };
    };
    let ended = converse(&mut peer, LIMITS, &mut answer, &plainly);
    (all, ended, peer.sent)
}

fn requests(input: &[u8]) -> Result<Verdict, String> {
    let ([cut], stream) = head::<1>(input);
    let (whole, ended, sent) = conversation(stream, stream.len().max(1));
    let (pieces, ended_too, sent_too) = conversation(stream, 1 + usize::from(cut) % 40);
    must(whole == pieces, "a stream means the same however it is cut")?;
    must(ended == ended_too, "a stream ends the same however it is cut")?;
    must(sent == sent_too, "a stream is answered the same however it is cut")?;
    for request in &whole {
        must(request.body.len() <= LIMITS.body_max, "a body has its limit")?;
    }
    // An answer to HEAD has no body, whatever its head says of one.
    if whole.iter().all(|request| request.method != "HEAD") {
        let sent: Vec<u8> = without_continue(&sent);
        let parts = parts(&sent, sent.len().max(1)).map_err(|error| error.to_string())?;
        let ends = parts.iter().filter(|part| **part == Part::Ends).count();
        must(ends == whole.len() || ends == whole.len() + 1, "each request gets one answer")?;
    }
    Ok(if whole.is_empty() { Verdict::Refused } else { Verdict::Accepted })
}

/// Our client asks for no such line.
fn without_continue(sent: &[u8]) -> Vec<u8> {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut rest = sent;
    let mut all = Vec::with_capacity(sent.len());
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(CONTINUE) {
            Some(after) => rest = after,
            None => {
                all.push(*first);
                rest = after;
            }
        }
    }
    all
}

fn parts(bytes: &[u8], piece: usize) -> Result<Vec<Part>, NotHttp> {
    let mut incoming = Incoming::default();
    let mut all = Vec::new();
    for piece in bytes.chunks(piece) {
        incoming.feed(piece);
        while let Some(part) = incoming.part()? {
            all.push(part);
        }
    }
    Ok(all)
}

fn answers(input: &[u8]) -> Result<Verdict, String> {
    let ([cut], stream) = head::<1>(input);
    let whole = parts(stream, stream.len().max(1));
    let pieces = parts(stream, 1 + usize::from(cut) % 40);
    must(whole == pieces, "a stream means the same however it is cut")?;
    Ok(match whole {
        Ok(parts) if parts.contains(&Part::Ends) => Verdict::Accepted,
        _ => Verdict::Refused,
    })
}

/// A byte that no text has ends what would be looked at behind it: most are made letters.
fn readable(input: &mut [u8]) {
    for byte in input.iter_mut() {
        if *byte != b'\n' && !(b' '..=b'~').contains(byte) {
            *byte = b'a' + *byte % 26;
        }
    }
}

fn api(input: &[u8]) -> Result<Verdict, String> {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (line, body) = input.split_at(end);
    let line = String::from_utf8_lossy(line);
    let (method, target) = line.split_once(' ').unwrap_or((&line, ""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let body = body.get(1..).unwrap_or_default();
    let Ok(request) = paths::request(method, path, query, body) else {
        return Ok(Verdict::Refused);
    };
    let written = paths::target(&request).map_err(|error| error.to_string())?;
    let (path, query) = written.path.split_once('?').unwrap_or((&written.path, ""));
    let body = written.body.as_deref().unwrap_or_default();
    let again = paths::request(written.method, path, query, body).map_err(|refusal| {
        format!("{} is refused when it comes back: {}", written.path, refusal.error)
    })?;
    must(again == request, "a request comes back from its path and body")?;
    must(written.method == method, "a request has one method")?;
    Ok(Verdict::Accepted)
}
