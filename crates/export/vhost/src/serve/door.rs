//! The server: one target at one socket.

use super::connection;
use super::offer::{Limits, Offered, Shared};
use crate::blk::config::REQUEST_BYTES_MAX;
use braid_device::Target;
use braid_export::socket_file::{SocketFile, SocketFileError};
use braid_export::{
    Accept, Acceptor, Client, Connections, Export, HandOverError, Listeners, Listening, OfferError,
    Register, peer,
};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The protocol's name.
const PROTOCOL: &str = "vhost-user";

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody listens there, or the file cannot be made.
    #[error(
        "{0}: choose another path for vhost-user, or see that its folder exists and is writable"
    )]
    Listen(#[from] SocketFileError),
    /// A socket could not be prepared.
    #[error("preparing the socket {path}: {source}; raise the limit on open files (ulimit -n)", path = .path.display())]
    Descriptor {
        /// Where.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// No shard was given, or no socket was handed over.
    #[error("a vhost-user server needs at least one shard and one socket")]
    Nothing,
}

/// A listening socket.
struct Listener {
    socket: UnixListener,
    path: PathBuf,
    file: Option<SocketFile>,
}

impl Accept for Listener {
    fn accept(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.accept()?.0.into())
    }

    fn leave_file(&mut self) {
        self.file = None;
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    path: PathBuf,
    listeners: Listeners,
    register: Arc<Register>,
    shared: Arc<Shared>,
    shards: Vec<Remote>,
}

impl Server {
    /// Offers the target `name`, or without a name the first that there is or will be, at a socket. As long as it is not
    /// offered front ends are turned away. They are served on `shards` in turn. Must not be called on a shard's thread.
    ///
    /// # Errors
    /// A path that is in use or impossible.
    pub fn start(
        limits: &Limits,
        shards: &[Remote],
        path: &Path,
        name: Option<&str>,
        targets: &[Arc<dyn Target>],
    ) -> Result<Server, ServeError> {
        if shards.is_empty() {
            return Err(ServeError::Nothing);
        }
        let (socket, file) = SocketFile::bind(path, limits.socket)?;
        let listener = Listener { socket, path: path.to_owned(), file: Some(file) };
        Server::serve(limits, shards, listener, name, targets)
    }

    /// As [`start`](Server::start), with a socket that another server has [handed over](Export::hand_over).
    ///
    /// # Errors
    /// No socket, or one that cannot be used.
    pub fn adopt(
        limits: &Limits,
        shards: &[Remote],
        sockets: Vec<Listening>,
        name: Option<&str>,
        targets: &[Arc<dyn Target>],
    ) -> Result<Server, ServeError> {
        let socket = sockets.into_iter().next().filter(|_| !shards.is_empty());
        let Some(Listening { address, socket }) = socket else { return Err(ServeError::Nothing) };
        let path = PathBuf::from(address);
        let file = SocketFile::adopt(&path);
        let listener = Listener { socket: socket.into(), path, file };
        Server::serve(limits, shards, listener, name, targets)
    }

    fn serve(
        limits: &Limits,
        shards: &[Remote],
        listener: Listener,
        name: Option<&str>,
        targets: &[Arc<dyn Target>],
    ) -> Result<Server, ServeError> {
        let path = listener.path.clone();
        let failed = |source| ServeError::Descriptor { path: path.clone(), source };
        listener.socket.set_nonblocking(true).map_err(failed)?;
        let copy = || listener.socket.try_clone().map(OwnedFd::from).map_err(failed);
        let (waited_on, socket) = (copy()?, copy()?);
        let listening = Listening { address: path.display().to_string(), socket };
        let register = Arc::new(Register::new(limits.connections.max(1)));
        let shared = Arc::new(Shared::new(limits, shards.len(), name));
        let server = Server {
            path: path.clone(),
            listeners: Listeners::new(PROTOCOL, &register, shards, vec![listening]),
            register,
            shared: Arc::clone(&shared),
            shards: shards.to_vec(),
        };
        for target in targets {
            // Nothing else is offered yet, so nothing contradicts.
            let _ = server.offer(Arc::clone(target));
        }
        let acceptor = Acceptor {
            listener,
            register: Arc::clone(&server.register),
            protocol: PROTOCOL,
            shards: shards.to_vec(),
            serve: Arc::new(move |shard: &Shard, fd, guard| {
                let (here, shared) = (shard.clone(), Arc::clone(&shared));
                shard.spawn(async move {
                    if let Err(error) = connection::serve(here, fd, &guard, shared).await {
                        tracing::warn!(%error, "a vhost-user front end is disconnected");
                    }
                    drop(guard);
                });
            }),
        };
        // At least one shard (checked before).
        if let Some(home) = shards.first() {
            acceptor.start(home, waited_on);
        }
        Ok(server)
    }
}

impl Export for Server {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn locations(&self, target: &str) -> Vec<String> {
        let location = || format!("vhost-user:{}", self.path.display());
        self.offers(target).then(location).into_iter().collect()
    }

    fn limits(&self) -> braid_export::Limits {
        braid_export::Limits {
            connections: self.shared.limits().connections.max(1),
            memory: self.shared.memory_of_a_shard() * self.shards.len() as u64,
            request_bytes: REQUEST_BYTES_MAX,
        }
    }

    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        let name = target.info().name;
        let mut offered = self.shared.offered();
        if offered.is_none() && self.shared.is_for(&name) {
            *offered = Some(Offered { name, target, clients: Vec::new() });
        }
        Ok(())
    }

    fn offers(&self, target: &str) -> bool {
        self.shared.offered().as_ref().is_some_and(|offered| offered.name == target)
    }

    fn clients(&self) -> Vec<Client> {
        let offered = self.shared.offered();
        let clients = offered.iter().flat_map(|offered| {
            offered.clients.iter().filter_map(|client| {
                Some(Client {
                    target: offered.name.clone(),
                    protocol: PROTOCOL,
                    address: peer(&client.socket)?,
                    traffic: client.figures.traffic(),
                })
            })
        });
        clients.collect()
    }

    fn withdraw(&self, target: &str) {
        let mut offered = self.shared.offered();
        let Some(known) = offered.take_if(|offered| offered.name == target) else { return };
        for client in &known.clients {
            // Fails only when the front end is gone already.
            let _ = rustix::net::shutdown(&*client.socket, Shutdown::Both);
        }
    }

    fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        let mut offered = self.shared.offered();
        let used = offered.as_ref().filter(|offered| offered.name == target);
        match used.map_or(0, |offered| offered.clients.len()) {
            0 => {
                offered.take_if(|offered| offered.name == target);
                Ok(())
            }
            used => Err(used),
        }
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
