//! Requests: what they ask for, their encoding on the client's side, and the rules that an export puts on them.
//!
//! Does not know streams. Invariant: a request that passes the rules fits the export.

use super::constants::*;
use super::export::{BlockSizes, Export, Features};
use super::handshake_server::Negotiated;
use super::headers::Headers;
use super::reply::ErrorCode;

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
    /// Bytes of the range; below 4 GiB unless headers are extended.
    pub length: u64,
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

    /// The request with a compact header; a write's payload follows it. The length must be below 4 GiB: of a longer one only
    /// the beginning is asked for.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        encode(self.flags, self.command.code(), self.cookie, self.offset, length)
    }

    /// The request with an extended header; a write's payload follows it.
    #[must_use]
    pub fn encode_extended(&self) -> [u8; EXTENDED_REQUEST_BYTES] {
        let payload = if self.command == Command::Write { CMD_FLAG_PAYLOAD_LEN } else { 0 };
        let mut bytes = [0; EXTENDED_REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&EXTENDED_REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&(self.flags | payload).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Appends the request in the form of these headers; a write's payload follows it.
    pub fn put(&self, headers: Headers, out: &mut Vec<u8>) {
        match headers {
            Headers::Simple | Headers::Structured => out.extend_from_slice(&self.encode()),
            Headers::Extended => out.extend_from_slice(&self.encode_extended()),
        }
    }

    /// A disconnect request, which has no reply.
    #[must_use]
    pub fn encode_disconnect() -> [u8; REQUEST_BYTES] {
        encode(0, CMD_DISC, 0, 0, 0)
    }

    /// Appends a disconnect request in the form of these headers.
    pub fn put_disconnect(headers: Headers, out: &mut Vec<u8>) {
        match headers {
            Headers::Simple | Headers::Structured => {
                out.extend_from_slice(&Request::encode_disconnect());
            }
            Headers::Extended => {
                let mut bytes = [0; EXTENDED_REQUEST_BYTES];
                bytes[0..4].copy_from_slice(&EXTENDED_REQUEST_MAGIC.to_be_bytes());
                bytes[6..8].copy_from_slice(&CMD_DISC.to_be_bytes());
                out.extend_from_slice(&bytes);
            }
        }
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

/// The requests that one connection may make of its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRules {
    size: u64,
    block: BlockSizes,
    features: Features,
    headers: Headers,
    base_allocation: bool,
}

/// Outcome of the checks on one request.
pub(super) type Check = Result<Request, (ErrorCode, &'static str)>;

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
            headers: negotiated.headers,
            base_allocation: negotiated.base_allocation,
        }
    }

    /// True if the range goes past the end that is known.
    pub(super) fn is_past_the_end(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_none_or(|end| end > self.size)
    }

    /// The export has so many bytes now, if those are more than were known.
    pub(super) fn grow_to(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    pub(super) fn headers(&self) -> Headers {
        self.headers
    }

    /// True if block status requests may name the metadata contexts that they are about.
    pub(super) fn takes_contexts(&self) -> bool {
        self.headers == Headers::Extended && self.base_allocation
    }

    /// Checks a request against the export (proto.md, "Error values" for which error means what).
    pub(super) fn check(
        &self,
        kind: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        length: u64,
    ) -> Check {
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
        if self.is_past_the_end(offset, length) {
            let writes = matches!(command, Command::Write | Command::WriteZeroes);
            let code = if writes { ErrorCode::NoSpace } else { ErrorCode::Invalid };
            return Err((code, "range goes past the end of the export"));
        }
        // A power of two (ExportTable's invariant).
        let mask = u64::from(self.block.minimum) - 1;
        if (offset | length) & mask != 0 {
            return Err((ErrorCode::Invalid, "range is not aligned to the minimum block size"));
        }
        let carries_data = matches!(command, Command::Read | Command::Write);
        if carries_data && length > u64::from(self.block.maximum) {
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
            Command::BlockStatus => self.headers.structured() && self.base_allocation,
        }
    }

    /// Flags that are valid for `command` here (proto.md, "Command flags").
    fn flags_allowed(&self, command: Command) -> u16 {
        let own = match command {
            Command::Read if self.headers.structured() => CMD_FLAG_DF,
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
