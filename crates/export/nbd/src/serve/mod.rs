//! The server: targets offered by name on unix and TCP sockets, connections spread over shards.
//!
//! Owns listeners and the register of connections. Does not know levels or members: it sees
//! [`Target`]s only. Invariant: what one client does never ends another's connection, and after
//! [`Server::stop`] no socket, file or connection task is left.
//!
//! ```text
//!  listener (shard 0) --accept--> connection on shard 0, 1, 2, ... in turn
//!     reader: socket -> decoder -> device.submit        one task
//!     writer: outcomes -> one vectored send             one task
//! ```

mod clients;
mod connection;
mod exports;
mod gate;
mod limits;
mod listener;
mod memory;
mod offer;
mod register;
mod replies;
mod unaligned;

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use braid_device::Target;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::ring::RingOp;
use rustix::net::Shutdown;

use crate::Address;
pub use crate::protocol::ExportTableError;
pub use clients::Client;
pub use limits::{Limits, MEMORY_MIN};
pub use listener::ListenError;
use listener::Listener;
use memory::{Memory, Shared};
use offer::Offer;
use register::Register;

/// The time that [`Server::stop`] waits for requests in flight.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// Pause after a failed accept (out of descriptors), in nanoseconds.
const ACCEPT_PAUSE_NANOS: u64 = 100_000_000;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address is not to be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The exports contradict each other.
    #[error(transparent)]
    Exports(#[from] ExportTableError),
    /// No shard or no address was given.
    #[error("an NBD server needs at least one shard and one address to listen on")]
    Nothing,
    /// Less memory than a largest request needs.
    #[error(
        "{memory} bytes for the payloads of NBD clients are too few: at least {MEMORY_MIN} (64M)"
    )]
    Memory {
        /// The value that was given, in bytes.
        memory: u64,
    },
    /// A descriptor could not be duplicated.
    #[error(
        "preparing the socket of {address}: {source}; raise the limit on open files (ulimit -n)"
    )]
    Descriptor {
        /// The address.
        address: Address,
        /// The error of the system call.
        source: io::Error,
    },
}

/// A running server. Dropping it stops it.
pub struct Server {
    addresses: Vec<Address>,
    listening: Vec<OwnedFd>,
    register: Arc<Register>,
    offer: Arc<Offer>,
    /// Dropped last: what is given back after that comes to nobody.
    memory: Memory,
}

impl Server {
    /// [`start_within`](Server::start_within) the usual limits.
    ///
    /// # Errors
    /// As there.
    pub fn start(
        shards: &[Remote],
        addresses: &[Address],
        targets: Vec<Arc<dyn Target>>,
        default: Option<&str>,
    ) -> Result<Server, ServeError> {
        Server::start_within(&Limits::default(), shards, addresses, targets, default)
    }

    /// Offers `targets` at `addresses`. Connections are served on `shards` in turn; `default`
    /// names the target that clients get who ask for none (with a single target it is that one).
    /// Must not be called on a shard's thread.
    ///
    /// # Errors
    /// An address that is in use or impossible, exports with equal or impossible names, too little memory.
    pub fn start_within(
        limits: &Limits,
        shards: &[Remote],
        addresses: &[Address],
        targets: Vec<Arc<dyn Target>>,
        default: Option<&str>,
    ) -> Result<Server, ServeError> {
        let Some(home) = shards.first().filter(|_| !addresses.is_empty()) else {
            return Err(ServeError::Nothing);
        };
        if limits.memory < MEMORY_MIN {
            return Err(ServeError::Memory { memory: limits.memory });
        }
        let offer = Arc::new(Offer::new(home, targets, default)?);
        let bind = |address| Listener::bind(address, limits.socket_mode);
        let listeners = addresses.iter().map(bind).collect::<Result<Vec<_>, ListenError>>()?;
        let mut server = Server {
            addresses: Vec::new(),
            listening: Vec::new(),
            register: Arc::new(Register::new(limits.connections.max(1))),
            offer: Arc::clone(&offer),
            memory: Memory::new(limits, shards),
        };
        // All descriptors first, so that a failure leaves no listener running.
        let mut ready = Vec::new();
        for listener in listeners {
            let failed =
                |source| ServeError::Descriptor { address: listener.address().clone(), source };
            let waited_on = listener.descriptor().map_err(failed)?;
            server.listening.push(listener.descriptor().map_err(failed)?);
            server.addresses.push(listener.address().clone());
            ready.push((listener, waited_on));
        }
        for ((listener, waited_on), home) in ready.into_iter().zip(shards.iter().cycle()) {
            let server = Acceptor {
                listener,
                offer: Arc::clone(&offer),
                register: Arc::clone(&server.register),
                memory: server.memory.shared(),
                connections_max: limits.connections.max(1),
                shards: shards.to_vec(),
            };
            let guard = server.register.listener();
            home.run(move |shard| {
                let accepting = server.run(shard.clone(), Rc::new(waited_on));
                shard.spawn(async move {
                    accepting.await;
                    drop(guard);
                });
            });
        }
        Ok(server)
    }

    /// Where it listens; TCP ports chosen by the system are filled in.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.register.connections()
    }

    /// Offers one more target, from now on.
    ///
    /// # Errors
    /// A name that another has, or that is impossible.
    pub fn offer(&self, target: Arc<dyn Target>) -> Result<(), ExportTableError> {
        self.offer.add(target)
    }

    /// Clients can have the target `name` now.
    #[must_use]
    pub fn offers(&self, name: &str) -> bool {
        self.offer.has(name)
    }

    /// The clients of the current exports. Clients that are gone are not listed, though their connections may not have ended.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let there = |(export, socket): (String, Arc<OwnedFd>)| {
            Some(Client { export, address: clients::address(&socket)? })
        };
        self.offer.clients().into_iter().filter_map(there).collect()
    }

    /// Offers the target `name` no longer and disconnects the clients that use it. Their requests in flight
    /// are carried out.
    pub fn withdraw(&self, name: &str) {
        self.offer.remove(name);
    }

    /// Offers the target `name` no longer, unless clients use it.
    ///
    /// # Errors
    /// The number of connections that do; nothing was changed then.
    pub fn withdraw_unused(&self, name: &str) -> Result<(), usize> {
        self.offer.remove_unused(name)
    }

    /// Stops listening, disconnects every client, and waits (at most ten seconds) for requests
    /// that devices still have. Must not be called on a shard's thread.
    /// A second call does nothing.
    pub fn stop(&self) {
        self.register.close();
        for socket in &self.listening {
            // A listener that failed has ended already.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        let left = self.register.wait(STOP_WAIT);
        if left > 0 {
            tracing::warn!(left, "NBD connections still wait for their devices after ten seconds");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes connections from one listener and hands them to shards in turn.
struct Acceptor {
    listener: Listener,
    offer: Arc<Offer>,
    register: Arc<Register>,
    memory: Arc<Shared>,
    connections_max: usize,
    shards: Vec<Remote>,
}

impl Acceptor {
    async fn run(self, shard: Shard, waited_on: Rc<OwnedFd>) {
        let mut next = 0;
        while !self.register.is_closed() {
            let op = RingOp::Readable { fd: Rc::clone(&waited_on) };
            if shard.perform(op).await.is_none() {
                tracing::error!("shard {} has no io_uring: NBD cannot listen there", shard.id());
                return;
            }
            while !self.register.is_closed() {
                match self.listener.accept() {
                    Ok(fd) => {
                        self.hand_over(fd, next);
                        next += 1;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if self.register.is_closed() => {
                        tracing::debug!(%error, "listener closed");
                    }
                    Err(error) => {
                        tracing::warn!(%error, address = %self.listener.address(), "accepting an NBD client failed; trying again");
                        shard.sleep(ACCEPT_PAUSE_NANOS).await;
                        break;
                    }
                }
            }
        }
    }

    fn hand_over(&self, fd: OwnedFd, turn: usize) {
        let guard = match self.register.connection(&fd) {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                tracing::warn!(
                    max = self.connections_max,
                    "too many NBD clients: closing a new one; --nbd-connections sets how many there may be"
                );
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "out of descriptors: closing a new NBD client");
                return;
            }
        };
        // At least one shard (checked at the start).
        let Some(home) = self.shards.get(turn % self.shards.len().max(1)) else { return };
        let (offer, memory) = (Arc::clone(&self.offer), Arc::clone(&self.memory));
        home.run(move |shard| {
            let serving = connection::serve(shard.clone(), fd, guard.socket(), offer, memory);
            shard.spawn(async move {
                if let Err(error) = serving.await {
                    tracing::info!(%error, "NBD connection ended");
                }
                drop(guard);
            });
        });
    }
}
