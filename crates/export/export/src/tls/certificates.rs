//! The files of a server's or client's certificates, and what is wrong with them.
//!
//! Does not know connections. Names of files are those of qemu's `tls-creds-x509` and of `nbdkit --tls-certificates`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

/// The server's certificate, and those between it and its authority.
const SERVER_CERT: &str = "server-cert.pem";
/// Its private key.
const SERVER_KEY: &str = "server-key.pem";
/// The client's certificate, and those between it and its authority.
const CLIENT_CERT: &str = "client-cert.pem";
/// Its private key.
const CLIENT_KEY: &str = "client-key.pem";
/// The authorities whose clients are let in, or whose servers are believed.
const CA_CERT: &str = "ca-cert.pem";
/// The certificates that these have revoked.
const CA_CRL: &str = "ca-crl.pem";

/// The certificates of a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// A file cannot be read.
    #[error(
        "reading {}: {source}; a server's folder of TLS certificates has server-cert.pem and server-key.pem, and ca-cert.pem \
         where clients are to be verified; a client's has ca-cert.pem, and client-cert.pem with client-key.pem where the server \
         verifies clients", .path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file is not in the format PEM, or has nothing in it of the right kind.
    #[error("{}: {why}; it must hold {wanted} in the format PEM", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The content that it must have.
        wanted: &'static str,
        /// The fault.
        why: String,
    },
    /// Certificate and key are not for each other, or are of a kind that TLS does not use any more.
    #[error(
        "{whose}-cert.pem and {whose}-key.pem in {}: {source}; the key must be the certificate's, RSA of at least 2048 \
         bits, ECDSA or Ed25519", .folder.display()
    )]
    Pair {
        /// The folder.
        folder: PathBuf,
        /// `server` or `client`.
        whose: &'static str,
        /// The reason.
        source: rustls::Error,
    },
    /// Peers cannot be verified by these authorities.
    #[error("ca-cert.pem and ca-crl.pem in {}: {source}; nobody can be verified by them", .folder.display())]
    Authorities {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: VerifierBuilderError,
    },
    /// No certificate can be for this server.
    #[error("{server:?} is neither a host's name nor an IP address, so no certificate is for it")]
    Name {
        /// The text.
        server: String,
    },
}

/// The configuration that rustls needs to be a server with the files in `folder`.
pub(super) fn load(folder: &Path, verify_peer: bool) -> Result<ServerConfig, CertificatesError> {
    let provider = Arc::new(provider());
    let chain: Vec<CertificateDer<'static>> = all_of(&folder.join(SERVER_CERT), "a certificate")?;
    let key = key_of(&folder.join(SERVER_KEY))?;
    let pair =
        |source| CertificatesError::Pair { folder: folder.to_owned(), whose: "server", source };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = if verify_peer {
        builder.with_client_cert_verifier(verifier(folder, provider)?)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.ignore_client_order = has_aes();
    // Connections live long: nothing is gained by resuming one, and what is not kept needs no lock and cannot leak.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// ring's cryptography, with AES-128 before AES-256: both are beyond any attack, and what the first encrypts costs either side a
/// quarter less. Whoever wants AES-256 alone offers nothing else.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let name = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite());
    provider.cipher_suites.sort_by_key(|suite| match name(suite) {
        name if name.contains("AES_128") => 0,
        name if name.contains("AES_256") => 1,
        _ => 2,
    });
    provider
}

/// This processor has instructions for AES; else clients choose, of whom those without may like ChaCha20 better.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

fn verifier(
    folder: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, CertificatesError> {
    let roots = Arc::new(authorities(folder)?);
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
    if let Some(lists) = revocations(folder)? {
        // An authority without a list has revoked nothing, as GnuTLS has it.
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    builder
        .build()
        .map_err(|source| CertificatesError::Authorities { folder: folder.to_owned(), source })
}

/// The configuration that rustls needs to be a client with the files in `folder`.
pub(super) fn load_client(folder: &Path) -> Result<ClientConfig, CertificatesError> {
    let provider = Arc::new(provider());
    let roots = Arc::new(authorities(folder)?);
    let mut verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
    if let Some(lists) = revocations(folder)? {
        verifier = verifier.with_crls(lists).allow_unknown_revocation_status();
    }
    let verifier = verifier
        .build()
        .map_err(|source| CertificatesError::Authorities { folder: folder.to_owned(), source })?;
    let pair =
        |source| CertificatesError::Pair { folder: folder.to_owned(), whose: "client", source };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_webpki_verifier(verifier);
    let own = folder.join(CLIENT_CERT);
    let mut config = if own.exists() {
        let chain: Vec<CertificateDer<'static>> = all_of(&own, "a certificate")?;
        let key = key_of(&folder.join(CLIENT_KEY))?;
        builder.with_client_auth_cert(chain, key).map_err(pair)?
    } else {
        builder.with_no_client_auth()
    };
    // Connections live long: nothing is gained by resuming one.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The authorities whose peers are believed.
fn authorities(folder: &Path) -> Result<RootCertStore, CertificatesError> {
    let path = folder.join(CA_CERT);
    let wanted = "certificates of authorities";
    let mut roots = RootCertStore::empty();
    for authority in all_of::<CertificateDer<'static>>(&path, wanted)? {
        let content = |error: rustls::Error| content(&path, wanted, error.to_string());
        roots.add(authority).map_err(content)?;
    }
    Ok(roots)
}

/// Certificates that they have revoked, where that is said.
fn revocations(
    folder: &Path,
) -> Result<Option<Vec<CertificateRevocationListDer<'static>>>, CertificatesError> {
    let path = folder.join(CA_CRL);
    path.exists().then(|| all_of(&path, "revocations")).transpose()
}

fn content(path: &Path, wanted: &'static str, why: String) -> CertificatesError {
    CertificatesError::Content { path: path.to_owned(), wanted, why }
}

fn failed(path: &Path, wanted: &'static str) -> impl Fn(pem::Error) -> CertificatesError {
    move |error| match error {
        pem::Error::Io(source) => CertificatesError::Read { path: path.to_owned(), source },
        other => content(path, wanted, other.to_string()),
    }
}

/// All items of one kind in a file: at least one.
fn all_of<T: PemObject>(path: &Path, wanted: &'static str) -> Result<Vec<T>, CertificatesError> {
    let failed = failed(path, wanted);
    let items = T::pem_file_iter(path).map_err(&failed)?.collect::<Result<Vec<T>, _>>();
    let items = items.map_err(&failed)?;
    if items.is_empty() {
        return Err(failed(pem::Error::NoItemsFound));
    }
    Ok(items)
}

fn key_of(path: &Path) -> Result<PrivateKeyDer<'static>, CertificatesError> {
    PrivateKeyDer::from_pem_file(path).map_err(failed(path, "a private key without a password"))
}
