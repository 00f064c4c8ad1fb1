//! Log pages (Base 2.0, section 5.16; discovery: section 5.16.1.23).

use super::command::{admin, feature, io};
use super::fields::{put, put_text};
use super::identify::ANA_GROUP;

/// Identifiers of log pages.
#[allow(missing_docs)] // The names are the specification's.
pub mod id {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERRORS: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const COMMANDS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const FEATURES: u8 = 0x12;
    pub const DISCOVERY: u8 = 0x70;
}

/// A failed command, as the log of errors has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Its number, from 1, since the controller was made.
    pub count: u64,
    /// The queue.
    pub queue: u16,
    /// The command.
    pub command: u16,
    /// Its status.
    pub status: u16,
    /// The first block.
    pub block: u64,
    /// The namespace.
    pub namespace: u32,
}

/// The log of errors, the newest first; entries that are not used are zero.
#[must_use]
pub fn errors(entries: &[ErrorEntry], max: usize) -> Vec<u8> {
    const BYTES: usize = 64;
    let mut page = vec![0; max * BYTES];
    for (entry, page) in entries.iter().zip(page.chunks_mut(BYTES)) {
        put(page, 0, &entry.count.to_le_bytes());
        put(page, 8, &entry.queue.to_le_bytes());
        put(page, 10, &entry.command.to_le_bytes());
        put(page, 12, &(entry.status << 1).to_le_bytes());
        // No field of the command is named.
        put(page, 14, &0xffffu16.to_le_bytes());
        put(page, 16, &entry.block.to_le_bytes());
        put(page, 24, &entry.namespace.to_le_bytes());
        put(page, 29, &[TRANSPORT_TCP]);
    }
    page
}

/// Health: bytes that a controller has read and written, and the number of errors in its log.
#[must_use]
pub fn health(read: u64, written: u64, errors: u64) -> Vec<u8> {
    let mut page = vec![0; 512];
    // No spare is used up; below ten per cent one should worry.
    (page[3], page[4]) = (100, 10);
    // Thousands of 512 bytes, rounded up.
    put(&mut page, 32, &read.div_ceil(512_000).to_le_bytes());
    put(&mut page, 48, &written.div_ceil(512_000).to_le_bytes());
    put(&mut page, 176, &errors.to_le_bytes());
    page
}

/// The one slot of firmware, with the version of the program.
#[must_use]
pub fn firmware(version: &str) -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;
    put_text(&mut page, 8, 8, version, b' ');
    page
}

/// Namespaces that have changed since this was last read.
#[must_use]
pub fn changed(namespaces: &[u32]) -> Vec<u8> {
    let mut page = vec![0; 4096];
    for (nr, id) in namespaces.iter().take(1024).enumerate() {
        put(&mut page, nr * 4, &id.to_le_bytes());
    }
    page
}

/// The supported commands, and which of them change content.
#[must_use]
pub fn commands(discovery: bool, discards: bool) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let (supported, changes) = (1u32, 1u32 << 1);
    let mut set = |at: usize, opcode: u8, effects: u32| {
        put(&mut page, at + usize::from(opcode) * 4, &effects.to_le_bytes());
    };
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ] {
        set(0, opcode, supported);
    }
    if !discovery {
        for opcode in [io::FLUSH, io::READ, io::COMPARE] {
            set(1024, opcode, supported);
        }
        for opcode in [io::WRITE, io::WRITE_ZEROES] {
            set(1024, opcode, supported | changes);
        }
        if discards {
            set(1024, io::DATASET_MANAGEMENT, supported | changes);
        }
    }
    page
}

/// The supported log pages.
#[must_use]
pub fn supported(discovery: bool) -> Vec<u8> {
    let mut page = vec![0; 1024];
    let common = [id::SUPPORTED, id::ERRORS, id::HEALTH, id::FIRMWARE, id::COMMANDS, id::FEATURES];
    let more: &[u8] = if discovery { &[id::DISCOVERY] } else { &[id::CHANGED_NAMESPACES, id::ANA] };
    for page_id in common.iter().chain(more) {
        put(&mut page, usize::from(*page_id) * 4, &1u32.to_le_bytes());
    }
    page
}

/// The supported features.
#[must_use]
pub fn features(discovery: bool) -> Vec<u8> {
    let mut page = vec![0; 1024];
    let common = [feature::ASYNC_EVENTS, feature::KEEP_ALIVE, feature::HOST_ID];
    let more = [
        feature::ARBITRATION,
        feature::POWER_MANAGEMENT,
        feature::TEMPERATURE,
        feature::VOLATILE_WRITE_CACHE,
        feature::NUMBER_OF_QUEUES,
        feature::WRITE_ATOMICITY,
        feature::HOST_BEHAVIOR,
    ];
    for id in common.iter().chain(more.iter().filter(|_| !discovery)) {
        put(&mut page, usize::from(*id) * 4, &1u32.to_le_bytes());
    }
    page
}

/// Asymmetric access: one group, whose state is optimized, with these namespaces unless only groups are asked for.
#[must_use]
pub fn ana(namespaces: &[u32], groups_only: bool) -> Vec<u8> {
    let listed = if groups_only { &[] } else { namespaces };
    let mut page = vec![0; 16 + 32 + listed.len() * 4];
    put(&mut page, 8, &1u16.to_le_bytes());
    put(&mut page, 16, &ANA_GROUP.to_le_bytes());
    put(&mut page, 20, &(listed.len() as u32).to_le_bytes());
    // Optimized.
    page[32] = 1;
    for (nr, id) in listed.iter().enumerate() {
        put(&mut page, 48 + nr * 4, &id.to_le_bytes());
    }
    page
}

/// The code of TCP among the transports.
pub const TRANSPORT_TCP: u8 = 3;

/// Where a discovery controller says that a subsystem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// The subsystem's name.
    pub subsystem: String,
    /// The IP address.
    pub address: std::net::SocketAddr,
    /// It is the discovery subsystem that tells this.
    pub discovery: bool,
}

/// The log of a discovery controller.
#[must_use]
pub fn discovery(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    const BYTES: usize = 1024;
    let mut page = vec![0; BYTES * (entries.len() + 1)];
    put(&mut page, 0, &generation.to_le_bytes());
    put(&mut page, 8, &(entries.len() as u64).to_le_bytes());
    for (entry, page) in entries.iter().zip(page.chunks_mut(BYTES).skip(1)) {
        let family = if entry.address.is_ipv4() { 1 } else { 2 };
        // A subsystem with namespaces, or the one that is asked.
        let subtype = if entry.discovery { 3 } else { 2 };
        // Flow control of submission queues may be switched off.
        put(page, 0, &[TRANSPORT_TCP, family, subtype, 1 << 2]);
        put(page, 4, &1u16.to_le_bytes());
        // Controllers are made when a host connects.
        put(page, 6, &0xffffu16.to_le_bytes());
        put(page, 8, &32u16.to_le_bytes());
        put_text(page, 32, 32, &entry.address.port().to_string(), b' ');
        put(page, 256, entry.subsystem.as_bytes());
        put_text(page, 512, 256, &entry.address.ip().to_string(), b' ');
    }
    page
}
