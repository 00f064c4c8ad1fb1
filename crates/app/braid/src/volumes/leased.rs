//! The lease of a volume: of several hosts that reach its bricks only the one that has it may mount it.
//!
//! It is taken before bricks are opened for use, and given up when they are closed. Whoever loses it ends with the process, which
//! [`crate::lease`] sees to.

use super::registry::Volumes;
use crate::exit::refused;
use crate::lease::{NotTaken, Session};
use anyhow::{Result, bail};
use braid_control::protocol::{Code, Lease};
use uuid::Uuid;

/// A lease that was taken for a mount, and is given up unless that succeeds.
pub(super) struct Claim<'a>(Option<(&'a Session, [u8; 16])>);

impl Claim<'_> {
    /// The volume is mounted: [`Volumes::give_up_lease`] is for its end.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some((session, uuid)) = self.0 {
            session.give_up(&uuid);
        }
    }
}

impl Volumes {
    /// Refuses a mount under the lease of `place` where this server has none, or another.
    pub(super) fn has_lease_of(&self, place: Option<&str>) -> Result<()> {
        let own = self.lease.as_ref().map(|session| session.place().to_string());
        match (place, own) {
            (Some(wanted), Some(own)) if wanted == own => Ok(()),
            (Some(_), Some(own)) => bail!(
                "the running server has a lease of {own}, not that one; give it another server (--control), or leave --lease out"
            ),
            (Some(_), None) => bail!(
                "the running server has no lease: start it with --lease (`braid serve`, or lease in [serve] of braid.toml), or \
                 give the volume a server of its own (--control)"
            ),
            (None, _) => Ok(()),
        }
    }

    /// Takes the lease of a volume, where this server has one.
    ///
    /// # Errors
    /// Another host has it, or etcd does not answer.
    pub(super) fn claim(&self, uuid: Uuid, name: &str) -> Result<Claim<'_>> {
        let Some(session) = &self.lease else { return Ok(Claim(None)) };
        let uuid = uuid.into_bytes();
        if session.taken(&uuid).is_some() {
            bail!("volume {name} is in use by this server");
        }
        match session.take_volume(&uuid, name) {
            Ok(taken) => {
                let token = taken.token;
                tracing::info!("volume {name}: lease of {}, token {token}", session.place());
                Ok(Claim(Some((session, uuid))))
            }
            Err(NotTaken::Held(holder)) => {
                let why = format!("{holder} holds the lease of volume {name}: unmount it there");
                Err(refused(Code::InUse, why))
            }
            Err(NotTaken::Etcd(error)) => {
                Err(anyhow::Error::new(error).context(format!("taking the lease of volume {name}")))
            }
        }
    }

    /// The volume has ended, and its bricks are closed: others may mount it.
    pub fn give_up_lease(&self, uuid: Uuid) {
        if let Some(session) = &self.lease {
            session.give_up(&uuid.into_bytes());
        }
    }

    /// The lease that a volume is mounted under.
    pub(super) fn lease_of(&self, uuid: Uuid) -> Option<Lease> {
        let session = self.lease.as_ref()?;
        let token = session.taken(&uuid.into_bytes())?.token;
        let left_ms = u64::try_from(session.left().as_millis()).unwrap_or(u64::MAX);
        let (place, number) = (session.place().to_string(), session.number());
        Some(Lease { place, number, token, left_ms })
    }
}
