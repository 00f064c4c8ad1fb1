//! The stream of a host, PDU by PDU.
//!
//! It gives a header as soon as that is there; the caller takes the data behind it out of the stream itself, so that it can
//! be received in place, and the digest behind the data.

use super::command::{COMMAND_BYTES, Command};
use super::digest::Crc32c;
use super::fields::{put, u8_at, u16_at, u32_at};
use super::pdu::{
    COMMON_BYTES, DIGEST_BYTES, F_DATA_DIGEST, F_HEADER_DIGEST, F_LAST, FatalError, Initialize,
    MAX_IN_CAPSULE, PduType,
};

/// The longest begin of a PDU before its data: the offset of data is one byte.
const HEAD_BYTES_MAX: usize = 256;
/// Bytes of a wrong PDU that are given back in the message that ends the connection (TCP Transport 1.0, figure 28).
const TOLD_BYTES_MAX: usize = 128;

/// Data that follows a header in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Bytes.
    pub length: u32,
    /// [`DIGEST_BYTES`] of digest come after it.
    pub digest: bool,
}

/// The meaning of bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed.
    NeedMore,
    /// The first PDU of a connection.
    Initialize(Initialize),
    /// A command; the caller takes the payload next.
    Command(Command, Payload),
    /// Data of a command; the caller takes the payload next.
    Data {
        /// The command.
        command: u16,
        /// The tag under which the controller was ready for it.
        tag: u16,
        /// Its offset among the data of the command, in bytes.
        offset: u32,
        /// The last of a transfer.
        last: bool,
        /// Behind the header.
        payload: Payload,
    },
    /// The host ends the connection for an error that it has found: its fatal error status.
    Terminated(u16),
}

/// A PDU that may not come, or not like this. The connection must be ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an NVMe host broke the protocol: {why}")]
pub struct Violation {
    /// The reason as the protocol knows it.
    pub error: FatalError,
    /// Its information, mostly the offset of a field.
    pub information: u32,
    /// The reason in words.
    pub why: &'static str,
    /// The first bytes of the PDU.
    pub pdu: Vec<u8>,
}

/// See the module's documentation.
pub struct Decoder {
    head: [u8; HEAD_BYTES_MAX],
    have: usize,
    header_digest: bool,
    data_digest: bool,
    initialized: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

/// The content of a common header.
struct Common {
    kind: PduType,
    flags: u8,
    /// Bytes before the data.
    head_bytes: usize,
    pdu_bytes: u32,
}

impl Decoder {
    /// For a connection that is not initialised.
    #[must_use]
    pub fn new() -> Decoder {
        Decoder {
            head: [0; HEAD_BYTES_MAX],
            have: 0,
            header_digest: false,
            data_digest: false,
            initialized: false,
        }
    }

    /// Sets which digests there are from now on.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        (self.header_digest, self.data_digest) = (header, data);
    }

    /// True when no header has come in part.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.have == 0
    }

    /// Takes bytes from the front of `input`, up to the end of one header.
    ///
    /// # Errors
    /// A PDU that may not come.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Event, Violation> {
        if !self.gather(input, COMMON_BYTES) {
            return Ok(Event::NeedMore);
        }
        let common = self.common()?;
        if !self.gather(input, common.head_bytes) {
            return Ok(Event::NeedMore);
        }
        let event = self.event(&common)?;
        self.have = 0;
        Ok(event)
    }

    /// True when at least `count` bytes of the head are there.
    fn gather(&mut self, input: &mut &[u8], count: usize) -> bool {
        let missing = count.saturating_sub(self.have);
        let (piece, rest) = input.split_at(missing.min(input.len()));
        put(&mut self.head, self.have, piece);
        self.have += piece.len();
        *input = rest;
        self.have >= count
    }

    fn wrong(&self, error: FatalError, information: u32, why: &'static str) -> Violation {
        let pdu = self.head.get(..self.have.min(TOLD_BYTES_MAX)).unwrap_or_default().to_vec();
        Violation { error, information, why, pdu }
    }

    fn common(&self) -> Result<Common, Violation> {
        let invalid = |at, why| Err(self.wrong(FatalError::InvalidHeader, at, why));
        let (flags, header, offset) =
            (u8_at(&self.head, 1), u8_at(&self.head, 2), u8_at(&self.head, 3));
        let pdu_bytes = u32_at(&self.head, 4);
        let Some(kind) = PduType::of_host(u8_at(&self.head, 0)) else {
            return invalid(0, "a type of PDU that no host sends");
        };
        let expected = match self.initialized {
            false => kind == PduType::InitializeRequest,
            true => kind != PduType::InitializeRequest,
        };
        if !expected && kind != PduType::HostTerminates {
            return Err(self.wrong(FatalError::Sequence, 0, "a PDU that may not come now"));
        }
        if usize::from(header) != kind.header_bytes() {
            return invalid(2, "a length of a header that does not fit its type");
        }
        let plain = matches!(kind, PduType::InitializeRequest | PduType::HostTerminates);
        let digest = self.header_digest && !plain;
        if (flags & F_HEADER_DIGEST != 0) != digest {
            return invalid(1, "a header digest where none is, or none where one is");
        }
        let own_bytes = kind.header_bytes() + if digest { DIGEST_BYTES } else { 0 };
        let carries = !plain && pdu_bytes as usize > own_bytes;
        let head_bytes = match carries {
            true if usize::from(offset) < own_bytes => return invalid(3, "data inside a header"),
            true => usize::from(offset),
            false => own_bytes,
        };
        let fits = match kind {
            PduType::InitializeRequest => pdu_bytes as usize == own_bytes,
            PduType::HostTerminates => {
                (own_bytes..=own_bytes + TOLD_BYTES_MAX).contains(&(pdu_bytes as usize))
            }
            _ => pdu_bytes as usize >= head_bytes,
        };
        if !fits {
            return invalid(4, "a length that does not fit the type");
        }
        Ok(Common { kind, flags, head_bytes, pdu_bytes })
    }

    fn payload(&self, common: &Common) -> Result<Payload, Violation> {
        let behind = common.pdu_bytes.saturating_sub(common.head_bytes as u32);
        let digest = self.data_digest && behind > 0;
        if (common.flags & F_DATA_DIGEST != 0) != digest && behind > 0 {
            let why = "a data digest where none is, or none where one is";
            return Err(self.wrong(FatalError::InvalidHeader, 1, why));
        }
        let digest_bytes = if digest { DIGEST_BYTES as u32 } else { 0 };
        match behind.checked_sub(digest_bytes) {
            Some(length) if length > 0 || behind == 0 => Ok(Payload { length, digest }),
            _ => Err(self.wrong(FatalError::InvalidHeader, 4, "a PDU without data")),
        }
    }

    fn event(&mut self, common: &Common) -> Result<Event, Violation> {
        let own = common.kind.header_bytes();
        let header = self.head.get(..own).unwrap_or_default();
        if common.flags & F_HEADER_DIGEST != 0 {
            let came = u32_at(&self.head, own);
            if Crc32c::of(header) != came {
                let why = "the digest of a header is wrong";
                return Err(self.wrong(FatalError::HeaderDigest, came, why));
            }
        }
        match common.kind {
            PduType::InitializeRequest => {
                let wishes = Initialize::decode(header);
                let wishes = wishes.map_err(|(error, at)| {
                    self.wrong(error, at, "parameters that cannot be had")
                })?;
                self.initialized = true;
                Ok(Event::Initialize(wishes))
            }
            PduType::HostTerminates => Ok(Event::Terminated(u16_at(header, 8))),
            PduType::Command => {
                let payload = self.payload(common)?;
                if payload.length > MAX_IN_CAPSULE {
                    let why = "more data in a capsule than may be";
                    return Err(self.wrong(FatalError::InvalidHeader, 4, why));
                }
                let mut bytes = [0; COMMAND_BYTES];
                put(&mut bytes, 0, header.get(COMMON_BYTES..).unwrap_or_default());
                Ok(Event::Command(Command::new(bytes), payload))
            }
            _ => {
                let payload = self.payload(common)?;
                if payload.length == 0 || u32_at(header, 16) != payload.length {
                    let why = "a length of data that does not fit the PDU";
                    return Err(self.wrong(FatalError::InvalidHeader, 16, why));
                }
                Ok(Event::Data {
                    command: u16_at(header, 8),
                    tag: u16_at(header, 10),
                    offset: u32_at(header, 12),
                    last: common.flags & F_LAST != 0,
                    payload,
                })
            }
        }
    }

    /// A violation that the caller has found in a PDU of data: its tag, or where it belongs.
    #[must_use]
    pub fn wrong_data(error: FatalError, information: u32, why: &'static str) -> Violation {
        Violation { error, information, why, pdu: Vec::new() }
    }
}
