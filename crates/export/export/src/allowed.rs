//! The networks whose clients are let in.
//!
//! An address proves nothing about who is behind it: this keeps strangers of an open network out, and is no substitute for
//! TLS. Unix sockets have permissions instead, so their clients pass.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::str::FromStr;

use ipnet::IpNet;
use rustix::net::getpeername;

/// An IP network, `10.1.0.0/16` or `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// Neither a network nor an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: write ADDRESS or ADDRESS/BITS, such as 10.1.0.0/16 or fd00::/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        match text.parse::<IpNet>().or_else(|_| address()) {
            Ok(network) => Ok(Network(network)),
            Err(_) => Err(NetworkError(text.into())),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Networks whose clients are let in; empty, those of all networks are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(Vec<Network>);

impl Allowed {
    /// Lets clients of these networks in, and no others unless there are none.
    #[must_use]
    pub fn new(networks: Vec<Network>) -> Allowed {
        Allowed(networks)
    }

    /// The client at the other end of `socket` is let in. One that has gone already is not.
    #[must_use]
    pub fn admits(&self, socket: &OwnedFd) -> bool {
        if self.0.is_empty() {
            return true;
        }
        match getpeername(socket) {
            // An address of IP, or the name of a unix socket, which is let in by its permissions.
            Ok(Some(peer)) => SocketAddr::try_from(peer).map_or(true, |peer| self.has(peer.ip())),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        // An address of version 4 that came to a socket of version 6 is still one of version 4.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.0.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    fn allowed(networks: &[&str]) -> Allowed {
        Allowed::new(networks.iter().map(|network| network.parse().unwrap()).collect())
    }

    #[test]
    fn networks_are_those_that_have_the_address_of_either_version() {
        let some = allowed(&["10.1.0.0/16", "192.168.1.7", "fd00::/8"]);
        let has = |address: &str| some.has(address.parse().unwrap());
        for inside in ["10.1.255.3", "192.168.1.7", "fd12::1", "::ffff:10.1.2.3"] {
            assert!(has(inside), "{inside}");
        }
        for outside in ["10.2.0.1", "192.168.1.8", "fe80::1", "::ffff:10.2.2.3", "::a01:203"] {
            assert!(!has(outside), "{outside}");
        }
        // The bits beyond the prefix are nobody's mistake to be punished for.
        assert!(allowed(&["10.1.2.3/16"]).has("10.1.9.9".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_said() {
        for wrong in ["", "10.0.0.0/33", "host", "10.0.0", "10.0.0.1:80", "fd00::/129", "/8"] {
            let error = wrong.parse::<Network>().unwrap_err();
            assert!(error.to_string().contains("10.1.0.0/16"), "{error}");
        }
    }

    #[test]
    fn clients_of_sockets_are_judged_by_their_address_and_those_of_unix_sockets_pass() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = OwnedFd::from(listener.accept().unwrap().0);
        let (unix, _other) = UnixStream::pair().unwrap();
        let unix = OwnedFd::from(unix);
        for (networks, let_in) in
            [(&[][..], true), (&["127.0.0.0/8"], true), (&["10.1.0.0/16"], false)]
        {
            assert_eq!(allowed(networks).admits(&server), let_in, "{networks:?}");
            assert!(allowed(networks).admits(&unix));
        }
        drop(client);
    }
}
