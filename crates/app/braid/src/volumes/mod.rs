//! Logical volumes, as the server has them and the commands make them.
//!
//! | file | subject |
//! |---|---|
//! | `name` | what a volume may be called |
//! | `kept` | the bricks of the volumes that this machine knows |
//! | `finding` | which devices are the bricks of a volume |
//! | `examining` | what the superblock of a brick says |
//! | `creating` | new volumes |
//! | `hosted` | one mounted volume, from its start to its end |
//! | `here` | what of it lives on its shard |
//! | `registry` | the volumes that are mounted, and what each request does to them |
//! | `bricks` | bricks that come, change and go |
//! | `jobs` | jobs: started, steered, waited for |
//! | `details` | what mounted volumes say of themselves |
//! | `export`, `file_device` | files of volumes as block devices |
//! | `weight` | the weight of a brick, as people write it |
//! | `background` | a server that is started for a volume |
//!
//! Invariant: a device is open and locked as long as it is a brick of a volume that is mounted here, and no longer.

pub mod background;
mod bricks;
mod checking;
pub mod creating;
mod details;
pub mod examining;
mod export;
mod file_device;
mod finding;
mod here;
mod hosted;
mod jobs;
pub mod kept;
pub mod name;
mod registry;
pub mod weight;

pub use hosted::{Events, Hosted};
pub use registry::{Arrays, Volumes};
