//! A request as the driver describes it (`struct ublksrv_io_desc`), and where its bytes are.

/// Bytes of a description.
pub const DESCRIPTION_BYTES: usize = 24;
/// Bytes of a sector, in which requests count whatever the disk's blocks.
pub const SECTOR: u64 = 512;
/// `UBLK_MAX_QUEUE_DEPTH`: descriptions of a queue for which there is room in the driver's file.
const DEPTH_MAX: u64 = 4096;
/// Bits of a position within one request (`UBLK_IO_BUF_BITS`).
const POSITION_BITS: u32 = 25;
/// Bits of a tag (`UBLK_TAG_BITS`).
const TAG_BITS: u32 = 16;
/// `UBLKSRV_IO_BUF_OFFSET`: where the bytes of requests begin in the driver's file.
const BYTES_AT: u64 = 0x8000_0000;
/// Bytes of the largest request that has room there: 32 MiB.
pub const REQUEST_BYTES_MAX: u32 = 1 << POSITION_BITS;

const F_FUA: u32 = 1 << 13;
const F_NOUNMAP: u32 = 1 << 15;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Read,
    /// Write; with FUA it is durable when it is answered.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Make durable.
    Flush,
    /// Give up.
    Discard,
    /// Zero.
    WriteZeroes {
        /// Space may be given back.
        unmap: bool,
        /// Force unit access.
        fua: bool,
    },
    /// Something that a device of ours does not offer.
    Unknown,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The operation.
    pub verb: Verb,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Job {
    /// Takes a description apart.
    pub fn parse(bytes: &[u8; DESCRIPTION_BYTES]) -> Job {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (operation, sectors) = (word(0), word(4));
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[8..16]);
        let fua = operation & F_FUA != 0;
        let verb = match operation & 0xff {
            0 => Verb::Read,
            1 => Verb::Write { fua },
            2 => Verb::Flush,
            3 => Verb::Discard,
            5 => Verb::WriteZeroes { unmap: operation & F_NOUNMAP == 0, fua },
            _ => Verb::Unknown,
        };
        // A position that overflows is beyond the end of each target.
        let offset = u64::from_ne_bytes(first).saturating_mul(SECTOR);
        Job { verb, offset, len: u64::from(sectors) * SECTOR }
    }
}

/// Where the descriptions of a queue are in the driver's file.
pub fn descriptions_at(queue: u16, page: u64) -> u64 {
    let of_queue = (DEPTH_MAX * DESCRIPTION_BYTES as u64).next_multiple_of(page);
    u64::from(queue) * of_queue
}

/// Where the bytes of a tag's request are in the driver's file.
pub fn bytes_at(queue: u16, tag: u16) -> u64 {
    let (queue, tag) = (u64::from(queue), u64::from(tag));
    BYTES_AT + (queue << (POSITION_BITS + TAG_BITS) | tag << POSITION_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(operation: u32, sectors: u32, first: u64) -> [u8; DESCRIPTION_BYTES] {
        let mut bytes = [0; DESCRIPTION_BYTES];
        bytes[..4].copy_from_slice(&operation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&first.to_ne_bytes());
        bytes
    }

    #[test]
    fn requests_are_understood() {
        let job = |operation| Job::parse(&description(operation, 8, 3));
        let of = |verb| Job { verb, offset: 1536, len: 4096 };
        assert_eq!(job(0), of(Verb::Read));
        assert_eq!(job(1), of(Verb::Write { fua: false }));
        assert_eq!(job(1 | F_FUA | 1 << 8), of(Verb::Write { fua: true }));
        assert_eq!(job(2), of(Verb::Flush));
        assert_eq!(job(3), of(Verb::Discard));
        assert_eq!(job(5), of(Verb::WriteZeroes { unmap: true, fua: false }));
        assert_eq!(job(5 | F_NOUNMAP), of(Verb::WriteZeroes { unmap: false, fua: false }));
        for unknown in [4, 10, 13, 0xff] {
            assert_eq!(job(unknown).verb, Verb::Unknown);
        }
        assert_eq!(Job::parse(&description(0, 1, u64::MAX)).offset, u64::MAX);
    }

    #[test]
    fn places_are_those_of_the_kernels_header() {
        assert_eq!((descriptions_at(0, 4096), descriptions_at(2, 4096)), (0, 2 * 98304));
        assert_eq!(bytes_at(0, 0), 0x8000_0000);
        assert_eq!(bytes_at(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
    }
}
