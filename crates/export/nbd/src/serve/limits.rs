//! The limits that all clients of a server share.

use std::time::Duration;

use braid_export::Allowed;
use braid_export::socket_file::Rights;
use braid_export::tls::Tls;

use crate::protocol::TlsOffer;

/// Bytes below which a budget has no room for a largest request beside the clients' reserves.
pub const MEMORY_MIN: u64 = 64 << 20;

/// The resources that all clients of a server may use together, and who may connect.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time, at least one; further ones are closed at once.
    pub connections: usize,
    /// Bytes of payload in memory, from [`MEMORY_MIN`] on. A quarter is divided among the connections
    /// (at most 256 KiB for each), so that a client's small requests never wait for others; the rest goes
    /// to longer and further requests, first come first served.
    pub memory: u64,
    /// While memory is short, a client that keeps some of what others wait for must take its data, and send
    /// what it has announced, within this time and one second for each MiB; else it is disconnected.
    pub patience: Duration,
    /// A client that has not finished its handshake within this time, however it spends it, is disconnected.
    pub handshake: Duration,
    /// The rights to connect to unix sockets.
    pub socket: Rights,
    /// Whose clients may connect over TCP.
    pub allowed: Allowed,
    /// TLS for clients: none, possible or demanded.
    pub tls: TlsMode,
    /// Names of targets that clients may read and not write.
    pub read_only: Vec<String>,
}

/// TLS for clients (proto.md, "TLS").
#[derive(Clone, Debug, Default)]
pub enum TlsMode {
    /// None can.
    #[default]
    Off,
    /// Those who want to.
    Allow(Tls),
    /// All must, or they are told nothing and served nothing.
    Require(Tls),
}

impl TlsMode {
    /// The form in which a handshake offers it.
    #[must_use]
    pub fn offer(&self) -> TlsOffer {
        match self {
            TlsMode::Off => TlsOffer::Off,
            TlsMode::Allow(_) => TlsOffer::Allow,
            TlsMode::Require(_) => TlsOffer::Require,
        }
    }

    /// The certificates, unless it is off.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            TlsMode::Off => None,
            TlsMode::Allow(tls) | TlsMode::Require(tls) => Some(tls),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            memory: 256 << 20,
            patience: Duration::from_secs(10),
            handshake: Duration::from_secs(30),
            socket: Rights::OWNER,
            allowed: Allowed::default(),
            tls: TlsMode::Off,
            read_only: Vec::new(),
        }
    }
}
