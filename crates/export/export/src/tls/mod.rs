//! TLS for doors, by rustls: what a server proves itself with, and whose certificates it asks for.
//!
//! `certificates` reads the files; `identity` is what they make of a server; `session` is one connection's TLS, bytes in and
//! bytes out; `pace` keeps handshakes from taking a shard's time. Sockets are [`stream`](crate::stream)'s. It knows no protocol inside.

mod certificates;
mod identity;
mod pace;
mod session;

pub use certificates::CertificatesError;
pub use identity::{Tls, TlsError};
pub(crate) use pace::Pace;
pub(crate) use session::{Session, drop_first, sealed_bytes};

#[cfg(test)]
mod tests;
