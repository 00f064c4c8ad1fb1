//! Metadata is walked and held against itself, in both directions: names against files, places against free space.
//!
//! | file | subject |
//! |---|---|
//! | `run` | the passes of a check, one after the other, in small steps |
//! | `watch` | what was seen of the part under way, kept true while files change |
//! | `files` | names against files |
//! | `entries` | what is wrong with the names of a directory, and putting it right |
//! | `attributes` | extended attributes against files |
//! | `places` | every recorded place, and the files that they belong to |
//! | `blocks` | which blocks places name, against those in use |
//! | `paths` | what a file is called |
//!
//! Files are used while it runs. Each step reads some records as they are at one moment; what of them changes later,
//! whoever changes it tells the [`Watch`]. So the counts of a pass are those of the moment at which they are judged,
//! and nothing waits, but for changes while something that is wrong is looked at again.
//!
//! What is kept in memory does not grow with the volume: names are counted for so many files at a time, blocks for so
//! many groups; a larger volume takes more passes. The names of a directory and their order are held against each other
//! by sums over both.
//!
//! What can be repaired without guessing is: blocks that nobody names are freed, blocks that are named are marked, counts
//! are corrected, files without a name go to `/lost+found`.

mod attributes;
mod blocks;
mod entries;
mod files;
mod paths;
mod places;
mod run;
mod watch;

pub(crate) use run::Halt;
pub(crate) use watch::Watch;

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

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files of all kinds.
    pub files: u64,
    /// Of them directories.
    pub directories: u64,
    /// Stripes that have a place.
    pub stripes: u64,
    /// Bytes that their places take.
    pub bytes: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// How many problems there are, also those that are not told.
    pub found: u64,
    /// How many of them were repaired.
    pub repaired: u64,
    /// Blocks in use that nobody names.
    pub leaked_blocks: u64,
    /// What lies on bricks that are not there.
    pub lost: Vec<Lost>,
}

impl CheckReport {
    fn problem(&mut self, repaired: bool, text: String) {
        self.found += 1;
        self.repaired += u64::from(repaired);
        if self.problems.len() < TOLD_MAX {
            self.problems.push(text);
        }
    }

    /// Nothing is wrong that was not repaired, and nothing is lost.
    pub fn is_clean(&self) -> bool {
        self.found == self.repaired && self.lost.is_empty()
    }
}
