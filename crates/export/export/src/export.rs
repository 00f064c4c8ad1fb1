//! The trait of doors.

use crate::Client;
use braid_device::Target;
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A target could not be offered.
#[derive(Debug, thiserror::Error)]
#[error("offering {target} over {protocol}: {source}")]
pub struct OfferError {
    /// The target's name.
    pub target: String,
    /// The protocol's name.
    pub protocol: &'static str,
    /// The reason, and a remedy.
    pub source: Box<dyn Error + Send + Sync>,
}

/// A door could not be handed over.
#[derive(Debug, thiserror::Error)]
#[error(
    "handing over the socket at {address}: {source}; raise the limit on open files (ulimit -n)"
)]
pub struct HandOverError {
    /// Where it listens.
    pub address: String,
    /// The error of the system call.
    pub source: io::Error,
}

/// A listening socket that goes from one server to its successor. Clients that connect meanwhile wait in its queue.
#[derive(Debug)]
pub struct Listening {
    /// Where it listens, in the form in which its door is told of it.
    pub address: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// A connected client that goes from one server to its successor.
#[derive(Debug)]
pub struct Passed {
    /// The name of the target that it uses.
    pub target: String,
    /// The knowledge that the successor's door needs of it, in a form of the door's own.
    pub state: Vec<u8>,
    /// Its socket.
    pub socket: OwnedFd,
}

/// Why a client could not be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum PassedError {
    /// The door does not go on with clients of others.
    #[error("{0} clients cannot be taken over")]
    Protocol(&'static str),
    /// The state is none of this door's.
    #[error(
        "what is said of a client is not understood: {0}; take over from a braid of the same version"
    )]
    State(&'static str),
    /// A descriptor could not be duplicated.
    #[error("keeping the socket of a client: {0}; raise the limit on open files (ulimit -n)")]
    Descriptor(#[from] io::Error),
    /// There is no door of that protocol.
    #[error("there is no door for it any more")]
    NoDoor,
    /// There are as many clients as there may be.
    #[error("there are too many clients")]
    TooMany,
}

/// The resources that the clients of a door may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of payload in memory.
    pub memory: u64,
    /// Bytes of the largest request.
    pub request_bytes: u64,
}

/// A door: a protocol by which clients reach targets. Its methods block for a short time, and must not be called on a
/// shard's thread.
///
/// Invariant: whatever a client does ends at most its own connection, and each request that a client has sent whole is
/// answered once or its connection ends.
pub trait Export: Send + Sync {
    /// The protocol's name: `nbd`, `vhost-user`.
    fn protocol(&self) -> &'static str;

    /// The places where a client reaches the target of that name, such as a URI or a path: one for each address. Empty
    /// when the target is not offered.
    fn locations(&self, target: &str) -> Vec<String>;

    /// The limits that all its clients share.
    fn limits(&self) -> Limits;

    /// Offers a target from now on. A door that is for certain targets only passes over others: see
    /// [`offers`](Export::offers).
    ///
    /// # Errors
    /// A name that is offered already, or that the protocol cannot express; nothing was changed then.
    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError>;

    /// True if clients can have the target of that name now.
    fn offers(&self, target: &str) -> bool;

    /// The clients of all targets. Those that are gone are not listed, though their connections may not have ended.
    fn clients(&self) -> Vec<Client>;

    /// The clients of all targets at this moment, for whoever is going to cut them off: [`clients`](Export::clients) may be as it
    /// was a second ago where it is dear to find them.
    fn clients_now(&self) -> Vec<Client> {
        self.clients()
    }

    /// Offers a target no longer and disconnects its clients. Their requests in flight are carried out.
    fn withdraw(&self, target: &str);

    /// Offers a target no longer, unless clients use it.
    ///
    /// # Errors
    /// The number of connections that use it; nothing was changed then.
    fn withdraw_unused(&self, target: &str) -> Result<(), usize>;

    /// Takes no further requests and waits, at most for `limit`, until those that were taken have been answered. Clients
    /// stay connected, and what they send waits. Gives the number of requests that are still under way.
    fn drain(&self, limit: Duration) -> u64;

    /// Takes requests again after [`drain`](Export::drain).
    fn resume(&self);

    /// The reason why a successor cannot have the door while this process lives, with a remedy.
    fn stays(&self) -> Option<String> {
        None
    }

    /// Gives the listening sockets to a successor: from now on new clients are the successor's, and socket files are
    /// its to remove. Clients that are connected stay here until they leave or the door is stopped.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated; nothing was changed then.
    fn hand_over(&self) -> Result<Vec<Listening>, HandOverError>;

    /// Gives clients that are connected to a successor, as soon as what was taken of them has been answered: after
    /// [`drain`](Export::drain) that is at once. Clients that cannot go stay connected here.
    fn pass_clients(&self) -> Vec<Passed> {
        Vec::new()
    }

    /// Goes on with a client that another server has [passed](Export::pass_clients).
    ///
    /// # Errors
    /// A client of another protocol, a state that is not understood, too many clients. The client is disconnected then.
    fn take_client(&self, client: Passed) -> Result<(), PassedError> {
        drop(client);
        Err(PassedError::Protocol(self.protocol()))
    }

    /// Stops listening, disconnects every client, and waits (at most ten seconds) for requests that devices still
    /// have. A second call does nothing.
    fn stop(&self);
}
