//! **stale_never_source**: nothing is ever read from where a member does not hold what the array means
//! it to hold: a new spare, or a member that missed a write, is read only where it has been written
//! since (invariant 6; also: no read from a rebuilding member past its recovery offset).
//!
//! Looks at every read of every member, not at what comes of it.

use crate::member::Member;
use crate::world::World;
use braid_format::superblock::{READ_LEN, candidates};
use std::ops::Range;

const NAME: &str = "stale_never_source";

/// A member is read.
pub fn look(world: &World, member: &Member, offset: u64, len: u64) {
    if member.is_gone() {
        // It gives nothing, whatever it has lost.
        return;
    }
    // A device that is added is searched for superblocks of all versions; places of other versions than
    // the array's can lie within its data.
    let places = candidates(member.kind.info.size / 512);
    let place_len = READ_LEN as u64;
    if len == place_len && places.iter().any(|(_, at)| at * 512 == offset) {
        return;
    }
    // Where such a place cannot be read as a whole it is read block by block.
    let start = member.data.borrow().start;
    let bad = |place: &Range<u64>| {
        let unreadable = member.unreadable();
        unreadable.iter().any(|bad| bad.start + start < place.end && place.start < bad.end + start)
    };
    let by_block = |(_, at): &(_, u64)| {
        let place = at * 512..at * 512 + place_len;
        place.contains(&offset) && bad(&place)
    };
    if len == u64::from(member.kind.info.logical_block) && places.iter().any(by_block) {
        return;
    }
    if let Some(at) = member.first_stale(offset..offset + len) {
        let text = format!(
            "{} (slot {:?}) read at component byte {}, {len} bytes; byte {} was not written since it \
             missed a write or was a spare",
            member.name(),
            member.slot.get(),
            offset.saturating_sub(start),
            at.saturating_sub(start),
        );
        world.fail(NAME, text);
    }
}
