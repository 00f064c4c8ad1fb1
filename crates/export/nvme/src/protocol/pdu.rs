//! PDUs: types, sizes of their headers, and how a connection is initialised (TCP Transport 1.0, section 3.6).

use super::fields::{put, u8_at, u16_at, u32_at};

/// Bytes of the header that all PDUs begin with.
pub(super) const COMMON_BYTES: usize = 8;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// Bytes of the PDUs that initialise a connection.
pub const INITIALIZE_BYTES: usize = 128;
/// Bytes of data that a command of an I/O queue may carry: a usual large request, so that its data need not be asked for.
pub const MAX_IN_CAPSULE: u32 = 128 << 10;
/// Bytes of data that another command may carry, as the specification has it.
pub const MAX_IN_ADMIN_CAPSULE: u32 = 8192;

/// The PDU has a digest of its header.
pub(super) const F_HEADER_DIGEST: u8 = 1 << 0;
/// The PDU has a digest of its data.
pub(super) const F_DATA_DIGEST: u8 = 1 << 1;
/// The last PDU of a transfer.
pub(super) const F_LAST: u8 = 1 << 2;
/// The command has succeeded, and no completion follows.
pub(super) const F_SUCCESS: u8 = 1 << 3;

/// The type of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialises a connection.
    InitializeRequest = 0x00,
    /// Answers that.
    InitializeResponse = 0x01,
    /// The host has found an error and ends the connection.
    HostTerminates = 0x02,
    /// The controller has found an error and ends the connection.
    ControllerTerminates = 0x03,
    /// A command, maybe with its data.
    Command = 0x04,
    /// A completion.
    Response = 0x05,
    /// Data of a command, to the controller.
    HostData = 0x06,
    /// Data of a command, to the host.
    ControllerData = 0x07,
    /// The controller is ready for data.
    ReadyToTransfer = 0x09,
}

impl PduType {
    /// The type with this code, if a host may send it.
    pub(super) fn of_host(code: u8) -> Option<PduType> {
        [PduType::InitializeRequest, PduType::HostTerminates, PduType::Command, PduType::HostData]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }

    /// Bytes of its header, digest not counted.
    #[must_use]
    pub fn header_bytes(self) -> usize {
        match self {
            PduType::InitializeRequest | PduType::InitializeResponse => INITIALIZE_BYTES,
            PduType::Command => 72,
            PduType::HostTerminates
            | PduType::ControllerTerminates
            | PduType::Response
            | PduType::HostData
            | PduType::ControllerData
            | PduType::ReadyToTransfer => 24,
        }
    }
}

/// The reason for which a connection is terminated (section 3.6.2.4, Fatal Error Status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FatalError {
    /// A field of a header is wrong; the information is its offset.
    InvalidHeader = 1,
    /// This PDU may not come now.
    Sequence = 2,
    /// The digest of a header is wrong; the information is the digest that came.
    HeaderDigest = 3,
    /// Data outside of what was asked for.
    OutOfRange = 4,
    /// More than the receiver has said that it takes.
    LimitExceeded = 5,
    /// A parameter that is not supported; the information is its offset.
    Unsupported = 6,
}

/// A host's wishes for a connection (ICReq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialize {
    /// Data that is sent to the host begins at a multiple of four times (this and one), counted from the PDU's begin.
    pub host_alignment: u8,
    /// Headers have digests.
    pub header_digest: bool,
    /// Data has digests.
    pub data_digest: bool,
    /// Transfers that the host admits for a command at a time.
    pub ready_max: u32,
}

impl Initialize {
    /// Reads the whole PDU. Its common header has been checked.
    pub(super) fn decode(pdu: &[u8]) -> Result<Initialize, (FatalError, u32)> {
        if u16_at(pdu, 8) != 0 {
            return Err((FatalError::Unsupported, 8));
        }
        let (host_alignment, digests) = (u8_at(pdu, 10), u8_at(pdu, 11));
        if host_alignment > 31 {
            return Err((FatalError::InvalidHeader, 10));
        }
        Ok(Initialize {
            host_alignment,
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
            ready_max: u32_at(pdu, 12).saturating_add(1),
        })
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> [u8; INITIALIZE_BYTES] {
        let mut pdu = initialisation(PduType::InitializeRequest, self.host_alignment);
        pdu[11] = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
        put(&mut pdu, 12, &self.ready_max.saturating_sub(1).to_le_bytes());
        pdu
    }
}

/// A controller's answer to [`Initialize`] (ICResp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitializeAnswer {
    /// Headers have digests.
    pub header_digest: bool,
    /// Data has digests.
    pub data_digest: bool,
    /// Bytes of data that one PDU of the host may carry.
    pub host_data_max: u32,
}

impl InitializeAnswer {
    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> [u8; INITIALIZE_BYTES] {
        let mut pdu = initialisation(PduType::InitializeResponse, 0);
        pdu[11] = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
        put(&mut pdu, 12, &self.host_data_max.to_le_bytes());
        pdu
    }
}

fn initialisation(kind: PduType, alignment: u8) -> [u8; INITIALIZE_BYTES] {
    let mut pdu = [0; INITIALIZE_BYTES];
    (pdu[0], pdu[2], pdu[10]) = (kind as u8, INITIALIZE_BYTES as u8, alignment);
    put(&mut pdu, 4, &(INITIALIZE_BYTES as u32).to_le_bytes());
    pdu
}
