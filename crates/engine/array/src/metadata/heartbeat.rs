//! The heartbeat's block on a member: reading and writing it ([`braid_format::heartbeat`]), and how long others wait for the
//! next beat. Whose beat is whose is for `assemble` and `control`.

use crate::metadata::reservations::{Held, Reserving};
use crate::metadata::superblock::{read, write};
use braid_device::{Device, IoError};
use braid_format::SECTOR;
use braid_format::heartbeat::{Found, Heartbeat, LEN, sector};
use braid_format::superblock::Superblock;
use braid_shard::{Nanos, Shard};
use std::rc::Rc;

/// Time beyond two beats that a beat may take to reach the members.
pub(crate) const GRACE: Nanos = 1_000_000_000;

/// The first beat of a start.
#[derive(Clone, Debug)]
pub(crate) struct FirstBeat {
    pub(crate) beat: Heartbeat,
    /// Names of the members that have taken it.
    pub(crate) on: Vec<String>,
    /// The reservations that this start takes; `None` when it takes none.
    pub(crate) reserving: Option<Reserving>,
    /// Those that it has taken.
    pub(crate) held: Vec<Held>,
}

/// The owner's host, for messages.
pub(crate) fn host(beat: &Heartbeat) -> String {
    match beat.host.is_empty() {
        true => "another host".to_string(),
        false => format!("host {}", beat.host),
    }
}

/// Time from one beat to the next.
pub(crate) fn interval(beat: &Heartbeat) -> Nanos {
    u64::from(beat.interval) * 1_000_000
}

/// A beat that has not changed for so long has no owner any more.
pub(crate) fn patience(beat: &Heartbeat) -> Nanos {
    2 * interval(beat) + GRACE
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

/// Says that the owner of `beat` has ended, where its beat still stands.
pub(crate) async fn end(shard: &Shard, device: &Rc<dyn Device>, at: u64, beat: &Heartbeat) {
    let ended = Heartbeat { beating: false, ..beat.clone() };
    if let Ok(Found::Beat(found)) = look(shard, device, at).await
        && found.owner == beat.owner
    {
        // If this fails, other hosts wait for a while before they start.
        let _ = send(shard, device, at, &ended).await;
    }
}
