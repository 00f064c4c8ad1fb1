//! Where a server listens or a client connects: `unix:PATH` or `tcp:HOST:PORT`.
//!
//! Owns parsing and printing. Does not know sockets that are open, nor the URIs of any protocol.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An IP address and port; port 0 lets the system choose.
    Tcp(SocketAddr),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither of the two forms.
    #[error("{0:?} is no address: write unix:PATH or tcp:HOST:PORT")]
    Form(String),
    /// The host is not known or the port is not a number.
    #[error("{text:?}: {why}; write tcp:HOST:PORT with a host that resolves, IPv6 in brackets")]
    Host {
        /// The text that was given.
        text: String,
        /// The answer of the resolver.
        why: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", place)) => {
                let failed = |why: String| AddressError::Host { text: text.into(), why };
                let mut found =
                    place.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
                found.next().map(Address::Tcp).ok_or_else(|| failed("no address found".into()))
            }
            _ => Err(AddressError::Form(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_printed() {
        for text in
            ["unix:/run/a b.sock", "tcp:127.0.0.1:10809", "tcp:127.0.0.1:4420", "tcp:[::1]:0"]
        {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn anything_else_says_what_to_write() {
        for text in ["", "unix:", "/run/socket", "tcp", "udp:1.2.3.4:5", "rdma:1.2.3.4:5"] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Form(text.into())));
        }
        for text in ["tcp:127.0.0.1", "tcp:127.0.0.1:notaport"] {
            assert!(matches!(text.parse::<Address>(), Err(AddressError::Host { .. })));
        }
    }
}
