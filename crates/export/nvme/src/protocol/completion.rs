//! Completions, and the status in them (Base 2.0, sections 3.3.3.2 and 4.2).

use super::fields::{put, u16_at, u64_at};

/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = 16;

/// The status of a command: its type in bits 8 to 10, its code below, and bit 14 when trying again is in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

/// Trying again gives the same.
const DNR: u16 = 1 << 14;

#[allow(missing_docs)] // The names are the specification's.
impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const INVALID_OPCODE: Status = Status(0x01 | DNR);
    pub const INVALID_FIELD: Status = Status(0x02 | DNR);
    pub const ABORTED_POWER_LOSS: Status = Status(0x05);
    pub const INTERNAL: Status = Status(0x06);
    pub const ABORTED: Status = Status(0x07);
    pub const INVALID_NAMESPACE: Status = Status(0x0b | DNR);
    pub const COMMAND_SEQUENCE: Status = Status(0x0c | DNR);
    pub const INVALID_SGL_LENGTH: Status = Status(0x0f | DNR);
    pub const INVALID_SGL_TYPE: Status = Status(0x11 | DNR);
    pub const NAMESPACE_WRITE_PROTECTED: Status = Status(0x20 | DNR);
    pub const TRANSIENT_TRANSPORT: Status = Status(0x22);
    pub const LBA_OUT_OF_RANGE: Status = Status(0x80 | DNR);
    pub const CAPACITY_EXCEEDED: Status = Status(0x81 | DNR);
    pub const NAMESPACE_NOT_READY: Status = Status(0x82);
    pub const ASYNC_EVENT_LIMIT: Status = Status(0x105 | DNR);
    pub const INVALID_LOG_PAGE: Status = Status(0x109 | DNR);
    pub const FEATURE_NOT_SAVEABLE: Status = Status(0x10d | DNR);
    pub const FEATURE_NOT_CHANGEABLE: Status = Status(0x10e | DNR);
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = Status(0x180 | DNR);
    pub const CONNECT_CONTROLLER_BUSY: Status = Status(0x181);
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(0x182 | DNR);
    pub const CONNECT_INVALID_HOST: Status = Status(0x184 | DNR);
    pub const AUTHENTICATION_REQUIRED: Status = Status(0x191 | DNR);
    pub const WRITE_FAULT: Status = Status(0x280);
    pub const UNRECOVERED_READ: Status = Status(0x281);
    pub const COMPARE_FAILURE: Status = Status(0x285 | DNR);

    /// The command has succeeded.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0 == 0
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// A result that some commands have.
    pub result: u64,
    /// The submission queue's head after this command.
    pub head: u16,
    /// The command's identifier.
    pub command: u16,
    /// Its status.
    pub status: Status,
}

impl Completion {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.head.to_le_bytes());
        put(&mut bytes, 12, &self.command.to_le_bytes());
        put(&mut bytes, 14, &(self.status.0 << 1).to_le_bytes());
        bytes
    }

    /// Takes the bytes apart.
    #[must_use]
    pub fn decode(bytes: &[u8; COMPLETION_BYTES]) -> Completion {
        Completion {
            result: u64_at(bytes, 0),
            head: u16_at(bytes, 8),
            command: u16_at(bytes, 12),
            status: Status(u16_at(bytes, 14) >> 1),
        }
    }
}
