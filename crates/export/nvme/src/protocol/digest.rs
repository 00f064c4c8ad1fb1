//! CRC32C, the digest of headers and of data (TCP Transport 1.0, section 3.3.1.1).

use crc_fast::{CrcAlgorithm, Digest};

/// A digest over pieces.
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c::new()
    }
}

impl Crc32c {
    /// Of nothing so far.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    #[must_use]
    pub fn value(&self) -> u32 {
        // A digest of 32 bits.
        self.0.finalize() as u32
    }

    /// The digest of one piece.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u32 {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }
}
