//! Detects the earlier content of a device (filesystems, partition tables, volumes, members of other arrays), so that
//! `create` can warn before it is overwritten.
//!
//! Owns the position and the checks of each signature. Does not read the device: the caller reads each of [`ranges`] into
//! [`Areas`] and calls [`detect`]. Ranges that could not be read are skipped.
//!
//! Invariant: a signature is reported only for bytes that were given, and no input makes it panic.

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

/// All signatures on a device of `dev_bytes`, sorted by position. Several are common: a GPT has two copies, and an older
/// format leaves signatures that a newer one does not overwrite.
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
