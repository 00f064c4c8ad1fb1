//! TLS for doors and for connections to other servers, by rustls: what each side proves itself with, and whose certificates it
//! asks for.
//!
//! `certificates` reads the files; `identity` is what they make of a server or client; `session` is one connection's TLS, bytes
//! in and bytes out; `blocking` takes a client's through its handshake on an ordinary thread. Sockets are
//! [`stream`](crate::stream)'s, and the [`pace`](crate::pace) of handshakes, too. It knows no protocol inside.

mod blocking;
mod certificates;
mod identity;
mod session;

pub use blocking::BlockingTls;
pub use certificates::CertificatesError;
pub use identity::{ClientTls, Tls, TlsError};
pub use session::Handed;
pub(crate) use session::{Session, drop_first, sealed_bytes};

#[cfg(test)]
mod tests;
