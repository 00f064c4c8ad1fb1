//! Tests that need a newer kernel's drivers: Linux 6.12 under QEMU.
//!
//! One program for all of them: a guest has one processor, and tests of several files run side by side.

#![forbid(unsafe_code)]

mod nbd_grows;
mod nvme;
mod rig;
mod ublk;
mod ublk_doors;
mod vhost;
