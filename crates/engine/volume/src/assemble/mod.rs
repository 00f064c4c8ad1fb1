//! Bricks become a volume: what a device holds, how a new volume is laid out, which bricks belong together, and what their
//! superblocks say while it is mounted.
//!
//! | file | subject |
//! |---|---|
//! | `examine` | the two superblocks of a device |
//! | `plan`, `create` | where things go on new bricks; making a volume |
//! | `choose` | which bricks that were found make up a volume |
//! | `superblocks` | writing the superblocks of a mounted volume |
//! | `store` | the metadata store over the bricks' regions |
//! | `open` | all of that for a mount |
//! | `unmounted` | a volume that is not mounted gets another name, or an end |

mod choose;
mod create;
mod error;
mod examine;
mod open;
mod plan;
mod store;
mod superblocks;
#[cfg(test)]
mod tests;
mod unmounted;

pub use choose::{AssembleOptions, Assembly, assemble};
pub use create::create;
pub use error::{AssembleError, BrickOf};
pub use examine::{FoundBrick, examine, examine_to_save};
pub use open::{Opened, open};
pub use plan::{BrickPlan, CreatePlan, NewVolume, plan_create, weight_of};
pub use store::BrickStore;
pub use superblocks::Superblocks;
pub use unmounted::{erase_brick, rename};
