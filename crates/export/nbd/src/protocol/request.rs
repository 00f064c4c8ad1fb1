//! Requests: their format, and the rules that an export puts on them.
//!
//! Owns: decoding and validating on the server's side, encoding on the client's. Does not know
//! where a payload goes: the decoder hands a valid write over as soon as its header is there, and
//! the caller takes the payload out of the stream itself, so it can be received in place.
//! Invariant: a request that comes out fits the export; a refused write's payload never does.

use super::constants::*;
use super::export::{BlockSizes, Export, Features};
use super::handshake_server::Negotiated;
use super::reply::ErrorCode;
use super::wire::{Fields, Gather, take_up_to};

/// The command of a request (proto.md, "Request types"), disconnection aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write; `length` bytes of payload follow the request.
    Write,
    /// Make all completed writes durable; offset and length are zero.
    Flush,
    /// Discard.
    Trim,
    /// Prefetch.
    Cache,
    /// Write zeroes.
    WriteZeroes,
    /// Describe the allocation of a range.
    BlockStatus,
}

impl Command {
    fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            CMD_READ => Self::Read,
            CMD_WRITE => Self::Write,
            CMD_FLUSH => Self::Flush,
            CMD_TRIM => Self::Trim,
            CMD_CACHE => Self::Cache,
            CMD_WRITE_ZEROES => Self::WriteZeroes,
            CMD_BLOCK_STATUS => Self::BlockStatus,
            _ => return None,
        })
    }

    fn code(self) -> u16 {
        match self {
            Self::Read => CMD_READ,
            Self::Write => CMD_WRITE,
            Self::Flush => CMD_FLUSH,
            Self::Trim => CMD_TRIM,
            Self::Cache => CMD_CACHE,
            Self::WriteZeroes => CMD_WRITE_ZEROES,
            Self::BlockStatus => CMD_BLOCK_STATUS,
        }
    }

    /// True if it changes the export's contents.
    #[must_use]
    pub fn modifies(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The client's name for the request (the specification's "handle"), repeated in the reply.
    pub cookie: u64,
    /// The command.
    pub command: Command,
    /// `NBD_CMD_FLAG_*` bits.
    pub flags: u16,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u32,
}

impl Request {
    /// The reply must wait until the data is on stable storage.
    #[must_use]
    pub fn fua(&self) -> bool {
        self.flags & CMD_FLAG_FUA != 0
    }

    /// Block status must be of one extent only.
    #[must_use]
    pub fn only_one(&self) -> bool {
        self.flags & CMD_FLAG_REQ_ONE != 0
    }

    /// Zeroes must not leave a hole.
    #[must_use]
    pub fn no_hole(&self) -> bool {
        self.flags & CMD_FLAG_NO_HOLE != 0
    }

    /// Zeroing must fail with [`ErrorCode::NotSupported`] rather than be as slow as writing.
    #[must_use]
    pub fn fast_zero(&self) -> bool {
        self.flags & CMD_FLAG_FAST_ZERO != 0
    }

    /// The request as it goes over the wire; a write's payload follows it.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        encode(self.flags, self.command.code(), self.cookie, self.offset, self.length)
    }

    /// A disconnect request, which has no reply.
    #[must_use]
    pub fn encode_disconnect() -> [u8; REQUEST_BYTES] {
        encode(0, CMD_DISC, 0, 0, 0)
    }
}

fn encode(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..28].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A request that is answered with an error without reaching the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The request's cookie.
    pub cookie: u64,
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
    /// A write too long to skip.
    #[error("NBD client announced a write of {0} bytes: closing its connection")]
    PayloadTooLong(u32),
}

/// The requests that one connection may make of its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRules {
    size: u64,
    block: BlockSizes,
    features: Features,
    structured: bool,
    base_allocation: bool,
}

/// Outcome of the checks on one request.
type Check = Result<Request, (ErrorCode, &'static str)>;

impl RequestRules {
    /// The rules for `export` on a connection that agreed on `negotiated`.
    #[must_use]
    pub fn new(export: &Export, negotiated: Negotiated) -> Self {
        Self {
            size: export.size,
            block: BlockSizes {
                // Without block sizes the default is a byte (proto.md, "Block size constraints").
                minimum: if negotiated.block_sizes { export.block.minimum } else { 1 },
                ..export.block
            },
            features: export.features,
            structured: negotiated.structured,
            base_allocation: negotiated.base_allocation,
        }
    }

    /// True if replies are structured.
    #[must_use]
    pub fn structured(&self) -> bool {
        self.structured
    }

    /// Checks a request against the export (proto.md, "Error values" for which error means what).
    fn check(&self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Check {
        let Some(command) = Command::from_code(kind) else {
            return Err((ErrorCode::Invalid, "unknown command"));
        };
        if !self.offers(command) {
            return Err((ErrorCode::Invalid, "this export does not offer this command"));
        }
        if flags & !self.flags_allowed(command) != 0 {
            return Err((ErrorCode::Invalid, "flag not known for this command"));
        }
        let request = Request { cookie, command, flags, offset, length };
        if command == Command::Flush {
            // Both fields are reserved and must be zero (`NBD_CMD_FLUSH`).
            return if offset == 0 && length == 0 {
                Ok(request)
            } else {
                Err((ErrorCode::Invalid, "flush with an offset or a length"))
            };
        }
        if command.modifies() && self.features.read_only {
            return Err((ErrorCode::NotPermitted, "the export is read-only"));
        }
        if length == 0 {
            // Unspecified by the protocol except that the connection stays up.
            return Err((ErrorCode::Invalid, "length is zero"));
        }
        let inside = offset.checked_add(u64::from(length)).is_some_and(|end| end <= self.size);
        if !inside {
            let writes = matches!(command, Command::Write | Command::WriteZeroes);
            let code = if writes { ErrorCode::NoSpace } else { ErrorCode::Invalid };
            return Err((code, "range goes past the end of the export"));
        }
        // A power of two (ExportTable's invariant).
        let mask = u64::from(self.block.minimum) - 1;
        if (offset | u64::from(length)) & mask != 0 {
            return Err((ErrorCode::Invalid, "range is not aligned to the minimum block size"));
        }
        let carries_data = matches!(command, Command::Read | Command::Write);
        if carries_data && length > self.block.maximum {
            return Err((ErrorCode::Invalid, "length is over the maximum block size"));
        }
        Ok(request)
    }

    fn offers(&self, command: Command) -> bool {
        match command {
            Command::Read | Command::Write => true,
            Command::Flush => self.features.flush,
            Command::Trim => self.features.trim,
            Command::Cache => self.features.cache,
            Command::WriteZeroes => self.features.write_zeroes,
            Command::BlockStatus => self.structured && self.base_allocation,
        }
    }

    /// Flags that are valid for `command` here (proto.md, "Command flags").
    fn flags_allowed(&self, command: Command) -> u16 {
        let own = match command {
            Command::Read if self.structured => CMD_FLAG_DF,
            Command::WriteZeroes if self.features.fast_zero => {
                CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO
            }
            Command::WriteZeroes => CMD_FLAG_NO_HOLE,
            Command::BlockStatus => CMD_FLAG_REQ_ONE,
            _ => 0,
        };
        // Once offered, FUA is accepted on every command, if only to be ignored.
        own | if self.features.fua { CMD_FLAG_FUA } else { 0 }
    }
}

/// Splits one connection's stream into requests.
#[derive(Debug)]
pub struct RequestDecoder {
    rules: RequestRules,
    header: Gather<REQUEST_BYTES>,
    /// Bytes of a refused write's payload still to be skipped.
    skip: u32,
    /// The header of the newest request.
    newest: [u8; REQUEST_BYTES],
}

impl RequestDecoder {
    /// A decoder at the first request.
    #[must_use]
    pub fn new(rules: RequestRules) -> Self {
        Self { rules, header: Gather::new(), skip: 0, newest: [0; REQUEST_BYTES] }
    }

    /// A decoder in the middle of a stream, where `skip` bytes of a refused write's payload are to be skipped first.
    #[must_use]
    pub fn resume(rules: RequestRules, skip: u32) -> Self {
        Self { skip, ..Self::new(rules) }
    }

    /// Where the stream stands: the bytes that are to be skipped, and those of the next header that have come.
    #[must_use]
    pub fn position(&self) -> (u32, &[u8]) {
        (self.skip, self.header.come())
    }

    /// The newest request is for somebody else to carry out, its payload with it.
    pub fn forget_newest(&mut self) {
        self.skip = 0;
    }

    /// The newest request as it came, without a payload.
    #[must_use]
    pub fn newest(&self) -> &[u8] {
        &self.newest
    }

    /// True if the stream stands between two requests: an end of the stream here is a hard
    /// disconnect without a loss, elsewhere the client went away in the middle of one.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.skip == 0 && !self.header.is_partial()
    }

    /// Consumes bytes from the front of `input` up to the end of the next request's header.
    ///
    /// # Errors
    /// A violation after which the connection must be closed.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<RequestEvent, RequestViolation> {
        // At most `skip` bytes are taken, so the count fits and cannot underflow.
        self.skip -= take_up_to(input, self.skip as usize).len() as u32;
        if self.skip > 0 {
            return Ok(RequestEvent::NeedMore);
        }
        let Some(header) = self.header.take(input) else {
            return Ok(RequestEvent::NeedMore);
        };
        self.newest = header;
        let mut fields = Fields(&header);
        let (Some(magic), Some(flags), Some(kind), Some(cookie), Some(offset), Some(length)) =
            (fields.u32(), fields.u16(), fields.u16(), fields.u64(), fields.u64(), fields.u32())
        else {
            // Not reached: the six fields are the 28 bytes.
            return Ok(RequestEvent::NeedMore);
        };
        if magic != REQUEST_MAGIC {
            return Err(RequestViolation::Magic(magic));
        }
        if kind == CMD_DISC {
            return Ok(RequestEvent::Disconnect);
        }
        match self.rules.check(kind, flags, cookie, offset, length) {
            Ok(request) => Ok(RequestEvent::Request(request)),
            Err((code, message)) => {
                if kind == CMD_WRITE {
                    if length > SKIPPED_BYTES_MAX {
                        return Err(RequestViolation::PayloadTooLong(length));
                    }
                    self.skip = length;
                }
                Ok(RequestEvent::Refuse(Refusal { cookie, code, message }))
            }
        }
    }
}
