//! NVMe/TCP: targets as NVMe namespaces of hosts that connect over TCP.
//!
//! [`protocol`] is the protocol as bytes, without I/O; `serve` puts it on sockets and a `Target`.
#![forbid(unsafe_code)]

pub mod protocol;
mod serve;

pub use braid_export::{Address, AddressError};
pub use serve::{
    HostSecrets, Limits, ListenError, MEMORY_MIN, REQUEST_BYTES_MAX, ServeError, Server,
};
