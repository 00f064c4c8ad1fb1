//! An export by its NBD URI, as nbdinfo, qemu and libnbd take it (NBD project, `doc/uri.md`; RFC 3986).
//!
//! Owns parsing and printing. Does not resolve hosts and opens nothing. Invariant: what [`ExportUri`] prints, it reads
//! back as the same; two texts of one host, port or socket and export print the same.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The port that IANA has given to NBD.
pub const DEFAULT_PORT: u16 = 10809;
/// Bytes that the protocol allows in the name of an export.
const EXPORT_BYTES_MAX: usize = 4096;
/// Bytes that DNS allows in the name of a host.
const HOST_BYTES_MAX: usize = 253;

/// Where the server of an export is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host's name or IP address, and a port.
    Tcp {
        /// In lower case; an IPv6 address without its brackets.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
}

/// The TLS of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UriTls {
    /// The folder of the client's certificates.
    pub certificates: PathBuf,
    /// The name that the server's certificate must be for, where that is not the host's.
    pub hostname: Option<String>,
}

/// An export of an NBD server: `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`; with TLS
/// `nbds://HOST[:PORT]/EXPORT?tls-certificates=FOLDER` or `nbds+unix:///EXPORT?socket=PATH&tls-certificates=FOLDER`, to both
/// of which `&tls-hostname=NAME` may be added.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExportUri {
    place: Place,
    export: String,
    tls: Option<UriTls>,
}

/// Why a text is no URI of an export that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?}: {fault}; write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH, with TLS nbds"
)]
pub struct UriError {
    /// The text that was given.
    pub text: String,
    /// The fault in it.
    pub fault: UriFault,
}

/// The fault in a URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriFault {
    /// None of the schemes.
    #[error("an NBD URI begins with nbd:// or nbd+unix://, with TLS nbds:// or nbds+unix://")]
    Scheme,
    /// `nbds://` or `nbds+unix://` without certificates.
    #[error(
        "nbds needs the folder of the client's certificates, which has ca-cert.pem: add ?tls-certificates=FOLDER, behind a \
         socket &tls-certificates=FOLDER"
    )]
    NoCertificates,
    /// A user's name, which only pre-shared keys have a use for.
    #[error(
        "a user's name before the host is for pre-shared keys, which are not there; certificates are"
    )]
    User,
    /// No host, or what cannot be the name of one.
    #[error("{0:?} is no host: give a name, an IPv4 address, or an IPv6 address in brackets")]
    Host(String),
    /// A host where a socket in the file system is meant.
    #[error("nbd+unix has no host: three slashes, then the export")]
    HostOfSocket,
    /// The port is none.
    #[error("port {0:?} is not a number from 1 to 65535")]
    Port(String),
    /// `nbd+unix` without a socket.
    #[error("the socket is missing")]
    NoSocket,
    /// A parameter that is not known here, or is there twice.
    #[error("parameter {0:?} is not known here, or was given twice")]
    Parameter(String),
    /// Something behind `#`.
    #[error("# has no meaning here: write %23 where it is part of a name")]
    Fragment,
    /// `%` without two hexadecimal digits behind it.
    #[error("% stands before two hexadecimal digits: write %25 where it is part of a name")]
    Escape,
    /// The name of the export cannot be one.
    #[error("the name of an export is at most 4096 bytes of UTF-8 without NUL")]
    Export,
    /// The path of the socket cannot be one.
    #[error("a path holds no NUL; sockets without a name in the file system are not used")]
    SocketPath,
}

impl ExportUri {
    /// True when `text` is meant as an NBD URI, be it a good one or not: it begins with a word that starts with `nbd` and
    /// a colon. A file whose name does so can be given with its folder, `./NAME`.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        let lowered = |scheme: &str| scheme.to_ascii_lowercase();
        text.split_once(':').is_some_and(|(scheme, _)| {
            lowered(scheme).starts_with("nbd")
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
        })
    }

    /// Where the server is.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The name of the export; empty for the server's default one.
    #[must_use]
    pub fn export(&self) -> &str {
        &self.export
    }

    /// The TLS of the connection; `None`: it has none.
    #[must_use]
    pub fn tls(&self) -> Option<&UriTls> {
        self.tls.as_ref()
    }

    /// The same with the paths of socket and certificates absolute, so that it means the same in another folder.
    ///
    /// # Errors
    /// When the current folder is not known.
    pub fn absolute(self) -> io::Result<ExportUri> {
        let place = match self.place {
            Place::Unix(path) => Place::Unix(std::path::absolute(path)?),
            tcp @ Place::Tcp { .. } => tcp,
        };
        let absolute = |tls: UriTls| {
            Ok::<_, io::Error>(UriTls {
                certificates: std::path::absolute(tls.certificates)?,
                ..tls
            })
        };
        let tls = self.tls.map(absolute).transpose()?;
        Ok(ExportUri { place, tls, ..self })
    }
}

impl FromStr for ExportUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        parse(text).map_err(|fault| UriError { text: text.to_string(), fault })
    }
}

impl fmt::Display for ExportUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Unix(path) => match self.tls {
                None => f.write_str(&of_socket(path, &self.export))?,
                Some(_) => {
                    f.write_str(&of_socket(path, &self.export).replacen("nbd", "nbds", 1))?
                }
            },
            Place::Tcp { host, port } => {
                f.write_str(if self.tls.is_some() { "nbds://" } else { "nbd://" })?;
                match host.contains(':') {
                    true => write!(f, "[{host}]")?,
                    false => f.write_str(host)?,
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{}", percent_encoded(self.export.as_bytes()))?;
            }
        }
        let Some(UriTls { certificates, hostname }) = &self.tls else { return Ok(()) };
        let before = if matches!(self.place, Place::Unix(_)) { '&' } else { '?' };
        let folder = percent_encoded(certificates.as_os_str().as_encoded_bytes());
        write!(f, "{before}tls-certificates={folder}")?;
        match hostname {
            Some(name) => write!(f, "&tls-hostname={}", percent_encoded(name.as_bytes())),
            None => Ok(()),
        }
    }
}

fn parse(text: &str) -> Result<ExportUri, UriFault> {
    let (scheme, rest) = text.split_once("://").ok_or(UriFault::Scheme)?;
    if rest.contains('#') {
        return Err(UriFault::Fragment);
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let Query { socket, certificates, hostname } = query_of(query.unwrap_or_default())?;
    let scheme = scheme.to_ascii_lowercase();
    let place = match (scheme.as_str(), socket) {
        ("nbd" | "nbds", None) => tcp(authority)?,
        ("nbd" | "nbds", Some(_)) => return Err(UriFault::Parameter("socket".to_string())),
        ("nbd+unix" | "nbds+unix", _) if !authority.is_empty() => {
            return Err(UriFault::HostOfSocket);
        }
        ("nbd+unix" | "nbds+unix", Some(path)) if !path.as_os_str().is_empty() => Place::Unix(path),
        ("nbd+unix" | "nbds+unix", _) => return Err(UriFault::NoSocket),
        _ => return Err(UriFault::Scheme),
    };
    let tls = match (scheme.starts_with("nbds"), certificates, hostname) {
        (false, None, None) => None,
        (false, Some(_), _) => return Err(UriFault::Parameter("tls-certificates".to_string())),
        (false, None, Some(_)) => return Err(UriFault::Parameter("tls-hostname".to_string())),
        (true, Some(folder), hostname) if !folder.as_os_str().is_empty() => {
            Some(UriTls { certificates: folder, hostname })
        }
        (true, ..) => return Err(UriFault::NoCertificates),
    };
    let export = String::from_utf8(decoded(export)?).map_err(|_| UriFault::Export)?;
    if export.len() > EXPORT_BYTES_MAX || export.contains('\0') {
        return Err(UriFault::Export);
    }
    Ok(ExportUri { place, export, tls })
}

/// The host and port of `authority`.
fn tcp(authority: &str) -> Result<Place, UriFault> {
    if authority.contains('@') {
        return Err(UriFault::User);
    }
    let no_host = || UriFault::Host(authority.to_string());
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']').ok_or_else(no_host)?;
            let host: Ipv6Addr = host.parse().map_err(|_| no_host())?;
            let port = match port.strip_prefix(':') {
                None if port.is_empty() => "",
                None => return Err(no_host()),
                Some(port) => port,
            };
            (host.to_string(), port)
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let fits = (1..=HOST_BYTES_MAX).contains(&host.len());
            if !fits || !host.bytes().all(letter) || port.contains(':') {
                return Err(no_host());
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    let port = match port {
        "" => DEFAULT_PORT,
        digits => {
            let number = digits.parse().ok().filter(|port| *port > 0);
            let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            number.filter(|_| all_digits).ok_or_else(|| UriFault::Port(digits.to_string()))?
        }
    };
    Ok(Place::Tcp { host, port })
}

/// The parameters of a query that are known.
#[derive(Default)]
struct Query {
    socket: Option<PathBuf>,
    certificates: Option<PathBuf>,
    hostname: Option<String>,
}

fn query_of(query: &str) -> Result<Query, UriFault> {
    let mut found = Query::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let unknown = || UriFault::Parameter(name.to_string());
        let twice = match name {
            "socket" => found.socket.replace(path_of(value)?).is_some(),
            "tls-certificates" => found.certificates.replace(path_of(value)?).is_some(),
            "tls-hostname" => {
                let name = String::from_utf8(decoded(value)?);
                let name = name.ok().filter(|name| !name.is_empty() && !name.contains('\0'));
                found.hostname.replace(name.ok_or_else(unknown)?).is_some()
            }
            _ => return Err(unknown()),
        };
        if twice {
            return Err(unknown());
        }
    }
    Ok(found)
}

fn path_of(value: &str) -> Result<PathBuf, UriFault> {
    let path = decoded(value)?;
    if path.contains(&0) {
        return Err(UriFault::SocketPath);
    }
    Ok(PathBuf::from(OsString::from_vec(path)))
}

/// The URI of an export behind a socket in the file system.
pub(crate) fn of_socket(path: &Path, export: &str) -> String {
    let path = percent_encoded(path.as_os_str().as_encoded_bytes());
    format!("nbd+unix:///{}?socket={path}", percent_encoded(export.as_bytes()))
}

/// Leaves letters, digits and `-._~/` (RFC 3986: unreserved, and the path's separator) as they are.
pub(crate) fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn decoded(text: &str) -> Result<Vec<u8>, UriFault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = left.next() {
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (digit(left.next()), digit(left.next()));
                let (high, low) = high.zip(low).ok_or(UriFault::Escape)?;
                // Two hexadecimal digits make at most 255.
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> UriFault {
        text.parse::<ExportUri>().unwrap_err().fault
    }

    #[test]
    fn hosts_sockets_and_exports_are_read_and_printed_in_one_form() {
        for (text, printed, export) in [
            ("nbd://example.com:10809/export", "nbd://example.com/export", "export"),
            ("nbd://Example.COM", "nbd://example.com/", ""),
            ("NBD://example.com:/", "nbd://example.com/", ""),
            ("nbd://10.0.0.7:4000//disk", "nbd://10.0.0.7:4000//disk", "/disk"),
            ("nbd://h/hello%20world%23", "nbd://h/hello%20world%23", "hello world#"),
            ("nbd://[::1]/x", "nbd://[::1]/x", "x"),
            ("nbd://[FE80:0:0:0:0:0:0:1]:7/x", "nbd://[fe80::1]:7/x", "x"),
            ("nbd+unix:///x?socket=/run/a%20b.sock", "nbd+unix:///x?socket=/run/a%20b.sock", "x"),
            ("nbd+unix://?socket=nbd.sock", "nbd+unix:///?socket=nbd.sock", ""),
            ("nbd+unix:///a=b?socket=a=b", "nbd+unix:///a%3Db?socket=a%3Db", "a=b"),
            ("nbd+unix:///%c3%a4?socket=/%ff", "nbd+unix:///%C3%A4?socket=/%FF", "ä"),
            ("nbds://H/x?tls-certificates=/a%20b", "nbds://h/x?tls-certificates=/a%20b", "x"),
            (
                "NBDS+unix:///x?tls-hostname=H&tls-certificates=a&socket=b",
                "nbds+unix:///x?socket=b&tls-certificates=a&tls-hostname=H",
                "x",
            ),
        ] {
            let uri: ExportUri = text.parse().unwrap();
            assert_eq!((uri.to_string().as_str(), uri.export()), (printed, export), "{text}");
            assert_eq!(printed.parse(), Ok(uri));
        }
        let place = "nbd://[::1]:9".parse::<ExportUri>().unwrap().place().clone();
        assert_eq!(place, Place::Tcp { host: "::1".to_string(), port: 9 });
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let host = |text: &str| UriFault::Host(text.to_string());
        let port = |text: &str| UriFault::Port(text.to_string());
        for (text, expected) in [
            ("", UriFault::Scheme),
            ("nbd:unix:/run/x.sock", UriFault::Scheme),
            ("nbd+vsock:///x", UriFault::Scheme),
            ("http://h/x", UriFault::Scheme),
            ("nbds://h/x", UriFault::NoCertificates),
            ("nbds://h/x?tls-certificates=", UriFault::NoCertificates),
            ("nbds+unix:///x?socket=a", UriFault::NoCertificates),
            ("nbds+unix:///x?tls-certificates=a", UriFault::NoSocket),
            ("nbd://h/x?tls-certificates=a", UriFault::Parameter("tls-certificates".to_string())),
            ("nbd://h/x?tls-hostname=a", UriFault::Parameter("tls-hostname".to_string())),
            (
                "nbds://h/x?tls-certificates=a&tls-certificates=b",
                UriFault::Parameter("tls-certificates".to_string()),
            ),
            ("nbds://h/x?tls-certificates=%00", UriFault::SocketPath),
            (
                "nbds://h/x?tls-certificates=a&tls-hostname=",
                UriFault::Parameter("tls-hostname".to_string()),
            ),
            ("nbd://user@h/x", UriFault::User),
            ("nbd:///x", host("")),
            ("nbd://:10809/x", host(":10809")),
            ("nbd://h h/x", host("h h")),
            ("nbd://::1/x", host("::1")),
            ("nbd://[::1/x", host("[::1")),
            ("nbd://[::1]9/x", host("[::1]9")),
            ("nbd://[h]/x", host("[h]")),
            ("nbd://h:0/x", port("0")),
            ("nbd://h:65536/x", port("65536")),
            ("nbd://h:+80/x", port("+80")),
            ("nbd://h:x/x", port("x")),
            ("nbd+unix:///x", UriFault::NoSocket),
            ("nbd+unix:///x?socket=", UriFault::NoSocket),
            ("nbd+unix://h/x?socket=a", UriFault::HostOfSocket),
            ("nbd+unix:///x?socket=a&socket=b", UriFault::Parameter("socket".to_string())),
            ("nbd+unix:///x?socket=a&tls-type=psk", UriFault::Parameter("tls-type".to_string())),
            ("nbd://h/x?socket=a", UriFault::Parameter("socket".to_string())),
            ("nbd+unix:///x?socket=%00a", UriFault::SocketPath),
            ("nbd://h/x#y", UriFault::Fragment),
            ("nbd://h/%", UriFault::Escape),
            ("nbd://h/%4", UriFault::Escape),
            ("nbd://h/%zz", UriFault::Escape),
            ("nbd://h/%ff", UriFault::Export),
            ("nbd://h/a%00b", UriFault::Export),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
        assert_eq!(fault(&format!("nbd://h/{}", "x".repeat(4097))), UriFault::Export);
        let said = "nbd://h:99999/x".parse::<ExportUri>().unwrap_err().to_string();
        assert!(
            said.contains("\"99999\"") && said.contains("nbd+unix:///EXPORT?socket="),
            "{said}"
        );
    }

    #[test]
    fn files_and_other_kinds_are_not_taken_for_uris() {
        for text in ["nbd://h/x", "nbd+unix:///x", "nbds://h", "NBD:", "nbd:unix:/x"] {
            assert!(ExportUri::is_meant(text), "{text}");
        }
        for text in ["", "/dev/nbd0", "./nbd://h", "array:nbd", "ram:1G", "nbd", "nbd/a:b"] {
            assert!(!ExportUri::is_meant(text), "{text}");
        }
    }

    #[test]
    fn a_socket_is_made_absolute() {
        let uri: ExportUri = "nbd+unix:///x?socket=a.sock".parse().unwrap();
        let absolute = uri.absolute().unwrap().to_string();
        let here = std::env::current_dir().unwrap().join("a.sock");
        assert_eq!(absolute, of_socket(&here, "x"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_or_refused(text in "(nbds?(\\+unix)?://)?[ -~é%/?#\\[\\]:]{0,40}(\\?(socket=a&)?tls-certificates=[a-z%&=]{0,4})?") {
            if let Ok(uri) = text.parse::<ExportUri>() {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
