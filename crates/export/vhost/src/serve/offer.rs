//! The target of a socket, its users, and their common limits.
//!
//! It is locked when a connection comes or goes and when the offer changes, never for a request.

use braid_device::Target;
use braid_export::Figures;
use braid_export::socket_file::Rights;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes below which a shard has no room for a largest request.
const SHARD_MEMORY_MIN: u64 = 32 << 20;
/// Queues that a driver is told of at most.
const QUEUES_OFFERED_MAX: u16 = 16;

/// The resources that all front ends of a socket may use together, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, at least one; further ones are closed at once.
    pub connections: usize,
    /// Bytes of payload in memory; each shard has its part, and at least 32 MiB.
    pub memory: u64,
    /// The rights to connect to the socket.
    pub socket: Rights,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 16, memory: 256 << 20, socket: Rights::OWNER }
    }
}

/// A front end, as others know it.
pub(super) struct FrontEnd {
    pub socket: Arc<OwnedFd>,
    pub figures: Arc<Figures>,
}

/// The target that is offered, and who uses it.
pub(super) struct Offered {
    pub name: String,
    pub target: Arc<dyn Target>,
    pub clients: Vec<FrontEnd>,
}

/// The parts of the server that connections need.
pub(super) struct Shared {
    /// The only target that it is for; any one when there is none.
    wanted: Option<String>,
    offered: Mutex<Option<Offered>>,
    limits: Limits,
    shards: usize,
}

/// A front end's way to the target.
pub(super) struct Entered {
    pub target: Arc<dyn Target>,
    pub figures: Arc<Figures>,
    pub using: Using,
}

/// Keeps a front end entered.
pub(super) struct Using {
    shared: Arc<Shared>,
    socket: Arc<OwnedFd>,
}

impl Shared {
    /// For the target `wanted`, or any; connections live on so many shards.
    pub fn new(limits: &Limits, shards: usize, wanted: Option<&str>) -> Shared {
        Shared {
            wanted: wanted.map(str::to_owned),
            offered: Mutex::new(None),
            limits: limits.clone(),
            shards,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn offered(&self) -> MutexGuard<'_, Option<Offered>> {
        // Every change is a single step, so a panic elsewhere leaves it whole.
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the front end at `socket`; `None` when nothing is offered.
    pub fn enter(self: &Arc<Self>, socket: Arc<OwnedFd>) -> Option<Entered> {
        let mut offered = self.offered();
        let offered = offered.as_mut()?;
        let figures = Arc::new(Figures::default());
        let client = FrontEnd { socket: Arc::clone(&socket), figures: Arc::clone(&figures) };
        offered.clients.push(client);
        let target = Arc::clone(&offered.target);
        Some(Entered { target, figures, using: Using { shared: Arc::clone(self), socket } })
    }

    /// Queues that a driver is told of: one for each shard.
    pub fn queues(&self) -> u16 {
        u16::try_from(self.shards).unwrap_or(QUEUES_OFFERED_MAX).clamp(1, QUEUES_OFFERED_MAX)
    }

    pub fn memory_of_a_shard(&self) -> u64 {
        (self.limits.memory / self.shards.max(1) as u64).max(SHARD_MEMORY_MIN)
    }

    pub fn is_for(&self, name: &str) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted == name)
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(offered) = self.shared.offered().as_mut() {
            offered.clients.retain(|client| !Arc::ptr_eq(&client.socket, &self.socket));
        }
    }
}
