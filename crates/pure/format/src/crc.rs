//! CRC32C (polynomial 0x1edc6f41, reflected), of the partial parity log and the journal.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// The register after `bytes`, begun at `register`, without the final inversion.
pub(crate) fn register(register: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, register.into());
    digest.update(bytes);
    // A register of 32 bits.
    digest.get_state() as u32
}

/// The usual checksum: register begun at all ones, inverted at the end. 0 for no bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    !register(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_the_known_one() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(b""), 0);
        assert_eq!(register(register(7, b"12345"), b"6789"), register(7, b"123456789"));
    }
}
