//! Metadata is walked and held against itself, in both directions: names against files, extents against free space.
//!
//! | file | subject |
//! |---|---|
//! | `control` | start, pause, cancel, progress |
//! | `one` | one check: how far it is, how it ended |
//! | `report` | the findings of a check |
//! | `run` | the passes of a check, one after the other |
//! | `walk` | what a check looks at, and its small steps |
//! | `files` | names against files |
//! | `entries` | what is wrong with the names of a directory, and putting it right |
//! | `attributes` | extended attributes against files |
//! | `sums` | checksums against files |
//! | `extents` | every recorded extent, and the files that they belong to |
//! | `copies` | copies of a stripe against each other |
//! | `lacking` | stripes that have fewer copies than asked |
//! | `common` | common extents against their owners |
//! | `versions` | what snapshots have |
//! | `blocks` | which blocks extents name, against those in use |
//! | `scrub` | all data against its checksums |
//! | `paths` | what a file is called |
//!
//! Files are used while it runs. Each step reads some records as they are at one moment; what of them changes later,
//! whoever changes it tells the [`Watch`](crate::watch::Watch). So the counts of a pass are those of the moment at which they are judged,
//! and nothing waits, but for changes while something that is wrong is looked at again.
//!
//! The memory of a check does not grow with the volume: names are counted for so many files at a time, blocks for so
//! many groups; a larger volume takes more passes. The names of a directory and their order are held against each other
//! by sums over both.
//!
//! Damage that can be repaired without guessing is repaired: blocks that nobody names are freed, blocks that are named
//! are marked, counts are corrected, files without a name go to `/lost+found`.

mod attributes;
mod blocks;
mod common;
mod control;
mod copies;
mod entries;
mod extents;
mod files;
mod lacking;
mod one;
mod paths;
mod projects;
mod report;
mod run;
mod scrub;
mod sums;
#[cfg(test)]
mod tests;
mod versions;
mod walk;

pub use control::Checks;
pub use one::CheckEnd;
pub use report::{CheckReport, Lost};
