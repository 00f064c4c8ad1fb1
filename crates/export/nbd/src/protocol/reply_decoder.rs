//! The client's side of replies: splitting the server's stream into events.
//!
//! Owns the decoding of simple replies, structured chunks and extended ones. Does not know which requests are in
//! flight: a caller matches cookies, and takes a read's data out of the stream itself.
//! Invariant: nothing but an error's message (at most 4 KiB) is held.

use super::constants::*;
use super::headers::Headers;
use super::reply::ErrorCode;
use super::wire::{Fields, Gather, take_up_to};

/// The outcome of [`ReplyDecoder::step`]. `done` marks the last event of a structured reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEvent {
    /// All input is used up; more is needed.
    NeedMore,
    /// A simple reply; it is final. If it is a success and the request was a read, the data asked
    /// for follows: the caller takes it before it steps again.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// The error, if there was one.
        error: Option<ErrorCode>,
    },
    /// Data of a read: the next `length` bytes of the stream, which the caller takes.
    Data {
        /// The request's cookie.
        cookie: u64,
        /// Where in the export the data lies.
        offset: u64,
        /// Bytes that follow; at least one.
        length: u32,
        /// Last of its reply.
        done: bool,
    },
    /// A range that reads as zeroes.
    Hole {
        /// The request's cookie.
        cookie: u64,
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        length: u32,
        /// Last of its reply.
        done: bool,
    },
    /// One extent of a block status reply.
    Extent {
        /// The request's cookie.
        cookie: u64,
        /// Metadata context.
        context: u32,
        /// Bytes of the extent.
        length: u32,
        /// Its status flags.
        status: u32,
        /// Last of its reply.
        done: bool,
    },
    /// An error chunk; [`ReplyDecoder::message`] has the server's words.
    Error {
        /// The request's cookie.
        cookie: u64,
        /// The error.
        code: ErrorCode,
        /// Last of its reply.
        done: bool,
    },
    /// The end of a structured reply whose chunks came before.
    Done {
        /// The request's cookie.
        cookie: u64,
    },
}

/// The stream can no longer be followed: close the connection.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum ReplyViolation {
    /// A reply without a reply magic.
    #[error("NBD server sent {0:#010x} where a reply must begin: closing the connection")]
    Magic(u32),
    /// A chunk whose type is unknown.
    #[error("NBD server sent a reply chunk of unknown type {0:#06x}: closing the connection")]
    UnknownChunk(u16),
    /// A chunk whose length does not fit its type, or whose contents contradict each other.
    #[error("NBD server sent a malformed reply chunk of type {0:#06x}: closing the connection")]
    Malformed(u16),
}

/// Longest error chunk kept, in bytes: its fixed fields, a message, an offset.
const ERROR_BYTES_MAX: u32 = 6 + STRING_BYTES_MAX as u32 + 8;

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    Length { kind: u16, done: bool, cookie: u64 },
    Data { length: u32, done: bool, cookie: u64 },
    Hole { done: bool, cookie: u64 },
    Context { left: u32, done: bool, cookie: u64 },
    Extents { context: u32, left: u32, done: bool, cookie: u64 },
    Error { length: u32, kind: u16, done: bool, cookie: u64 },
}

/// Splits the server's stream of one connection into events.
#[derive(Debug)]
pub struct ReplyDecoder {
    state: State,
    four: Gather<4>,
    eight: Gather<8>,
    twelve: Gather<12>,
    sixteen: Gather<16>,
    extended: Option<Gather<EXTENDED_CHUNK_BYTES>>,
    body: Vec<u8>,
    message: String,
}

impl ReplyDecoder {
    /// A decoder at the first reply, on a connection with these headers.
    #[must_use]
    pub fn new(headers: Headers) -> Self {
        Self {
            extended: (headers == Headers::Extended).then(Gather::new),
            state: State::Head,
            four: Gather::new(),
            eight: Gather::new(),
            twelve: Gather::new(),
            sixteen: Gather::new(),
            body: Vec::new(),
            message: String::new(),
        }
    }

    /// The server's words in the latest [`ReplyEvent::Error`]; perhaps empty.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Consumes bytes from the front of `input` up to the end of the next event.
    ///
    /// # Errors
    /// A violation after which the connection must be closed.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<ReplyEvent, ReplyViolation> {
        loop {
            if let Some(event) = self.advance(input)? {
                return Ok(event);
            }
        }
    }

    /// One transition; `None` when it led to no event.
    fn advance(&mut self, input: &mut &[u8]) -> Result<Option<ReplyEvent>, ReplyViolation> {
        const NEED_MORE: Result<Option<ReplyEvent>, ReplyViolation> =
            Ok(Some(ReplyEvent::NeedMore));
        match self.state {
            State::Head => match &mut self.extended {
                None => {
                    let Some(bytes) = self.sixteen.take(input) else { return NEED_MORE };
                    self.head(&bytes)
                }
                Some(head) => {
                    let Some(bytes) = head.take(input) else { return NEED_MORE };
                    self.extended_head(&bytes)
                }
            },
            State::Length { kind, done, cookie } => {
                let Some(bytes) = self.four.take(input) else { return NEED_MORE };
                self.chunk(kind, done, cookie, u32::from_be_bytes(bytes))
            }
            State::Data { length, done, cookie } => {
                let Some(bytes) = self.eight.take(input) else { return NEED_MORE };
                self.state = State::Head;
                let offset = u64::from_be_bytes(bytes);
                Ok(Some(ReplyEvent::Data { cookie, offset, length, done }))
            }
            State::Hole { done, cookie } => {
                let Some(bytes) = self.twelve.take(input) else { return NEED_MORE };
                self.state = State::Head;
                let mut fields = Fields(&bytes);
                match (fields.u64(), fields.u32()) {
                    (Some(offset), Some(length)) if length > 0 => {
                        Ok(Some(ReplyEvent::Hole { cookie, offset, length, done }))
                    }
                    _ => Err(ReplyViolation::Malformed(REPLY_TYPE_OFFSET_HOLE)),
                }
            }
            State::Context { left, done, cookie } => {
                let Some(bytes) = self.four.take(input) else { return NEED_MORE };
                let context = u32::from_be_bytes(bytes);
                self.state = State::Extents { context, left, done, cookie };
                Ok(None)
            }
            State::Extents { context, left, done, cookie } => {
                let Some(bytes) = self.eight.take(input) else { return NEED_MORE };
                // A positive multiple of eight (checked when the chunk began).
                let left = left - 8;
                self.state = if left > 0 {
                    State::Extents { context, left, done, cookie }
                } else {
                    State::Head
                };
                let mut fields = Fields(&bytes);
                match (fields.u32(), fields.u32()) {
                    (Some(length), Some(status)) if length > 0 => Ok(Some(ReplyEvent::Extent {
                        cookie,
                        context,
                        length,
                        status,
                        done: done && left == 0,
                    })),
                    _ => Err(ReplyViolation::Malformed(REPLY_TYPE_BLOCK_STATUS)),
                }
            }
            State::Error { length, kind, done, cookie } => {
                let length = length as usize;
                let piece = take_up_to(input, length.saturating_sub(self.body.len()));
                self.body.extend_from_slice(piece);
                if self.body.len() < length {
                    return NEED_MORE;
                }
                self.state = State::Head;
                self.error(kind, done, cookie)
            }
        }
    }

    fn head(&mut self, bytes: &[u8; 16]) -> Result<Option<ReplyEvent>, ReplyViolation> {
        let mut fields = Fields(bytes);
        match fields.u32() {
            Some(SIMPLE_REPLY_MAGIC) => {
                let (Some(error), Some(cookie)) = (fields.u32(), fields.u64()) else {
                    return Err(ReplyViolation::Magic(SIMPLE_REPLY_MAGIC));
                };
                let error = (error != 0).then(|| ErrorCode::from_wire(error));
                Ok(Some(ReplyEvent::Simple { cookie, error }))
            }
            Some(STRUCTURED_REPLY_MAGIC) => {
                let (Some(flags), Some(kind), Some(cookie)) =
                    (fields.u16(), fields.u16(), fields.u64())
                else {
                    return Err(ReplyViolation::Magic(STRUCTURED_REPLY_MAGIC));
                };
                self.state = State::Length { kind, done: flags & REPLY_FLAG_DONE != 0, cookie };
                Ok(None)
            }
            other => Err(ReplyViolation::Magic(other.unwrap_or(0))),
        }
    }

    /// A client with extended headers gets nothing else (`NBD_OPT_EXTENDED_HEADERS`).
    fn extended_head(
        &mut self,
        bytes: &[u8; EXTENDED_CHUNK_BYTES],
    ) -> Result<Option<ReplyEvent>, ReplyViolation> {
        let mut fields = Fields(bytes);
        let magic = fields.u32().unwrap_or(0);
        if magic != EXTENDED_REPLY_MAGIC {
            return Err(ReplyViolation::Magic(magic));
        }
        // The offset repeats the request's, which its cookie tells as well.
        let (Some(flags), Some(kind), Some(cookie), Some(_offset), Some(length)) =
            (fields.u16(), fields.u16(), fields.u64(), fields.u64(), fields.u64())
        else {
            return Err(ReplyViolation::Magic(magic));
        };
        // No payload that is asked for has more than 32 bits.
        let length = u32::try_from(length).map_err(|_| ReplyViolation::Malformed(kind))?;
        self.chunk(kind, flags & REPLY_FLAG_DONE != 0, cookie, length)
    }

    /// Begins the payload of a chunk (proto.md, "Structured reply types" for the lengths).
    fn chunk(
        &mut self,
        kind: u16,
        done: bool,
        cookie: u64,
        length: u32,
    ) -> Result<Option<ReplyEvent>, ReplyViolation> {
        self.state = State::Head;
        match kind {
            REPLY_TYPE_NONE if length == 0 && done => {
                return Ok(Some(ReplyEvent::Done { cookie }));
            }
            REPLY_TYPE_OFFSET_DATA if length >= 9 => {
                self.state = State::Data { length: length - 8, done, cookie };
            }
            REPLY_TYPE_OFFSET_HOLE if length == 12 => self.state = State::Hole { done, cookie },
            REPLY_TYPE_BLOCK_STATUS if length >= 12 && length % 8 == 4 => {
                self.state = State::Context { left: length - 4, done, cookie };
            }
            _ if kind & REPLY_TYPE_FLAG_ERROR != 0 && (6..=ERROR_BYTES_MAX).contains(&length) => {
                self.body.clear();
                self.state = State::Error { length, kind, done, cookie };
            }
            REPLY_TYPE_NONE
            | REPLY_TYPE_OFFSET_DATA
            | REPLY_TYPE_OFFSET_HOLE
            | REPLY_TYPE_BLOCK_STATUS => return Err(ReplyViolation::Malformed(kind)),
            _ if kind & REPLY_TYPE_FLAG_ERROR != 0 => return Err(ReplyViolation::Malformed(kind)),
            _ => return Err(ReplyViolation::UnknownChunk(kind)),
        }
        Ok(None)
    }

    fn error(
        &mut self,
        kind: u16,
        done: bool,
        cookie: u64,
    ) -> Result<Option<ReplyEvent>, ReplyViolation> {
        let malformed = ReplyViolation::Malformed(kind);
        let mut fields = Fields(&self.body);
        let code = fields.u32().ok_or(malformed)?;
        let length = fields.u16().ok_or(malformed)?;
        let message = fields.bytes(usize::from(length)).ok_or(malformed)?;
        self.message = String::from_utf8_lossy(message).into_owned();
        Ok(Some(ReplyEvent::Error { cookie, code: ErrorCode::from_wire(code), done }))
    }
}
