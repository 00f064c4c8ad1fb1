//! The tree of names.
//!
//! | file | subject |
//! |---|---|
//! | `entries` | entries of one directory: found, added, taken away |
//! | `known` | names that were looked for lately, directories that are known as a whole |
//! | `make` | new files and links |
//! | `remove` | names that go |
//! | `rename` | names that change |
//! | `read_dir` | directories read in order |
//! | `xattrs` | extended attributes |

mod entries;
mod known;
mod make;
mod read_dir;
mod remove;
mod rename;
mod xattrs;

use braid_filesystem::{Errno, NAME_MAX};
pub(crate) use entries::next_cookie_after;
pub(crate) use known::KnownNames;

/// Refuses what cannot be a name.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::Invalid);
    }
    Ok(())
}

/// Bytes of metadata that a new entry of that name takes, about: it is recorded twice.
fn entry_bytes(name: &[u8]) -> u64 {
    2 * name.len() as u64 + 256
}

/// `.` and `..`, which are never made, removed or renamed.
fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
