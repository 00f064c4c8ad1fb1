//! NBD: the protocol without I/O ([`protocol`]), the server over it ([`serve`]), a client
//! that is a device ([`client`]), and an export of another server as a device that takes any request
//! ([`RemoteExport`]).
//!
//! The protocol half takes bytes and gives bytes and events; it knows no socket, no device and no
//! executor. The rest moves those bytes over a shard's sockets. Spec references name sections and
//! keywords of the NBD project's `doc/proto.md`.
#![forbid(unsafe_code)]

mod address;
pub mod client;
mod coverage;
mod dial;
mod fitted;
mod member;
pub mod protocol;
mod remote;
mod returning;
pub mod serve;
mod uri;

pub use address::{Address, AddressError, NbdUri};
pub use member::RemoteMember;
pub use remote::RemoteExport;
pub use uri::{DEFAULT_PORT, ExportUri, Place, UriError, UriFault, UriTls};
