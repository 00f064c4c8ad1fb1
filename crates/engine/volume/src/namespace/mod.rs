//! Names and files: directories, links, attributes, who has a file open.
//!
//! | file | subject |
//! |---|---|
//! | `tree` | the names of a volume, as a part of it |
//! | `entries` | entries of one directory: found, added, taken away |
//! | `make` | new files and links |
//! | `remove` | names that go |
//! | `rename` | names that change |
//! | `read_dir` | directories read in order |
//! | `attributes` | attributes that are set |
//! | `xattrs` | extended attributes |
//! | `access_lists` | access control lists, of which the mode is a part |
//! | `flags` | the attributes that chattr(1) sets, and what they forbid |
//! | `snapshots` | files as they were in a snapshot, and the folder that lists snapshots |
//! | `rules` | names that are refused, and the room that one takes |
//! | `known_names` | names that are known without asking the store |
//! | `name_prints` | the names of a large directory as hashes |
//! | `inodes`, `inode` | the files in memory, and one of them |
//! | `orphans` | files that wait to be removed, or to lose what is beyond their ends |

mod access_lists;
mod attributes;
mod entries;
mod flags;
mod inode;
mod inodes;
mod known_names;
mod make;
mod name_prints;
mod orphans;
mod read_dir;
mod remove;
mod rename;
mod rules;
mod snapshots;
#[cfg(test)]
mod tests;
mod tree;
mod xattrs;

pub use flags::{may_be_allocated, may_be_opened, may_be_set, may_be_written};
pub use inode::{Inode, nibble_of, stamp};
pub use inodes::{Clock, Inodes};
pub use orphans::Orphans;
pub use rules::clear_setid_bits;
pub use snapshots::{may_change, see_copies};
pub use tree::{Namespace, next_cookie_after};
