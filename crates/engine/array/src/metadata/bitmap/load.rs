//! The bitmaps of an array's members at its assembly: read, judged, joined.
//!
//! All members that hold a slot have the same bitmap, but for a batch of pages that a crash cut short.
//! A bit that is set in any usable bitmap counts as set. A bitmap that is older than the
//! superblocks, marked stale or damaged says nothing: then everything has to be resynced, and a new
//! one is written.
//!
//! Writes nothing.

use crate::metadata::bitmap::keeper::{Keeper, clear_bits, len};
use crate::metadata::bitmap::ranges::Ranges;
use crate::metadata::bitmap::{BITS_MAX, Shape};
use crate::metadata::superblock::read;
use braid_device::Device;
use braid_format::SECTOR;
use braid_format::bitmap::{BitmapError, BitmapSuperblock, Bits, bits_for};
use braid_format::superblock::Superblock;
use braid_shard::Shard;
use braid_shard::plant::planted;
use std::rc::Rc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// A member that holds a slot and is in sync.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) device: Rc<dyn Device>,
    pub(crate) superblock: Superblock,
}

/// The size and identity that a usable bitmap must have, in bytes as the bitmap counts them.
pub(crate) struct Wanted {
    /// Bytes that may be written.
    pub(crate) covers: u64,
    /// Redundancy holds below this; `u64::MAX`: everywhere.
    pub(crate) resynced: u64,
}

/// A bitmap, and where a resync has to begin with it.
pub(crate) struct Loaded {
    pub(crate) keeper: Keeper,
    /// As [`Wanted::resynced`], or more where no bit is set.
    pub(crate) resynced: u64,
    /// Its bits were found on the members.
    pub(crate) usable: bool,
}

/// A bitmap that braid does not run an array with; continues "the array …".
pub(crate) struct Unsupported(pub(crate) String);

enum Problem {
    Unusable(String),
    Unsupported(String),
}

/// Bytes of `bits` bits with their superblock as they go to a device with blocks of `block` bytes.
pub(crate) fn len_on(bits: u64, block: u32) -> usize {
    len(bits).next_multiple_of(block.max(SECTOR as u32) as usize)
}

/// Reads and joins the bitmaps of `sources`, whose superblocks have one.
///
/// # Errors
/// A bitmap of a kind that must not be overwritten, or one that is larger than what is kept in memory.
pub(crate) async fn load(
    shard: &Shard,
    shared: &Superblock,
    sources: &[Source],
    wanted: &Wanted,
) -> Result<Loaded, Unsupported> {
    let mut copies: Vec<(BitmapSuperblock, Bits)> = Vec::new();
    let mut chunk = None;
    for source in sources {
        match read_copy(shard, source, wanted, &mut chunk).await {
            Ok(copy) if copy.0.must_resync_all(shared.events) => {
                tracing::warn!("the bitmap of {} is out of date", source.name);
            }
            Ok(copy) => copies.push(copy),
            Err(Problem::Unsupported(what)) => return Err(Unsupported(what)),
            Err(Problem::Unusable(why)) => {
                tracing::warn!("the bitmap of {} cannot be used: {why}", source.name);
            }
        }
    }
    let newest = copies.iter().max_by_key(|(superblock, _)| superblock.events);
    let Some((superblock, _)) = newest.cloned() else {
        return anew(shared, sources, wanted, chunk);
    };
    let mut bits = clear_bits(superblock.bits());
    let same = |other: &BitmapSuperblock| {
        (other.chunk_bytes, other.bits()) == (superblock.chunk_bytes, superblock.bits())
    };
    for (_, copy) in copies.iter().filter(|(other, _)| same(other)) {
        for bit in copy.iter_set() {
            bits.set(bit);
        }
    }
    // The latest counts: it goes before the bits that it speaks of.
    let cleared = copies.iter().filter(|(other, _)| same(other)).map(|(s, _)| s.events_cleared);
    let events_cleared = cleared.max().unwrap_or(0).min(shared.events);
    let superblock = BitmapSuperblock { events_cleared, ..superblock };
    Ok(start(superblock, bits, wanted, true))
}

/// A new bitmap, since no other can be used: after a clean stop there is nothing to be set; else all.
fn anew(
    shared: &Superblock,
    sources: &[Source],
    wanted: &Wanted,
    chunk: Option<u32>,
) -> Result<Loaded, Unsupported> {
    let room = sources.iter().map(|source| source.superblock.bitmap_room()).min().unwrap_or(0);
    let room = room.saturating_mul(SECTOR_BYTES);
    let block = sources.iter().map(|source| source.device.info().logical_block).max();
    let block = block.unwrap_or(SECTOR as u32);
    let sync_size = wanted.covers.div_ceil(SECTOR_BYTES);
    let fits = |chunk: u32| {
        let bits = bits_for(sync_size, chunk);
        bits <= BITS_MAX && len_on(bits, block) as u64 <= room
    };
    let chunk =
        chunk.into_iter().chain((26..32).map(|shift| 1 << shift)).find(|chunk| fits(*chunk));
    let Some(chunk_bytes) = chunk else {
        return Err(Unsupported(format!(
            "has a bitmap that cannot be used and no room for another ({room} bytes); remove it \
             with mdadm --grow --bitmap=none"
        )));
    };
    // Members that are away may lack anything that was written meanwhile: they come back as spares.
    let events_cleared = shared.events.saturating_add(1);
    let superblock = BitmapSuperblock {
        events_cleared,
        ..BitmapSuperblock::new(shared.bitmap_uuid(), sync_size, chunk_bytes)
    };
    let mut bits = clear_bits(superblock.bits());
    if wanted.resynced != u64::MAX && !planted("lost-bitmap-as-clear") {
        for bit in 0..bits.len() {
            bits.set(bit);
        }
    }
    Ok(start(superblock, bits, wanted, false))
}

fn start(superblock: BitmapSuperblock, bits: Bits, wanted: &Wanted, usable: bool) -> Loaded {
    let shape = Shape::new(superblock.chunk_bytes, bits.len());
    let mut needed = clear_bits(bits.len());
    let mut resynced = u64::MAX;
    if wanted.resynced != u64::MAX {
        // Bits are fewer than `BITS_MAX`.
        let open = |bit: &u64| shape.bytes(*bit as u32).end > wanted.resynced;
        for bit in bits.iter_set().filter(open) {
            needed.set(bit);
        }
        let first = Ranges::of(&needed, shape, wanted.resynced).start();
        resynced = first.filter(|first| *first < wanted.covers).unwrap_or(u64::MAX);
    }
    Loaded { keeper: Keeper::new(superblock, bits, needed), resynced, usable }
}

/// Reads one member's bitmap. `chunk` is set to what its superblock says, as far as that is sane.
async fn read_copy(
    shard: &Shard,
    source: &Source,
    wanted: &Wanted,
    chunk: &mut Option<u32>,
) -> Result<(BitmapSuperblock, Bits), Problem> {
    let block = source.device.info().logical_block.max(SECTOR as u32);
    let Some(at) = source.superblock.bitmap_sector() else {
        return Err(Problem::Unusable("its place lies before the device".to_string()));
    };
    let at = at.saturating_mul(SECTOR_BYTES);
    if !at.is_multiple_of(block.into()) {
        return Err(Problem::Unsupported(format!(
            "has a bitmap at byte {at} of {}, which is no multiple of its block of {block} bytes",
            source.name
        )));
    }
    let unreadable = |error| Problem::Unusable(format!("reading it: {error}"));
    let head = read(shard, &source.device, at, len_on(0, block)).await.map_err(unreadable)?;
    let superblock = match BitmapSuperblock::parse(&head) {
        Ok(superblock) => superblock,
        Err(error @ BitmapError::Version { .. }) => {
            return Err(Problem::Unsupported(format!("has a bitmap of another kind: {error}")));
        }
        Err(error) => return Err(Problem::Unusable(error.to_string())),
    };
    if superblock.uuid != source.superblock.bitmap_uuid() {
        return Err(Problem::Unusable("it belongs to another array".to_string()));
    }
    if superblock.sync_size.saturating_mul(SECTOR_BYTES) < wanted.covers {
        return Err(Problem::Unusable(format!(
            "it covers {} sectors of {}",
            superblock.sync_size,
            wanted.covers / SECTOR_BYTES
        )));
    }
    let bits = superblock.bits();
    if bits > BITS_MAX {
        return Err(Problem::Unsupported(format!(
            "has a bitmap of {bits} bits and braid keeps at most {BITS_MAX}: make it again with a larger \
             --bitmap-chunk"
        )));
    }
    let len = len_on(bits, block);
    if len as u64 > source.superblock.bitmap_room().saturating_mul(SECTOR_BYTES) {
        return Err(Problem::Unusable(format!(
            "it has {len} bytes and would reach into what follows it"
        )));
    }
    *chunk = Some(superblock.chunk_bytes);
    let area = read(shard, &source.device, at, len).await.map_err(unreadable)?;
    Ok((superblock, Bits::from_area(&area, bits)))
}
