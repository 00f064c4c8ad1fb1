//! NVMe over Fabrics, TCP transport, as bytes.
//!
//! PDUs of a connection are decoded by [`Decoder`] and encoded by [`Encoder`]; the commands in them are [`Command`]s, the
//! answers [`Completion`]s. [`identify`] and [`log`] are the data structures that a controller describes itself with.
//! References are to the NVM Express specifications: Base 2.0, NVM Command Set 1.0, TCP Transport 1.0. All numbers are
//! little-endian.
//!
//! It knows no sockets, devices, controllers or clocks. Invariant: memory held by a decoder is bounded by a constant
//! whatever the peer sends, and a stream means the same however it is cut.

pub mod authentication;
mod command;
mod completion;
mod connect;
mod decoder;
mod digest;
mod encoder;
mod fields;
mod group;
mod group_primes;
pub mod identify;
pub mod log;
mod nqn;
mod pdu;
mod secret;

pub use command::{
    COMMAND_BYTES, Command, Direction, Fabrics, Range, Sgl, admin, feature, io, ranges,
};
pub use completion::{COMPLETION_BYTES, Completion, Status};
pub use connect::{CONNECT_BYTES, ConnectData};
pub use decoder::{Decoder, Event, Payload, Violation};
pub use digest::Crc32c;
pub use encoder::Encoder;
pub use group::{Group, KeyPair, bound};
pub use nqn::{DISCOVERY_NQN, NQN_BYTES_MAX, NqnError, check_nqn, nqn_of_uuid};
pub use pdu::{
    DIGEST_BYTES, FatalError, INITIALIZE_BYTES, Initialize, InitializeAnswer, MAX_IN_ADMIN_CAPSULE,
    MAX_IN_CAPSULE, PduType,
};
pub use secret::{Hash, Prover, Secret, SecretError, Statement};

#[cfg(test)]
mod tests;
