//! Logical volumes, as the server has them and the commands make them.
//!
//! | file | subject |
//! |---|---|
//! | `name` | what a volume may be called |
//! | `kept` | the bricks of the volumes that this machine knows |
//! | `finding` | which devices are the bricks of a volume |
//! | `looking` | the same for a command that changes nothing |
//! | `examining` | what the superblock of a brick says |
//! | `salvaging` | files copied off bricks in any state |
//! | `creating` | new volumes |
//! | `hosted` | one mounted volume, from its start to its end |
//! | `here` | what of it lives on its shard |
//! | `leased` | only the host that has a volume's lease mounts it |
//! | `registry` | the volumes that are mounted |
//! | `answering` | what each request does to them |
//! | `arrays` | the arrays of the server, which may be bricks |
//! | `inside` | paths from the root of a volume |
//! | `tell` | who is told of progress |
//! | `bricks` | bricks that come, change and go |
//! | `lost`, `returning` | bricks that were lost and are used again: on the shard, also by themselves; by command |
//! | `jobs` | jobs: started, steered, waited for |
//! | `quotas`, `snapshots` | limits and snapshots of folders |
//! | `details` | what mounted volumes say of themselves |
//! | `domains` | whether copies are in distinct domains |
//! | `export`, `exported`, `file_device` | files of volumes as block devices |
//! | `unmounted` | volumes that are not mounted: checked, renamed, destroyed |
//! | `background` | a server that is started for a volume |
//!
//! Invariant: a device is open and locked as long as it is a brick of a volume that is mounted here, and no longer.

mod answering;
mod arrays;
pub mod background;
mod bricks;
mod checking;
pub mod creating;
mod details;
mod domains;
pub mod examining;
mod export;
mod exported;
mod file_device;
mod finding;
mod here;
mod hosted;
mod inside;
mod jobs;
pub mod kept;
mod leased;
pub mod looking;
mod lost;
pub mod name;
mod quotas;
mod registry;
mod returning;
pub mod salvaging;
mod snapshots;
mod tell;
mod unmounted;

pub use arrays::Arrays;
pub use hosted::{Events, Hosted};
pub use registry::Volumes;
