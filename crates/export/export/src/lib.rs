//! The doors of a server, as the server uses them.
//!
//! A door is a protocol by which clients reach targets: NBD, vhost-user-blk. The [`Export`] trait is all that a server
//! needs of one: offer a target and withdraw it, name the clients, stop in order. [`Doors`] are all the doors of a
//! server as one. [`socket_file`] makes the unix sockets that doors listen on.
//!
//! Doors that serve sockets on shards have the same frame: an [`Acceptor`] takes connections of those who are [`Allowed`], the [`Register`] bounds and
//! ends them, [`Connections`] holds them for a drain, [`stream`] moves their bytes, [`memory`] bounds what all of them hold.
//! [`tls`] is what a server proves itself with where connections are encrypted, and [`pace`] bounds what handshakes cost others. [`unaligned`] is for clients that count in
//! bytes; a [`gate`] keeps others' writes away meanwhile.
//!
//! It knows no protocol, and no target beyond its name.
#![forbid(unsafe_code)]

mod accept;
mod address;
mod allowed;
mod client;
mod connections;
pub mod deadline;
mod disk;
mod doors;
mod export;
pub mod gate;
mod listener;
mod listeners;
pub mod memory;
pub mod pace;
mod peer;
mod register;
pub mod socket_file;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod unaligned;

pub use accept::{Accept, Acceptor, Serve};
pub use address::{Address, AddressError};
pub use allowed::{Allowed, Network, NetworkError};
pub use client::{CLIENTS, Client, Figures, Traffic};
pub use connections::{Connections, Hold};
pub use disk::Disk;
pub use doors::Doors;
pub use export::{Export, HandOverError, Limits, Listening, OfferError, Passed, PassedError};
pub use listener::{ListenError, Listener};
pub use listeners::Listeners;
pub use peer::peer;
pub use register::{Connected, Listens, Register};
