//! The findings of a check.

use braid_filesystem::Ino;

/// Problems that are told one by one; further ones are only counted.
const TOLD_MAX: usize = 1000;

/// A range of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub ino: Ino,
    /// A name of it, from the root.
    pub path: String,
    /// Ranges in bytes, first and after the last.
    pub ranges: Vec<(u64, u64)>,
}

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files of all kinds.
    pub files: u64,
    /// Of them directories.
    pub directories: u64,
    /// Stripes that have an extent.
    pub stripes: u64,
    /// Bytes that their extents take.
    pub bytes: u64,
    /// The problems, in words.
    pub problems: Vec<String>,
    /// The number of problems, including those that are not listed.
    pub found: u64,
    /// The number of them that were repaired.
    pub repaired: u64,
    /// Blocks in use that nobody names.
    pub leaked_blocks: u64,
    /// Stripes of files, and of what snapshots see of them, that have fewer copies than asked, or copies that miss something.
    pub lacking: u64,
    /// The data that lies on missing bricks, or cannot be read.
    pub lost: Vec<Lost>,
    /// It was a scrub.
    pub scrub: bool,
    /// Of a scrub: the data that is not what was written.
    pub rotten: Vec<Lost>,
    /// Of a scrub: the data that one copy did not have as it was written, and was given by another.
    pub mended: Vec<Lost>,
    /// Of a scrub: bytes that had no checksum, and have one now.
    pub sealed: u64,
}

impl CheckReport {
    /// Counts a problem, and tells it while there are not too many.
    pub fn problem(&mut self, repaired: bool, text: String) {
        self.found += 1;
        self.repaired += u64::from(repaired);
        if self.problems.len() < TOLD_MAX {
            self.problems.push(text);
        }
    }

    /// Nothing is wrong that was not repaired, nothing is lost, and nothing is rotten.
    pub fn is_clean(&self) -> bool {
        self.found == self.repaired && self.lost.is_empty() && self.rotten.is_empty()
    }
}

/// One lost range more.
pub fn lose(report: &mut CheckReport, ino: Ino, range: (u64, u64)) {
    add(&mut report.lost, ino, range);
}

/// One range more, behind those that are there.
pub fn add(list: &mut Vec<Lost>, ino: Ino, range: (u64, u64)) {
    match list.last_mut().filter(|lost| lost.ino == ino) {
        Some(lost) => match lost.ranges.last_mut().filter(|last| last.1 == range.0) {
            Some(last) => last.1 = range.1,
            None => lost.ranges.push(range),
        },
        None => list.push(Lost { ino, path: String::new(), ranges: vec![range] }),
    }
}
