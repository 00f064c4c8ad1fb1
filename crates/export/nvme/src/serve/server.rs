//! The door: targets offered as subsystems at TCP addresses.

use super::connection;
use super::limits::{Limits, MEMORY_MIN, REQUEST_BYTES_MAX};
use super::subsystems::{RefusedTarget, Subsystems};
use crate::protocol::{NqnError, check_nqn};
use braid_device::Target;
use braid_export::memory::{Memory, Terms};
use braid_export::socket_file::Rights;
use braid_export::{
    Acceptor, Address, Allowed, Client, Connections, Export, HandOverError, ListenError, Listener,
    Listeners, Listening, OfferError, Register, peer,
};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The protocol's name.
const PROTOCOL: &str = "nvme";

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address is not to be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A target cannot be offered.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// A host that may connect has an impossible name.
    #[error("a host that may connect: {0}")]
    Host(#[from] NqnError),
    /// No shard or no address was given.
    #[error("an NVMe server needs at least one shard and one address to listen on")]
    Nothing,
    /// Less memory than requests need.
    #[error(
        "{memory} bytes for the payloads of NVMe hosts are too few: at least {MEMORY_MIN} (64M)"
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
    listeners: Listeners,
    register: Arc<Register>,
    subsystems: Arc<Subsystems>,
    shards: Vec<Remote>,
    /// Dropped last: what is given back after that comes to nobody.
    memory: Memory,
}

impl Server {
    /// Offers `targets` at `addresses`, each as a subsystem with one namespace. Connections are served on `shards` in turn.
    /// Must not be called on a shard's thread.
    ///
    /// # Errors
    /// An address that is in use or impossible, targets that cannot be told apart, too little memory, impossible names.
    pub fn start(
        limits: &Limits,
        shards: &[Remote],
        addresses: &[Address],
        targets: Vec<Arc<dyn Target>>,
    ) -> Result<Server, ServeError> {
        Server::start_at(limits, shards, (addresses, Vec::new()), targets)
    }

    /// As [`start`](Server::start), also at sockets that another server has [handed over](Export::hand_over).
    ///
    /// # Errors
    /// As there, and sockets of another protocol.
    pub fn start_at(
        limits: &Limits,
        shards: &[Remote],
        (addresses, handed_over): (&[Address], Vec<Listening>),
        targets: Vec<Arc<dyn Target>>,
    ) -> Result<Server, ServeError> {
        let nowhere = addresses.is_empty() && handed_over.is_empty();
        let subsystems = Server::check(limits, shards, nowhere, targets)?;
        let rights = Rights { mode: limits.socket_mode, group: None };
        let everybody = Allowed::default();
        let bound = addresses.iter().map(|address| Listener::bind(address, rights, &everybody));
        let adopted = handed_over.into_iter().map(|socket| Listener::adopt(socket, &everybody));
        let listeners = bound.chain(adopted).collect::<Result<Vec<_>, ListenError>>()?;
        Server::serve(shards, listeners, subsystems)
    }

    /// As [`start`](Server::start), with sockets that another server has [handed over](Export::hand_over).
    ///
    /// # Errors
    /// As there, and sockets of another protocol.
    pub fn adopt(
        limits: &Limits,
        shards: &[Remote],
        sockets: Vec<Listening>,
        targets: Vec<Arc<dyn Target>>,
    ) -> Result<Server, ServeError> {
        let subsystems = Server::check(limits, shards, sockets.is_empty(), targets)?;
        let adopt = |socket| Listener::adopt(socket, &Allowed::default());
        let listeners = sockets.into_iter().map(adopt).collect::<Result<Vec<_>, ListenError>>()?;
        Server::serve(shards, listeners, subsystems)
    }

    /// Contradictions are found before a socket is made.
    fn check(
        limits: &Limits,
        shards: &[Remote],
        nowhere: bool,
        targets: Vec<Arc<dyn Target>>,
    ) -> Result<Arc<Subsystems>, ServeError> {
        if shards.is_empty() || nowhere {
            return Err(ServeError::Nothing);
        }
        if limits.memory < MEMORY_MIN {
            return Err(ServeError::Memory { memory: limits.memory });
        }
        let mut hosts = limits.hosts.iter().chain(limits.secrets.keys());
        hosts.try_for_each(|host| check_nqn(host))?;
        let subsystems = Arc::new(Subsystems::new(limits));
        targets.into_iter().try_for_each(|target| offer(&subsystems, target))?;
        Ok(subsystems)
    }

    fn serve(
        shards: &[Remote],
        listeners: Vec<Listener>,
        subsystems: Arc<Subsystems>,
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
        let limits = subsystems.limits();
        let terms = Terms {
            bytes: limits.memory,
            accounts: 2 * limits.connections(),
            patience: limits.patience,
            payload_bytes_max: REQUEST_BYTES_MAX,
            protocol: PROTOCOL,
        };
        let register = Arc::new(Register::new(limits.controllers.max(1)));
        let server = Server {
            addresses,
            listeners: Listeners::new("NVMe", &register, shards, listening),
            register,
            memory: Memory::new(&terms, shards),
            subsystems,
            shards: shards.to_vec(),
        };
        for ((listener, waited_on), home) in ready.into_iter().zip(shards.iter().cycle()) {
            let (subsystems, memory) = (Arc::clone(&server.subsystems), server.memory.shared());
            let acceptor = Acceptor {
                listener,
                register: Arc::clone(&server.register),
                protocol: PROTOCOL,
                shards: shards.to_vec(),
                serve: Arc::new(move |shard: &Shard, fd, guard| {
                    let (subsystems, memory) = (Arc::clone(&subsystems), Arc::clone(&memory));
                    let here = shard.clone();
                    shard.spawn(async move {
                        let served = connection::serve(here, fd, &guard, subsystems, memory);
                        if let Err(error) = served.await {
                            tracing::info!(%error, "NVMe connection ended");
                        }
                        drop(guard);
                    });
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

    /// The qualified name under which hosts find the target; `None` when it is not offered.
    #[must_use]
    pub fn nqn(&self, target: &str) -> Option<String> {
        self.subsystems.nqn(target)
    }
}

/// The subsystem `nqn` at an address, as nvme-cli's configuration writes it.
fn uri(address: &Address, nqn: &str) -> String {
    match address {
        Address::Unix(path) => format!("nvme+unix:{}/{nqn}", path.display()),
        Address::Tcp(place) => format!("nvme+tcp://{place}/{nqn}"),
    }
}

fn offer(subsystems: &Subsystems, target: Arc<dyn Target>) -> Result<(), OfferError> {
    let name = target.info().name;
    let refused = |source: RefusedTarget| OfferError {
        target: name,
        protocol: PROTOCOL,
        source: source.into(),
    };
    subsystems.add(target).map_err(refused)
}

impl Export for Server {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn locations(&self, target: &str) -> Vec<String> {
        let nqn = self.subsystems.nqn(target);
        let uris = |nqn: String| self.addresses.iter().map(move |address| uri(address, &nqn));
        nqn.into_iter().flat_map(uris).collect()
    }

    fn limits(&self) -> braid_export::Limits {
        braid_export::Limits {
            connections: self.subsystems.limits().connections(),
            memory: self.subsystems.limits().memory,
            request_bytes: REQUEST_BYTES_MAX,
        }
    }

    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        offer(&self.subsystems, target)
    }

    fn offers(&self, target: &str) -> bool {
        self.subsystems.nqn(target).is_some()
    }

    fn clients(&self) -> Vec<Client> {
        let there = |controller: Arc<super::controller::Controller>| {
            Some(Client {
                target: controller.subject.as_ref()?.name.clone(),
                protocol: PROTOCOL,
                address: peer(&controller.socket)?,
                traffic: controller.traffic(),
            })
        };
        self.subsystems.controllers().into_iter().filter_map(there).collect()
    }

    fn withdraw(&self, target: &str) {
        self.subsystems.remove(target);
    }

    fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        self.subsystems.remove_unused(target)
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

    fn stop(&self) {
        self.listeners.stop();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
