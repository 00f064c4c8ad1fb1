//! Persistent reservations: a disk that several hosts reach takes the writes of those alone whom it knows. Those of SCSI (SPC,
//! *Persistent Reserve Out*) and NVMe (*Reservation Register, Acquire, Release*) are alike in all that is here.
//!
//! A host registers with a key, and one that has registered reserves the disk for all that have ("write exclusive, registrants
//! only"). From then on the disk refuses the writes of everybody else, with [`IoErrorKind::Reserved`](crate::IoErrorKind::Reserved);
//! anybody may read. Who preempts a key takes the registration of its owner away, so that whatever that one still sends is refused.
//! Registrations survive a loss of power where the disk can keep them.

use std::pin::Pin;

/// An order to a disk. Keys are not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// This host registers with `key`, in place of the one that it has.
    Register {
        /// The host's new key.
        key: u64,
    },
    /// The disk is reserved for those that have registered. Done as well when this host holds the reservation.
    Reserve {
        /// The host's key.
        key: u64,
    },
    /// The registration with the key `of` ends, and a reservation that it held is held by this host. Requests that the disk has
    /// taken before may still be carried out.
    Preempt {
        /// The host's key.
        key: u64,
        /// The other's.
        of: u64,
    },
    /// This host's registration ends, and with it the reservation that it holds.
    Leave {
        /// The host's key.
        key: u64,
    },
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Another host holds the reservation, or the key is registered no more.
    #[error("another host holds the reservation")]
    Conflict,
    /// The disk, its driver or the way to it knows no reservations, or this process may not ask for them.
    #[error("it takes no reservations ({0})")]
    Unable(String),
    /// It failed.
    #[error("it failed: {0}")]
    Failed(String),
}

/// The outcome of an order, which comes on the shard that gave it.
pub type Carried = Pin<Box<dyn Future<Output = Result<(), OrderError>>>>;

/// The reservations of one disk, as one shard reaches them.
pub trait Reservations {
    /// Carries out `order`. One after the other: nothing else may be under way.
    fn carry_out(&self, order: Order) -> Carried;
}
