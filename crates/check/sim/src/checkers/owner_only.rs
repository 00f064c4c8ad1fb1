//! **owner_only**: while an array runs, all writes to the members for one unit (a stripe, a chunk of
//! level 10, a region of a mirror) come from one shard (invariant 3).

use crate::member::Member;
use crate::world::World;
use braid_shard::ShardId;

const NAME: &str = "owner_only";

/// Shard `shard` writes component bytes of a member.
pub fn look(world: &World, member: &Member, shard: ShardId, offset: u64, len: u64) {
    if world.moving.get() || world.reshaping.get() {
        return;
    }
    let unit_of = world.unit_of.borrow();
    let Some(unit_of) = unit_of.as_ref() else { return };
    // A write ends in another unit than it starts in only where runs of units were merged.
    for at in [offset, offset + len.max(1) - 1] {
        let Some(unit) = unit_of(member, at) else { continue };
        let owner = *world.owners.borrow_mut().entry(unit).or_insert(shard);
        if owner != shard {
            let text = format!(
                "shard {shard} writes component byte {at} of {}, which is in unit {unit}; \
                 shard {owner} has written that unit before",
                member.name()
            );
            world.fail(NAME, text);
        }
    }
}
