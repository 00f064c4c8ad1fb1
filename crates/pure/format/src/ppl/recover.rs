//! The writes that the newest unit of each member's log asks for, with every number checked against the array.

use super::log::{Entry, newest};
use crate::{SECTOR, crc};
use std::ops::Range;

/// The numbers of the array that entries are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Chunk in sectors.
    pub chunk_sectors: u32,
    /// Number of slots.
    pub raid_disks: u32,
    /// Sectors used of each component.
    pub size: u64,
}

/// One write of parity. For each row: XOR the data blocks, and the partial parity where there is some, and
/// write the result to the parity slot. A row of which a data block cannot be read, because its member is
/// missing or not yet recovered there, is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay<'a> {
    /// Number of the stripe.
    pub stripe: u64,
    /// Component sectors, all within the stripe.
    pub rows: Range<u64>,
    /// Numbers of the data chunks within the stripe, from 0.
    pub data: Range<u32>,
    /// Slot that holds the stripe's parity; it is the slot of the log's member.
    pub parity_slot: u32,
    /// One block of partial parity for each row; `None` when the write covered all data of the rows.
    pub partial_parity: Option<&'a [u8]>,
}

/// The reason why a log, or an entry of it, is not replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The area begins with no header of this array.
    #[error("the partial parity log of slot {slot} has no valid header; the array needs a resync")]
    NoHeader {
        /// Slot of the member.
        slot: u32,
    },
    /// The sizes contradict each other.
    #[error(
        "partial parity log of slot {slot}, entry {entry}: {pp_size} bytes of partial parity and {data_size} of data \
         cannot belong to rows of one stripe; the entry is ignored and the array needs a resync"
    )]
    Sizes {
        /// Slot of the member.
        slot: u32,
        /// Number of the entry.
        entry: usize,
        /// Bytes of partial parity.
        pp_size: u32,
        /// Bytes of data.
        data_size: u32,
    },
    /// The range is not inside the array, or not inside one stripe.
    #[error(
        "partial parity log of slot {slot}, entry {entry}: {data_size} bytes from array sector {data_sector} are not \
         within one stripe of the array; the entry is ignored and the array needs a resync"
    )]
    Place {
        /// Slot of the member.
        slot: u32,
        /// Number of the entry.
        entry: usize,
        /// Array sector.
        data_sector: u64,
        /// Bytes of data.
        data_size: u32,
    },
    /// The parity of that stripe is on another slot. Linux hits a BUG() on such an entry.
    #[error(
        "partial parity log of slot {slot}, entry {entry}: parity of stripe {stripe} is on slot {right} and the entry \
         says {found}; the entry is ignored and the array needs a resync (Linux would crash on it: let braid \
         recover the array before md sees it)"
    )]
    ParitySlot {
        /// Slot of the member.
        slot: u32,
        /// Number of the entry.
        entry: usize,
        /// The stripe.
        stripe: u64,
        /// Slot in the entry.
        found: u32,
        /// Slot that holds the parity.
        right: u32,
    },
    /// The partial parity does not match its checksum.
    #[error(
        "partial parity log of slot {slot}, entry {entry}: the partial parity is damaged; \
         the entry is ignored and the array needs a resync"
    )]
    Checksum {
        /// Slot of the member.
        slot: u32,
        /// Number of the entry.
        entry: usize,
    },
}

/// The content of a member's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered<'a> {
    /// Generation of the unit.
    pub generation: u64,
    /// The writes to do, in this order.
    pub replays: Vec<Replay<'a>>,
    /// Entries that could not be used.
    pub mismatches: Vec<Mismatch>,
    /// Rows of entries whose partial parity is damaged, as if the writes had covered all data of them: where every data
    /// block can be read, parity can be made of the data alone. Most often the power failed while the unit was being
    /// written, and no write that it was for had begun.
    pub in_doubt: Vec<Replay<'a>>,
}

/// Reads the log of the member in `slot`: `area` is all of it. `parity_slot` tells which slot holds the parity of
/// a stripe. Nothing needs replaying, and this need not be called, when the array is clean.
pub fn recover<'a>(
    area: &'a [u8],
    set_uuid: &[u8; 16],
    shape: &Shape,
    slot: u32,
    parity_slot: impl Fn(u64) -> u32,
) -> Recovered<'a> {
    let Some(unit) = newest(area, set_uuid) else {
        let mismatches = vec![Mismatch::NoHeader { slot }];
        return Recovered { mismatches, ..Recovered::default() };
    };
    let mut recovered = Recovered { generation: unit.header.generation, ..Recovered::default() };
    let mut rest = unit.partial_parity;
    for (index, entry) in unit.header.entries.iter().enumerate() {
        let len = usize::try_from(entry.pp_size).unwrap_or(usize::MAX);
        // An entry cut short by the end of the area gets no bytes, so `check` finds it damaged.
        let (partial, after) = rest.split_at_checked(len).unwrap_or((&[], &[]));
        rest = after;
        match check(index, entry, partial, shape, slot, &parity_slot) {
            Ok((replay, true)) => recovered.replays.push(replay),
            Ok((replay, false)) => {
                recovered.mismatches.push(Mismatch::Checksum { slot, entry: index });
                let data = 0..shape.raid_disks.saturating_sub(1);
                recovered.in_doubt.push(Replay { data, partial_parity: None, ..replay });
            }
            Err(mismatch) => recovered.mismatches.push(mismatch),
        }
    }
    recovered
}

/// What the entry asks for, and whether its partial parity is as it was written.
fn check<'a>(
    index: usize,
    entry: &Entry,
    partial: &'a [u8],
    shape: &Shape,
    slot: u32,
    parity_slot: impl Fn(u64) -> u32,
) -> Result<(Replay<'a>, bool), Mismatch> {
    let Entry { data_sector, pp_size, data_size, parity_disk, checksum } = *entry;
    let sizes = || Mismatch::Sizes { slot, entry: index, pp_size, data_size };
    let place = || Mismatch::Place { slot, entry: index, data_sector, data_size };
    let (chunk, data_disks) = (shape.chunk_sectors, shape.raid_disks.saturating_sub(1));
    if chunk == 0 || data_disks == 0 {
        return Err(place());
    }
    // A write covers the same rows of each of its chunks. Without partial parity it covered all data chunks.
    let per_chunk = if pp_size == 0 { data_size / data_disks } else { pp_size };
    let chunks = data_size.checked_div(per_chunk).unwrap_or(0);
    let whole =
        per_chunk.is_multiple_of(SECTOR as u32) && chunks.checked_mul(per_chunk) == Some(data_size);
    if !whole || chunks == 0 || chunks > data_disks {
        return Err(sizes());
    }
    let rows = per_chunk / SECTOR as u32;
    let (chunk_64, data_disks_64) = (u64::from(chunk), u64::from(data_disks));
    // Both factors have 32 bits, and so have both remainders.
    let (stripe, within) =
        (data_sector / (chunk_64 * data_disks_64), data_sector % (chunk_64 * data_disks_64));
    let (first, row) = ((within / chunk_64) as u32, (within % chunk_64) as u32);
    if stripe >= shape.size / chunk_64
        || chunks > data_disks - first
        || rows > chunk - row
        || (pp_size == 0 && first != 0)
    {
        return Err(place());
    }
    let right = parity_slot(stripe);
    if parity_disk != right || parity_disk != slot {
        return Err(Mismatch::ParitySlot { slot, entry: index, stripe, found: parity_disk, right });
    }
    let sound = partial.len() as u64 == u64::from(pp_size) && crc::checksum(partial) == checksum;
    // The stripe is one of the array's, so its last component sector is below `size`.
    let start = stripe * chunk_64 + u64::from(row);
    let replay = Replay {
        stripe,
        rows: start..start + u64::from(rows),
        data: first..first + chunks,
        parity_slot: right,
        partial_parity: (pp_size != 0).then_some(partial),
    };
    Ok((replay, sound))
}

/// True if the array is clean once all replays of all members have been written. The array was not stopped cleanly, so a
/// write may have been in flight. Only a log that was in use has a generation above 0: while none has, nothing says that
/// parity ever matched, and the array needs a resync.
pub fn clean_after<'a>(logs: impl IntoIterator<Item = &'a Recovered<'a>>) -> bool {
    let mut in_use = false;
    for log in logs {
        if !log.mismatches.is_empty() {
            return false;
        }
        in_use |= log.generation > 0;
    }
    in_use
}
