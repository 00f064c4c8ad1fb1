//! What the files of projects take, added up while files change.

use braid_filesystem::Ino;
use braid_format::volume::inode::InodeRecord;
use std::collections::BTreeMap;

/// The part of a project that a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The project; 0 for none.
    pub project: u32,
    /// Blocks.
    pub blocks: u64,
}

impl Share {
    /// That of a file.
    pub fn of(record: &InodeRecord) -> Share {
        Share { project: record.project, blocks: record.blocks }
    }
}

/// The sums of a pass over all files, as far as it has come.
pub struct Shares {
    /// Files before this one have been seen.
    to: Ino,
    /// Files from this one on were made since the pass began.
    limit: Ino,
    /// Files and blocks, by project.
    found: BTreeMap<u32, (u64, u64)>,
}

impl Shares {
    /// Nothing was seen; files from `limit` on will be made.
    pub fn new(limit: Ino) -> Shares {
        Shares { to: 0, limit, found: BTreeMap::new() }
    }

    /// The file is counted, so its changes are, too.
    pub(super) fn covers(&self, ino: Ino) -> bool {
        ino < self.to || ino >= self.limit
    }

    /// Files before `to` have been seen.
    pub fn reached(&mut self, to: Ino) {
        self.to = to;
    }

    /// Counts the part of a project that a file is, or was.
    pub fn count(&mut self, share: Option<Share>, is_more: bool) {
        let Some(Share { project, blocks }) = share.filter(|share| share.project != 0) else {
            return;
        };
        let (files, all) = self.found.entry(project).or_default();
        (*files, *all) = match is_more {
            true => (files.wrapping_add(1), all.wrapping_add(blocks)),
            false => (files.wrapping_sub(1), all.wrapping_sub(blocks)),
        };
    }

    /// Files and blocks, by project.
    pub fn found(&self) -> &BTreeMap<u32, (u64, u64)> {
        &self.found
    }
}
