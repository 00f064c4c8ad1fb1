//! Runs of a volume of files: a reference file system, a client that makes random requests of the real one and compares
//! every answer, and crashes.
//!
//! ```text
//!   choose ─► client ──requests──► a FileSystem over simulated bricks
//!               │                        │
//!             model: rules, meta, file   │ power cut, mounted again
//!               │                        ▼
//!               └────────────────► observe, verify: is it what a crash may leave?
//! ```
//!
//! What is promised, and held to here: without a crash every answer is the only right one. After a crash names
//! and attributes are those of one moment, which is not before the last fsync or sync that was acknowledged; every
//! sector of a file is as it was at some moment since that file's last fsync; nothing of another file, nor of an
//! older one, is ever in it.
//!
//! In most runs bricks come and go meanwhile and jobs move stripes (`jobs`). That changes nothing of the above, nor
//! does it fail; the volume's own check finds nothing after each mount, beside requests, and when all jobs are done.
//! Before each mount `ledger` reads the records alone: what is named is there, once, and nothing of a removed brick.
//!
//! Some runs do on purpose what chance seldom does just so (`aimed`); at their end every block is accounted for (`account`),
//! and a record is damaged, which the volume's check must find (`damage`). In some a block of a file rots in the
//! end, which a scrub must name (`rot`).
//!
//! Some runs also draw the calls that came last (`later`): files without a name, whiteouts, the attributes that chattr(1)
//! sets, access control lists (`access_list`), trims, limits of projects (`limits`). The others are as they were before there were any.
//!
//! In some runs bricks fail (`failures`): requests on data may then give EIO. What a brick has taken with it cannot be
//! read until it is back, and is what it was then; all else is as above, and the check names exactly that.
//!
//! In runs of a kind of their own files have copies (`copies`), and bricks that failed may come back: what any copy has that is not
//! on a failed brick is read, and is what was written last. At the end of those in which one brick fails it takes along what was just
//! written over (`lost_copy`).
//!
//! In half of the lives some reads are made as another shard makes them, by leases (`leased`): of that nothing is seen either.
//!
//! In runs of another kind snapshots are taken (`snapshots`), of all or of a folder, and removed: each shows the files of one moment,
//! whatever happens to them, and when all are gone nothing is left of them. What they show has all its copies (`seen_copies`).
//!
//! In some runs bricks are arrays, on several shards, whose own members fail (`over_arrays`): of that a volume sees nothing.

pub mod access_list;
mod account;
mod aimed;
pub mod array_bricks;
pub mod call;
mod choose;
pub mod client;
mod copies;
mod copies_plan;
mod cut;
mod damage;
pub mod expected;
pub mod extents;
mod failures;
pub mod file;
mod history;
pub mod holders;
mod jobs;
mod later;
mod leased;
pub mod ledger;
mod limits;
mod lost_copy;
#[cfg(test)]
mod memory;
pub mod meta;
pub mod model;
mod numbers;
pub mod observe;
mod over_arrays;
pub mod plan;
pub mod project_limits;
pub mod readable;
pub mod rights;
pub mod room;
mod rot;
pub mod rules;
mod run;
pub mod seen;
mod seen_copies;
mod snapshots;
mod snapshots_plan;
pub mod stamp;
mod taken;
pub mod verify;

pub use numbers::{OpNr, Tick};
pub use plan::Scope;
pub use run::run;

#[cfg(test)]
mod tests;
