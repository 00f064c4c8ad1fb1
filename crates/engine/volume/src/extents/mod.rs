//! Where the bytes of files lie.
//!
//! | file | subject |
//! |---|---|
//! | `map` | the map: extents are found, reserved, published and freed |
//! | `placement` | which brick a new stripe goes to |
//! | `reservation` | blocks that are to become an extent |
//! | `group` | the extents of one file that are in memory |
//! | `stripe` | a stripe with its copies |
//! | `versions` | extents that snapshots have |
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
mod group;
mod map;
mod placement;
mod reservation;
mod space;
mod stripe;
#[cfg(test)]
mod tests;
mod trim;
mod versions;
mod words;

pub use brick::{Brick, BrickCounts};
pub use bricks::{Bricks, NoteLost};
pub use group::FileExtents;
pub use map::{ExtentMap, MapOf, Relief, Replaced, Wants, Work};
pub use reservation::Reservation;
pub use space::{Differences, Space, SpaceError};
pub use stripe::{Avoid, Stripe};
pub use trim::trim;
