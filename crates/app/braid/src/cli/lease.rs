//! The options of `serve`, and of mounts of volumes, that have etcd decide which host runs an array or mounts a volume.

use crate::lease::{Access, Place, Said, Session};
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// A lease that another host takes over.
#[derive(Debug, Clone, Args)]
pub struct Lease {
    #[command(flatten)]
    pub at: LeaseAt,
    /// Wait until no other host holds the lease, then assemble and serve. Until then there is no control socket, and a service
    /// manager is told that the start goes on.
    #[arg(long, requires = "lease", conflicts_with = "strict")]
    pub standby: bool,
}

/// A lease, and how etcd is spoken to.
#[derive(Debug, Clone, Args)]
pub struct LeaseAt {
    /// Run arrays and mount volumes only while this host holds their lease in etcd: etcd://HOST:PORT, with commas between its members, or etcds:// for TLS. Another host
    /// that is given the same is refused them meanwhile, or waits (--standby). When the lease cannot be renewed in time the
    /// process ends at once, before another can get it: clients have to connect to the other host then.
    #[arg(long, value_name = "ETCD")]
    pub lease: Option<Place>,
    /// The time that the lease lasts without being renewed. Another host takes over about so long after this one is gone; this
    /// one ends after four fifths of it without an answer of etcd.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(3..=600),
        requires = "lease"
    )]
    pub lease_ttl: u32,
    /// The authorities that etcd's certificate is of, as etcdctl's --cacert (PEM). Without it those that everybody knows.
    #[arg(long, value_name = "FILE", requires = "lease")]
    pub lease_cacert: Option<PathBuf>,
    /// The certificate that etcd asks for (--client-cert-auth), as etcdctl's --cert (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["lease", "lease_key"])]
    pub lease_cert: Option<PathBuf>,
    /// Its key, as etcdctl's --key (PEM).
    #[arg(long, value_name = "FILE", requires = "lease_cert")]
    pub lease_key: Option<PathBuf>,
    /// The user that etcd knows this server as; it has to be let read and write the keys from braid/ to braid0 (or those of the
    /// prefix that the address ends with).
    #[arg(long, value_name = "NAME", requires_all = ["lease", "lease_password_file"])]
    pub lease_user: Option<String>,
    /// The file whose first line is the user's password. Others than its owner must not be able to read it.
    #[arg(long, value_name = "FILE", requires = "lease_user")]
    pub lease_password_file: Option<PathBuf>,
}

impl LeaseAt {
    /// The way to etcd.
    ///
    /// # Errors
    /// As [`Access::read`].
    pub fn access(&self, place: &Place) -> Result<Access> {
        let said = Said {
            cacert: self.lease_cacert.clone(),
            cert: self.lease_cert.clone(),
            key: self.lease_key.clone(),
            user: self.lease_user.clone(),
            password_file: self.lease_password_file.clone(),
        };
        Access::read(place, &said)
    }

    /// Begins a session, where there is a lease.
    ///
    /// # Errors
    /// As [`Access::read`] and [`Session::begin`].
    pub fn begin(&self) -> Result<Option<Arc<Session>>> {
        let Some(place) = &self.lease else { return Ok(None) };
        Ok(Some(Session::begin(place, &self.access(place)?, self.lease_ttl)?))
    }

    /// The words that say the same to another process.
    pub fn arguments(&self) -> Vec<OsString> {
        let Some(place) = &self.lease else { return Vec::new() };
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |option: &str, value: OsString| words.extend([option.into(), value]);
        say("--lease", place.to_string().into());
        say("--lease-ttl", self.lease_ttl.to_string().into());
        for (option, file) in [
            ("--lease-cacert", &self.lease_cacert),
            ("--lease-cert", &self.lease_cert),
            ("--lease-key", &self.lease_key),
            ("--lease-password-file", &self.lease_password_file),
        ] {
            if let Some(file) = file {
                say(option, file.into());
            }
        }
        if let Some(user) = &self.lease_user {
            say("--lease-user", user.into());
        }
        words
    }
}
