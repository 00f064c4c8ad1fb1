//! A connection's stream split into requests, on the server's side.
//!
//! Does not know where a payload goes: the decoder hands a valid write over as soon as its header is there, and
//! the caller takes the payload out of the stream itself, so it can be received in place.
//! Invariant: a request that comes out fits the export; a refused request's payload never comes out.

use super::constants::*;
use super::headers::Headers;
use super::reply::ErrorCode;
use super::request::{Request, RequestRules};
use super::wire::{Fields, Gather, take_up_to};

/// A request that is answered with an error without reaching the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset.
    pub offset: u64,
    /// The error to reply with.
    pub code: ErrorCode,
    /// The fault, in words for a person.
    pub message: &'static str,
}

/// The outcome of [`RequestDecoder::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEvent {
    /// All input is used up; more is needed.
    NeedMore,
    /// A valid request. If it is a write, the next `length` bytes of the stream are its payload:
    /// the caller takes them, from the input left and then from the connection, before it steps
    /// again.
    Request(Request),
    /// Reply with this error and go on; a payload is skipped by the decoder.
    Refuse(Refusal),
    /// The client says goodbye: finish what is in flight, send its replies, close.
    Disconnect,
}

/// The stream can no longer be followed: close the connection.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum RequestViolation {
    /// A request without the request magic.
    #[error("NBD client sent {0:#010x} where a request must begin: closing its connection")]
    Magic(u32),
    /// A payload too long to skip.
    #[error("NBD client announced a payload of {0} bytes: closing its connection")]
    PayloadTooLong(u64),
}

/// The header of a request.
#[derive(Debug, Clone, Copy)]
struct Head {
    magic: u32,
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    /// Of the payload, where there is one, else of the range.
    length: u64,
}

#[derive(Debug)]
enum Header {
    Compact(Gather<REQUEST_BYTES>),
    Extended(Gather<EXTENDED_REQUEST_BYTES>),
}

impl Header {
    /// The next header, whose bytes go to `raw`; `None` while it has not all come.
    fn take(&mut self, input: &mut &[u8], raw: &mut Vec<u8>) -> Option<Head> {
        match self {
            Header::Compact(header) => {
                let bytes = header.take(input)?;
                raw.clear();
                raw.extend_from_slice(&bytes);
                head_of(&mut Fields(&bytes), |fields| fields.u32().map(u64::from))
            }
            Header::Extended(header) => {
                let bytes = header.take(input)?;
                raw.clear();
                raw.extend_from_slice(&bytes);
                head_of(&mut Fields(&bytes), |fields| fields.u64())
            }
        }
    }

    fn come(&self) -> &[u8] {
        match self {
            Header::Compact(header) => header.come(),
            Header::Extended(header) => header.come(),
        }
    }
}

/// `None` is not reached: each kind of header has all of the fields.
fn head_of(
    fields: &mut Fields<'_>,
    length: impl FnOnce(&mut Fields<'_>) -> Option<u64>,
) -> Option<Head> {
    Some(Head {
        magic: fields.u32()?,
        flags: fields.u16()?,
        kind: fields.u16()?,
        cookie: fields.u64()?,
        offset: fields.u64()?,
        length: length(fields)?,
    })
}

/// Splits one connection's stream into requests.
#[derive(Debug)]
pub struct RequestDecoder {
    rules: RequestRules,
    header: Header,
    /// Bytes of a refused request's payload still to be skipped.
    skip: u32,
    /// A block status request whose payload is still to come.
    asked: Option<Head>,
    /// The newest request as it came, without a write's payload.
    newest: Vec<u8>,
}

impl RequestDecoder {
    /// A decoder at the first request.
    #[must_use]
    pub fn new(rules: RequestRules) -> Self {
        let header = match rules.headers() {
            Headers::Simple | Headers::Structured => Header::Compact(Gather::new()),
            Headers::Extended => Header::Extended(Gather::new()),
        };
        let newest = Vec::with_capacity(EXTENDED_REQUEST_BYTES + STATUS_PAYLOAD_BYTES_MAX);
        Self { rules, header, skip: 0, asked: None, newest }
    }

    /// A decoder in the middle of a stream, where `skip` bytes of a refused request's payload are to be skipped first.
    #[must_use]
    pub fn resume(rules: RequestRules, skip: u32) -> Self {
        Self { skip, ..Self::new(rules) }
    }

    /// Where the stream stands: the bytes that are to be skipped, and those of the next request that have come.
    #[must_use]
    pub fn position(&self) -> (u32, &[u8]) {
        let come = if self.asked.is_some() { &self.newest } else { self.header.come() };
        (self.skip, come)
    }

    /// The newest request is for somebody else to carry out, its payload with it.
    pub fn forget_newest(&mut self) {
        self.skip = 0;
    }

    /// The newest request as it came, without a write's payload.
    #[must_use]
    pub fn newest(&self) -> &[u8] {
        &self.newest
    }

    /// True if the stream stands between two requests: an end of the stream here is a hard
    /// disconnect without a loss, elsewhere the client went away in the middle of one.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        let (skip, come) = self.position();
        skip == 0 && come.is_empty()
    }

    /// Consumes bytes from the front of `input` up to the end of the next request's header.
    ///
    /// # Errors
    /// A violation after which the connection must be closed.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<RequestEvent, RequestViolation> {
        self.step_growing(input, || 0)
    }

    /// As [`step`](Self::step), for an export that may grow: `size` is asked for its bytes when a request goes past the end
    /// that is known.
    ///
    /// # Errors
    /// A violation after which the connection must be closed.
    pub fn step_growing(
        &mut self,
        input: &mut &[u8],
        size: impl FnOnce() -> u64,
    ) -> Result<RequestEvent, RequestViolation> {
        // At most `skip` bytes are taken, so the count fits and cannot underflow.
        self.skip -= take_up_to(input, self.skip as usize).len() as u32;
        if self.skip > 0 {
            return Ok(RequestEvent::NeedMore);
        }
        if let Some(head) = self.asked {
            return Ok(self.contexts(head, input, size));
        }
        let Some(head) = self.header.take(input, &mut self.newest) else {
            return Ok(RequestEvent::NeedMore);
        };
        let Head { magic, flags, kind, length, .. } = head;
        let extended = self.rules.headers() == Headers::Extended;
        if magic != if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
            return Err(RequestViolation::Magic(magic));
        }
        if kind == CMD_DISC {
            return Ok(RequestEvent::Disconnect);
        }
        let flagged = extended && flags & CMD_FLAG_PAYLOAD_LEN != 0;
        // QEMU (10.0) writes without the flag that says so: a write has a payload in any case.
        let payload = flagged || kind == CMD_WRITE;
        if payload && length > SKIPPED_BYTES_MAX.into() {
            return Err(RequestViolation::PayloadTooLong(length));
        }
        let outcome = match kind {
            CMD_BLOCK_STATUS if flagged => {
                if self.rules.takes_contexts() && is_contexts(length) {
                    self.asked = Some(head);
                    return Ok(self.contexts(head, input, size));
                }
                Err((ErrorCode::Invalid, "this payload is none that names metadata contexts"))
            }
            _ if flagged && kind != CMD_WRITE => {
                Err((ErrorCode::Invalid, "this command takes no payload"))
            }
            _ => {
                let flags = if flagged { flags & !CMD_FLAG_PAYLOAD_LEN } else { flags };
                self.grow_for(head.offset, length, size);
                self.rules.check(kind, flags, head.cookie, head.offset, length)
            }
        };
        match outcome {
            Ok(request) => Ok(RequestEvent::Request(request)),
            Err(fault) => {
                // At most SKIPPED_BYTES_MAX (checked above).
                self.skip = if payload { length as u32 } else { 0 };
                Ok(refuse(&head, fault))
            }
        }
    }

    fn grow_for(&mut self, offset: u64, length: u64, size: impl FnOnce() -> u64) {
        if self.rules.is_past_the_end(offset, length) {
            self.rules.grow_to(size());
        }
    }

    /// Takes the payload of a block status request: the length of its range, and the contexts that it is about.
    fn contexts(
        &mut self,
        head: Head,
        input: &mut &[u8],
        size: impl FnOnce() -> u64,
    ) -> RequestEvent {
        // At most STATUS_PAYLOAD_BYTES_MAX (`is_contexts`).
        let end = EXTENDED_REQUEST_BYTES + head.length as usize;
        self.newest.extend_from_slice(take_up_to(input, end.saturating_sub(self.newest.len())));
        if self.newest.len() < end {
            return RequestEvent::NeedMore;
        }
        self.asked = None;
        let mut fields = Fields(self.newest.get(EXTENDED_REQUEST_BYTES..).unwrap_or_default());
        // Not cut short, since it has a length that is one.
        let length = fields.u64().unwrap_or(0);
        while let Some(context) = fields.u32() {
            if context != CONTEXT_ID {
                return refuse(&head, (ErrorCode::Invalid, "no metadata context has this number"));
            }
        }
        let flags = head.flags & !CMD_FLAG_PAYLOAD_LEN;
        self.grow_for(head.offset, length, size);
        match self.rules.check(head.kind, flags, head.cookie, head.offset, length) {
            Ok(request) => RequestEvent::Request(request),
            Err(fault) => refuse(&head, fault),
        }
    }
}

/// A payload of this length is a 64-bit length and some 32-bit numbers of contexts.
fn is_contexts(length: u64) -> bool {
    (12..=STATUS_PAYLOAD_BYTES_MAX as u64).contains(&length) && length.is_multiple_of(4)
}

fn refuse(head: &Head, (code, message): (ErrorCode, &'static str)) -> RequestEvent {
    let Head { cookie, offset, .. } = *head;
    RequestEvent::Refuse(Refusal { cookie, offset, code, message })
}
