//! The page for browsers, and the control API over TCP, for whoever has the token.
//!
//! | file | subject |
//! |---|---|
//! | `guard` | requests that come from pages of others, or for other hosts; the token in a request |
//! | `token` | the token: kept in a file, compared in constant time |
//! | `page.html`, `page.css`, `page.js` | the page, which asks the API and nobody else |
//!
//! Owns the listening address. The page itself has no secret and is given to anybody; each request of the API needs the token.

mod guard;
pub mod token;

use anyhow::{Result, bail};
use braid_control::api::PREFIX;
use braid_control::api::serving::{self, Handler};
use braid_control::http::reply::{PLAIN, Reply};
use braid_control::http::request::Request;
use braid_control::http::server::{Place, Server, Wanted};
use braid_control::http::stream::Stream;
use braid_control::http::{Limits, converse};
use braid_control::protocol::REQUEST_MAX;
use braid_export::tls::Tls;
use guard::Guard;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use token::Token;

/// Connections at a time; further ones are closed.
const CONNECTIONS_MAX: usize = 64;
const LIMITS: Limits = Limits { patience: Duration::from_secs(30), body_max: REQUEST_MAX };

/// Scripts and styles are files of this server, and nothing else is loaded or asked.
const POLICY: (&str, &str) = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);
const REFERRER: (&str, &str) = ("Referrer-Policy", "no-referrer");

/// Files of the page: path, type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
];

/// The server of the page; dropping it ends it.
pub struct Web {
    server: Server,
    over_tls: bool,
    token_file: PathBuf,
}

impl Web {
    /// Listens at `address`; `look`, where there is one, is the token of those who may only look; `names` are those of this host, beside its IP addresses.
    ///
    /// # Errors
    /// When the address is taken or may not be used, or is reached from other hosts and has no TLS.
    pub fn start(
        address: SocketAddr,
        tls: Option<&Tls>,
        (token, look): (Token, Option<Token>),
        names: Vec<String>,
        handler: Arc<Handler>,
    ) -> Result<Web> {
        if tls.is_none() && !address.ip().is_loopback() {
            bail!(
                "--http={address} is reached from other hosts, and the token would go there in the clear: add --http-tls with \
                 --tls-certificates DIR, or listen at 127.0.0.1 and come by ssh -L or a proxy on this host"
            );
        }
        let wanted = Wanted {
            name: "web",
            option: "--http",
            place: &Place::Tcp(address),
            tls: tls.map(Tls::config),
            connections_max: CONNECTIONS_MAX,
        };
        let token_file = token.file().to_owned();
        let guard = Guard { token, look, names };
        let talk = move |stream: &mut dyn Stream| {
            let mut answer =
                |asked: &Request, reply: &mut Reply<'_>| answer(asked, reply, &guard, &*handler);
            converse(stream, LIMITS, &mut answer, &serving::wrong);
        };
        let server = Server::start(wanted, Arc::new(talk))?;
        Ok(Web { server, over_tls: tls.is_some(), token_file })
    }
}

impl fmt::Display for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.over_tls { "https" } else { "http" };
        let file = self.token_file.display();
        match self.server.place() {
            Place::Tcp(address) => write!(f, "{scheme}://{address}/, token in {file}"),
            place => place.fmt(f),
        }
    }
}

fn answer(asked: &Request, reply: &mut Reply<'_>, guard: &Guard, handler: &Handler) {
    if let Err(refusal) = guard.origin(asked) {
        return serving::refuse(refusal, reply);
    }
    let is_api = asked.path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'));
    if is_api {
        return match guard.token(asked) {
            Ok(role) => serving::answer(asked, role, handler, reply),
            Err(refusal) => serving::refuse(refusal, reply),
        };
    }
    let file = FILES.iter().find(|(path, ..)| *path == asked.path);
    // The peer may be gone.
    let _ = match (asked.method.as_str(), file) {
        ("GET" | "HEAD", Some((_, kind, text))) => {
            reply.with_headers(200, kind, &[POLICY, REFERRER], text.as_bytes())
        }
        (_, Some(_)) => reply.whole(405, PLAIN, b"GET is all there is\n"),
        (_, None) => reply.whole(404, PLAIN, b"the page is at /, the API at /v1\n"),
    };
}
