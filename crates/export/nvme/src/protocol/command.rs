//! Commands: their 64 bytes, and the codes of what they ask for.

use super::digest::Crc32c;
use super::fields::{put, u8_at, u16_at, u32_at, u64_at};
use super::pdu::{COMMON_BYTES, DIGEST_BYTES, F_DATA_DIGEST, F_HEADER_DIGEST, PduType};

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 64;

/// Opcodes of admin commands (Base 2.0, figure 138).
#[allow(missing_docs)] // The names are the specification's.
pub mod admin {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const FABRICS: u8 = 0x7f;
}

/// Opcodes of the NVM command set (NVM Command Set 1.0, section 3).
#[allow(missing_docs)] // The names are the specification's.
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Identifiers of features (Base 2.0, figure 317).
#[allow(missing_docs)] // The names are the specification's.
pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE: u8 = 0x04;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const ASYNC_EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
    pub const HOST_BEHAVIOR: u8 = 0x16;
    pub const HOST_ID: u8 = 0x81;
}

/// The types of fabrics commands (Base 2.0, figure 460).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fabrics {
    /// Sets a property of the controller.
    PropertySet = 0x00,
    /// Makes the connection a queue of a controller.
    Connect = 0x01,
    /// Gets a property of the controller.
    PropertyGet = 0x04,
    /// Data of an authentication, to the controller.
    AuthSend = 0x05,
    /// Data of an authentication, to the host.
    AuthReceive = 0x06,
}

/// The direction of a command's data, as its code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It has none.
    None,
    /// To the controller.
    In,
    /// To the host.
    Out,
}

/// A command's description of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// In the capsule, from this offset, so many bytes.
    InCapsule(u64, u32),
    /// Moved by the transport: so many bytes.
    Transport(u32),
    /// Any other kind, which this transport has not.
    Other(u8),
}

/// A range of Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub start: u64,
    /// Blocks.
    pub blocks: u32,
}

/// Ranges that one Dataset Management command may have.
const RANGES_MAX: usize = 256;
const RANGE_BYTES: usize = 16;

/// The first `count` ranges in the data of a Dataset Management command; `None` when there are fewer.
#[must_use]
pub fn ranges(data: &[u8], count: usize) -> Option<Vec<Range>> {
    let data = data.get(..count * RANGE_BYTES).filter(|_| count <= RANGES_MAX)?;
    let range = |bytes: &[u8]| Range { start: u64_at(bytes, 8), blocks: u32_at(bytes, 4) };
    Some(data.chunks(RANGE_BYTES).map(range).collect())
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command([u8; COMMAND_BYTES]);

impl Command {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: [u8; COMMAND_BYTES]) -> Command {
        Command(bytes)
    }

    /// A command of a host.
    #[must_use]
    pub fn of(opcode: u8, id: u16, namespace: u32) -> Command {
        let mut command = Command([0; COMMAND_BYTES]);
        // Data is described by an SGL, always over fabrics.
        (command.0[0], command.0[1]) = (opcode, 0x40);
        command.with(2, &id.to_le_bytes()).with(4, &namespace.to_le_bytes())
    }

    /// The command with `bytes` at the offset `at`.
    #[must_use]
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Command {
        put(&mut self.0, at, bytes);
        self
    }

    /// The command with a description of its data.
    #[must_use]
    pub fn with_data(self, sgl: Sgl) -> Command {
        let (address, length, kind) = match sgl {
            Sgl::InCapsule(offset, length) => (offset, length, 0x01),
            Sgl::Transport(length) => (0, length, 0x5a),
            Sgl::Other(kind) => (0, 0, kind),
        };
        self.with(24, &address.to_le_bytes()).with(32, &length.to_le_bytes()).with(39, &[kind])
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; COMMAND_BYTES] {
        &self.0
    }

    /// The capsule as a host sends it, with `data` in it.
    #[must_use]
    pub fn capsule(&self, data: &[u8], header_digest: bool, data_digest: bool) -> Vec<u8> {
        let mut out = self.capsule_before(data.len(), header_digest, data_digest);
        out.extend(data);
        if data_digest && !data.is_empty() {
            out.extend(Crc32c::of(data).to_le_bytes());
        }
        out
    }

    /// The part of a capsule that is before its data, of which there are so many bytes.
    #[must_use]
    pub fn capsule_before(&self, data: usize, header_digest: bool, data_digest: bool) -> Vec<u8> {
        let header = PduType::Command.header_bytes();
        let own = header + if header_digest { DIGEST_BYTES } else { 0 };
        let data_digest = data_digest && data > 0;
        let bytes = own + data + if data_digest { DIGEST_BYTES } else { 0 };
        let flags = if header_digest { F_HEADER_DIGEST } else { 0 }
            | if data_digest { F_DATA_DIGEST } else { 0 };
        let offset = if data == 0 { 0 } else { own as u8 };
        let mut out = vec![PduType::Command as u8, flags, header as u8, offset];
        out.extend((bytes as u32).to_le_bytes());
        debug_assert_eq!(out.len(), COMMON_BYTES);
        out.extend(self.0);
        if header_digest {
            out.extend(Crc32c::of(&out).to_le_bytes());
        }
        out
    }

    /// Its opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// It is one of two commands that are to be carried out as one.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.0[1] & 3 != 0
    }

    /// The identifier that its completion has.
    #[must_use]
    pub fn id(&self) -> u16 {
        u16_at(&self.0, 2)
    }

    /// The namespace that it is for.
    #[must_use]
    pub fn namespace(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    /// The kind of a fabrics command.
    #[must_use]
    pub fn fabrics(&self) -> Option<Fabrics> {
        let kinds = [
            Fabrics::PropertySet,
            Fabrics::Connect,
            Fabrics::PropertyGet,
            Fabrics::AuthSend,
            Fabrics::AuthReceive,
        ];
        let is = self.opcode() == admin::FABRICS;
        kinds.into_iter().find(|kind| is && *kind as u8 == self.0[4])
    }

    /// The byte at `at`.
    #[must_use]
    pub fn byte(&self, at: usize) -> u8 {
        u8_at(&self.0, at)
    }

    /// Two bytes at `at`.
    #[must_use]
    pub fn half(&self, at: usize) -> u16 {
        u16_at(&self.0, at)
    }

    /// Command dword `nr` (10 to 15).
    #[must_use]
    pub fn dword(&self, nr: usize) -> u32 {
        u32_at(&self.0, nr * 4)
    }

    /// Eight bytes at `at`.
    #[must_use]
    pub fn quad(&self, at: usize) -> u64 {
        u64_at(&self.0, at)
    }

    /// The first block of a command with blocks.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.quad(40)
    }

    /// The number of blocks of a command with blocks: 1 to 65536.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.dword(12) & 0xffff) + 1
    }

    /// Force unit access.
    #[must_use]
    pub fn fua(&self) -> bool {
        self.dword(12) & 1 << 30 != 0
    }

    /// The direction in which its data goes: the lowest bits of the opcode, or of the kind of a fabrics command.
    #[must_use]
    pub fn direction(&self) -> Direction {
        let code = if self.opcode() == admin::FABRICS { self.0[4] } else { self.opcode() };
        match code & 3 {
            1 => Direction::In,
            2 => Direction::Out,
            _ => Direction::None,
        }
    }

    /// Its description of the data.
    #[must_use]
    pub fn sgl(&self) -> Sgl {
        let length = u32_at(&self.0, 32);
        match self.0[39] {
            0x01 => Sgl::InCapsule(u64_at(&self.0, 24), length),
            0x5a => Sgl::Transport(length),
            kind => Sgl::Other(kind),
        }
    }
}
