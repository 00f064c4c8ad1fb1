//! Names that are refused, and the room that a name takes.

use braid_filesystem::{Errno, NAME_MAX};

/// Refuses what cannot be a name.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::Invalid);
    }
    Ok(())
}

/// Bytes of metadata that a new entry of that name takes, about: it is recorded twice.
pub(super) fn entry_bytes(name: &[u8]) -> u64 {
    2 * name.len() as u64 + 256
}

/// `.` and `..`, which are never made, removed or renamed.
pub(super) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
