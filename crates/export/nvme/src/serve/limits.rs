//! The limits that all hosts of a server share, who may connect, and what they must prove.

use crate::protocol::Secret;
use crate::protocol::identify::{PAGE_BYTES, TRANSFER_SHIFT};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes below which a budget has no room for large requests beside the reserves.
pub const MEMORY_MIN: u64 = 64 << 20;
/// Bytes of the largest read or write.
pub const REQUEST_BYTES_MAX: u64 = PAGE_BYTES << TRANSFER_SHIFT;
/// I/O queues of a controller, each of which is a connection.
pub(super) const QUEUES_MAX: u16 = 16;

/// The resources that all hosts of a server may use together, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Controllers at a time, at least one: a host has one for each array that it connects to, and each has a connection
    /// for commands and up to sixteen for I/O. As many connections may be without a controller, for thirty seconds each.
    pub controllers: usize,
    /// Bytes of payload in memory, from [`MEMORY_MIN`] on.
    pub memory: u64,
    /// While memory is short, a host that keeps some of what others wait for must take its data, and send what it has
    /// announced, within this time and one second for each MiB; else its connection is ended.
    pub patience: Duration,
    /// A connection that is no queue within this time, or whose host has not proved its name by then where it must, is
    /// ended.
    pub handshake: Duration,
    /// Permissions of unix sockets.
    pub socket_mode: u32,
    /// The names (NQN) of hosts that may connect, beside those that have secrets; any host may when there is neither.
    pub hosts: Vec<String>,
    /// Secrets by which hosts prove that they have their names. They need them for every connection to an array; what is
    /// offered here is told without.
    pub secrets: BTreeMap<String, HostSecrets>,
}

/// The secrets of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSecrets {
    /// The host proves itself with it.
    pub host: Secret,
    /// We prove ourselves with it, to a host that asks.
    pub controller: Option<Secret>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            controllers: 256,
            memory: 256 << 20,
            patience: Duration::from_secs(10),
            handshake: Duration::from_secs(30),
            socket_mode: 0o600,
            hosts: Vec::new(),
            secrets: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Connections at a time, whatever they are for.
    pub(super) fn connections(&self) -> usize {
        let of_a_controller = 1 + usize::from(QUEUES_MAX);
        self.controllers.max(1).saturating_mul(1 + of_a_controller)
    }

    /// A host of that name may connect.
    pub(super) fn admits(&self, host: &str) -> bool {
        let everybody = self.hosts.is_empty() && self.secrets.is_empty();
        everybody || self.secrets.contains_key(host) || self.hosts.iter().any(|known| known == host)
    }
}
