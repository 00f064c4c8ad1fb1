//! NBD: the protocol without I/O ([`protocol`]), the server over it ([`serve`]), and a client
//! that is a device ([`client`]).
//!
//! The protocol half takes bytes and gives bytes and events; it knows no socket, no device and no
//! executor. The rest moves those bytes over a shard's sockets. Spec references name sections and
//! keywords of the NBD project's `doc/proto.md`.
#![forbid(unsafe_code)]

mod address;
pub mod client;
pub mod protocol;
pub mod serve;
mod stream;

pub use address::{Address, AddressError};
