//! What a server does with any of its doors.
//!
//! A door is a protocol by which clients reach targets: NBD, vhost-user-blk. The [`Export`] trait is all that a server
//! needs of one: offer a target and withdraw it, name the clients, stop in order. [`Doors`] are all the doors of a
//! server as one. [`socket_file`] makes the unix sockets that doors listen on.
//!
//! It knows no protocol, and no target beyond its name.
#![forbid(unsafe_code)]

mod client;
mod doors;
mod export;
pub mod socket_file;

pub use client::{Client, Figures, Traffic};
pub use doors::Doors;
pub use export::{Export, HandOverError, Limits, Listening, OfferError};
