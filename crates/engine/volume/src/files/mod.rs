//! The bytes of files: how they are read, written, cut and moved.
//!
//! | file | subject |
//! |---|---|
//! | `part` | what this part is made of |
//! | `read` | reading |
//! | `lease` | what another shard needs to read a window of a file by itself |
//! | `write` | writing: resolve once, submit, publish |
//! | `resolve` | the extents of a write, found or made under the lock of its range |
//! | `payload` | the bytes of a write, completed to whole blocks |
//! | `verify` | what comes from a brick is held against its checksums |
//! | `choose` | which copy of a stripe is read |
//! | `copies` | copies are made, filled and freed |
//! | `missed` | copies that only what snapshots see lacks |
//! | `settle` | after a crash: copies and checksums that are in doubt are put right |
//! | `settling` | whether that is under way |
//! | `scrub` | all of a range is held against its checksums |
//! | `shared` | stripes that a snapshot has, too: written elsewhere, moved with all their owners |
//! | `common` | stripes that share an extent with other stripes |
//! | `copying` | a range of a file is copied to another, by sharing where that can be |
//! | `cut` | truncating, the unaligned tail of a file, removing what is beyond it |
//! | `allocate` | reserved space, holes, zeroes |
//! | `seek` | the next data, the next hole |
//! | `moving` | a stripe goes to another extent |
//! | `removal` | files that nobody can reach any more |

mod allocate;
mod choose;
mod common;
mod copies;
mod copying;
mod cut;
mod lease;
mod missed;
mod moving;
mod part;
mod payload;
mod read;
mod removal;
mod resolve;
mod scrub;
mod seek;
mod settle;
mod settling;
mod shared;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use missed::Lacking;
pub use moving::Moved;
pub use part::Files;
pub use scrub::Scrubbed;
