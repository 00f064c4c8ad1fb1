//! The meta block of the journal: its payloads, its checksums, the reading and the writing of it.

use crate::crc;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a meta block, and of each block of data or parity.
pub const BLOCK: usize = 4096;
/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = 8;
/// Added to the sequence number when a new log is started after recovery. Meta blocks of the old log may remain further on
/// in the ring; the gap keeps their numbers from continuing the new log.
pub const SEQ_GAP: u64 = 10_000;

const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const HEAD: usize = 32;
const CHECKSUM_AT: usize = 4;

const DATA: u16 = 0;
const PARITY: u16 = 1;
const FLUSH: u16 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: U32,
    checksum: U32,
    version: u8,
    zero: [u8; 3],
    meta_size: U32,
    seq: U64,
    position: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPayload {
    kind: U16,
    flags: U16,
    /// Sectors of a data or parity payload, bytes of a flush payload.
    size: U32,
}

const _: () = {
    assert!(size_of::<Head>() == HEAD);
    assert!(size_of::<RawPayload>() == 8);
    assert!(std::mem::offset_of!(Head, checksum) == CHECKSUM_AT);
};

/// The seed of all checksums of an array's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The seed of the array `set_uuid`.
    pub fn of(set_uuid: &[u8; 16]) -> Seed {
        Seed(crc::register(u32::MAX, set_uuid))
    }

    /// The checksum of a block of data or parity.
    pub fn checksum(self, block: &[u8]) -> u32 {
        crc::register(self.0, block)
    }
}

/// An entry of a meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A block of data follows.
    Data {
        /// Array sector.
        location: u64,
        /// The block's checksum.
        checksum: u32,
    },
    /// A block of P follows, and for RAID6 one of Q.
    Parity {
        /// Component sector of the row.
        location: u64,
        /// P's checksum.
        p: u32,
        /// Q's checksum.
        q: Option<u32>,
    },
    /// These rows have been written to the members.
    Flush {
        /// Component sectors of the rows.
        rows: Vec<u64>,
    },
}

impl Payload {
    /// The checksums of the blocks that follow for this payload, in their order.
    pub fn checksums(&self) -> impl Iterator<Item = u32> {
        let (first, second) = match self {
            Payload::Data { checksum, .. } => (Some(*checksum), None),
            Payload::Parity { p, q, .. } => (Some(*p), *q),
            Payload::Flush { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// A meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Grows by one from block to block.
    pub seq: u64,
    /// The ring sector at which the block stands.
    pub position: u64,
    /// The payloads, in order.
    pub payloads: Vec<Payload>,
}

/// The reason why a block is not a meta block of this array's journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// Fewer bytes than a block has.
    #[error(
        "reading a journal block: {have} bytes given and 4096 needed; the journal has been cut short"
    )]
    TooShort {
        /// Bytes given.
        have: usize,
    },
    /// No meta block: the log ends before it.
    #[error("no journal meta block (magic is {found:#010x}); the log ends here")]
    NoMagic {
        /// The number in place of the magic.
        found: u32,
    },
    /// A version that is not supported.
    #[error(
        "journal meta block: version is {found} and only 1 is supported; let Linux replay this journal"
    )]
    Version {
        /// Version found.
        found: u8,
    },
    /// Stored and computed checksum differ: the block was not written whole, or belongs to another array.
    #[error(
        "journal meta block: checksum is {stored:#010x} and should be {computed:#010x}; the log ends here"
    )]
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// meta_size is impossible.
    #[error(
        "journal meta block: meta_size is {found}, which must be from 32 to 4096; the log ends here"
    )]
    MetaSize {
        /// Bytes found.
        found: u32,
    },
    /// A payload of unknown type, or one that does not fit into the block.
    #[error(
        "journal meta block: payload at +{at} (type {kind}, size {size}) is unknown or does not fit; \
         the log ends here"
    )]
    Payload {
        /// Byte offset in the block.
        at: usize,
        /// Its type.
        kind: u16,
        /// Its size field.
        size: u32,
    },
}

impl Meta {
    /// A meta block without payloads. `create` writes one at ring sector 0, and a recovery writes one where the log goes on.
    pub fn empty(seq: u64, position: u64) -> Meta {
        Meta { seq, position, payloads: Vec::new() }
    }

    /// Reads the meta block in the first 4096 of `bytes`.
    ///
    /// # Errors
    /// No intact meta block of the array that `seed` belongs to.
    pub fn parse(bytes: &[u8], seed: Seed) -> Result<Meta, MetaError> {
        let block = bytes.get(..BLOCK).ok_or(MetaError::TooShort { have: bytes.len() })?;
        let (head, _) =
            Head::read_from_prefix(block).map_err(|_| MetaError::TooShort { have: bytes.len() })?;
        if head.magic.get() != MAGIC {
            return Err(MetaError::NoMagic { found: head.magic.get() });
        }
        if head.version != VERSION {
            return Err(MetaError::Version { found: head.version });
        }
        let (stored, computed) = (head.checksum.get(), block_checksum(block, seed));
        if stored != computed {
            return Err(MetaError::Checksum { stored, computed });
        }
        let found = head.meta_size.get();
        let used = usize::try_from(found).ok().and_then(|size| block.get(HEAD..size));
        let used = used.ok_or(MetaError::MetaSize { found })?;
        Ok(Meta { seq: head.seq.get(), position: head.position.get(), payloads: payloads(used)? })
    }

    /// The 4096 bytes to write at `position`; `None` when the payloads do not fit.
    pub fn to_bytes(&self, seed: Seed) -> Option<[u8; BLOCK]> {
        let mut used = Vec::with_capacity(BLOCK);
        for payload in &self.payloads {
            write_payload(payload, &mut used);
            if used.len() > BLOCK - HEAD {
                return None;
            }
        }
        let head = Head {
            magic: MAGIC.into(),
            checksum: 0.into(),
            version: VERSION,
            zero: [0; 3],
            // At most 4096.
            meta_size: ((HEAD + used.len()) as u32).into(),
            seq: self.seq.into(),
            position: self.position.into(),
        };
        let mut block = [0; BLOCK];
        block.get_mut(..HEAD)?.copy_from_slice(head.as_bytes());
        block.get_mut(HEAD..HEAD + used.len())?.copy_from_slice(&used);
        let checksum = seed.checksum(&block);
        block.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4)?.copy_from_slice(&checksum.to_le_bytes());
        Some(block)
    }

    /// The checksums of the blocks that follow, in their order.
    pub fn checksums(&self) -> impl Iterator<Item = u32> {
        self.payloads.iter().flat_map(Payload::checksums)
    }
}

/// The checksum of a meta block, its own field taken as zero.
pub(super) fn block_checksum(block: &[u8], seed: Seed) -> u32 {
    let (before, rest) = block.split_at_checked(CHECKSUM_AT).unwrap_or((block, &[]));
    let register = crc::register(crc::register(seed.0, before), &[0; 4]);
    crc::register(register, rest.get(4..).unwrap_or_default())
}

fn payloads(mut used: &[u8]) -> Result<Vec<Payload>, MetaError> {
    let mut payloads = Vec::new();
    let total = used.len();
    while !used.is_empty() {
        let at = HEAD + total - used.len();
        let Ok((raw, rest)) = RawPayload::read_from_prefix(used) else {
            return Err(MetaError::Payload { at, kind: u16::MAX, size: 0 });
        };
        let (kind, size) = (raw.kind.get(), raw.size.get());
        let wrong = || MetaError::Payload { at, kind, size };
        let (payload, rest) = match (kind, size) {
            (DATA, 8) => {
                let ((location, checksum), rest) = location_and::<1>(rest).ok_or_else(wrong)?;
                let [checksum] = checksum.map(U32::get);
                (Payload::Data { location, checksum }, rest)
            }
            (PARITY, 8) => {
                let ((location, checksum), rest) = location_and::<1>(rest).ok_or_else(wrong)?;
                let [p] = checksum.map(U32::get);
                (Payload::Parity { location, p, q: None }, rest)
            }
            (PARITY, 16) => {
                let ((location, checksum), rest) = location_and::<2>(rest).ok_or_else(wrong)?;
                let [p, q] = checksum.map(U32::get);
                (Payload::Parity { location, p, q: Some(q) }, rest)
            }
            (FLUSH, bytes) if bytes.is_multiple_of(8) => {
                let rows = usize::try_from(bytes / 8).ok();
                let read =
                    rows.and_then(|rows| <[U64]>::ref_from_prefix_with_elems(rest, rows).ok());
                let (rows, rest) = read.ok_or_else(wrong)?;
                (Payload::Flush { rows: rows.iter().map(|row| row.get()).collect() }, rest)
            }
            _ => return Err(wrong()),
        };
        payloads.push(payload);
        used = rest;
    }
    Ok(payloads)
}

type Located<const N: usize> = (u64, [U32; N]);

fn location_and<const N: usize>(bytes: &[u8]) -> Option<(Located<N>, &[u8])> {
    let (location, rest) = U64::read_from_prefix(bytes).ok()?;
    let (checksums, rest) = <[U32; N]>::read_from_prefix(rest).ok()?;
    Some(((location.get(), checksums), rest))
}

fn write_payload(payload: &Payload, out: &mut Vec<u8>) {
    let mut head = |kind: u16, size: usize| {
        // A size beyond 32 bits cannot fit into a block; the caller checks the length and refuses it.
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let raw = RawPayload { kind: kind.into(), flags: 0.into(), size: size.into() };
        out.extend_from_slice(raw.as_bytes());
    };
    match payload {
        Payload::Data { location, checksum } => {
            head(DATA, 8);
            out.extend_from_slice(&location.to_le_bytes());
            out.extend_from_slice(&checksum.to_le_bytes());
        }
        Payload::Parity { location, p, q } => {
            head(PARITY, if q.is_some() { 16 } else { 8 });
            out.extend_from_slice(&location.to_le_bytes());
            for checksum in [Some(*p), *q].into_iter().flatten() {
                out.extend_from_slice(&checksum.to_le_bytes());
            }
        }
        Payload::Flush { rows } => {
            head(FLUSH, rows.len().saturating_mul(8));
            for row in rows {
                out.extend_from_slice(&row.to_le_bytes());
            }
        }
    }
}
