//! Where the server listens: `tcp:HOST:PORT`, or `unix:PATH`.
//!
//! The transport is defined for TCP; over unix sockets it is the same, for programs on this host that have an initiator of
//! their own.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// An address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and port; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither of the two forms.
    #[error("{0:?} is no address for NVMe: write tcp:HOST:PORT, such as tcp:0.0.0.0:4420")]
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

    fn from_str(text: &str) -> Result<Address, AddressError> {
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

impl Address {
    /// The subsystem `nqn` here, as nvme-cli's configuration writes it.
    #[must_use]
    pub fn uri(&self, nqn: &str) -> String {
        match self {
            Address::Unix(path) => format!("nvme+unix:{}/{nqn}", path.display()),
            Address::Tcp(place) => format!("nvme+tcp://{place}/{nqn}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_printed() {
        for text in ["unix:/run/a b.sock", "tcp:127.0.0.1:4420", "tcp:[::1]:0"] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(text.into()));
        }
        for text in ["", "unix:", "/run/socket", "tcp", "rdma:1.2.3.4:5"] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Form(text.into())));
        }
        assert!(matches!("tcp:127.0.0.1".parse::<Address>(), Err(AddressError::Host { .. })));
    }
}
