//! Real clients of braid: fio, the kernel's own NBD client, a guest's `virtio_blk`, and what goes wrong around them; and disks that two servers reach.
//!
//! One program for all of them, so that tests of several files run side by side.

#![forbid(unsafe_code)]

mod bad_clients;
mod common;
mod exported_by_nfs;
mod fail_overs;
mod fio_verify;
mod guests_disk;
mod guests_root;
mod kernel_nbd_client;
mod reserved_disks;
mod take_overs;
