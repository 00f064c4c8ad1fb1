//! Version 0.90: 4 KiB of 32-bit words at the start of the last whole 64 KiB of a member, read into the
//! common [`Superblock`] and written from it.
//!
//! Fields that 0.90 lacks (a name, a data offset, a recovery offset, a uuid of the member) are filled in on reading
//! so that the rest of the program needs no second structure. Fields that only 0.90 has are in [`V0`]. The table
//! of disks becomes the role table: entry `i` is dev number `i`.
//!
//! Invariant: a table that Linux wrote is written back with the same words. Any other is written the way Linux writes it,
//! with each member in sync in the entry that has the number of its slot.
//!
//! Source of the format: Linux `md_p.h` (`mdp_super_t`) and `md.c` (super_90_load, _validate, _sync).

use super::error::SuperblockError;
use super::fields::{CLEAN, Leftover, READ_LEN, Reshape, Superblock};
use super::name::Name;
use super::raw::MAGIC;
use super::role::Role;
use super::slots::check_slots;
use super::time::{pack_time, time_seconds};
use super::v0_fields::{V0, V0Device, swap_words};
use super::version::{V0_DISKS, Version};
use crate::SECTOR;
use zerocopy::byteorder::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Sectors between a 0.90 superblock and its bitmap, which is in the same 64 KiB.
pub const V0_BITMAP_OFFSET: i32 = 8;
/// Sectors that a member of a level with redundancy can use at most: 4 TiB less one KiB.
pub const V0_SIZE_MAX: u64 = (1 << 33) - 2;

const MINOR: u32 = 90;
const MINOR_RESHAPING: u32 = 91;

const CLEAN_BIT: u32 = 1;
const CLUSTERED_BIT: u32 = 1 << 5;
const BITMAP_BIT: u32 = 1 << 8;

const FAULTY: u32 = 1;
const ACTIVE: u32 = 1 << 1;
const IN_SYNC: u32 = 1 << 2;
const REMOVED: u32 = 1 << 3;
const STANDING: u32 = FAULTY | ACTIVE | IN_SYNC | REMOVED;
const WRITE_MOSTLY: u32 = 1 << 9;
const FAILFAST: u32 = 1 << 10;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    major: U32,
    minor: U32,
    patch: U32,
    gvalid_words: U32,
    uuid0: U32,
    ctime: U32,
    level: I32,
    size_kib: U32,
    nr_disks: U32,
    raid_disks: U32,
    md_minor: U32,
    not_persistent: U32,
    uuid1_to_3: [U32; 3],
    reserved_16: [U32; 16],
    utime: U32,
    state: U32,
    active_disks: U32,
    working_disks: U32,
    failed_disks: U32,
    spare_disks: U32,
    checksum: U32,
    events: U64,
    checkpoint_events: U64,
    recovery_checkpoint: U32,
    reshape_position: U64,
    new_level: I32,
    delta_disks: I32,
    new_layout: U32,
    new_chunk_bytes: U32,
    reserved_50: [U32; 14],
    layout: U32,
    chunk_bytes: U32,
    reserved_66: [U32; 62],
    disks: [RawDisk; V0_DISKS],
    this_disk: RawDisk,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDisk {
    number: U32,
    major: U32,
    minor: U32,
    raid_disk: U32,
    state: U32,
    reserved: [U32; 27],
}

const CHECKSUM_WORD: usize = 38;

const _: () = {
    assert!(size_of::<Raw>() == READ_LEN);
    assert!(std::mem::offset_of!(Raw, utime) == 4 * 32);
    assert!(std::mem::offset_of!(Raw, checksum) == 4 * CHECKSUM_WORD);
    assert!(std::mem::offset_of!(Raw, recovery_checkpoint) == 4 * 43);
    assert!(std::mem::offset_of!(Raw, layout) == 4 * 64);
    assert!(std::mem::offset_of!(Raw, disks) == 4 * 128);
    assert!(std::mem::offset_of!(Raw, this_disk) == 4 * 992);
};

/// The checksum: the sum of all words but its own, folded once to 32 bits (Linux `md.c`, calc_sb_csum).
fn checksum(raw: &Raw) -> u32 {
    let mut sum = 0u64;
    for (index, word) in raw.as_bytes().chunks_exact(4).enumerate() {
        if index != CHECKSUM_WORD {
            // `chunks_exact(4)` yields four bytes.
            sum += u64::from(u32::from_le_bytes(word.try_into().unwrap_or_default()));
        }
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// The checksum folded to 16 bits. Old kernels on some architectures stored it folded further, so only this is compared.
fn folded(checksum: u32) -> u16 {
    let once = (checksum & 0xffff) + (checksum >> 16);
    (once as u16).wrapping_add((once >> 16) as u16)
}

/// Reads a 0.90 superblock that was read at sector `at` of a member.
pub(super) fn parse(bytes: &[u8], at: u64) -> Result<Superblock, SuperblockError> {
    let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| SuperblockError::TooShort {
        at,
        have: bytes.len(),
        need: READ_LEN,
    })?;
    match raw.magic.get() {
        MAGIC => {}
        found if found == MAGIC.swap_bytes() && raw.major.get() == 0 => {
            return Err(SuperblockError::ByteSwapped { at });
        }
        found => return Err(SuperblockError::NoMagic { at, found }),
    }
    if raw.major.get() != 0 {
        return Err(SuperblockError::Major { at, found: raw.major.get() });
    }
    let minor = raw.minor.get();
    if !matches!(minor, MINOR | MINOR_RESHAPING) {
        return Err(SuperblockError::V0Minor { at, found: minor });
    }
    let computed = checksum(raw);
    if folded(computed) != folded(raw.checksum.get()) {
        return Err(SuperblockError::Checksum { at, stored: raw.checksum.get(), computed });
    }
    check_fields(raw, at)?;
    let sb = from_raw(raw, at);
    check_slots(&sb, at)?;
    if sb.level >= 1 && sb.size > sb.data_size {
        return Err(SuperblockError::DataBeyondMember {
            at,
            data_offset: 0,
            data_size: sb.size,
            need: sb.size.into(),
            have: sb.data_size,
        });
    }
    Ok(sb)
}

fn check_fields(raw: &Raw, at: u64) -> Result<(), SuperblockError> {
    let disks = V0_DISKS as u32;
    let whole = "a multiple of 512";
    for (field, found, right, must) in [
        ("this_disk", raw.this_disk.number, raw.this_disk.number.get() < disks, "below 27"),
        ("chunk_size", raw.chunk_bytes, raw.chunk_bytes.get().is_multiple_of(512), whole),
        ("new_chunk", raw.new_chunk_bytes, raw.new_chunk_bytes.get().is_multiple_of(512), whole),
    ] {
        if !right {
            return Err(SuperblockError::Field { at, field, found: found.get().into(), must });
        }
    }
    Ok(())
}

fn from_raw(raw: &Raw, at: u64) -> Superblock {
    let level = raw.level.get();
    let state = raw.state.get();
    let reshaping = raw.minor.get() == MINOR_RESHAPING;
    let set_uuid = uuid_bytes(raw);
    let dev_number = raw.this_disk.number.get();
    let mut roles = Vec::with_capacity(V0_DISKS);
    let mut v0 = V0 {
        md_minor: raw.md_minor.get(),
        patch: raw.patch.get(),
        state: state & !(CLEAN_BIT | CLUSTERED_BIT | BITMAP_BIT),
        present: 0,
        devices: Vec::with_capacity(V0_DISKS),
    };
    for (number, disk) in (0u32..).zip(&raw.disks) {
        let role = role(disk, reshaping);
        let (major, minor) = (disk.major.get(), disk.minor.get());
        let mut flags = disk.state.get() & !STANDING;
        let used = [disk.number, disk.major, disk.minor, disk.state].iter().any(|w| w.get() != 0);
        // Linux numbers spares from `raid_disks` on. A used entry below that is the remains of an earlier member.
        let spare = used && number >= raw.raid_disks.get();
        let gone = disk.state.get() & REMOVED != 0;
        if number == dev_number {
            flags &= !(WRITE_MOSTLY | FAILFAST);
        }
        if role != Role::Spare || number == dev_number || (spare && !gone) {
            v0.present |= 1 << number;
            v0.devices.push(V0Device { major, minor, flags });
        } else {
            v0.devices.push(V0Device::default());
        }
        roles.push(role);
    }
    let own = raw.disks.get(dev_number as usize).map_or(0, |disk| disk.state.get());
    let recovering = reshaping && own & (FAULTY | REMOVED | IN_SYNC) == 0 && own & ACTIVE != 0;
    Superblock {
        set_uuid,
        set_name: Name::default(),
        ctime: pack_time(raw.ctime.get().into(), 0),
        level,
        layout: raw.layout.get(),
        raid0_layout: level == 0 && raw.layout.get() != 0,
        size: u64::from(raw.size_kib.get()) * 2,
        chunk_sectors: raw.chunk_bytes.get() / SECTOR as u32,
        raid_disks: raw.raid_disks.get(),
        bitmap_offset: if state & BITMAP_BIT == 0 { 0 } else { V0_BITMAP_OFFSET },
        clustered: state & CLUSTERED_BIT != 0,
        reshape: reshaping.then(|| Reshape {
            new_level: raw.new_level.get(),
            position: raw.reshape_position.get(),
            delta_disks: raw.delta_disks.get(),
            new_layout: raw.new_layout.get(),
            new_chunk_sectors: raw.new_chunk_bytes.get() / SECTOR as u32,
            backwards: raw.delta_disks.get() < 0,
        }),
        data_size: if level >= 1 { at.min(V0_SIZE_MAX) } else { at },
        super_offset: at,
        recovery_offset: recovering.then_some(0),
        dev_number,
        device_uuid: device_uuid(set_uuid, dev_number),
        devflags: u8::from(own & WRITE_MOSTLY != 0) | u8::from(own & FAILFAST != 0) << 1,
        utime: pack_time(raw.utime.get().into(), 0),
        events: raw.events.get(),
        resync_offset: resync_offset(raw),
        roles,
        leftover: Leftover::default(),
        v0,
        ..Superblock::empty(Version::V0_90)
    }
}

/// The same decisions as the kernel's: outside a reshape only an entry that is marked in sync gets its slot. 0.90 does
/// not record how far a recovery has come, so a member in recovery is a spare again.
fn role(disk: &RawDisk, reshaping: bool) -> Role {
    let state = disk.state.get();
    let slot = u16::try_from(disk.raid_disk.get()).ok().filter(|slot| *slot < V0_DISKS as u16);
    match slot {
        _ if state & REMOVED != 0 => Role::Spare,
        _ if state & FAULTY != 0 => Role::Faulty,
        Some(slot) if state & IN_SYNC != 0 || (reshaping && state & ACTIVE != 0) => {
            Role::Slot(slot)
        }
        _ => Role::Spare,
    }
}

fn resync_offset(raw: &Raw) -> u64 {
    if raw.state.get() & CLEAN_BIT != 0 {
        CLEAN
    } else if raw.checkpoint_events == raw.events {
        raw.recovery_checkpoint.get().into()
    } else {
        0
    }
}

/// The four words, each most significant byte first: the order in which mdadm shows a 0.90 uuid.
fn uuid_bytes(raw: &Raw) -> [u8; 16] {
    let [one, two, three] = raw.uuid1_to_3;
    swap_words([raw.uuid0, one, two, three].map(U32::to_bytes).as_flattened())
}

/// A uuid for a member, made of the array's and the dev number, since 0.90 stores none.
fn device_uuid(set_uuid: [u8; 16], dev_number: u32) -> [u8; 16] {
    (u128::from_be_bytes(set_uuid) ^ (0x0090 << 16 | u128::from(dev_number))).to_be_bytes()
}

/// The 4096 bytes of a 0.90 superblock.
pub(super) fn to_bytes(sb: &Superblock) -> Vec<u8> {
    let seconds = |packed| u32::try_from(time_seconds(packed)).unwrap_or(u32::MAX);
    let (mut raw, disks) = (Raw::new_zeroed(), Disks::of(sb));
    let [uuid0, uuid1_to_3 @ ..] = uuid_words(sb.set_uuid);
    raw.magic = MAGIC.into();
    raw.minor = if sb.reshape.is_some() { MINOR_RESHAPING } else { MINOR }.into();
    raw.patch = sb.v0.patch.into();
    raw.uuid0 = uuid0;
    raw.ctime = seconds(sb.ctime).into();
    raw.level = sb.level.into();
    raw.size_kib = u32::try_from(sb.size / 2).unwrap_or(u32::MAX).into();
    raw.raid_disks = sb.raid_disks.into();
    raw.md_minor = sb.v0.md_minor.into();
    raw.uuid1_to_3 = uuid1_to_3;
    raw.utime = seconds(sb.utime).into();
    raw.state = state(sb).into();
    raw.nr_disks = disks.count(|_| true).into();
    raw.active_disks = disks.count(|state| state & ACTIVE != 0).into();
    raw.working_disks = disks.count(|state| state & FAULTY == 0).into();
    raw.spare_disks = disks.count(|state| state & (ACTIVE | FAULTY) == 0).into();
    raw.failed_disks = disks.missing(sb.raid_disks).into();
    raw.events = sb.events.into();
    match sb.resync_offset {
        // The array is active, or its checkpoint cannot be used: leave the fields at zero.
        0 => {}
        CLEAN => {
            raw.checkpoint_events = sb.events.into();
            raw.recovery_checkpoint = u32::MAX.into();
        }
        offset => {
            raw.checkpoint_events = sb.events.into();
            // Positions beyond 2 TiB do not fit into 32 bits; what lies behind is resynced again.
            raw.recovery_checkpoint = u32::try_from(offset).unwrap_or(u32::MAX).into();
        }
    }
    if let Some(reshape) = sb.reshape {
        raw.reshape_position = reshape.position.into();
        raw.new_level = reshape.new_level.into();
        raw.delta_disks = reshape.delta_disks.into();
        raw.new_layout = reshape.new_layout.into();
        raw.new_chunk_bytes = bytes_of(reshape.new_chunk_sectors).into();
    }
    raw.layout = if sb.level == 0 && !sb.raid0_layout { 0 } else { sb.layout }.into();
    raw.chunk_bytes = bytes_of(sb.chunk_sectors).into();
    raw.disks = disks.to_raw(sb.raid_disks);
    raw.this_disk = raw.disks.get(disks.own).copied().unwrap_or_else(RawDisk::new_zeroed);
    raw.checksum = checksum(&raw).into();
    raw.as_bytes().to_vec()
}

fn bytes_of(sectors: u32) -> u32 {
    // 0.90 stores the chunk as 32 bits of bytes, so a chunk of 4 GiB or more cannot be stored.
    sectors.saturating_mul(SECTOR as u32) / SECTOR as u32 * SECTOR as u32
}

fn uuid_words(uuid: [u8; 16]) -> [U32; 4] {
    zerocopy::transmute!(swap_words(&uuid))
}

fn state(sb: &Superblock) -> u32 {
    let mut state = sb.v0.state & !(CLEAN_BIT | CLUSTERED_BIT | BITMAP_BIT);
    for (bit, set) in [
        (CLEAN_BIT, sb.is_clean()),
        (CLUSTERED_BIT, sb.clustered),
        (BITMAP_BIT, sb.bitmap_offset != 0),
    ] {
        state |= if set { bit } else { 0 };
    }
    state
}

/// One entry to be written.
#[derive(Clone, Copy)]
struct Disk {
    device: V0Device,
    raid_disk: u32,
    state: u32,
}

/// The table to be written, by the number that each member has in it.
struct Disks {
    by_number: [Option<Disk>; V0_DISKS],
    own: usize,
}

impl Disks {
    fn of(sb: &Superblock) -> Disks {
        // A member beyond the table has no entry of its own; it is written as a spare in the last one.
        let own = (sb.dev_number as usize).min(V0_DISKS - 1);
        let recovering = sb.recovery_offset.is_some();
        let mut roles: [Role; V0_DISKS] = std::array::from_fn(|number| sb.role_of(number as u32));
        if sb.dev_number as usize != own || (recovering && sb.reshape.is_none()) {
            roles[own] = Role::Spare;
        }
        let numbers = numbers(&mut roles);
        let mut by_number = [None; V0_DISKS];
        for (dev, role) in roles.into_iter().enumerate() {
            let mut device = sb.v0.devices.get(dev).copied().unwrap_or_default();
            device.flags &= !STANDING;
            if dev == own {
                device.flags &= !(WRITE_MOSTLY | FAILFAST);
                device.flags |= if sb.write_mostly() { WRITE_MOSTLY } else { 0 };
                device.flags |= if sb.failfast() { FAILFAST } else { 0 };
            }
            let listed = dev >= sb.raid_disks as usize && sb.v0.present >> dev & 1 != 0;
            let present = dev == own || listed;
            let number = numbers[dev];
            let state = match role {
                Role::Slot(_) if dev == own && recovering => ACTIVE,
                Role::Slot(_) => ACTIVE | IN_SYNC,
                Role::Faulty => FAULTY,
                _ if present => 0,
                _ => continue,
            };
            by_number[number] =
                Some(Disk { device, raid_disk: number as u32, state: state | device.flags });
        }
        Disks { by_number, own: numbers[own] }
    }

    /// Number of members whose state passes the test.
    fn count(&self, fits: impl Fn(u32) -> bool) -> u32 {
        self.by_number.iter().flatten().filter(|disk| fits(disk.state)).count() as u32
    }

    fn missing(&self, raid_disks: u32) -> u32 {
        self.by_number.iter().take(raid_disks as usize).filter(|disk| disk.is_none()).count() as u32
    }

    fn to_raw(&self, raid_disks: u32) -> [RawDisk; V0_DISKS] {
        std::array::from_fn(|number| {
            let mut raw = RawDisk::new_zeroed();
            let nobody = Disk {
                device: V0Device::default(),
                raid_disk: number as u32,
                state: REMOVED | FAULTY,
            };
            let disk = match self.by_number.get(number) {
                Some(Some(disk)) => *disk,
                _ if (number as u32) < raid_disks => nobody,
                _ => return raw,
            };
            raw.number = (number as u32).into();
            raw.major = disk.device.major.into();
            raw.minor = disk.device.minor.into();
            raw.raid_disk = disk.raid_disk.into();
            raw.state = disk.state.into();
            raw
        })
    }
}

/// The number of each dev number in the table to be written. A member that holds a slot has the slot's;
/// those that had that number take, in order, the numbers that became free; the rest keep theirs. Of two
/// that claim a slot the second becomes a spare.
fn numbers(roles: &mut [Role; V0_DISKS]) -> [usize; V0_DISKS] {
    let mut numbers: [usize; V0_DISKS] = std::array::from_fn(|number| number);
    let mut taken = [false; V0_DISKS];
    let mut holds = [false; V0_DISKS];
    for dev in 0..V0_DISKS {
        let Role::Slot(slot) = roles[dev] else { continue };
        match taken.get_mut(usize::from(slot)) {
            Some(taken) if !*taken => {
                *taken = true;
                holds[dev] = true;
                numbers[dev] = slot.into();
            }
            _ => roles[dev] = Role::Spare,
        }
    }
    // Each slot has one holder, so as many numbers became free as were taken from others.
    let mut free = (0..V0_DISKS).filter(|number| holds[*number] && !taken[*number]);
    for dev in (0..V0_DISKS).filter(|dev| taken[*dev] && !holds[*dev]) {
        numbers[dev] = free.next().unwrap_or(dev);
    }
    numbers
}

#[cfg(test)]
#[path = "v0_tests.rs"]
mod tests;
