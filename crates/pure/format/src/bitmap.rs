//! The write-intent bitmap: its superblock, and the bits that follow it in the same area.
//!
//! Owns the format and what a bit covers. Does not know when bits are set or cleared, nor where the area
//! is (`Superblock::bitmap_sector`).
//!
//! Source of the format: Linux `drivers/md/md-bitmap.h` (bitmap_super_t, version 4).

use crate::SECTOR;
use std::ops::Range;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0x6d74_6962;
/// Bytes of the bitmap superblock; the bits begin here in the area.
pub const HEADER: usize = 256;
/// The most bits that a bitmap may have here: an area of 256 MiB, a thousand times the largest that mdadm makes. The limit
/// keeps a damaged superblock from asking for all memory.
pub const MAX_BITS: u64 = 1 << 31;
/// Largest number of outstanding write-behind writes.
const WRITE_BEHIND_MAX: u32 = 16383;

const STALE: u32 = 1 << 1;
const WRITE_ERROR: u32 = 1 << 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: U32,
    uuid: [u8; 16],
    events: U64,
    events_cleared: U64,
    sync_size: U64,
    state: U32,
    chunk_bytes: U32,
    daemon_sleep: U32,
    write_behind: U32,
    sectors_reserved: U32,
    nodes: U32,
    cluster_name: [u8; 64],
    pad: [u8; 120],
}

const _: () = {
    assert!(size_of::<Raw>() == HEADER);
    assert!(std::mem::offset_of!(Raw, sync_size) == 40);
    assert!(std::mem::offset_of!(Raw, chunk_bytes) == 52);
    assert!(std::mem::offset_of!(Raw, cluster_name) == 72);
};

/// The superblock of a bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// 4 (bits in bytes, least significant first), or 3 from old programs, which on little-endian machines is
    /// the same.
    pub version: u32,
    /// The array's set_uuid.
    pub uuid: [u8; 16],
    /// The array's event count at the last update, or more.
    pub events: u64,
    /// The array's event count when bits were last cleared with the array complete.
    pub events_cleared: u64,
    /// Sectors covered: component sectors for levels 4, 5 and 6, array sectors for 1 and 10.
    pub sync_size: u64,
    /// State bits as stored; see [`BitmapSuperblock::must_resync_all`].
    pub state: u32,
    /// Bytes that one bit covers: a power of two, at least 512.
    pub chunk_bytes: u32,
    /// Seconds between two rounds of clearing; at least 1.
    pub daemon_sleep: u32,
    /// Most outstanding write-behind writes; 0 = no write-behind.
    pub write_behind: u32,
    /// Sectors that the bitmap may grow into; 0 = unknown.
    pub sectors_reserved: u32,
}

/// The reason why a bitmap cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// Fewer bytes than the superblock has.
    #[error(
        "reading the bitmap superblock: {have} bytes given and 256 needed; the member has been cut short"
    )]
    TooShort {
        /// Bytes given.
        have: usize,
    },
    /// There is no bitmap at this place.
    #[error(
        "no bitmap where the superblock says (magic is {found:#010x}, not 0x6d746962); \
         the array can run without it after a full resync"
    )]
    NoMagic {
        /// The number in place of the magic.
        found: u32,
    },
    /// A version that is not supported.
    #[error("bitmap version is {found} ({}) and only 3 and 4 are supported; {}", version_name(*found), version_advice(*found))]
    Version {
        /// Version found.
        found: u32,
    },
    /// A field with an impossible value.
    #[error(
        "bitmap superblock: {field} is {found}, which must be {must}; the bitmap is damaged: resync the whole array"
    )]
    Field {
        /// The field.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The accepted values.
        must: &'static str,
    },
    /// More bits than this program keeps in memory.
    #[error(
        "a bitmap of {bits} bits is too large; the bitmap superblock is damaged, \
         or its chunk is too small: make the bitmap again with a larger chunk"
    )]
    TooManyBits {
        /// Bits asked for.
        bits: u64,
    },
}

fn version_name(version: u32) -> &'static str {
    match version {
        5 => "clustered",
        6 => "lockless",
        _ => "unknown",
    }
}

fn version_advice(version: u32) -> &'static str {
    match version {
        5 => "the array belongs to a cluster: use md-cluster",
        6 => "use the Linux kernel for this array, or remove its bitmap with mdadm",
        _ => "the bitmap is damaged or newer: use the program that made it",
    }
}

impl BitmapSuperblock {
    /// The superblock of a new bitmap: version 4, clears every 5 seconds, no write-behind.
    pub fn new(uuid: [u8; 16], sync_size: u64, chunk_bytes: u32) -> BitmapSuperblock {
        BitmapSuperblock {
            version: 4,
            uuid,
            events: 0,
            events_cleared: 0,
            sync_size,
            state: 0,
            chunk_bytes,
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 0,
        }
    }

    /// Reads a bitmap superblock from the first 256 bytes of its area.
    ///
    /// # Errors
    /// No bitmap, a version that is not supported (clustered, lockless), a field out of its range, or more
    /// bits than [`MAX_BITS`].
    pub fn parse(bytes: &[u8]) -> Result<BitmapSuperblock, BitmapError> {
        let (raw, _) = Raw::read_from_prefix(bytes)
            .map_err(|_| BitmapError::TooShort { have: bytes.len() })?;
        if raw.magic.get() != MAGIC {
            return Err(BitmapError::NoMagic { found: raw.magic.get() });
        }
        let version = raw.version.get();
        if !(3..=4).contains(&version) {
            return Err(BitmapError::Version { found: version });
        }
        let field =
            |field, found: u32, must| BitmapError::Field { field, found: found.into(), must };
        let chunk_bytes = raw.chunk_bytes.get();
        if !chunk_bytes.is_power_of_two() || chunk_bytes < 512 {
            return Err(field("chunksize", chunk_bytes, "a power of two of at least 512"));
        }
        let daemon_sleep = raw.daemon_sleep.get();
        if daemon_sleep == 0 {
            return Err(field("daemon_sleep", daemon_sleep, "at least 1"));
        }
        let write_behind = raw.write_behind.get();
        if write_behind > WRITE_BEHIND_MAX {
            return Err(field("write_behind", write_behind, "at most 16383"));
        }
        let bits = bits_for(raw.sync_size.get(), chunk_bytes);
        if bits > MAX_BITS {
            return Err(BitmapError::TooManyBits { bits });
        }
        if raw.nodes.get() != 0 {
            return Err(field("nodes", raw.nodes.get(), "0 in a bitmap that is not clustered"));
        }
        Ok(BitmapSuperblock {
            version,
            uuid: raw.uuid,
            events: raw.events.get(),
            events_cleared: raw.events_cleared.get(),
            sync_size: raw.sync_size.get(),
            state: raw.state.get(),
            chunk_bytes,
            daemon_sleep,
            write_behind,
            sectors_reserved: raw.sectors_reserved.get(),
        })
    }

    /// The 256 bytes to write at the start of the area.
    pub fn to_bytes(&self) -> [u8; HEADER] {
        zerocopy::transmute!(Raw {
            magic: MAGIC.into(),
            version: self.version.into(),
            uuid: self.uuid,
            events: self.events.into(),
            events_cleared: self.events_cleared.into(),
            sync_size: self.sync_size.into(),
            state: self.state.into(),
            chunk_bytes: self.chunk_bytes.into(),
            daemon_sleep: self.daemon_sleep.into(),
            write_behind: self.write_behind.into(),
            sectors_reserved: self.sectors_reserved.into(),
            nodes: 0.into(),
            cluster_name: [0; 64],
            pad: [0; 120],
        })
    }

    /// The bits cannot be trusted: the bitmap is marked stale or had a write error, or it is older than the
    /// array's superblock (`array_events`). All of the array must be resynced as if every bit were set.
    pub fn must_resync_all(&self, array_events: u64) -> bool {
        self.state & (STALE | WRITE_ERROR) != 0 || self.events < array_events
    }

    /// Number of bits.
    pub fn bits(&self) -> u64 {
        bits_for(self.sync_size, self.chunk_bytes)
    }

    /// The bits that cover `sectors` (component or array sectors, see [`BitmapSuperblock::sync_size`]), cut
    /// to those that exist.
    pub fn bits_of(&self, sectors: Range<u64>) -> Range<u64> {
        let per_bit = sectors_per_bit(self.chunk_bytes);
        let bits = self.bits();
        let first = (sectors.start / per_bit).min(bits);
        if sectors.is_empty() {
            return first..first;
        }
        first..sectors.end.div_ceil(per_bit).min(bits)
    }

    /// The sectors that a bit covers, cut to sync_size.
    pub fn sectors_of(&self, bit: u64) -> Range<u64> {
        let per_bit = sectors_per_bit(self.chunk_bytes);
        let start = bit.saturating_mul(per_bit).min(self.sync_size);
        start..start.saturating_add(per_bit).min(self.sync_size)
    }
}

/// At least 1: `parse` refuses chunks smaller than a sector, but a caller may build such a superblock by hand.
fn sectors_per_bit(chunk_bytes: u32) -> u64 {
    (u64::from(chunk_bytes) / SECTOR as u64).max(1)
}

/// Bits of a bitmap over `sync_size` sectors.
pub fn bits_for(sync_size: u64, chunk_bytes: u32) -> u64 {
    sync_size.div_ceil(sectors_per_bit(chunk_bytes))
}

/// Bytes of the area of a bitmap with this many bits: superblock and bits, in whole 4 KiB.
pub fn area_len(bits: u64) -> u64 {
    (bits.div_ceil(8) + HEADER as u64).next_multiple_of(4096)
}

/// The bits of a bitmap: bit `i` is bit `i % 8` of byte `i / 8` behind the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    bytes: Vec<u8>,
    len: u64,
}

impl Bits {
    /// The bits of a new bitmap's area, as mdadm writes them: all set, the padding up to the end of the last
    /// 4 KiB too.
    ///
    /// # Errors
    /// More than [`MAX_BITS`].
    pub fn all_set(len: u64) -> Result<Bits, BitmapError> {
        let bytes = usize::try_from(area_len(len)).ok().filter(|_| len <= MAX_BITS);
        let bytes = bytes.ok_or(BitmapError::TooManyBits { bits: len })?;
        Ok(Bits { bytes: vec![0xff; bytes - HEADER], len })
    }

    /// The bits in an area read from disk (superblock included). Bits beyond the end of `area` are absent:
    /// [`Bits::len`] is then smaller than `len`.
    pub fn from_area(area: &[u8], len: u64) -> Bits {
        let bytes = area.get(HEADER..).unwrap_or_default();
        Bits { bytes: bytes.to_vec(), len: len.min((bytes.len() as u64).saturating_mul(8)) }
    }

    /// Number of bits.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a bitmap without bits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that follow the superblock in the area.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True if a bit is set. A bit beyond the end counts as set: nothing records that its sectors are in sync.
    pub fn get(&self, bit: u64) -> bool {
        match self.place(bit) {
            Some((byte, mask)) => self.bytes.get(byte).is_none_or(|b| b & mask != 0),
            None => true,
        }
    }

    /// Sets a bit and returns true if it was clear. Does nothing for a bit beyond the end.
    pub fn set(&mut self, bit: u64) -> bool {
        match self.place(bit).and_then(|(byte, mask)| Some((self.bytes.get_mut(byte)?, mask))) {
            Some((byte, mask)) => {
                let was = *byte;
                *byte |= mask;
                was & mask == 0
            }
            None => false,
        }
    }

    /// Clears a bit and returns true if it was set. Does nothing for a bit beyond the end.
    pub fn clear(&mut self, bit: u64) -> bool {
        match self.place(bit).and_then(|(byte, mask)| Some((self.bytes.get_mut(byte)?, mask))) {
            Some((byte, mask)) => {
                let was = *byte;
                *byte &= !mask;
                was & mask != 0
            }
            None => false,
        }
    }

    /// The numbers of the set bits, ascending.
    pub fn iter_set(&self) -> impl Iterator<Item = u64> {
        // Scan by words, since most bitmaps are long and nearly empty.
        let (words, rest) = self.bytes.as_chunks();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().copied().chain([last]).map(u64::from_le_bytes);
        words
            .zip((0u64..).step_by(64))
            .filter(|(word, _)| *word != 0)
            .flat_map(|(word, first)| ones(word).map(move |bit| first + bit))
            .take_while(|bit| *bit < self.len)
    }

    fn place(&self, bit: u64) -> Option<(usize, u8)> {
        (bit < self.len).then_some((usize::try_from(bit / 8).ok()?, 1 << (bit % 8)))
    }
}

/// The numbers of the bits that are set in `word`, ascending.
fn ones(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit.into())
    })
}

#[cfg(test)]
mod tests;
