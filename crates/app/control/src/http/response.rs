//! The client's side: an answer as it comes in, and the request before it.
//!
//! Takes bytes and gives parts; does not know sockets.

use httparse::Status;

const HEADERS_MAX: usize = 32;
/// Bytes of a line, a body or a chunk at most.
const PART_MAX: usize = 64 << 20;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// It begins, with this status.
    Begins(u16),
    /// One line of it, or all of it where it is not sent line by line.
    Line(Vec<u8>),
    /// It is all there.
    Ends,
}

/// The peer does not speak HTTP as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHttp {
    /// It answers with a line of JSON.
    #[error("it answers in another protocol")]
    Lines,
    /// It answers with something else.
    #[error("its answer is no HTTP")]
    Garbage,
}

#[derive(Default)]
enum State {
    #[default]
    Head,
    /// So many bytes.
    Sized(usize),
    Chunks,
    /// So many bytes of a chunk, and the end of its line.
    Chunk(usize),
    Ended,
}

/// An answer as it comes in.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    line: Vec<u8>,
    state: State,
}

impl Incoming {
    /// Bytes that came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next part; `None` while more must come.
    ///
    /// # Errors
    /// Bytes that are no answer.
    pub fn part(&mut self) -> Result<Option<Part>, NotHttp> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.line.drain(..=end).collect();
                line.pop();
                return Ok(Some(Part::Line(line)));
            }
            if self.line.len() > PART_MAX {
                return Err(NotHttp::Garbage);
            }
            match self.state {
                State::Head => return self.head(),
                State::Sized(len) => {
                    if self.bytes.len() < len {
                        return Ok(None);
                    }
                    self.state = State::Ended;
                    return Ok(Some(Part::Line(self.bytes.drain(..len).collect())));
                }
                State::Chunks => match httparse::parse_chunk_size(&self.bytes) {
                    Ok(Status::Partial) => return Ok(None),
                    Ok(Status::Complete((used, 0))) => {
                        // No trailers are sent; the empty line ends it.
                        if self.bytes.len() < used + 2 {
                            return Ok(None);
                        }
                        self.bytes.drain(..used + 2);
                        self.state = State::Ended;
                    }
                    Ok(Status::Complete((used, len))) => {
                        let len = usize::try_from(len).ok().filter(|len| *len <= PART_MAX);
                        self.bytes.drain(..used);
                        self.state = State::Chunk(len.ok_or(NotHttp::Garbage)?);
                    }
                    Err(_) => return Err(NotHttp::Garbage),
                },
                State::Chunk(len) => {
                    if self.bytes.len() < len + 2 {
                        return Ok(None);
                    }
                    self.line.extend(self.bytes.drain(..len));
                    self.bytes.drain(..2);
                    self.state = State::Chunks;
                }
                State::Ended => {
                    self.state = State::Head;
                    return Ok(Some(Part::Ends));
                }
            }
        }
    }

    fn head(&mut self) -> Result<Option<Part>, NotHttp> {
        if self.bytes.first() == Some(&b'{') {
            return Err(NotHttp::Lines);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let used = match parsed.parse(&self.bytes) {
            Ok(Status::Partial) if self.bytes.len() <= PART_MAX => return Ok(None),
            Ok(Status::Complete(used)) => used,
            _ => return Err(NotHttp::Garbage),
        };
        let status = parsed.code.ok_or(NotHttp::Garbage)?;
        let value = |name: &str| {
            let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        let chunked = value("transfer-encoding").is_some_and(|value| value == "chunked");
        let len = value("content-length").and_then(|value| value.parse().ok());
        self.state = match len.filter(|len| *len <= PART_MAX) {
            _ if chunked => State::Chunks,
            Some(len) => State::Sized(len),
            None => return Err(NotHttp::Garbage),
        };
        self.bytes.drain(..used);
        Ok(Some(Part::Begins(status)))
    }
}

/// The bytes of a request whose body is JSON, to a server that has no name.
pub fn request(method: &str, target: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    if let Some(body) = body {
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        bytes.extend_from_slice(head.as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::conversation::{Limits, converse, plainly};
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn parts(incoming: &mut Incoming, bytes: &[u8]) -> Result<Vec<Part>, NotHttp> {
        let mut all = Vec::new();
        for byte in bytes {
            incoming.feed(&[*byte]);
            while let Some(part) = incoming.part()? {
                all.push(part);
            }
        }
        Ok(all)
    }

    #[test]
    fn answers_of_our_server_come_back_byte_by_byte() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        for target in ["/whole", "/lines", "/whole"] {
            theirs.write_all(&request("POST", target, Some(b"{}"))).unwrap();
        }
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let limits = Limits { patience: Duration::from_secs(5), body_max: 10 };
        converse(
            &mut ours,
            limits,
            &mut |request, reply| {
                assert_eq!(request.body, b"{}");
                match request.path.as_str() {
                    "/whole" => reply.whole(409, "application/json", b"{\n1}").unwrap(),
                    _ => ["a", "b"].iter().for_each(|line| reply.line(line.as_bytes()).unwrap()),
                }
            },
            &plainly,
        );
        drop(ours);
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).unwrap();
        let whole = [Part::Begins(409), Part::Line(b"{\n1}".to_vec()), Part::Ends];
        let lines =
            [Part::Begins(200), Part::Line(b"a".to_vec()), Part::Line(b"b".to_vec()), Part::Ends];
        let expected = [&whole[..], &lines[..], &whole[..]].concat();
        assert_eq!(parts(&mut Incoming::default(), &bytes).unwrap(), expected);
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let found = |bytes: &str| parts(&mut Incoming::default(), bytes.as_bytes());
        assert_eq!(found("{\"answer\":\"refused\"}\n"), Err(NotHttp::Lines));
        assert_eq!(found("SSH-2.0\r\n"), Err(NotHttp::Garbage));
        assert_eq!(found("HTTP/1.1 200 OK\r\n\r\n"), Err(NotHttp::Garbage));
        let huge = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n";
        assert_eq!(found(huge), Err(NotHttp::Garbage));
    }
}
