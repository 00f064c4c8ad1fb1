//! The md superblock, versions 0.90, 1.0, 1.1 and 1.2: one per member, it describes the array and this
//! member's role in it.
//!
//! Owns the meaning of every field ([`Superblock`], in `fields`) and the checks made on reading. `raw` has the byte
//! layout of 1.x, `parse` reads it and `write` writes it; `v0` reads and writes 0.90. Does not read a device: the caller
//! reads 4096 bytes at each of [`candidates`], parses each and lets [`choose`] decide.
//!
//! Invariant: feature bits are derived from the fields, never stored beside them.
//!
//! Source of the format: Linux `include/uapi/linux/raid/md_p.h` (`struct mdp_superblock_1`) and
//! `drivers/md/md.c`.

mod areas;
mod error;
mod features;
mod fields;
mod locate;
mod name;
mod parse;
mod raw;
mod role;
mod slots;
mod time;
mod v0;
mod v0_fields;
mod version;
mod write;

pub use areas::{Area, Use};
pub use error::SuperblockError;
pub use features::Features;
pub use fields::{CLEAN, Leftover, Ppl, READ_LEN, Reshape, Superblock};
pub use locate::{candidates, choose, location, v0_shared_with};
pub use name::{Name, NameError};
pub use role::Role;
pub use time::{pack_time, time_micros, time_seconds};
pub use v0::{V0_BITMAP_OFFSET, V0_SIZE_MAX};
pub use v0_fields::{V0, V0Device};
pub use version::{MAX_ROLES, V0_DISKS, Version, VersionError};
pub use write::role_table_len;
