//! A server takes over from another: the new process gets the sockets and the connected clients of the old one.
//!
//! ```text
//!  new process                                    old process
//!  control socket: take_over at SOCKET    ──►
//!                                         ◄──     connects to SOCKET: hello, its arguments, its members
//!  starts its shards; prepared            ──►     answers what it has taken, stops its arrays
//!                                         ◄──     given: listening sockets, clients, the control socket
//!  starts the arrays, opens its doors; ready ──►
//!                                         ◄──     go; ends
//!  goes on with the clients
//! ```
//!
//! Until `go` the old process can go back: when the new one fails or says nothing, it starts its arrays again and goes on with
//! its clients. Invariant: at no time do both have arrays.
//!
//! | file | subject |
//! |---|---|
//! | `channel` | messages and descriptors between the two |
//! | `giving` | the side of the old process |
//! | `taking` | the side of the new one |
//! | `successor` | the new process is started by the old one |

mod channel;
pub mod giving;
pub mod successor;
pub mod taking;

use braid_export::{Listening, Passed};
use std::os::fd::OwnedFd;

/// All that goes from one process to the other, or back.
pub struct Given {
    /// The control socket.
    pub control: OwnedFd,
    /// A service manager has made that one.
    pub managed: bool,
    /// The sockets that clients connect to, each after the name of its protocol.
    pub listening: Vec<(String, Listening)>,
    /// The clients that are connected, likewise.
    pub clients: Vec<(String, Passed)>,
}

impl Given {
    /// Takes out the socket of a protocol that listens at `address`.
    pub fn take_listening(&mut self, protocol: &str, address: &str) -> Option<Listening> {
        let found = |(of, one): &(String, Listening)| of == protocol && one.address == address;
        let at = self.listening.iter().position(found)?;
        Some(self.listening.swap_remove(at).1)
    }
}
