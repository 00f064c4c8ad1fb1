//! Earlier content of a device: filesystems, partition tables, volumes, members of other arrays. So that
//! `create` can show it before it is lost.
//!
//! Owns where each format has its signature and how to tell it. Does not read the device: the caller
//! reads each of [`ranges`] into [`Areas`] and calls [`detect`]. What could not be read is not judged.
//!
//! Invariant: a signature is reported only for bytes that were given; nothing given makes it panic.

mod areas;
mod boot_sectors;
mod filesystems;
mod found;
mod raid;
mod tables;
mod volumes;

pub use areas::{Areas, ranges};
pub use found::Signature;
pub use raid::{Container, ContainerError, refuse_container};
pub use tables::partitions;

use areas::Device;

/// Everything that is recognised on a device of `dev_bytes`, by position. Several are usual: a GPT has two
/// copies, and formats that were not wiped show through.
pub fn detect(dev_bytes: u64, areas: &Areas) -> Vec<Signature> {
    let device = Device { bytes: dev_bytes, areas };
    let mut found = Vec::new();
    filesystems::probe(&device, &mut found);
    boot_sectors::probe(&device, &mut found);
    volumes::probe(&device, &mut found);
    raid::probe(&device, &mut found);
    tables::probe(&device, &mut found);
    found.sort_by_key(|signature| signature.at);
    found
}
