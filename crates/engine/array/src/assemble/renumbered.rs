//! Members that missed the update between level 0 and level 10, in which slots get other numbers (`control/levels`): what they
//! say of slots is put into the numbers of the freshest superblock.
//!
//! By their own tables a member would stand where another has its place now.
//! Writes nothing.

use braid_format::superblock::{Role, Superblock};
use braid_layout::Level;
use braid_shard::plant::planted;

/// Brings the tables of members that are one update behind in line with `freshest`.
pub(super) fn renumber<'a>(
    superblocks: impl Iterator<Item = &'a mut Superblock>,
    freshest: &Superblock,
) {
    for own in superblocks {
        if planted("late-member-in-old-slot") || own.events.checked_add(1) != Some(freshest.events)
        {
            continue;
        }
        let Some(slot_for) = numbers(own, freshest) else { continue };
        own.raid_disks = freshest.raid_disks;
        for role in &mut own.roles {
            if let Role::Slot(slot) = role {
                *role = slot_for(*slot).map_or(Role::Spare, Role::Slot);
            }
        }
    }
}

/// A function from old slots to new ones; `None`: they are the same.
fn numbers(own: &Superblock, freshest: &Superblock) -> Option<fn(u16) -> Option<u16>> {
    let levels = (Level::from_md(own.level)?, Level::from_md(freshest.level)?);
    let (old, new) = (own.raid_disks, freshest.raid_disks);
    match levels {
        (Level::Raid0, Level::Raid10) if old.checked_mul(2) == Some(new) => {
            Some(|slot| slot.checked_mul(2))
        }
        (Level::Raid10, Level::Raid0) if new.checked_mul(2) == Some(old) => {
            Some(|slot| Some(slot / 2))
        }
        _ => None,
    }
}
