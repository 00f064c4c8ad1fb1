//! NBD: the protocol without I/O ([`protocol`]), and the server over it.
//!
//! The protocol half takes bytes and gives bytes and events; it knows no socket, no device and no
//! executor. Spec references name sections and keywords of the NBD project's `doc/proto.md`.
#![forbid(unsafe_code)]

pub mod protocol;
