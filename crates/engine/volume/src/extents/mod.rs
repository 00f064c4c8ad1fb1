//! Where the bytes of files lie.
//!
//! | file | subject |
//! |---|---|
//! | `map` | the map: extents are found, reserved, published and freed |
//! | `placement` | which brick a new stripe goes to |
//! | `reservation` | blocks that are to become an extent |
//! | `group` | the extents of one file that are in memory |
//! | `stripe` | a stripe with its copies |
//! | `relief` | who makes room in the background |
//! | `room` | blocks are reserved where there are some |
//! | `versions` | extents that snapshots have |
//! | `seen` | what snapshots see of a stripe gets copies that it lacks |
//! | `owners` | which stripes have a common extent, and when nobody has it any more |
//! | `common` | extents become common, move with all their owners, and are freed |
//! | `bricks`, `brick` | the devices: requests, flushes, failures |
//! | `space` | the free blocks of one brick |
//! | `words` | bitmaps of blocks |
//! | `trim` | free space told to the devices |
//!
//! Invariants: an extent in a durable transaction names blocks that were written and flushed before it; blocks that were
//! freed are not written to before the transaction that freed them is durable. Nobody outside this folder takes or frees
//! a block, or changes an extent.

mod brick;
mod bricks;
mod common;
mod group;
mod map;
mod owners;
mod placement;
mod relief;
mod reservation;
mod room;
mod seen;
mod space;
mod stripe;
#[cfg(test)]
mod tests;
mod trim;
mod versions;
mod words;

pub use brick::{Brick, BrickCounts};
pub use bricks::{Bricks, NoteLost};
pub use common::Naming;
pub use group::FileExtents;
pub use map::{ExtentMap, MapOf, Replaced};
pub use owners::{Common, Owner};
pub use relief::{Relief, Work};
pub use reservation::Reservation;
pub use room::Wants;
pub use seen::Seen;
pub use space::{Differences, Space, SpaceError};
pub use stripe::{Avoid, Stripe};
pub use trim::trim;
