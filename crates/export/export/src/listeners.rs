//! The listening sockets of a door from outside: handed over to a successor, or ended with all that came through them.
//!
//! Owns a descriptor of each, beside the one that its acceptor has. Invariant: a socket that was handed over is neither shut
//! down nor asked for a second time.

use crate::accept::end_acceptors;
use crate::{Connections, HandOverError, Listening, Register};
use braid_shard::mailbox::Remote;
use rustix::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time that a hand-over waits for the acceptors.
const ACCEPTORS_WAIT: Duration = Duration::from_secs(1);
/// The time that a stop waits for requests in flight.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// See the module's documentation.
pub struct Listeners {
    /// The protocol, as messages write it.
    protocol: &'static str,
    register: Arc<Register>,
    shards: Vec<Remote>,
    /// Empty once they were handed over.
    all: Mutex<Vec<Listening>>,
}

impl Listeners {
    /// Those of the door with this register, whose connections are on `shards`. `protocol` is its name as messages write it.
    #[must_use]
    pub fn new(
        protocol: &'static str,
        register: &Arc<Register>,
        shards: &[Remote],
        all: Vec<Listening>,
    ) -> Listeners {
        let register = Arc::clone(register);
        Listeners { protocol, register, shards: shards.to_vec(), all: Mutex::new(all) }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Listening>> {
        // Every change of the list is a single call, so a panic elsewhere leaves it whole.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives them to a successor and ends their acceptors: [`Export::hand_over`](crate::Export::hand_over) of a door. Must not
    /// be called on a shard's thread.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated; nothing was changed then.
    pub fn hand_over(&self) -> Result<Vec<Listening>, HandOverError> {
        let mut all = self.all();
        let copies = all.iter().map(|Listening { address, socket }| {
            let address = address.clone();
            match socket.try_clone() {
                Ok(socket) => Ok(Listening { address, socket }),
                Err(source) => Err(HandOverError { address, source }),
            }
        });
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
        end_acceptors(&self.shards, &self.register);
        all.clear();
        if self.register.wait_for_listeners(ACCEPTORS_WAIT) > 0 {
            tracing::warn!("{} listeners have not ended after a second", self.protocol);
        }
        Ok(copies)
    }

    /// Ends them and every connection, and waits for requests that devices still have: [`Export::stop`](crate::Export::stop) of
    /// a door. A second call does nothing.
    pub fn stop(&self) {
        // Shards are not asked again: they may have ended by then, with a request that a member does not answer.
        if !self.register.close() {
            return;
        }
        Connections::stop_all(&self.shards, &self.register);
        for Listening { socket, .. } in self.all().iter() {
            shut(socket);
        }
        let left = self.register.wait(STOP_WAIT);
        if left > 0 {
            let protocol = self.protocol;
            tracing::warn!(
                left,
                "{protocol} connections still wait for their devices after ten seconds"
            );
        }
    }
}

fn shut(socket: &OwnedFd) {
    // A listener that failed has ended already.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}
