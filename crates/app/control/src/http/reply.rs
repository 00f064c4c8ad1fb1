//! The answer to a request: as a whole, or line by line while it is being made.

use super::stream::Stream;
use std::io::Result;
use std::time::Duration;

/// Types of bodies.
pub const JSON: &str = "application/json";
/// One JSON value a line.
pub const JSON_LINES: &str = "application/x-ndjson";
/// A sentence.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers one request, once.
pub struct Reply<'a> {
    stream: &'a mut dyn Stream,
    /// HEAD was asked: no body follows.
    head_only: bool,
    keep: bool,
    /// The time that the peer gets to take each part.
    patience: Duration,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Nothing,
    Lines,
    All,
}

impl<'a> Reply<'a> {
    /// For a request on `stream`; `keep`: the connection goes on afterwards.
    pub(super) fn new(
        stream: &'a mut dyn Stream,
        (head_only, keep): (bool, bool),
        patience: Duration,
    ) -> Reply<'a> {
        Reply { stream, head_only, keep, patience, state: State::Nothing }
    }

    /// The connection ends after this answer. To be called before it.
    pub fn is_last(&mut self) {
        self.keep = false;
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.patience(self.patience)?;
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Answers with `body`, which is of type `kind`.
    ///
    /// # Errors
    /// The peer is gone, or takes nothing.
    pub fn whole(&mut self, status: u16, kind: &str, body: &[u8]) -> Result<()> {
        self.with_headers(status, kind, &[], body)
    }

    /// The same with headers more.
    ///
    /// # Errors
    /// As [`Reply::whole`].
    pub fn with_headers(
        &mut self,
        status: u16,
        kind: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<()> {
        self.state = State::All;
        let more = format!("Content-Length: {}\r\n", body.len());
        let mut bytes = self.head(status, kind, headers, &more);
        if !self.head_only {
            bytes.extend_from_slice(body);
        }
        self.send(&bytes)
    }

    /// Answers with one line more; the first begins the answer.
    ///
    /// # Errors
    /// As [`Reply::whole`].
    pub fn line(&mut self, line: &[u8]) -> Result<()> {
        let mut bytes = match self.state {
            State::Nothing => self.head(200, JSON_LINES, &[], "Transfer-Encoding: chunked\r\n"),
            _ => Vec::new(),
        };
        self.state = State::Lines;
        if !self.head_only {
            bytes.extend_from_slice(format!("{:x}\r\n", line.len() + 1).as_bytes());
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\n\r\n");
        }
        self.send(&bytes)
    }

    /// True once lines were sent: another status cannot be.
    pub fn has_lines(&self) -> bool {
        self.state == State::Lines
    }

    /// Ends the answer; true when the connection goes on.
    pub(super) fn end(mut self) -> bool {
        match self.state {
            State::Nothing => false,
            State::All => self.keep,
            State::Lines if self.head_only => self.keep,
            State::Lines => self.send(b"0\r\n\r\n").is_ok() && self.keep,
        }
    }

    fn head(&self, status: u16, kind: &str, headers: &[(&str, &str)], more: &str) -> Vec<u8> {
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\n{more}",
            reason(status)
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.keep {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
