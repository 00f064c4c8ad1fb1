//! The check of the number of slots, which is the same in all versions.

use super::error::SuperblockError;
use super::fields::Superblock;
use super::version::{MAX_ROLES, V0_DISKS, Version};

/// Refuses a number of slots beyond what the role table can hold. The engine allocates memory for each slot, so a damaged
/// number must be refused here.
/// Linux has the same limit (`max_disks` in `md.c`) and so has 0.90 with its 27 entries.
pub(super) fn check_slots(sb: &Superblock, at: u64) -> Result<(), SuperblockError> {
    let (most, must) = match sb.version {
        Version::V0_90 => (V0_DISKS as i64, "from 1 to 27"),
        _ => (MAX_ROLES as i64, "from 1 to 1920"),
    };
    let slots = 1..=most;
    if !slots.contains(&sb.raid_disks.into()) {
        let found = sb.raid_disks.into();
        return Err(SuperblockError::Field { at, field: "raid_disks", found, must });
    }
    let Some(reshape) = sb.reshape else { return Ok(()) };
    let before = i64::from(sb.raid_disks) - i64::from(reshape.delta_disks);
    if !slots.contains(&before) {
        let (field, found) = ("raid_disks less delta_disks", before.unsigned_abs());
        return Err(SuperblockError::Field { at, field, found, must });
    }
    Ok(())
}
