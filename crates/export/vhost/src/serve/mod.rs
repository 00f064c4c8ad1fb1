//! The door: front ends of virtual machines on unix sockets.
//!
//! ```text
//!  acceptor ──► connection on shard 0, 1, 2, … in turn
//!     messages: socket -> decoder -> session          one task
//!     queue n:  kick -> ring -> device.submit         one task for each queue
//!     caller n: what has ended -> the guest's eventfd one task for each queue
//! ```
//!
//! A socket is one disk: the protocol has no names. No thread is the door's own: kicks and calls are operations of the
//! shard's ring.
//!
//! Invariant: what one client does never ends another's connection. A client that comes back finds its requests carried
//! out once: a ring is one connection's until its requests have ended (`claims`).

mod channel;
mod claims;
mod connection;
mod door;
mod execute;
mod hub;
mod offer;
mod running;
mod session;

pub use door::{ServeError, Server};
pub use offer::Limits;
