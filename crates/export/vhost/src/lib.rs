//! vhost-user-blk: targets as disks of virtual machines.
//!
//! A virtual machine's monitor (the *front end*: QEMU, cloud-hypervisor, User Mode Linux) connects to a unix socket, and
//! passes the guest's memory and an eventfd for each queue over it. From then on the guest's driver and the shard talk
//! through rings in that memory: a request costs neither of them a message.
//!
//! [`protocol`] is the messages on the socket as bytes, [`memory`] the guest's memory, [`queue`] a ring in it, `blk` the
//! requests of a disk, `serve` the door. References are to "Vhost-user Protocol" in QEMU's documentation
//! (docs/interop/vhost-user.rst) and to the Virtual I/O Device specification, version 1.2.
//!
//! The guest may change its memory at any time. So nothing is looked at twice: descriptors and headers are copied before
//! they are judged, and the payload of a write is copied into a buffer of the shard before parity is computed from it.
#![deny(unsafe_code)]

mod blk;
#[allow(unsafe_code)]
mod fault;
pub mod inflight;
pub mod memory;
pub mod protocol;
pub mod queue;
mod serve;

pub use blk::request::Job;
pub use serve::{Limits, ServeError, Server};
