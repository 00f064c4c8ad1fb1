//! The data structures of Identify (Base 2.0, section 5.17; NVM Command Set 1.0, section 4.1.5).

use super::fields::{put, put_text};
use super::pdu::MAX_IN_CAPSULE;

/// Bytes of each structure.
pub const IDENTIFY_BYTES: usize = 4096;
/// The version of the specification that controllers follow: 2.0.
pub const VERSION: u32 = 0x0002_0000;
/// The largest transfer, as a power of two of [`PAGE_BYTES`].
pub const TRANSFER_SHIFT: u8 = 8;
/// The smallest page of memory that a controller knows, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Commands that a queue may have under way.
pub const QUEUE_ENTRIES: u16 = 128;
/// Async Event Requests that may be under way.
pub const EVENTS_MAX: usize = 4;
/// Entries of the log of errors.
pub const ERRORS_MAX: usize = 16;
/// The group that all namespaces belong to.
pub const ANA_GROUP: u32 = 1;
/// The unit of keep alive, in milliseconds.
pub const KEEP_ALIVE_UNIT: u64 = 1000;

/// A host is told that a namespace has changed.
pub const EVENT_NAMESPACE: u32 = 1 << 8;
/// A host is told that what a discovery controller knows has changed.
pub const EVENT_DISCOVERY: u32 = 1 << 31;

/// The description of a controller.
#[derive(Clone, Debug)]
pub struct Controller<'a> {
    /// Its number in the subsystem.
    pub id: u16,
    /// Discovery only.
    pub discovery: bool,
    /// Its serial number, at most 20 characters.
    pub serial: &'a str,
    /// The model, at most 40 characters.
    pub model: &'a str,
    /// The version of the program, at most 8 characters.
    pub firmware: &'a str,
    /// The subsystem's name.
    pub subsystem: &'a str,
    /// Deallocate does something.
    pub discards: bool,
}

/// A controller.
#[must_use]
pub fn controller(about: &Controller<'_>) -> Vec<u8> {
    let mut page = vec![0; IDENTIFY_BYTES];
    put_text(&mut page, 4, 20, about.serial, b' ');
    put_text(&mut page, 24, 40, about.model, b' ');
    put_text(&mut page, 64, 8, about.firmware, b' ');
    // Several ports, several controllers; for namespaces asymmetric access is told.
    page[76] = if about.discovery { 0 } else { 0b1011 };
    page[77] = TRANSFER_SHIFT;
    put(&mut page, 78, &about.id.to_le_bytes());
    put(&mut page, 80, &VERSION.to_le_bytes());
    let events = if about.discovery { EVENT_DISCOVERY } else { EVENT_NAMESPACE };
    put(&mut page, 92, &events.to_le_bytes());
    // Host identifiers have 128 bits.
    put(&mut page, 96, &1u32.to_le_bytes());
    page[111] = if about.discovery { 2 } else { 1 };
    page[258] = 3;
    page[259] = EVENTS_MAX as u8 - 1;
    // One slot of firmware, which nobody writes.
    page[260] = 0b11;
    // Effects of commands are told, and logs may be read from an offset.
    page[261] = 0b110;
    page[262] = ERRORS_MAX as u8 - 1;
    put(&mut page, 320, &(KEEP_ALIVE_UNIT as u16 / 100).to_le_bytes());
    if !about.discovery {
        // A change of access takes ten seconds at most; the states are optimized and inaccessible.
        (page[342], page[343]) = (10, 0b101);
        put(&mut page, 344, &ANA_GROUP.to_le_bytes());
        put(&mut page, 348, &ANA_GROUP.to_le_bytes());
        (page[512], page[513]) = (0x66, 0x44);
        put(&mut page, 516, &1u32.to_le_bytes());
        let deallocate = if about.discards { 1 << 2 } else { 0 };
        // Compare, Write Zeroes.
        put(&mut page, 520, &(1u16 | deallocate | 1 << 3).to_le_bytes());
        // A volatile cache; a flush may be for all namespaces.
        page[525] = 0b111;
        put(&mut page, 540, &1u32.to_le_bytes());
    }
    put(&mut page, 514, &QUEUE_ENTRIES.to_le_bytes());
    // Data is described by SGLs of any alignment, also by an offset in the capsule.
    put(&mut page, 536, &(1u32 | 1 << 20).to_le_bytes());
    put(&mut page, 768, about.subsystem.as_bytes());
    let capsule = (super::COMMAND_BYTES as u32 + MAX_IN_CAPSULE) / 16;
    put(&mut page, 1792, &capsule.to_le_bytes());
    put(&mut page, 1796, &1u32.to_le_bytes());
    page[1803] = 1;
    page
}

/// The description of a namespace. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Namespace {
    /// Its size.
    pub size: u64,
    /// Bytes of a block, a power of two.
    pub block: u32,
    /// Writes that are multiples of this need nothing read first.
    pub physical_block: u32,
    /// The size of the best requests, 0 if unknown.
    pub optimal: u32,
    /// Writes are refused.
    pub read_only: bool,
}

/// Bytes of `size` in blocks, one less: 0 when it is unknown, no multiple, or too large.
fn blocks_less_one(bytes: u32, block: u32) -> u16 {
    match bytes.checked_rem(block) {
        Some(0) => u16::try_from((bytes / block).saturating_sub(1)).unwrap_or(0),
        _ => 0,
    }
}

/// A namespace.
#[must_use]
pub fn namespace(about: &Namespace) -> Vec<u8> {
    let mut page = vec![0; IDENTIFY_BYTES];
    let block = about.block.max(1);
    let blocks = (about.size / u64::from(block)).to_le_bytes();
    for at in [0, 8, 16] {
        put(&mut page, at, &blocks);
    }
    // The preferred sizes below are told.
    page[24] = 1 << 4;
    // Several controllers may have it.
    page[30] = 1;
    // Write Zeroes may deallocate.
    page[33] = 1 << 3;
    put(&mut page, 64, &blocks_less_one(about.physical_block, block).to_le_bytes());
    put(&mut page, 72, &blocks_less_one(about.optimal, block).to_le_bytes());
    put(&mut page, 92, &ANA_GROUP.to_le_bytes());
    page[99] = u8::from(about.read_only);
    page[130] = block.trailing_zeros() as u8;
    page
}

/// The identifiers of a namespace: its UUID, and the command set.
#[must_use]
pub fn descriptors(uuid: &[u8; 16]) -> Vec<u8> {
    let mut page = vec![0; IDENTIFY_BYTES];
    put(&mut page, 0, &[3, 16]);
    put(&mut page, 4, uuid);
    put(&mut page, 20, &[4, 1]);
    page
}

/// Those of `namespaces` that come after `after`, as a list.
#[must_use]
pub fn list(namespaces: &[u32], after: u32) -> Vec<u8> {
    let mut page = vec![0; IDENTIFY_BYTES];
    for (nr, id) in namespaces.iter().filter(|id| **id > after).enumerate() {
        put(&mut page, nr * 4, &id.to_le_bytes());
    }
    page
}

/// A list of controllers, after `after`.
#[must_use]
pub fn controllers(ids: &[u16], after: u16) -> Vec<u8> {
    let mut page = vec![0; IDENTIFY_BYTES];
    let fitting: Vec<u16> = ids.iter().copied().filter(|id| *id >= after).take(2047).collect();
    put(&mut page, 0, &(fitting.len() as u16).to_le_bytes());
    for (nr, id) in fitting.iter().enumerate() {
        put(&mut page, 2 + nr * 2, &id.to_le_bytes());
    }
    page
}

/// A page of nothing but zeroes: a command set with no limits of its own, a namespace without more to tell.
#[must_use]
pub fn nothing() -> Vec<u8> {
    vec![0; IDENTIFY_BYTES]
}
