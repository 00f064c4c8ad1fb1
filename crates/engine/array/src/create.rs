//! Writes the superblocks of a new array, each where mdadm would put it.
//!
//! Does not look for what the devices held before: the caller has asked ([`braid_format::signature`]).
//! Nothing but superblocks is written; the first assembly makes redundancy match whatever the data
//! areas hold.

use crate::error::CreateError;
use crate::metadata::journal::place::{SLOTS_MAX, begin_log, blocks_needed, journal_place};
use crate::metadata::journal::ring::Ring;
use crate::metadata::ppl::area::Area;
use crate::metadata::superblock::{remove_other_superblocks, sectors, superblock_bytes, write};
use crate::options::{Context, CreateBitmap, CreateOptions, DEFAULT_CHUNK};
use braid_device::{Device, IoError, IoErrorKind, IoSets, Opener};
use braid_format::SECTOR;
use braid_format::bitmap::{BitmapSuperblock, HEADER};
use braid_format::journal::BLOCK;
use braid_format::placement::{BitmapPlace, Consistency, MemberPlace, Placement, Request, place};
use braid_format::superblock::{CLEAN, Name, Role, Superblock, Version, pack_time, role_table_len};
use braid_layout::{Layout, LayoutError, Level, Spec, default_layout, layout_name};
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// Sectors of each component from which on mdadm makes a bitmap by itself: 100 GiB.
const BITMAP_FROM: u64 = 100 * 1024 * 1024 * 2;

/// The result of `create`: the numbers that were written. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Identifies the array.
    pub uuid: [u8; 16],
    /// The name in the superblocks, with its host name.
    pub name: String,
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// mdadm's name of the layout, where the level has layouts.
    pub layout_name: Option<String>,
    /// Chunk; 0 where the level has none.
    pub chunk_size: u64,
    /// Bytes used of each component; 0 for levels 0 and linear.
    pub component_size: u64,
    /// Size of the array; `None` when it cannot be told because members are missing.
    pub array_size: Option<u64>,
    /// Where the superblocks stand.
    pub version: Version,
    /// Number of slots.
    pub raid_disks: usize,
    /// The members, in the order given, without those that are missing.
    pub members: Vec<CreatedMember>,
    /// The device of the write journal, when there is one.
    pub journal: Option<CreatedMember>,
    /// Slots that were given as missing.
    pub missing: Vec<usize>,
    /// The first read-write assembly starts a resync.
    pub needs_resync: bool,
    /// Bytes for each bit of the bitmap, when there is one.
    pub bitmap_chunk: Option<u64>,
}

/// One member of a new array. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedMember {
    /// The device's name, as it was opened.
    pub name: String,
    /// Its index in the role table: its place on the command line.
    pub dev_number: u32,
    /// Its slot; `None` for a spare.
    pub slot: Option<usize>,
    /// Where its component starts.
    pub data_offset: u64,
    /// Size of its component.
    pub data_size: u64,
}

struct Candidate {
    name: String,
    /// Its place among the members given, which becomes its dev number.
    index: usize,
    device: Rc<dyn Device>,
}

/// Creates an array: writes a superblock to every member and removes superblocks of earlier arrays
/// from the other places where one may stand. `openers` are first the slots in order, then the
/// spares; `None` is mdadm's "missing".
///
/// All levels with redundancy start with a resync unless `assume_clean` is set; mdadm does the same
/// for level 5 when told `--force`, and else makes the last member a spare.
///
/// # Errors
/// Says which member or number is at fault. Only [`CreateError::Io`] can leave something written.
pub async fn create(
    ctx: &Context,
    openers: Vec<Option<Arc<dyn Opener>>>,
    options: CreateOptions,
) -> Result<Created, CreateError> {
    check_counts(&openers, &options)?;
    let members = open_all(ctx, &openers)?;
    let (members, journal) = match options.write_journal {
        true => take_journal(members, openers.len() - 1)?,
        false => (members, None),
    };
    let missing: Vec<usize> =
        (0..options.raid_disks).filter(|slot| matches!(openers.get(*slot), Some(None))).collect();

    let level = options.level;
    let layout = options.layout.unwrap_or_else(|| default_layout(level));
    let chunk_size = chunk_size(&options);
    let chunk_sectors = u32::try_from(chunk_size / SECTOR_BYTES)
        .map_err(|_| CreateError::ChunkTooLarge { bytes: chunk_size })?;
    check_shape(&options, layout, chunk_size)?;
    let placement = place_members(&options, layout, chunk_sectors, &members)?;
    check_blocks(&placement, chunk_size, &members)?;
    let spec = spec(&options, layout, chunk_size, &placement, &members);
    let geometry = match Layout::new(&spec) {
        Ok(geometry) => Some(geometry),
        // Levels 0 and linear must have all members, which `check_survives` says better.
        Err(LayoutError::MemberSizes { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    check_survives(&options, geometry.as_ref(), &missing)?;
    let ring =
        journal.as_ref().map(|device| place_journal(&options, chunk_size, device)).transpose()?;

    let full_name = match &options.homehost {
        Some(host) => format!("{host}:{}", options.name),
        None => options.name.clone(),
    };
    let now = pack_time((ctx.wall_clock)(), 0);
    // As mdadm: a level 4 or 5 array that starts degraded has no redundancy that could be wrong.
    let nothing_to_resync = level.parity_count() == missing.len() && level.is_parity();
    let clean = options.assume_clean || !level.has_redundancy() || nothing_to_resync;
    let base = Superblock {
        set_uuid: (ctx.new_uuid)(),
        set_name: Name::new(&full_name)?,
        ctime: now,
        utime: now,
        level: level.md_number(),
        layout: if matches!(level, Level::Linear | Level::Raid1 | Level::Raid4) {
            0
        } else {
            layout
        },
        raid0_layout: placement.raid0_layout,
        size: placement.size,
        chunk_sectors,
        raid_disks: options.raid_disks as u32,
        bitmap_offset: placement.bitmap.map_or(0, |bitmap| bitmap.offset),
        ppl: placement.ppl,
        bblog_offset: if options.bad_block_log { placement.bblog_offset } else { 0 },
        bblog_size: if options.bad_block_log { placement.bblog_size } else { 0 },
        events: 0,
        resync_offset: if clean { CLEAN } else { 0 },
        roles: roles(&options, &members, openers.len()),
        journal: options.write_journal,
        ..Superblock::empty(options.version)
    };
    let mut created = Vec::new();
    for (member, at) in members.iter().zip(&placement.members) {
        let superblock = Superblock {
            data_offset: at.data_offset,
            data_size: at.data_size,
            super_offset: at.super_offset,
            dev_number: member.index as u32,
            device_uuid: (ctx.new_uuid)(),
            devflags: options.flags.get(member.index).copied().unwrap_or_default().within(0),
            ..base.clone()
        };
        write_member(ctx, member, &superblock, placement.bitmap).await?;
        created.push(CreatedMember {
            name: member.name.clone(),
            dev_number: member.index as u32,
            slot: (member.index < options.raid_disks).then_some(member.index),
            data_offset: at.data_offset * SECTOR_BYTES,
            data_size: at.data_size * SECTOR_BYTES,
        });
    }
    let mut made_journal = None;
    if let Some((device, at)) = journal.iter().zip(ring).next() {
        let superblock = Superblock {
            data_offset: at.data_offset,
            data_size: at.data_size,
            super_offset: at.super_offset,
            dev_number: device.index as u32,
            device_uuid: (ctx.new_uuid)(),
            bblog_offset: 0,
            bblog_size: 0,
            ..base.clone()
        };
        write_journal(ctx, device, &superblock).await?;
        made_journal = Some(CreatedMember {
            name: device.name.clone(),
            dev_number: device.index as u32,
            slot: None,
            data_offset: at.data_offset * SECTOR_BYTES,
            data_size: at.data_size * SECTOR_BYTES,
        });
    }
    Ok(Created {
        uuid: base.set_uuid,
        name: base.set_name.escaped(),
        level,
        layout: base.layout,
        layout_name: layout_name(level, base.layout),
        chunk_size,
        component_size: placement.size * SECTOR_BYTES,
        array_size: geometry.map(|geometry| geometry.array_size()),
        version: options.version,
        raid_disks: options.raid_disks,
        members: created,
        journal: made_journal,
        missing,
        needs_resync: !clean,
        bitmap_chunk: placement.bitmap.map(|bitmap| bitmap.chunk_bytes.into()),
    })
}

fn check_counts(
    openers: &[Option<Arc<dyn Opener>>],
    options: &CreateOptions,
) -> Result<(), CreateError> {
    let (raid_disks, spares) = (options.raid_disks, options.spares);
    let others = openers.len().checked_sub(usize::from(options.write_journal));
    if raid_disks.checked_add(spares) != others {
        return Err(CreateError::MemberCount { given: openers.len(), raid_disks, spares });
    }
    let max = options.version.max_members();
    if openers.len() > max {
        return Err(CreateError::TooManyMembers { given: openers.len(), max });
    }
    if spares > 0 && !options.level.has_redundancy() {
        return Err(CreateError::UselessSpares { level: options.level });
    }
    let mut names: Vec<&str> = openers.iter().flatten().map(|opener| opener.name()).collect();
    names.sort_unstable();
    match names.windows(2).find_map(|pair| (pair.first() == pair.last()).then(|| pair.first())) {
        Some(Some(name)) => Err(CreateError::Twice { name: name.to_string() }),
        _ => Ok(()),
    }
}

fn open_all(
    ctx: &Context,
    openers: &[Option<Arc<dyn Opener>>],
) -> Result<Vec<Candidate>, CreateError> {
    let mut members = Vec::new();
    for (index, opener) in openers.iter().enumerate() {
        let Some(opener) = opener else { continue };
        let device = opener.open(&ctx.shard)?;
        members.push(Candidate { name: opener.name().to_string(), index, device });
    }
    Ok(members)
}

fn chunk_size(options: &CreateOptions) -> u64 {
    match options.level {
        Level::Raid1 => 0,
        Level::Linear => options.chunk_size.unwrap_or(0),
        _ => options.chunk_size.unwrap_or(DEFAULT_CHUNK),
    }
}

/// Refuses a level, layout or chunk that no members could save, before sizes confuse the matter.
fn check_shape(options: &CreateOptions, layout: u32, chunk_size: u64) -> Result<(), CreateError> {
    let enough = 1 << 40;
    let spec = Spec {
        level: options.level,
        layout,
        chunk_size,
        raid_disks: options.raid_disks,
        component_size: enough,
        member_sizes: vec![enough; options.raid_disks],
    };
    Layout::new(&spec)?;
    Ok(())
}

/// Takes the journal device, which is the last, out of the devices given.
fn take_journal(
    mut members: Vec<Candidate>,
    index: usize,
) -> Result<(Vec<Candidate>, Option<Candidate>), CreateError> {
    match members.pop_if(|member| member.index == index) {
        Some(journal) => Ok((members, Some(journal))),
        None => Err(CreateError::UselessJournal { why: "its device is \"missing\"".to_string() }),
    }
}

/// Where the journal goes on its device.
fn place_journal(
    options: &CreateOptions,
    chunk: u64,
    device: &Candidate,
) -> Result<MemberPlace, CreateError> {
    let refuse = |why: String| Err(CreateError::UselessJournal { why });
    let version = options.version;
    if options.raid_disks > SLOTS_MAX {
        return refuse(format!("an array with more than {SLOTS_MAX} slots has no journal"));
    }
    if !chunk.is_multiple_of(BLOCK as u64) {
        return refuse(format!("a journal has blocks of {BLOCK} bytes, and a chunk is {chunk}"));
    }
    if version == Version::V0_90 {
        return refuse("metadata 0.90 knows no journal".to_string());
    }
    if u64::from(device.device.info().logical_block) > BLOCK as u64 {
        return refuse(format!("{} has blocks of more than {BLOCK} bytes", device.name));
    }
    let need = blocks_needed(chunk, options.raid_disks) * BLOCK as u64;
    let place = journal_place(version, sectors(device.device.info()));
    let have = place.map_or(0, |place| place.data_size * SECTOR_BYTES);
    match place.filter(|_| have >= need) {
        Some(place) => Ok(place),
        None => Err(CreateError::JournalTooSmall { name: device.name.clone(), have, need }),
    }
}

/// Writes the empty log of a journal, and its superblock.
async fn write_journal(
    ctx: &Context,
    device: &Candidate,
    superblock: &Superblock,
) -> Result<(), CreateError> {
    let failed =
        |doing| move |error: IoError| CreateError::Io { doing, name: device.name.clone(), error };
    let ring = Ring::of(&device.name, &device.device, superblock);
    let ring =
        ring.ok_or(IoError::new(IoErrorKind::Invalid)).map_err(failed("placing the journal on"))?;
    let any = u64::from_le_bytes((ctx.new_uuid)().first_chunk().copied().unwrap_or_default());
    let begun = begin_log(&ctx.shard, &ring, &superblock.set_uuid, any).await;
    begun.map_err(failed("writing the journal of"))?;
    write_member(ctx, device, superblock, None).await
}

fn consistency(options: &CreateOptions) -> Result<Consistency, CreateError> {
    if options.write_journal {
        let refuse = |why: String| Err(CreateError::UselessJournal { why });
        return match (options.level, options.bitmap) {
            (level, _) if !level.is_parity() => {
                refuse(format!("{level} has no parity that a write journal could keep right"))
            }
            (_, CreateBitmap::Internal { .. }) => {
                refuse("an array has either a bitmap or a write journal".to_string())
            }
            _ if options.ppl => {
                refuse("an array has either a partial parity log or a write journal".to_string())
            }
            _ => Ok(Consistency::Resync),
        };
    }
    if options.ppl {
        return match (options.level, options.bitmap) {
            (_, CreateBitmap::Internal { .. }) => Err(CreateError::PplAndBitmap),
            (Level::Raid5, _) => Ok(Consistency::Ppl),
            (level, _) => Err(CreateError::UselessPpl { level }),
        };
    }
    let CreateBitmap::Internal { chunk } = options.bitmap else { return Ok(Consistency::Resync) };
    if !options.level.has_redundancy() {
        return Err(CreateError::UselessBitmap { level: options.level });
    }
    let chunk_bytes = chunk
        .map(|bytes| u32::try_from(bytes).map_err(|_| CreateError::BitmapChunk { bytes }))
        .transpose()?;
    Ok(Consistency::Bitmap { chunk_bytes })
}

fn place_members(
    options: &CreateOptions,
    layout: u32,
    chunk_sectors: u32,
    members: &[Candidate],
) -> Result<Placement, CreateError> {
    let mut request = Request {
        level: options.level.md_number(),
        layout,
        version: options.version,
        chunk_sectors,
        raid_disks: options.raid_disks as u32,
        members: members.iter().map(|member| sectors(member.device.info())).collect(),
        consistency: consistency(options)?,
        size: options.size.map(|size| size / SECTOR_BYTES),
        data_offset: options.data_offset.map(|offset| offset / SECTOR_BYTES),
    };
    let failed = |source| CreateError::Placement {
        source,
        members: members.iter().map(|member| member.name.clone()).collect(),
    };
    let mut placement = place(&request).map_err(failed)?;
    let large = options.level.has_redundancy() && placement.size > BITMAP_FROM;
    if large && options.bitmap == CreateBitmap::Default && !options.ppl && !options.write_journal {
        request.consistency = Consistency::Bitmap { chunk_bytes: None };
        placement = place(&request).map_err(failed)?;
    }
    // A mirror may have any number of sectors, but its members take whole blocks only.
    let block = members.iter().map(|member| member.device.info().logical_block).max();
    let block = u64::from(block.unwrap_or(SECTOR as u32)) / SECTOR_BYTES;
    if block > 1 && options.size.is_none() && placement.size % block != 0 {
        request.size = Some(placement.size - placement.size % block);
        return place(&request).map_err(failed);
    }
    Ok(placement)
}

fn check_blocks(
    placement: &Placement,
    chunk_size: u64,
    members: &[Candidate],
) -> Result<(), CreateError> {
    for (member, at) in members.iter().zip(&placement.members) {
        let block = member.device.info().logical_block.max(1);
        for (what, bytes) in [
            ("a chunk", chunk_size),
            ("a size", placement.size * SECTOR_BYTES),
            ("a data offset", at.data_offset * SECTOR_BYTES),
        ] {
            if !bytes.is_multiple_of(u64::from(block)) {
                let name = member.name.clone();
                return Err(CreateError::NotAligned { what, bytes, block, name });
            }
        }
    }
    Ok(())
}

fn spec(
    options: &CreateOptions,
    layout: u32,
    chunk_size: u64,
    placement: &Placement,
    members: &[Candidate],
) -> Spec {
    let with_slot = members.iter().zip(&placement.members);
    Spec {
        level: options.level,
        layout,
        chunk_size,
        raid_disks: options.raid_disks,
        component_size: placement.size * SECTOR_BYTES,
        member_sizes: with_slot
            .filter(|(member, _)| member.index < options.raid_disks)
            .map(|(_, at)| at.data_size * SECTOR_BYTES)
            .collect(),
    }
}

fn check_survives(
    options: &CreateOptions,
    geometry: Option<&Layout>,
    missing: &[usize],
) -> Result<(), CreateError> {
    if geometry.is_some_and(|geometry| geometry.survives(|slot| !missing.contains(&slot))) {
        return Ok(());
    }
    Err(CreateError::TooManyMissing {
        missing: missing.len(),
        raid_disks: options.raid_disks,
        level: options.level,
    })
}

fn roles(options: &CreateOptions, members: &[Candidate], count: usize) -> Vec<Role> {
    let mut roles = vec![Role::Spare; role_table_len(count)];
    if options.write_journal
        && let Some(role) = roles.get_mut(count - 1)
    {
        *role = Role::Journal;
    }
    for member in members.iter().filter(|member| member.index < options.raid_disks) {
        if let Some(role) = roles.get_mut(member.index) {
            // `check_counts` holds the number of members to the 1920 that a table can have.
            *role = Role::Slot(member.index as u16);
        }
    }
    roles
}

async fn write_member(
    ctx: &Context,
    member: &Candidate,
    superblock: &Superblock,
    bitmap: Option<BitmapPlace>,
) -> Result<(), CreateError> {
    let failed =
        |doing| move |error: IoError| CreateError::Io { doing, name: member.name.clone(), error };
    let (shard, device) = (&ctx.shard, &member.device);
    remove_other_superblocks(shard, device, superblock.version)
        .await
        .map_err(failed("removing an old superblock from"))?;
    if let (Some(place), Some(at)) = (bitmap, superblock.bitmap_sector()) {
        let head =
            BitmapSuperblock::new(superblock.bitmap_uuid(), place.sync_size, place.chunk_bytes);
        // As mdadm writes it: all bits set, up to the end of the area.
        let mut area = shard.pool().zeroed((place.sectors * SECTOR_BYTES) as usize);
        area.fill(0xff);
        if let Some(start) = area.get_mut(..HEADER) {
            start.copy_from_slice(&head.to_bytes());
        }
        write(shard, device, at * SECTOR_BYTES, area.freeze())
            .await
            .map_err(failed("writing the bitmap of"))?;
    }
    if let Some(area) = Area::of(superblock) {
        for request in area.empty(shard, &superblock.set_uuid, 0) {
            let outcome = IoSets::new(shard).one(&**device, request).await;
            outcome.result.map_err(failed("writing the partial parity log of"))?;
        }
    }
    let bytes = superblock_bytes(shard, superblock, device.info().logical_block);
    write(shard, device, superblock.super_offset * SECTOR_BYTES, bytes)
        .await
        .map_err(failed("writing the superblock of"))
}
