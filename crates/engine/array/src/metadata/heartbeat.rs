//! The heartbeat's block on a member: reading and writing it ([`braid_format::heartbeat`]).

use crate::metadata::superblock::{read, write};
use braid_device::{Device, IoError};
use braid_format::SECTOR;
use braid_format::heartbeat::{Found, Heartbeat, LEN, sector};
use braid_format::superblock::Superblock;
use braid_shard::Shard;
use std::rc::Rc;

/// The first beat of a start.
#[derive(Clone, Debug)]
pub(crate) struct FirstBeat {
    pub(crate) beat: Heartbeat,
    /// Names of the members that have taken it.
    pub(crate) on: Vec<String>,
}

/// The owner's host, for messages.
pub(crate) fn host(beat: &Heartbeat) -> String {
    match beat.host.is_empty() {
        true => "another host".to_string(),
        false => format!("host {}", beat.host),
    }
}

/// The byte at which it stands; `None` where the superblock's version leaves no place.
pub(crate) fn place(superblock: &Superblock) -> Option<u64> {
    sector(superblock)?.checked_mul(SECTOR as u64)
}

/// The content of the block at byte `at`.
pub(crate) async fn look(
    shard: &Shard,
    device: &Rc<dyn Device>,
    at: u64,
) -> Result<Found, IoError> {
    let block = read(shard, device, at, LEN).await?;
    Ok(Found::parse(&block))
}

/// Writes it there, durably.
pub(crate) async fn send(
    shard: &Shard,
    device: &Rc<dyn Device>,
    at: u64,
    beat: &Heartbeat,
) -> Result<(), IoError> {
    write(shard, device, at, shard.pool().copy_of(&beat.to_bytes()).freeze()).await
}
