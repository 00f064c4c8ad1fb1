//! Where etcd is: `etcd://HOST[:PORT][,HOST[:PORT]…][/PREFIX]`, or `etcds://…` over TLS.

use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "etcd://";
const WITH_TLS: &str = "etcds://";
/// etcd's port for clients.
const PORT: u16 = 2379;
/// The beginning of the names of keys.
const PREFIX: &str = "braid";

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// HOST:PORT of each of its members.
    pub(super) hosts: Vec<String>,
    /// They are spoken to over TLS.
    pub(super) tls: bool,
    prefix: String,
}

impl Place {
    /// The key of `arrays/UUID` or `volumes/UUID`.
    pub(super) fn key(&self, what: &str) -> String {
        format!("{}/{what}", self.prefix)
    }

    /// The key that names the heartbeat of its last holder.
    pub(super) fn used(&self, what: &str) -> String {
        format!("{}/used", self.key(what))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let wrong =
            |why: &str| format!("{why}; write etcd://HOST:PORT, with commas between several");
        let (rest, tls) = match (text.strip_prefix(SCHEME), text.strip_prefix(WITH_TLS)) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(wrong("it begins with neither etcd:// nor etcds:// (TLS)")),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let prefix = match prefix.trim_matches('/') {
            "" => PREFIX,
            prefix => prefix,
        };
        let hosts: Vec<String> =
            hosts.split(',').map(host).collect::<Result<_, _>>().map_err(|why| wrong(&why))?;
        Ok(Place { hosts, tls, prefix: prefix.to_string() })
    }
}

/// One of the hosts, with its port.
fn host(text: &str) -> Result<String, String> {
    // The colons of an IPv6 address stand between brackets.
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) || name.contains(':') != name.starts_with('[') {
        return Err(format!("{text:?} is no host"));
    }
    let port = match port {
        Some(port) => port.parse::<u16>().map_err(|_| format!("{port:?} is no port"))?,
        None => PORT,
    };
    Ok(format!("{name}:{port}"))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { WITH_TLS } else { SCHEME };
        write!(f, "{scheme}{}/{}", self.hosts.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_hosts_and_a_beginning_of_keys() {
        let place: Place = "etcd://one,two:1,[fd00::1],[fd00::2]:3".parse().unwrap();
        assert_eq!(place.hosts, ["one:2379", "two:1", "[fd00::1]:2379", "[fd00::2]:3"]);
        assert_eq!(
            (place.key("arrays/a").as_str(), place.used("arrays/a").as_str()),
            ("braid/arrays/a", "braid/arrays/a/used")
        );
        let place: Place = "etcd://one/my/racks/".parse().unwrap();
        assert_eq!(place.key("arrays/a"), "my/racks/arrays/a");
        assert!(!place.tls);
        assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        let place: Place = "etcds://one".parse().unwrap();
        assert!(place.tls);
        assert_eq!(place.to_string(), "etcds://one:2379/braid");
    }

    #[test]
    fn what_is_no_place_is_refused_with_the_way_to_write_one() {
        for text in [
            "one:2379",
            "http://one",
            "etcd://",
            "etcd://a,",
            "etcd://a:x",
            "etcd://a b",
            "etcd://u@h",
            "etcd://fd00::1",
        ] {
            let why = text.parse::<Place>().unwrap_err();
            assert!(why.contains("etcd://HOST:PORT"), "{text}: {why}");
        }
    }
}
