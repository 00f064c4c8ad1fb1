//! A member's log: the header of a unit, its entries, and the newest unit of an area.

use crate::{SECTOR, crc};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const HEADER: usize = 4096;
/// Most entries of a header.
pub const ENTRIES_MAX: usize = 148;
const HEADER_SECTORS: u64 = (HEADER / SECTOR) as u64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    reserved: [u8; 512],
    signature: U32,
    padding: U32,
    generation: U64,
    entries_count: U32,
    checksum: U32,
    entries: [RawEntry; ENTRIES_MAX],
    rest: [u8; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    data_sector: U64,
    pp_size: U32,
    data_size: U32,
    parity_disk: U32,
    checksum: U32,
}

const CHECKSUM_AT: usize = 532;

const _: () = {
    assert!(size_of::<Raw>() == HEADER);
    assert!(size_of::<RawEntry>() == 24);
    assert!(std::mem::offset_of!(Raw, checksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(Raw, entries) == 536);
};

/// A header of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Incremented with each unit that is logged on any member of the array; 0 in an empty log.
    pub generation: u64,
    /// The ranges that the writes changed, at most [`ENTRIES_MAX`].
    pub entries: Vec<Entry>,
}

/// A range of rows of one stripe that a write changed. Its numbers have not been checked against the array yet: see
/// [`recover`](super::recover()).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Array sector of the first changed chunk's first row.
    pub data_sector: u64,
    /// Bytes of partial parity, one block for each row; 0 when the write covered all data of the rows.
    pub pp_size: u32,
    /// Bytes changed, in all chunks together.
    pub data_size: u32,
    /// Slot that holds the stripe's parity.
    pub parity_disk: u32,
    /// CRC32C of the partial parity.
    pub checksum: u32,
}

/// The reason why a block is not a header of this array's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PplError {
    /// Fewer bytes than a header has.
    #[error(
        "reading a PPL header: {have} bytes given and 4096 needed; the member has been cut short"
    )]
    TooShort {
        /// Bytes given.
        have: usize,
    },
    /// Stored and computed checksum differ.
    #[error(
        "PPL header: checksum is {stored:#010x} and should be {computed:#010x}; \
         there is no log here or it is damaged: the array needs a resync after an unclean stop"
    )]
    Checksum {
        /// The checksum stored.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The log of another array.
    #[error(
        "PPL header: signature is {found:#010x} and this array's is {want:#010x}; \
         the log is another array's: the array needs a resync after an unclean stop"
    )]
    Signature {
        /// The signature stored.
        found: u32,
        /// The signature that the array's uuid gives.
        want: u32,
    },
    /// More entries than fit.
    #[error(
        "PPL header: {found} entries and at most 148 fit; the log is damaged: resync the array"
    )]
    EntriesCount {
        /// Entries found.
        found: u32,
    },
}

/// The signature of an array's logs.
pub fn signature(set_uuid: &[u8; 16]) -> u32 {
    crc::checksum(set_uuid)
}

/// The checksum of an entry's partial parity.
pub fn entry_checksum(partial_parity: &[u8]) -> u32 {
    crc::checksum(partial_parity)
}

/// The header's checksum, its own field taken as zero.
fn checksum(raw: &Raw) -> u32 {
    let raw = Raw { checksum: 0.into(), ..*raw };
    crc::checksum(raw.as_bytes())
}

impl Header {
    /// Reads the header in the first 4096 of `bytes`.
    ///
    /// # Errors
    /// No intact header of the array `set_uuid`.
    pub fn parse(bytes: &[u8], set_uuid: &[u8; 16]) -> Result<Header, PplError> {
        let (raw, _) =
            Raw::ref_from_prefix(bytes).map_err(|_| PplError::TooShort { have: bytes.len() })?;
        let (stored, computed) = (raw.checksum.get(), checksum(raw));
        if stored != computed {
            return Err(PplError::Checksum { stored, computed });
        }
        let (found, want) = (raw.signature.get(), signature(set_uuid));
        if found != want {
            return Err(PplError::Signature { found, want });
        }
        let found = raw.entries_count.get();
        let count = usize::try_from(found).unwrap_or(usize::MAX);
        let entries = raw.entries.get(..count).ok_or(PplError::EntriesCount { found })?;
        let entries = entries.iter().map(|entry| Entry {
            data_sector: entry.data_sector.get(),
            pp_size: entry.pp_size.get(),
            data_size: entry.data_size.get(),
            parity_disk: entry.parity_disk.get(),
            checksum: entry.checksum.get(),
        });
        Ok(Header { generation: raw.generation.get(), entries: entries.collect() })
    }

    /// The 4096 bytes to write. Entries beyond [`ENTRIES_MAX`] do not fit and are left out.
    pub fn to_bytes(&self, set_uuid: &[u8; 16]) -> [u8; HEADER] {
        let entry = |index: usize| {
            let entry = self.entries.get(index).copied().unwrap_or_default();
            RawEntry {
                data_sector: entry.data_sector.into(),
                pp_size: entry.pp_size.into(),
                data_size: entry.data_size.into(),
                parity_disk: entry.parity_disk.into(),
                checksum: entry.checksum.into(),
            }
        };
        let mut raw = Raw {
            reserved: [0xff; 512],
            signature: signature(set_uuid).into(),
            padding: 0.into(),
            generation: self.generation.into(),
            // At most 148.
            entries_count: (self.entries.len().min(ENTRIES_MAX) as u32).into(),
            checksum: 0.into(),
            entries: std::array::from_fn(entry),
            rest: [0; 8],
        };
        raw.checksum = checksum(&raw).into();
        zerocopy::transmute!(raw)
    }

    /// Sectors of the unit that this header begins: itself and all partial parity.
    pub fn unit_sectors(&self) -> u64 {
        let bytes: u64 = self.entries.iter().map(|entry| u64::from(entry.pp_size)).sum();
        HEADER_SECTORS + bytes / SECTOR as u64
    }
}

/// The header of a log without entries: what `create` and a finished recovery write at the start of the
/// area, whose rest is zero.
pub fn empty_header(set_uuid: &[u8; 16]) -> [u8; HEADER] {
    Header::default().to_bytes(set_uuid)
}

/// A unit of the log: a header and the partial parity that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Sector of the header in the area.
    pub sector: u64,
    /// The header.
    pub header: Header,
    /// The bytes after the header, cut to the unit's length and to the end of the area.
    pub partial_parity: &'a [u8],
}

/// The newest unit in a member's area (its `ppl.size` sectors): units follow each other from the start of the area, and the
/// newest is the last one before the generations stop growing. `None` when the area does not begin with an intact header.
pub fn newest<'a>(area: &'a [u8], set_uuid: &[u8; 16]) -> Option<Unit<'a>> {
    let mut last: Option<Unit<'a>> = None;
    let sectors = (area.len() / SECTOR) as u64;
    let mut sector = 0u64;
    // The kernel never starts a unit in the last eight sectors.
    while sector < sectors.saturating_sub(HEADER_SECTORS) {
        let rest = usize::try_from(sector).ok().and_then(|at| area.get(at.checked_mul(SECTOR)?..));
        let Some(header) = rest.and_then(|rest| Header::parse(rest, set_uuid).ok()) else { break };
        if last.as_ref().is_some_and(|last| last.header.generation > header.generation) {
            break;
        }
        let unit = header.unit_sectors();
        let rest = rest.and_then(|rest| rest.get(HEADER..)).unwrap_or_default();
        let len =
            usize::try_from(unit - HEADER_SECTORS).map_or(usize::MAX, |n| n.saturating_mul(SECTOR));
        let partial_parity = rest.get(..len).unwrap_or(rest);
        last = Some(Unit { sector, header, partial_parity });
        sector = sector.saturating_add(unit);
    }
    last
}
