//! The server: targets offered by name on unix and TCP sockets, connections spread over shards.
//!
//! Owns listeners and the register of connections. Does not know levels or members: it sees
//! [`Target`]s only. Invariant: what one client does never ends another's connection, and after
//! [`stop`](Export::stop) no socket, file or connection task is left.
//!
//! ```text
//!  listener (shard 0) --accept--> connection on shard 0, 1, 2, ... in turn
//!     reader: socket -> decoder -> device.submit        one task
//!     writer: outcomes -> one vectored send             one task
//! ```

mod connection;
mod exports;
mod limits;
mod long;
mod offer;
mod passed;
mod read_only;
mod replies;
mod status;
mod visit;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_device::Target;
use braid_export::memory::{self, Memory, Terms};
use braid_export::{
    Acceptor, Client, Connected, Connections, Export, HandOverError, Listener, Listeners,
    Listening, OfferError, Passed, PassedError, Register, peer,
};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;

pub use crate::protocol::ExportTableError;
use crate::protocol::constants::PAYLOAD_BYTES_MAX;
use crate::{Address, NbdUri};
pub use braid_export::ListenError;
pub use limits::{Limits, MEMORY_MIN, TlsMode};
use offer::Offer;
use passed::State;
use visit::PROTOCOL;

/// The time that clients get to be passed to a successor.
const PASS_WAIT: Duration = Duration::from_millis(250);

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

/// Where a server listens.
#[derive(Debug, Default)]
pub struct Places<'a> {
    /// To be bound.
    pub addresses: &'a [Address],
    /// Listening already; their files, if any, stay somebody else's: a service manager's.
    pub sockets: Vec<OwnedFd>,
    /// Of another server, which has [handed them over](Export::hand_over).
    pub handed_over: Vec<Listening>,
}

/// A running server. Dropping it stops it.
pub struct Server {
    addresses: Vec<Address>,
    listeners: Listeners,
    register: Arc<Register>,
    offer: Arc<Offer>,
    shards: Vec<Remote>,
    limits: Limits,
    /// Clients that a successor goes on with.
    passed: Arc<Mutex<Vec<Passed>>>,
    /// The shard of the next client that is taken over.
    turn: AtomicUsize,
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
        let places = Places { addresses, ..Places::default() };
        Server::start_at(limits, shards, places, targets, default)
    }

    /// As [`start_within`](Server::start_within), also at sockets that listen already.
    ///
    /// # Errors
    /// As there; a socket that does not listen, or that no client could be told the address of.
    pub fn start_at(
        limits: &Limits,
        shards: &[Remote],
        places: Places<'_>,
        targets: Vec<Arc<dyn Target>>,
        default: Option<&str>,
    ) -> Result<Server, ServeError> {
        let Places { addresses, sockets, handed_over } = places;
        let nowhere = addresses.is_empty() && sockets.is_empty() && handed_over.is_empty();
        Server::check(limits, shards, nowhere)?;
        // Contradictions among the targets are found before a socket is made, and an address that is not to be had before a
        // socket that is another's still is taken: it would go with its file.
        let offer = Server::offering(limits, shards, targets, default)?;
        let bound =
            addresses.iter().map(|address| Listener::bind(address, limits.socket, &limits.allowed));
        let inherited =
            sockets.into_iter().map(|socket| Listener::inherit(socket, &limits.allowed));
        let adopted =
            handed_over.into_iter().map(|socket| Listener::adopt(socket, &limits.allowed));
        let listeners =
            bound.chain(inherited).chain(adopted).collect::<Result<Vec<_>, ListenError>>()?;
        Server::serve(limits, shards, listeners, offer)
    }

    /// As [`start_within`](Server::start_within), with sockets that another server has
    /// [handed over](Export::hand_over).
    ///
    /// # Errors
    /// Sockets of another protocol, exports with equal or impossible names, too little memory.
    pub fn adopt(
        limits: &Limits,
        shards: &[Remote],
        sockets: Vec<Listening>,
        targets: Vec<Arc<dyn Target>>,
        default: Option<&str>,
    ) -> Result<Server, ServeError> {
        Server::check(limits, shards, sockets.is_empty())?;
        let offer = Server::offering(limits, shards, targets, default)?;
        let adopt = |socket| Listener::adopt(socket, &limits.allowed);
        let listeners = sockets.into_iter().map(adopt).collect::<Result<Vec<_>, ListenError>>()?;
        Server::serve(limits, shards, listeners, offer)
    }

    fn check(limits: &Limits, shards: &[Remote], nowhere: bool) -> Result<(), ServeError> {
        if shards.is_empty() || nowhere {
            return Err(ServeError::Nothing);
        }
        if limits.memory < MEMORY_MIN {
            return Err(ServeError::Memory { memory: limits.memory });
        }
        Ok(())
    }

    fn offering(
        limits: &Limits,
        shards: &[Remote],
        targets: Vec<Arc<dyn Target>>,
        default: Option<&str>,
    ) -> Result<Arc<Offer>, ServeError> {
        let home = shards.first().ok_or(ServeError::Nothing)?;
        Ok(Arc::new(Offer::new(home, targets, default, &limits.read_only)?))
    }

    fn serve(
        limits: &Limits,
        shards: &[Remote],
        listeners: Vec<Listener>,
        offer: Arc<Offer>,
    ) -> Result<Server, ServeError> {
        let (mut addresses, mut listening) = (Vec::new(), Vec::new());
        // All descriptors first, so that a failure leaves no listener running.
        let mut ready = Vec::new();
        for listener in listeners {
            let failed =
                |source| ServeError::Descriptor { address: listener.address().clone(), source };
            let waited_on = listener.descriptor().map_err(failed)?;
            let (address, socket) =
                (listener.address().to_string(), listener.descriptor().map_err(failed)?);
            listening.push(Listening { address, socket });
            addresses.push(listener.address().clone());
            ready.push((listener, waited_on));
        }
        let register = Arc::new(Register::new(limits.connections.max(1)));
        let server = Server {
            addresses,
            listeners: Listeners::new("NBD", &register, shards, listening),
            register,
            offer,
            shards: shards.to_vec(),
            limits: limits.clone(),
            passed: Arc::default(),
            turn: AtomicUsize::new(0),
            memory: Memory::new(&terms(limits), shards),
        };
        for ((listener, waited_on), home) in ready.into_iter().zip(shards.iter().cycle()) {
            let serving = server.serving();
            let acceptor = Acceptor {
                listener,
                register: Arc::clone(&server.register),
                protocol: PROTOCOL,
                shards: shards.to_vec(),
                serve: Arc::new(move |shard: &Shard, fd, guard| {
                    serving.spawn(shard, (fd, guard), None)
                }),
            };
            acceptor.start(home, waited_on);
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

    fn serving(&self) -> Serving {
        Serving {
            offer: Arc::clone(&self.offer),
            memory: self.memory.shared(),
            tls: Arc::new(self.limits.tls.clone()),
            handshake: self.limits.handshake,
            passed: Arc::clone(&self.passed),
        }
    }

    fn uri(&self, address: &Address, target: &str) -> String {
        match self.limits.tls {
            TlsMode::Require(_) => address.secure_uri(target),
            TlsMode::Off | TlsMode::Allow(_) => address.uri(target),
        }
    }
}

/// The means to serve a connection.
struct Serving {
    offer: Arc<Offer>,
    memory: Arc<memory::Shared>,
    tls: Arc<TlsMode>,
    handshake: Duration,
    passed: Arc<Mutex<Vec<Passed>>>,
}

impl Serving {
    /// Serves a client, `state` being what was agreed on with it at another server.
    fn spawn(&self, shard: &Shard, (fd, guard): (OwnedFd, Connected), state: Option<State>) {
        let shared = connection::Shared {
            offer: Arc::clone(&self.offer),
            memory: Arc::clone(&self.memory),
            tls: Arc::clone(&self.tls),
            handshake: self.handshake,
        };
        let passed = Arc::clone(&self.passed);
        // Asked now: of one that has left nothing can be known.
        let client = peer(&fd).unwrap_or_else(|| "unknown".into());
        let here = shard.clone();
        shard.spawn(async move {
            let served = match state {
                None => connection::serve(here, fd, &guard, shared, &client).await,
                Some(state) => connection::go_on(here, fd, &guard, shared, (state, &client)).await,
            };
            match served {
                Ok(None) => {}
                Ok(Some(state)) => pass(&passed, &state, &guard),
                // Somebody is kept out, or should not be: whoever looks after the server wants to know.
                Err(error) if error.is_refusal() => {
                    tracing::warn!(%error, %client, "NBD client refused");
                }
                Err(error) => tracing::info!(%error, %client, "NBD connection ended"),
            }
            drop(guard);
        });
    }
}

fn pass(passed: &Mutex<Vec<Passed>>, state: &State, guard: &Connected) {
    match guard.socket().try_clone() {
        Ok(socket) => {
            let client = Passed { target: state.export.clone(), state: state.encode(), socket };
            // A push leaves the list whole, whatever panics elsewhere.
            passed.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
        Err(error) => {
            tracing::warn!(%error, "an NBD client cannot be passed to another server: it is disconnected");
        }
    }
}

fn terms(limits: &Limits) -> Terms {
    Terms {
        bytes: limits.memory,
        accounts: limits.connections,
        patience: limits.patience,
        payload_bytes_max: PAYLOAD_BYTES_MAX.into(),
        protocol: PROTOCOL,
    }
}

impl Export for Server {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn locations(&self, target: &str) -> Vec<String> {
        match self.offers(target) {
            true => self.addresses.iter().map(|address| self.uri(address, target)).collect(),
            false => Vec::new(),
        }
    }

    fn limits(&self) -> braid_export::Limits {
        braid_export::Limits {
            connections: self.limits.connections.max(1),
            memory: self.limits.memory,
            request_bytes: u64::from(PAYLOAD_BYTES_MAX),
        }
    }

    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        let name = target.info().name;
        let refused = |source: ExportTableError| OfferError {
            target: name,
            protocol: PROTOCOL,
            source: source.into(),
        };
        self.offer.add(target).map_err(refused)
    }

    fn offers(&self, target: &str) -> bool {
        self.offer.has(target)
    }

    fn clients(&self) -> Vec<Client> {
        let there = |(target, client): (String, offer::Connected)| {
            Some(Client {
                target,
                protocol: PROTOCOL,
                address: peer(&client.socket)?,
                traffic: client.figures.traffic(),
            })
        };
        self.offer.clients().into_iter().filter_map(there).collect()
    }

    fn withdraw(&self, target: &str) {
        self.offer.remove(target);
    }

    fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        self.offer.remove_unused(target)
    }

    fn drain(&self, limit: Duration) -> u64 {
        Connections::drain(&self.shards, &self.register, limit)
    }

    fn resume(&self) {
        Connections::resume(&self.shards, &self.register);
    }

    fn hand_over(&self) -> Result<Vec<Listening>, HandOverError> {
        self.listeners.hand_over()
    }

    fn pass_clients(&self) -> Vec<Passed> {
        Connections::leave_all(&self.shards, &self.register, PASS_WAIT);
        std::mem::take(&mut *self.passed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_client(&self, client: Passed) -> Result<(), PassedError> {
        let Passed { state, socket, .. } = client;
        let state = State::decode(&state).map_err(PassedError::State)?;
        let guard = self.register.connection(&socket)?.ok_or(PassedError::TooMany)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // At least one shard (checked at the start).
        let Some(home) = self.shards.get(turn % self.shards.len().max(1)) else {
            return Err(PassedError::TooMany);
        };
        let serving = self.serving();
        home.run(move |shard| serving.spawn(shard, (socket, guard), Some(state)));
        Ok(())
    }

    fn stop(&self) {
        self.listeners.stop();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
