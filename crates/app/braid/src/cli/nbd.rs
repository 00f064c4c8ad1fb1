//! What all NBD clients of a server may use together.

use anyhow::{Context, Result};
use braid_export::socket_file::Rights;
use braid_export::tls::Tls;
use braid_export::{Allowed, Network};
use braid_nbd::serve::{Limits, MEMORY_MIN, TlsMode};
use braid_nbd::{Address, AddressError};
use clap::{Args, ValueEnum};
use nix::unistd::Group;
use std::path::PathBuf;
use std::str::FromStr;

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdPlace {
    /// A socket of our own.
    Address(Address),
    /// The sockets that a service manager has made and passes (systemd's `LISTEN_FDS`).
    Activated,
}

impl FromStr for NbdPlace {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<NbdPlace, AddressError> {
        match text {
            "systemd" => Ok(NbdPlace::Activated),
            text => Ok(NbdPlace::Address(match text.parse()? {
                // Anything that `detail` shows is of use anywhere.
                Address::Unix(path) => Address::Unix(std::path::absolute(&path).unwrap_or(path)),
                address => address,
            })),
        }
    }
}

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
    /// The group, by name or number, that unix sockets for NBD belong to: with --nbd-mode 660 its users may connect.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    nbd_group: Option<u32>,
    /// Networks whose clients may connect over TCP, as ADDRESS or ADDRESS/BITS, with commas between them; others are turned
    /// away. Whoever may not be let in by an address alone needs --tls-verify-peer.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', requires = "nbd")]
    nbd_allow: Vec<Network>,
    /// Arrays, by name and with commas between them, that NBD clients may read and not write.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "nbd")]
    pub nbd_read_only: Vec<String>,
    /// TLS at the NBD addresses: `require` it of all clients, `allow` it to those who want it, or have it `off`.
    #[arg(long, value_name = "MODE", default_value = "off", requires_ifs = [
        ("allow", "tls_certificates"), ("require", "tls_certificates")
    ])]
    tls: TlsChoice,
    /// The folder of TLS certificates, with the names that qemu-nbd and nbdkit know: server-cert.pem, server-key.pem, and
    /// where clients are verified ca-cert.pem and perhaps ca-crl.pem. They are read once, at the start. Pre-shared keys
    /// (--tls-psk elsewhere) are not there: rustls has none.
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Let only clients in that have a certificate of an authority in ca-cert.pem.
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
    // Other servers have it, so that it is typed; the answer is to be better than that there is no such word.
    #[arg(long = "tls-psk", value_name = "FILE", value_parser = no_keys, hide = true)]
    _tls_psk: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TlsChoice {
    Off,
    Allow,
    Require,
}

impl NbdLimits {
    /// The server's certificate, for others than NBD, whose clients need none.
    ///
    /// # Errors
    /// Certificates that cannot be used, or none.
    pub fn server_tls(&self) -> Result<Tls> {
        let folder = self.tls_certificates.as_deref();
        let folder = folder.context("TLS needs --tls-certificates DIR")?;
        Ok(Tls::load(folder, false)?)
    }

    /// The server's form of it.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub fn limits(&self) -> Result<Limits> {
        let certificates = match (&self.tls_certificates, self.tls) {
            (Some(folder), TlsChoice::Allow | TlsChoice::Require) => {
                Some(Tls::load(folder, self.tls_verify_peer)?)
            }
            _ => None,
        };
        let tls = match (certificates, self.tls) {
            (Some(tls), TlsChoice::Allow) => TlsMode::Allow(tls),
            (Some(tls), TlsChoice::Require) => TlsMode::Require(tls),
            _ => TlsMode::Off,
        };
        Ok(Limits {
            connections: self.nbd_connections as usize,
            memory: self.nbd_memory,
            socket: Rights { mode: self.nbd_mode, group: self.nbd_group },
            allowed: Allowed::new(self.nbd_allow.clone()),
            tls,
            read_only: self.nbd_read_only.clone(),
            ..Limits::default()
        })
    }
}

fn no_keys(_file: &str) -> Result<PathBuf, String> {
    let why = "rustls, whose TLS this is, knows no pre-shared keys; use certificates: --tls-certificates DIR, and \
               --tls-verify-peer to let only those in that have one";
    Err(why.to_string())
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = braid_device::spec::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < MEMORY_MIN {
        return Err("at least 64M: one request may have 32M".into());
    }
    Ok(bytes)
}

/// A group's number, or the number of the group of this name.
pub(super) fn group(text: &str) -> Result<u32, String> {
    match text.parse() {
        // The kernel's "leave it as it is".
        Ok(u32::MAX) => return Err("no group has this number".into()),
        Ok(number) => return Ok(number),
        Err(_) => {}
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err("there is no group of this name".into()),
        Err(error) => Err(format!("looking the group up: {error}")),
    }
}

/// Permissions in octal.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not an octal mode from 000 to 777".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(group("root"), Ok(0));
        assert_eq!(group("36"), Ok(36));
        for wrong in ["", "no such group", "-1", "4294967295", "4294967296"] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
    }
}
