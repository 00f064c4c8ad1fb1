//! The proof of a server's identity, and the errors of TLS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::certificates::{self, CertificatesError};

/// The TLS of a server: its certificate, and whether clients need one. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
    folder: Arc<PathBuf>,
    verify_peer: bool,
}

/// TLS failed on one connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer broke the protocol, has no acceptable certificate, or does not accept ours.
    #[error("{0}")]
    Protocol(#[from] rustls::Error),
    /// The connection broke, or ended in the middle of a handshake.
    #[error("{0}")]
    Socket(#[from] io::Error),
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        match error {
            TlsError::Protocol(error) => io::Error::new(io::ErrorKind::InvalidData, error),
            TlsError::Socket(error) => error,
        }
    }
}

impl Tls {
    /// Reads the certificates of a server from `folder`, under the names that qemu-nbd and nbdkit know: `server-cert.pem`
    /// (with the certificates between it and its authority, if any), `server-key.pem`, and with `verify_peer` also
    /// `ca-cert.pem`, the authorities of clients, and `ca-crl.pem`, what those have revoked, where there is one. With
    /// `verify_peer` a client without a certificate of these authorities is refused.
    ///
    /// # Errors
    /// A file that is missing, cannot be read, or does not hold what it should; a key of another certificate.
    pub fn load(folder: &Path, verify_peer: bool) -> Result<Tls, CertificatesError> {
        let config = certificates::load(folder, verify_peer)?;
        Ok(Tls { config: Arc::new(config), folder: Arc::new(folder.to_owned()), verify_peer })
    }

    /// For whoever has a socket of its own.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// The TLS of a client: whom it believes, which server it expects, and its own certificate. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server: ServerName<'static>,
}

impl ClientTls {
    /// Reads the certificates of a client from `folder`, under the names that qemu and libnbd know: `ca-cert.pem`, the
    /// authorities of servers, and where they are there `ca-crl.pem`, what those have revoked, and `client-cert.pem` with
    /// `client-key.pem`, the client's own. The server's certificate must be for `server`, a host's name or IP address.
    ///
    /// # Errors
    /// A file that is missing, cannot be read, or does not hold what it should; a key of another certificate; a name that
    /// cannot be one.
    pub fn load(folder: &Path, server: &str) -> Result<ClientTls, CertificatesError> {
        let name = ServerName::try_from(server.to_string())
            .map_err(|_| CertificatesError::Name { server: server.to_string() })?;
        let config = certificates::load_client(folder)?;
        Ok(ClientTls { config: Arc::new(config), server: name })
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server", &self.server).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tls { folder, verify_peer, .. } = self;
        f.debug_struct("Tls").field("folder", folder).field("verify_peer", verify_peer).finish()
    }
}
