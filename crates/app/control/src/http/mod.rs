//! HTTP/1.1 as the server speaks it: over calls that wait, a thread for each connection, everything bounded.
//!
//! | file | subject |
//! |---|---|
//! | `stream` | a connection: a Unix socket, TCP, TLS over it |
//! | `request` | a request as it comes in |
//! | `reply` | the answer: as a whole, or line by line while it is being made |
//! | `conversation` | request after request on one connection |
//! | `server` | a listening address, with a thread for each connection |
//! | `response` | the other side: an answer as it comes in |
//! | `encoding` | the parts of a URL |
//!
//! Heads are parsed by httparse. Does not know what is asked and answered. Invariant: a peer that sends garbage, nothing or
//! too much gets an error or is hung up on, and harms nobody else.

mod conversation;
pub mod encoding;
pub mod reply;
pub mod request;
pub mod response;
pub mod server;
pub mod stream;

pub use conversation::{Ended, Limits, converse, plainly, turn_away};
