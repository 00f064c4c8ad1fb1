//! A device that was looked at.

use crate::discover::Examined;
use braid_format::superblock::Superblock;
use std::path::PathBuf;

/// A member whose superblock was understood.
pub(super) struct Read {
    pub(super) path: PathBuf,
    pub(super) superblock: Superblock,
    pub(super) examined: Examined,
}

/// A device that is no member, or cannot be one.
pub(super) struct Unfit {
    pub(super) path: PathBuf,
    pub(super) why: String,
    pub(super) code: u8,
}
