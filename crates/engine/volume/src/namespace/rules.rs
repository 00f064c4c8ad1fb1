//! Names that are refused, the room that a name takes, and the bits of a mode that go when a file changes hands.

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

/// Clears the bits of a mode that a write by an unprivileged user clears: setuid, and setgid where it means a group.
pub fn clear_setid_bits(perm: &mut u16) {
    *perm &= !0o4000;
    if *perm & 0o010 != 0 {
        *perm &= !0o2000;
    }
}
