//! The server: targets as subsystems of NVMe hosts, connections spread over shards.
//!
//! ```text
//!  acceptor ──► connection on shard 0, 1, 2, … in turn: an admin queue, or an I/O queue of a controller
//!     reader:  socket -> decoder -> commands, data          one task
//!     starter: commands that wait for memory -> device      one task
//!     writer:  what has ended -> one vectored send          one task
//! ```
//!
//! A command whose data does not come with it waits for memory, then the host is told to send it (R2T). The reader itself
//! waits for memory only for data that is behind the command in its capsule, and then at most until one of its own commands
//! has ended: data that other commands of the connection wait for may be behind it in the socket.
//!
//! It does not know levels or members. Invariant: what one host does never ends another's connection, and after a stop no
//! socket, file or task is left.

mod admin;
mod authentication;
mod connection;
mod controller;
mod execute;
mod limits;
mod queue;
mod server;
mod subsystems;
mod watch;
mod work;
mod writer;

pub use braid_export::ListenError;
pub use limits::{HostSecrets, Limits, MEMORY_MIN, REQUEST_BYTES_MAX};
pub use server::{ServeError, Server};
