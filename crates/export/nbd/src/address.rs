//! The URIs of exports at an address.

use crate::uri::{of_socket, percent_encoded};
pub use braid_export::{Address, AddressError};

/// The NBD URIs of what is served at an address.
pub trait NbdUri {
    /// The URI of export `name` here, as NBD clients take it.
    #[must_use]
    fn uri(&self, name: &str) -> String;

    /// [`uri`](NbdUri::uri) for clients that must speak TLS.
    #[must_use]
    fn secure_uri(&self, name: &str) -> String {
        // `nbd:` and `nbd+unix:` are the schemes without.
        format!("nbds{}", self.uri(name).trim_start_matches("nbd"))
    }
}

impl NbdUri for Address {
    fn uri(&self, name: &str) -> String {
        match self {
            Address::Unix(path) => of_socket(path, name),
            Address::Tcp(place) => format!("nbd://{place}/{}", percent_encoded(name.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_escape_what_a_uri_must_not_hold() {
        let unix = Address::Unix("/tmp/a b".into());
        assert_eq!(unix.uri("my disk"), "nbd+unix:///my%20disk?socket=/tmp/a%20b");
        let tcp = Address::Tcp(([127, 0, 0, 1], 10809).into());
        assert_eq!(tcp.uri("x"), "nbd://127.0.0.1:10809/x");
    }
}
