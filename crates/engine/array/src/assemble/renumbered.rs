//! Members that missed an update in which slots get other numbers (`control/levels`), between level 0 and level 10 or with fewer
//! copies at level 1: what they say of slots is put into the numbers of the freshest superblock.
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
        if has_other_copies(own, freshest) {
            own.raid_disks = freshest.raid_disks;
            own.roles.clone_from(&freshest.roles);
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

/// Between the two updates level 1 was given more copies or fewer, in which nothing else changes.
fn has_other_copies(own: &Superblock, freshest: &Superblock) -> bool {
    let mirror = |superblock: &Superblock| Level::from_md(superblock.level) == Some(Level::Raid1);
    mirror(own) && mirror(freshest) && own.raid_disks != freshest.raid_disks
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
