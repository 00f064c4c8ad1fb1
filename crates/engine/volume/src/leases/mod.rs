//! Files that are read on other shards than the volume's, by leases.
//!
//! | file | subject |
//! |---|---|
//! | `lease` | what a lease says: where the bytes of a window of a file lie, and their checksums |
//! | `reader` | the leases of one shard, and reads by them |
//!
//! The volume gives a lease (`files/lease`) while it holds the window shared, of a file that is simple there: one copy of each
//! stripe, on bricks that are there, nothing in doubt, nothing that is newer in memory than on its brick. It says with it
//! which numbers ([`Version`](braid_shard::version::Version)) the file, the bricks and the gate had. From then on
//!
//! - whoever changes bytes of the file, or where they lie, locks them exclusively, which changes the file's number before the lock is had;
//!   so does each change of the size, and the end of the file's life in memory;
//! - a brick that comes, goes or fails changes that of the bricks, and whoever shuts the gate, behind which things are changed
//!   without such locks, that of the gate;
//! - a job that keeps to a pace has to see how long requests take, and changes that of the pace when it begins;
//! - blocks that a lease names come to other files only after they were taken from this one.
//!
//! So a reader that finds all numbers as they were *after* the bytes have come from the brick has read what the volume would have
//! given at that moment. Anything else (another number, an error, a checksum that does not agree) is no answer: the volume is asked for
//! all of the read, and does what is to be done about it.

mod lease;
mod reader;

pub use lease::{LEASED, LeasedBrick, Part, Taken, WindowLease};
pub use reader::{LeaseReader, OpenBrick};
