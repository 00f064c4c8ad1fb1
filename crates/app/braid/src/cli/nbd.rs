//! What all NBD clients of a server may use together.

use braid_nbd::serve::{Limits, MEMORY_MIN};
use clap::Args;

/// See the module's documentation.
#[derive(Clone, Debug, Args)]
pub struct NbdLimits {
    /// NBD connections at a time, over all addresses; further clients are turned away. A client may use
    /// several, and each takes two open files.
    #[arg(long, value_name = "N", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=65536))]
    nbd_connections: u32,
    /// Memory for the payloads of all NBD clients together, at least 64M. A quarter is divided among the
    /// connections, so that small requests never wait for other clients. While larger ones do, a client that keeps
    /// memory without taking its data or sending what it announced is disconnected after ten seconds and one for
    /// each MiB.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory)]
    nbd_memory: u64,
    /// Permissions of unix sockets for NBD, in octal, whatever the umask: 660 lets the group in.
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    nbd_mode: u32,
}

impl NbdLimits {
    /// The server's form of it.
    pub fn limits(&self) -> Limits {
        Limits {
            connections: self.nbd_connections as usize,
            memory: self.nbd_memory,
            socket_mode: self.nbd_mode,
            ..Limits::default()
        }
    }
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = braid_device::spec::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < MEMORY_MIN {
        return Err("at least 64M: one request may have 32M".into());
    }
    Ok(bytes)
}

/// Permissions in octal.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not an octal mode from 000 to 777".into()),
    }
}
