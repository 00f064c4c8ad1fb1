//! Requests that are refused before anybody looks at what they want.
//!
//! A browser also sends what pages of others tell it to. Such a page may have given its own name this host's address (DNS
//! rebinding): then the Host header has that name. Or it may ask this host by the host's name: then Origin is another one.

use super::token::Token;
use braid_control::api::role::Role;
use braid_control::http::request::Request;
use braid_control::protocol::{Code, Refusal};
use std::net::IpAddr;

/// See the module's documentation.
pub(super) struct Guard {
    /// The token.
    pub token: Token,
    /// The token of those who may only look.
    pub look: Option<Token>,
    /// Names of this host.
    pub names: Vec<String>,
}

impl Guard {
    /// Refuses what is for another host, or comes from a page of another.
    pub fn origin(&self, asked: &Request) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::new(Code::WrongHost, why));
        let Some(host) = asked.header("host") else {
            return refuse("the request does not say for which host it is (Host)".to_string());
        };
        let name = name_of(host);
        // Nobody can give an address another meaning.
        let is_address = name.parse::<IpAddr>().is_ok();
        let is_ours = |known: &str| known.eq_ignore_ascii_case(name);
        if !is_address && !is_ours("localhost") && !self.names.iter().any(|known| is_ours(known)) {
            return refuse(format!(
                "this server does not know itself as {name:?}; if that is a name of its host: serve --http-name {name}"
            ));
        }
        let Some(origin) = asked.header("origin") else { return Ok(()) };
        match origin.split_once("://") {
            Some(("http" | "https", from)) if from.eq_ignore_ascii_case(host) => Ok(()),
            _ => refuse(format!("the request comes from a page of another host, {origin}")),
        }
    }

    /// The role of who has a token; refuses who has none.
    pub fn token(&self, asked: &Request) -> Result<Role, Refusal> {
        let given = asked.header("authorization").and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let file = self.token.file().display();
        match given {
            Some(given) if self.token.is(given) => Ok(Role::Owner),
            Some(given) if self.look.as_ref().is_some_and(|look| look.is(given)) => Ok(Role::Guest),
            Some(_) => Err(Refusal::new(
                Code::Unauthorized,
                format!("that is not the token; it is in {file}"),
            )),
            None => Err(Refusal::new(
                Code::Unauthorized,
                format!("this needs the token: Authorization: Bearer TOKEN; it is in {file}"),
            )),
        }
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_with_and_without_ports() {
        for (host, name) in [
            ("localhost:9811", "localhost"),
            ("127.0.0.1:9811", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]:9811", "::1"),
            ("[::1]", "::1"),
            ("evil.example:80:81", "evil.example:80"),
            ("[", ""),
        ] {
            assert_eq!(name_of(host), name);
        }
    }
}
