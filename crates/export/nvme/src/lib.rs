//! NVMe/TCP: targets as NVMe namespaces of hosts that connect over TCP.
//!
//! [`protocol`] is the protocol as bytes, without I/O; `serve` puts it on sockets and a `Target`.
#![forbid(unsafe_code)]

mod address;
pub mod protocol;
mod serve;

pub use address::{Address, AddressError};
pub use serve::{
    HostSecrets, Limits, ListenError, MEMORY_MIN, REQUEST_BYTES_MAX, ServeError, Server,
};
