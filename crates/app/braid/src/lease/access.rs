//! The way to etcd: in the clear or over TLS, and as one of its users.
//!
//! Files are read once. Invariant: a password is read from a file that nobody else may read, and is in no message.

use super::place::Place;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Bytes of a file of certificates, at most, and of one with a password.
const CERTIFICATES_MAX: u64 = 1 << 20;
const PASSWORD_MAX: u64 = 4096;

/// The options that say it.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The authorities that etcd's certificate is of; those that everybody knows, without it.
    pub cacert: Option<PathBuf>,
    /// The certificate that etcd asks for.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The user of etcd.
    pub user: Option<String>,
    /// The file with the user's password.
    pub password_file: Option<PathBuf>,
}

/// A user of etcd.
#[derive(Clone)]
pub(super) struct User {
    pub name: String,
    pub password: String,
}

/// See the module's documentation.
#[derive(Clone)]
pub struct Access {
    /// `None`: in the clear.
    pub(super) tls: Option<TlsConfig>,
    /// `None`: etcd asks for no user.
    pub(super) user: Option<User>,
}

impl Access {
    /// For the etcd at `place`, as was said.
    ///
    /// # Errors
    /// Files that cannot be read, that others may read, or that hold something else; certificates without TLS.
    pub fn read(place: &Place, said: &Said) -> Result<Access> {
        let certificates = [&said.cacert, &said.cert, &said.key];
        if !place.tls && certificates.iter().any(|file| file.is_some()) {
            bail!(
                "certificates for etcd are of no use without TLS: write --lease etcds://HOST:PORT"
            );
        }
        let tls = if place.tls { Some(tls(said)?) } else { None };
        let user = match (&said.user, &said.password_file) {
            (Some(name), Some(file)) => {
                let password = secret(file).with_context(|| {
                    format!("reading the password of etcd's user {name} from {}", file.display())
                })?;
                Some(User { name: name.clone(), password })
            }
            _ => None,
        };
        Ok(Access { tls, user })
    }
}

fn tls(said: &Said) -> Result<TlsConfig> {
    let mut tls = TlsConfig::builder();
    if let Some(file) = &said.cacert {
        let authorities = certificates(file, "the authorities of --lease-cacert")?;
        tls = tls.root_certs(RootCerts::new_with_certs(&authorities));
    }
    if let (Some(cert), Some(key)) = (&said.cert, &said.key) {
        let chain = certificates(cert, "the certificate of --lease-cert")?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, private_key(key)?)));
    }
    Ok(tls.build())
}

/// All certificates in a file.
fn certificates(file: &Path, what: &str) -> Result<Vec<Certificate<'static>>> {
    let doing = || format!("reading {what} from {}", file.display());
    let mut all = Vec::new();
    for item in parse_pem(&bytes(file, CERTIFICATES_MAX).with_context(doing)?) {
        // Keys may stand in the same file.
        if let PemItem::Certificate(certificate) = item.with_context(doing)? {
            all.push(certificate);
        }
    }
    if all.is_empty() {
        bail!("{}: there is no certificate in it (PEM)", doing());
    }
    Ok(all)
}

fn private_key(file: &Path) -> Result<PrivateKey<'static>> {
    let doing = || format!("reading the key of --lease-key from {}", file.display());
    let text = bytes(file, CERTIFICATES_MAX).with_context(doing)?;
    PrivateKey::from_pem(&text).with_context(doing)
}

/// The first line of a file that nobody else may read.
fn secret(file: &Path) -> Result<String> {
    let mode = std::fs::metadata(file)?.mode();
    if mode & 0o077 != 0 {
        bail!("others may read it; chmod 600 {}", file.display());
    }
    let text = String::from_utf8(bytes(file, PASSWORD_MAX)?).context("it is no text (UTF-8)")?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_string()),
        _ => bail!("there is nothing in its first line"),
    }
}

fn bytes(file: &Path, max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        bail!("it has more than {max} bytes");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_password_is_read_from_a_file_of_its_owners_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "one two\nthree\n").unwrap();
        let place: Place = "etcd://one".parse().unwrap();
        let said = Said {
            user: Some("braid".into()),
            password_file: Some(file.clone()),
            ..Said::default()
        };
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        let error = format!("{:#}", Access::read(&place, &said).err().unwrap());
        assert!(error.contains("chmod 600") && !error.contains("one two"), "{error}");
        mode(0o600);
        let access = Access::read(&place, &said).unwrap();
        assert!(access.tls.is_none());
        assert_eq!(access.user.unwrap().password, "one two");
        std::fs::write(&file, "\n").unwrap();
        assert!(Access::read(&place, &said).is_err());
    }

    #[test]
    fn certificates_are_for_tls_and_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "nothing\n").unwrap();
        let said = Said { cacert: Some(file), ..Said::default() };
        for (place, says) in [("etcd://one", "etcds://"), ("etcds://one", "no certificate in it")] {
            let error = Access::read(&place.parse().unwrap(), &said).err().unwrap();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
        assert!(Access::read(&"etcds://one".parse().unwrap(), &Said::default()).is_ok());
    }
}
