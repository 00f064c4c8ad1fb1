//! The page for browsers, and the control API over TCP.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// See the module's documentation.
#[derive(Debug, Clone, Args)]
pub struct Web {
    /// Serve a page that shows this server to a browser, and the control API, over TCP [default: 127.0.0.1:9811]. Whoever has
    /// the token may do everything. An address that other hosts reach needs --http-tls.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9811")]
    pub http: Option<SocketAddr>,
    /// The file with the token, which only its owner may read [default: http-token in the state directory, made when it is
    /// not there].
    #[arg(long, value_name = "FILE", requires = "http")]
    pub http_token: Option<PathBuf>,
    /// The file with a second token, made when it is not there: whoever has that one may look, and change nothing.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub http_look_token: Option<PathBuf>,
    /// TLS at that address, by server-cert.pem and server-key.pem in --tls-certificates.
    #[arg(long, requires_all = ["http", "tls_certificates"])]
    pub http_tls: bool,
    /// A name of this host in the address that browsers show, beside its IP addresses and localhost; several have commas
    /// between them.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "http")]
    pub http_name: Vec<String>,
}
