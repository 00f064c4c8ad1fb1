//! The PDUs that a controller sends.

use super::completion::{COMPLETION_BYTES, Completion};
use super::decoder::Violation;
use super::digest::Crc32c;
use super::pdu::{
    COMMON_BYTES, DIGEST_BYTES, F_DATA_DIGEST, F_HEADER_DIGEST, F_LAST, F_SUCCESS, Initialize,
    PduType,
};

/// Encodes by what a connection has agreed on. Appends to what it is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder {
    header_digest: bool,
    data_digest: bool,
    alignment: usize,
}

impl Encoder {
    /// For a connection with these parameters.
    #[must_use]
    pub fn new(agreed: &Initialize) -> Encoder {
        Encoder {
            header_digest: agreed.header_digest,
            data_digest: agreed.data_digest,
            alignment: (usize::from(agreed.host_alignment) + 1) * 4,
        }
    }

    /// True if data has digests.
    #[must_use]
    pub fn data_digest(&self) -> bool {
        self.data_digest
    }

    fn common(&self, out: &mut Vec<u8>, kind: PduType, flags: u8, data: Option<u32>) -> usize {
        let start = out.len();
        let header = kind.header_bytes();
        let own = header + if self.header_digest { DIGEST_BYTES } else { 0 };
        let offset = match data {
            Some(_) => own.next_multiple_of(self.alignment.max(1)),
            None => 0,
        };
        let digest = if self.data_digest && data.is_some() { DIGEST_BYTES as u32 } else { 0 };
        let bytes = offset.max(own) as u32 + data.unwrap_or(0) + digest;
        let digests = if self.header_digest { F_HEADER_DIGEST } else { 0 }
            | if digest > 0 { F_DATA_DIGEST } else { 0 };
        // The largest alignment is 128, so the offset fits a byte.
        out.extend([kind as u8, flags | digests, header as u8, offset as u8]);
        out.extend(bytes.to_le_bytes());
        start
    }

    /// Ends a header that begins at `start`: its digest, and bytes up to data.
    fn close(&self, out: &mut Vec<u8>, start: usize, data: bool) {
        if self.header_digest {
            let digest = Crc32c::of(out.get(start..).unwrap_or_default());
            out.extend(digest.to_le_bytes());
        }
        if data {
            let own = out.len() - start;
            out.resize(start + own.next_multiple_of(self.alignment.max(1)), 0);
        }
    }

    /// A completion.
    pub fn completion(&self, completion: &Completion, out: &mut Vec<u8>) {
        let start = self.common(out, PduType::Response, 0, None);
        let bytes: [u8; COMPLETION_BYTES] = completion.encode();
        out.extend(bytes);
        self.close(out, start, false);
    }

    /// The header before all `length` bytes of a command's data. With `success` no completion follows.
    pub fn data(&self, command: u16, length: u32, success: bool, out: &mut Vec<u8>) {
        let flags = F_LAST | if success { F_SUCCESS } else { 0 };
        let start = self.common(out, PduType::ControllerData, flags, Some(length));
        out.extend(command.to_le_bytes());
        out.extend([0; 2]);
        out.extend(0u32.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend([0; 4]);
        self.close(out, start, true);
    }

    /// The controller is ready for `length` bytes of a command's data, under `tag`.
    pub fn ready(&self, command: u16, tag: u16, length: u32, out: &mut Vec<u8>) {
        let start = self.common(out, PduType::ReadyToTransfer, 0, None);
        out.extend(command.to_le_bytes());
        out.extend(tag.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend([0; 4]);
        self.close(out, start, false);
    }

    /// The last words of a connection whose host broke the protocol. They have no digests.
    pub fn terminate(violation: &Violation, out: &mut Vec<u8>) {
        let header = PduType::ControllerTerminates.header_bytes();
        out.extend([PduType::ControllerTerminates as u8, 0, header as u8, 0]);
        out.extend(((header + violation.pdu.len()) as u32).to_le_bytes());
        out.extend((violation.error as u16).to_le_bytes());
        out.extend(violation.information.to_le_bytes());
        out.extend([0; 24 - COMMON_BYTES - 6]);
        out.extend(&violation.pdu);
    }
}
