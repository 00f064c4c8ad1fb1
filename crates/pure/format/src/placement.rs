//! The layout of a new array's members: the offsets of data, superblock, bitmap or partial parity log, and bad-block log.
//! They are those that mdadm 4.2 chooses, so that an array made by either program has the same layout. To assemble an array
//! none of this is needed: the superblock records the offsets.
//!
//! Knows nothing of the levels but which of them keep a size, a bitmap or a PPL, and the number of copies in RAID10.
//!
//! Invariant: in a [`Placement`] the parts of a member do not overlap and lie inside it.
//!
//! The rules were derived from superblocks that mdadm wrote (table in `tests/data/placements.tsv`).

mod added_bitmap;
mod added_ppl;
mod bitmap_place;
mod error;

pub use added_bitmap::place_added_bitmap;
pub use added_ppl::place_added_ppl;
pub use bitmap_place::BitmapPlace;
pub use error::PlacementError;

use crate::bitmap;
use crate::superblock::{Ppl, V0_BITMAP_OFFSET, V0_SIZE_MAX, Version, location};
use bitmap_place::{V0_BITMAP_ROOM, bitmap_chunk};

/// Level number of a linear array.
const LINEAR: i32 = -1;
/// Sectors of the bad-block log.
const BBLOG: u64 = 8;
/// Sectors of a partial parity log.
const PPL: u64 = 2048;
const MIB: u64 = 2048;
const GIB: u64 = 1024 * MIB;
/// The consistency policy, which decides how much room a log or bitmap needs on the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing: an unclean stop is followed by a full resync.
    #[default]
    Resync,
    /// A write-intent bitmap on the members.
    Bitmap {
        /// Bytes per bit, a power of two of at least 4096; `None` = 64 MiB, or more when the array is so large
        /// that the bitmap would not fit its room.
        chunk_bytes: Option<u32>,
    },
    /// A partial parity log on the members.
    Ppl,
}

/// The array to be placed. Sizes in sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// -1 linear, 0, 1, 4, 5, 6 or 10.
    pub level: i32,
    /// The level's layout number; only RAID10's number of copies is used.
    pub layout: u32,
    /// The version of the metadata, which decides where the superblock is.
    pub version: Version,
    /// Chunk; 0 for level 1.
    pub chunk_sectors: u32,
    /// Number of slots.
    pub raid_disks: u32,
    /// Size of each member, spares included, in the order of the dev numbers.
    pub members: Vec<u64>,
    /// The consistency policy, which needs room beside the data.
    pub consistency: Consistency,
    /// Use only this much of each member; `None` = what the smallest has.
    pub size: Option<u64>,
    /// Start the data at this sector; `None` = as mdadm.
    pub data_offset: Option<u64>,
}

/// The layout of all members. Offsets relative to the superblock are in sectors, as superblocks store them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Sectors used of each component; 0 for level 0 and linear.
    pub size: u64,
    /// The members in the order of the request.
    pub members: Vec<MemberPlace>,
    /// The bad-block log, relative to the superblock; 0 = no room for one.
    pub bblog_offset: i32,
    /// Sectors of the bad-block log; 0 = no room for one.
    pub bblog_size: u16,
    /// The bitmap.
    pub bitmap: Option<BitmapPlace>,
    /// The partial parity log.
    pub ppl: Option<Ppl>,
    /// RAID0 of unequal members: its layout must be recorded (`Superblock::raid0_layout`), or the kernel
    /// refuses the array.
    pub raid0_layout: bool,
}

/// One member's numbers, in sectors from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// Start of the component.
    pub data_offset: u64,
    /// Sectors that the component may use.
    pub data_size: u64,
    /// The superblock.
    pub super_offset: u64,
}

/// The largest member that is accepted, so that no offset overflows: md counts sectors in signed 64-bit numbers.
const MEMBER_MAX: u64 = 1 << 54;

/// Places an array.
///
/// # Errors
/// Members, sizes or offsets that do not go together; each error says which and what would.
pub fn place(request: &Request) -> Result<Placement, PlacementError> {
    check_consistency(request)?;
    check_version(request)?;
    let mut members = Vec::with_capacity(request.members.len());
    let mut smallest: Option<(u64, usize)> = None;
    for (index, &dev) in request.members.iter().enumerate() {
        let (place, available) = place_member(request, index, dev)?;
        if smallest.is_none_or(|(size, _)| available < size) {
            smallest = Some((available, index));
        }
        members.push(place);
    }
    let (available, smallest) = smallest.ok_or(PlacementError::NoMember)?;
    let component = component_size(request, available, smallest)?;
    if request.version == Version::V0_90 && keeps_size(request.level) && component > V0_SIZE_MAX {
        return Err(PlacementError::V0Size { want: component, most: V0_SIZE_MAX });
    }
    let size = if keeps_size(request.level) { component } else { 0 };

    let bitmap = match request.consistency {
        Consistency::Bitmap { chunk_bytes } => Some(place_bitmap(request, size, chunk_bytes)?),
        _ => None,
    };
    let log = match (request.consistency, bitmap) {
        (Consistency::Ppl, _) => PPL,
        (_, Some(bitmap)) => bitmap.sectors,
        _ => bitmap_space(size),
    };
    let logged = bitmap.is_some() || request.consistency == Consistency::Ppl;
    let data_follows = request.version.data_follows();
    let (bblog_offset, bblog_size) = if data_follows {
        place_bblog(request, log, logged)?
    } else if request.version == Version::V0_90 {
        for place in members.iter_mut().filter(|_| keeps_size(request.level)) {
            place.data_size = place.data_size.min(V0_SIZE_MAX);
        }
        (0, 0)
    } else {
        for place in &mut members {
            let reserve = (log + BBLOG).min(place.super_offset.saturating_sub(component));
            place.data_size = place.super_offset - reserve;
        }
        (-(BBLOG as i32), BBLOG as u16)
    };
    let ppl = (request.consistency == Consistency::Ppl).then_some(Ppl {
        offset: if data_follows { 8 } else { -((PPL + BBLOG) as i16) },
        size: PPL as u16,
        multiple: false,
    });
    let raid0_layout = request.level == 0 && unequal(request, &members);
    if raid0_layout && request.version == Version::V0_90 {
        let what = "feature RAID0_LAYOUT, which members of unequal size need";
        return Err(PlacementError::Version { version: request.version, what });
    }
    Ok(Placement { size, members, bblog_offset, bblog_size, bitmap, ppl, raid0_layout })
}

/// Some members have more chunks than others.
fn unequal(request: &Request, members: &[MemberPlace]) -> bool {
    let chunks = |member: &MemberPlace| member.data_size / u64::from(request.chunk_sectors).max(1);
    members.first().is_some_and(|first| members.iter().any(|m| chunks(m) != chunks(first)))
}

/// Levels that record how much of each component they use.
fn keeps_size(level: i32) -> bool {
    level != 0 && level != LINEAR
}

fn check_consistency(request: &Request) -> Result<(), PlacementError> {
    let refuse = |what| Err(PlacementError::Consistency { level: request.level, what });
    match request.consistency {
        Consistency::Bitmap { .. } if !keeps_size(request.level) => refuse("bitmap"),
        Consistency::Ppl if request.level != 5 => refuse("PPL"),
        _ => Ok(()),
    }
}

/// Refuses features that 0.90 has no fields for.
fn check_version(request: &Request) -> Result<(), PlacementError> {
    let (version, have) = (request.version, request.members.len());
    let most = version.max_members();
    if have > most || request.raid_disks as usize > most {
        let have = have.max(request.raid_disks as usize);
        return Err(PlacementError::TooManyMembers { have, version, most });
    }
    if version == Version::V0_90 && request.consistency == Consistency::Ppl {
        return Err(PlacementError::Version { version, what: "partial parity log" });
    }
    Ok(())
}

/// Sectors that mdadm reserves for a bitmap on a member, or beside a component, of `sectors` sectors.
fn bitmap_space(sectors: u64) -> u64 {
    if sectors < 128 {
        0
    } else if sectors - 128 >= 200 * GIB {
        256
    } else if sectors - 8 > 8 * GIB {
        128
    } else {
        8
    }
}

/// Sectors before the data that a later reshape can move into: a thousandth of the member at most, 128 MiB
/// at most, and two chunks at least.
fn headroom(dev: u64, chunk: u64) -> u64 {
    let mut room = 128 * MIB;
    while room * 1024 > dev && (chunk == 0 || room / 2 >= 2 * chunk) && room > 0 {
        room /= 2;
    }
    room
}

/// The sector at which the data of all members starts in 1.1 and 1.2: mdadm takes the first member's size for all.
fn common_data_offset(request: &Request) -> u64 {
    let first = request.members.first().copied().unwrap_or(0);
    let least = 24 + log_space(request, first) + headroom(first, request.chunk_sectors.into());
    request.data_offset.unwrap_or(least.next_multiple_of(MIB))
}

/// Sectors to keep free on a member for a bitmap or PPL, before the component's size is known.
fn log_space(request: &Request, dev: u64) -> u64 {
    if request.consistency == Consistency::Ppl { PPL } else { bitmap_space(dev) }
}

/// The member's place and the sectors it has for data. `data_size` of 1.0 is filled in when the size is known.
fn place_member(
    request: &Request,
    member: usize,
    dev: u64,
) -> Result<(MemberPlace, u64), PlacementError> {
    if dev > MEMBER_MAX {
        return Err(PlacementError::MemberTooLarge { member, have: dev });
    }
    let (data_offset, used) = if request.version.data_follows() {
        let offset = common_data_offset(request);
        (offset, offset)
    } else {
        if let Some(want) = request.data_offset.filter(|&want| want != 0) {
            let why = "cannot be had with metadata 0.90 and 1.0, whose data starts at 0";
            return Err(PlacementError::DataOffset { want, why, least: 0 });
        }
        let used = match location(request.version, dev) {
            Some(superblock) if request.version == Version::V0_90 => dev - superblock,
            _ => dev % 8 + 16 + BBLOG + log_space(request, dev),
        };
        (0, used)
    };
    let available = dev.saturating_sub(used);
    let unit = size_unit(request);
    match location(request.version, dev) {
        Some(super_offset) if available - available % unit >= LEAST_DATA => {
            Ok((MemberPlace { data_offset, data_size: available, super_offset }, available))
        }
        _ => Err(PlacementError::MemberTooSmall { member, have: dev, need: used, unit }),
    }
}

/// The component's size is a multiple of this, unless a size was asked for and there is no chunk.
fn size_unit(request: &Request) -> u64 {
    match request.chunk_sectors {
        0 => UNCHUNKED_UNIT,
        chunk => chunk.into(),
    }
}

/// The least data of a member, in sectors: superblocks with less are refused when they are read.
const LEAST_DATA: u64 = 10;
/// Unit to which mdadm rounds the size where there is no chunk: 64 KiB.
const UNCHUNKED_UNIT: u64 = 128;

fn component_size(
    request: &Request,
    available: u64,
    smallest: usize,
) -> Result<u64, PlacementError> {
    let chunk = u64::from(request.chunk_sectors).max(1);
    let size = match request.size {
        Some(want) if want > available => {
            return Err(PlacementError::SizeTooLarge { member: smallest, want, have: available });
        }
        Some(want) if want < chunk.max(LEAST_DATA) => {
            return Err(PlacementError::SizeTooSmall { want, chunk: request.chunk_sectors });
        }
        Some(want) => want - want % chunk,
        None => available - available % size_unit(request),
    };
    Ok(size)
}

/// Array sectors of a RAID10 (Linux `raid10.c`, raid10_size), component sectors of other levels.
fn bitmap_sync_size(request: &Request, size: u64) -> u64 {
    if request.level != 10 {
        return size;
    }
    let near = u64::from(request.layout & 0xff).max(1);
    let far = u64::from(request.layout >> 8 & 0xff).max(1);
    let chunk = u64::from(request.chunk_sectors).max(1);
    // At most 2^54 sectors times 2^32 slots: the intermediate needs more than 64 bits, the result of a
    // sane request does not.
    let chunks = u128::from(size / chunk / far) * u128::from(request.raid_disks) / u128::from(near);
    u64::try_from(chunks * u128::from(chunk)).unwrap_or(u64::MAX)
}

fn place_bitmap(
    request: &Request,
    size: u64,
    chunk_bytes: Option<u32>,
) -> Result<BitmapPlace, PlacementError> {
    let sync_size = bitmap_sync_size(request, size);
    let v0 = request.version == Version::V0_90;
    let room = if v0 { V0_BITMAP_ROOM } else { bitmap_space(size) };
    if room == 0 {
        return Err(PlacementError::NoBitmapRoom);
    }
    let fits = |chunk: u64| area_sectors(sync_size, chunk) <= room;
    let chunk_bytes = bitmap_chunk(chunk_bytes, fits)?;
    let chunk = u64::from(chunk_bytes);
    let sectors = area_sectors(sync_size, chunk);
    // `sectors` is at most 256.
    let offset = match request.version {
        Version::V0_90 => V0_BITMAP_OFFSET,
        Version::V1_0 => -((sectors + BBLOG) as i32),
        Version::V1_1 | Version::V1_2 => 8,
    };
    Ok(BitmapPlace { offset, sectors, chunk_bytes, sync_size })
}

fn area_sectors(sync_size: u64, chunk: u64) -> u64 {
    bitmap::area_len(sync_size.div_ceil((chunk / crate::SECTOR as u64).max(1)))
        / crate::SECTOR as u64
}

/// Offset and size of the bad-block log of 1.1 and 1.2: behind the bitmap or PPL, or behind the room reserved for a bitmap
/// that may be added later. A data offset that the user asked for may take this room and that of the bad-block log, but not
/// that of the superblock, nor of a bitmap or PPL that exists.
fn place_bblog(request: &Request, log: u64, logged: bool) -> Result<(i32, u16), PlacementError> {
    let first = if request.version == Version::V1_1 { 0 } else { 8 };
    // A superblock of more than 256 bytes and 128 roles takes more than one sector, at most 8.
    let least = first + 8 + if logged { log + BBLOG } else { 0 };
    let room = match request.data_offset {
        None => log,
        Some(want) if want < least => {
            return Err(PlacementError::DataOffset { want, why: "is inside the metadata", least });
        }
        Some(want) => match (want - first).checked_sub(8 + BBLOG) {
            None => return Ok((0, 0)),
            Some(room) => room.min(log),
        },
    };
    // `log` is at most a few thousand sectors.
    Ok(((8 + room) as i32, BBLOG as u16))
}
