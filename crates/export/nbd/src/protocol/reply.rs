//! Replies: error values, and the encoding of simple, structured and extended replies.
//!
//! Owns the bytes of replies up to a read's payload, which the caller sends from where it lies.
//! Invariant: encoding appends a bounded number of bytes and allocates only when the output, which
//! the caller reuses, must grow.

use super::constants::*;
use super::headers::Headers;

/// The errors that NBD can carry (proto.md, "Error values").
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ErrorCode {
    /// `NBD_EPERM`.
    #[error("operation not permitted")]
    NotPermitted,
    /// `NBD_EIO`.
    #[error("input/output error")]
    Io,
    /// `NBD_ENOMEM`.
    #[error("out of memory")]
    NoMemory,
    /// `NBD_EINVAL`.
    #[error("invalid request")]
    Invalid,
    /// `NBD_ENOSPC`.
    #[error("no space left on device")]
    NoSpace,
    /// `NBD_EOVERFLOW`.
    #[error("too large to send unfragmented")]
    Overflow,
    /// `NBD_ENOTSUP`.
    #[error("operation not supported")]
    NotSupported,
    /// `NBD_ESHUTDOWN`.
    #[error("server is shutting down")]
    Shutdown,
}

impl ErrorCode {
    /// The value on the wire; never zero.
    #[must_use]
    pub fn to_wire(self) -> u32 {
        match self {
            Self::NotPermitted => 1,
            Self::Io => 5,
            Self::NoMemory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }

    /// The error of a non-zero wire value; unknown ones count as [`ErrorCode::Invalid`], as the
    /// specification asks of clients.
    #[must_use]
    pub fn from_wire(value: u32) -> Self {
        match value {
            1 => Self::NotPermitted,
            5 => Self::Io,
            12 => Self::NoMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Invalid,
        }
    }
}

/// The request that a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Its cookie.
    pub cookie: u64,
    /// Its offset; only extended replies repeat it.
    pub offset: u64,
}

/// Writes the replies of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyEncoder {
    headers: Headers,
}

impl ReplyEncoder {
    /// An encoder for a connection whose messages have this form.
    #[must_use]
    pub fn new(headers: Headers) -> Self {
        Self { headers }
    }

    /// Success of any command but read and block status. With structured replies a simple one is allowed
    /// ("Structured reply chunk message") and is the shorter one; with extended headers it is not.
    pub fn done(&self, asked: Asked, out: &mut Vec<u8>) {
        match self.headers {
            Headers::Simple | Headers::Structured => simple(out, 0, asked.cookie),
            Headers::Extended => self.chunk(out, REPLY_TYPE_NONE, asked, 0),
        }
    }

    /// Failure of any command. The message (cut at 4096 bytes) does not travel in simple replies.
    pub fn error(&self, asked: Asked, code: ErrorCode, message: &str, out: &mut Vec<u8>) {
        if !self.headers.structured() {
            simple(out, code.to_wire(), asked.cookie);
            return;
        }
        let message = cut(message, STRING_BYTES_MAX);
        // At most 4096, so both lengths fit their fields.
        let length = message.len() as u16;
        self.chunk(out, REPLY_TYPE_ERROR, asked, 6 + u32::from(length));
        out.extend_from_slice(&code.to_wire().to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(message.as_bytes());
    }

    /// Success of a read of `length` bytes; exactly `length` bytes of data must be
    /// sent next. In structured mode this is the only chunk, as the don't-fragment flag demands.
    /// `length` is at most `u32::MAX - 8`.
    pub fn read(&self, asked: Asked, length: u32, out: &mut Vec<u8>) {
        if !self.headers.structured() {
            simple(out, 0, asked.cookie);
            return;
        }
        self.chunk(out, REPLY_TYPE_OFFSET_DATA, asked, length.saturating_add(8));
        out.extend_from_slice(&asked.offset.to_be_bytes());
    }

    /// Success of block status: the lengths and states of extents (`STATE_*`) from the request's offset on, at least one and
    /// at most 65536. Together they may end before the request does, and not beyond it; with the one-extent flag it must be
    /// one (`NBD_CMD_BLOCK_STATUS`).
    pub fn extents(&self, asked: Asked, extents: &[(u64, u32)], out: &mut Vec<u8>) {
        // So few that it fits.
        let count = extents.len() as u32;
        if self.headers == Headers::Extended {
            self.chunk(out, REPLY_TYPE_BLOCK_STATUS_EXT, asked, 8 + 16 * count);
            out.extend_from_slice(&CONTEXT_ID.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
            for (length, state) in extents {
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&u64::from(*state).to_be_bytes());
            }
            return;
        }
        self.chunk(out, REPLY_TYPE_BLOCK_STATUS, asked, 4 + 8 * count);
        out.extend_from_slice(&CONTEXT_ID.to_be_bytes());
        for (length, state) in extents {
            // A compact request is about less than 4 GiB.
            out.extend_from_slice(&(*length as u32).to_be_bytes());
            out.extend_from_slice(&state.to_be_bytes());
        }
    }

    /// The header of a final chunk.
    fn chunk(&self, out: &mut Vec<u8>, kind: u16, asked: Asked, length: u32) {
        let mut bytes = [0; EXTENDED_CHUNK_BYTES];
        bytes[4..6].copy_from_slice(&REPLY_FLAG_DONE.to_be_bytes());
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&asked.cookie.to_be_bytes());
        if self.headers == Headers::Extended {
            bytes[0..4].copy_from_slice(&EXTENDED_REPLY_MAGIC.to_be_bytes());
            bytes[16..24].copy_from_slice(&asked.offset.to_be_bytes());
            bytes[24..32].copy_from_slice(&u64::from(length).to_be_bytes());
            out.extend_from_slice(&bytes);
        } else {
            bytes[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
            bytes[16..20].copy_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&bytes[..CHUNK_BYTES]);
        }
    }
}

fn simple(out: &mut Vec<u8>, error: u32, cookie: u64) {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// `text` cut to at most `bytes` bytes without splitting a character.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
