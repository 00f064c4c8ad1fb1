//! The HTTP of the metrics: `GET /metrics` is answered, and the connection closed.
//!
//! Does not know what is served.

use anyhow::Result;
use braid_control::http::reply::{PLAIN, Reply};
use braid_control::http::request::Request;
use braid_control::http::server::{Place, Server, Wanted};
use braid_control::http::{Limits, converse, plainly};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Connections at a time; further ones are closed.
const CONNECTIONS_MAX: usize = 16;
/// No request has a body.
const LIMITS: Limits = Limits { patience: Duration::from_secs(10), body_max: 0 };

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Makes what is served.
pub type Page = dyn Fn() -> Result<String> + Send + Sync;

/// A server of metrics; dropping it ends it.
pub struct MetricsServer(Server);

impl MetricsServer {
    /// Listens at `place` and answers with what `page` makes.
    ///
    /// # Errors
    /// When the address is taken or may not be used, or the system refuses a thread.
    pub fn start(place: &Place, page: Arc<Page>) -> Result<MetricsServer> {
        let wanted = Wanted {
            name: "metrics",
            option: "--metrics",
            place,
            tls: None,
            connections_max: CONNECTIONS_MAX,
        };
        let talk = move |stream: &mut dyn braid_control::http::stream::Stream| {
            converse(
                stream,
                LIMITS,
                &mut |request, reply| answer(request, reply, &*page),
                &plainly,
            );
        };
        Ok(MetricsServer(Server::start(wanted, Arc::new(talk))?))
    }
}

impl fmt::Display for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.place() {
            Place::Tcp(address) => write!(f, "http://{address}/metrics"),
            place => place.fmt(f),
        }
    }
}

fn answer(request: &Request, reply: &mut Reply<'_>, page: &Page) {
    let (status, kind, text) = match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/metrics") => match page() {
            Ok(text) => (200, OPENMETRICS, text),
            Err(error) => (500, PLAIN, format!("making metrics: {error:#}\n")),
        },
        ("GET" | "HEAD", _) => (404, PLAIN, "metrics are at /metrics\n".to_string()),
        _ => (405, PLAIN, "GET /metrics is all there is\n".to_string()),
    };
    reply.is_last();
    // A client that is slow or gone has no use for the error.
    let _ = reply.whole(status, kind, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};

    fn say(path: &Path, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // One that was refused is hung up on before all is read.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn served(page: Arc<Page>) -> (tempfile::TempDir, PathBuf, MetricsServer) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.sock");
        let server = MetricsServer::start(&Place::Unix(path.clone()), page).unwrap();
        (folder, path, server)
    }

    #[test]
    fn metrics_are_given_and_anything_else_is_told_where_they_are() {
        let (_folder, path, server) = served(Arc::new(|| Ok("figures\n".to_string())));
        let answer = say(&path, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nfigures\n"));
        assert!(answer.contains("Content-Length: 8\r\n"), "{answer}");
        let head = say(&path, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\u{1}\u{2}\r\n\r\n", "400"),
        ] {
            let answer = say(&path, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(16 << 10));
        assert!(say(&path, long.as_bytes()).starts_with("HTTP/1.1 431"));
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn clients_that_say_nothing_keep_no_other_from_its_answer() {
        let (_folder, path, _server) = served(Arc::new(|| bail!("no figures")));
        let silent: Vec<UnixStream> =
            (0..CONNECTIONS_MAX - 1).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut half = &silent[0];
        half.write_all(b"GET /met").unwrap();
        let answer = say(&path, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("no figures"), "{answer}");
    }

    #[test]
    fn a_place_that_is_taken_is_left_alone() {
        let (folder, path, _server) = served(Arc::new(|| Ok(String::new())));
        let again = MetricsServer::start(&Place::Unix(path), Arc::new(|| Ok(String::new())));
        assert!(format!("{:#}", again.err().unwrap()).contains("in use"));
        let file = folder.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        let other =
            MetricsServer::start(&Place::Unix(file.clone()), Arc::new(|| Ok(String::new())));
        assert!(other.is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }
}
