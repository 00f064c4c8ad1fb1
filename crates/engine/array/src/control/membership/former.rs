//! Members that have left because the array has no place for them any more.

use super::Membership;
use crate::control::record::members::Member;
use crate::control::record::retiring::Left;
use crate::metadata::reservations::Held;
use crate::state::view::MemberNr;
use braid_device::Opener;
use braid_format::superblock::Superblock;
use std::sync::Arc;

/// A member that is none any more, whose device is still open.
pub(crate) struct Former {
    nr: MemberNr,
    opener: Arc<dyn Opener>,
    superblock: Superblock,
    reservation: Option<Held>,
}

impl Former {
    /// The remains of a member that has been taken off the roster.
    pub(crate) fn of(member: Member) -> Former {
        let Member { nr, opener, superblock, reservation, .. } = member;
        Former { nr, opener, superblock, reservation }
    }
}

impl Membership {
    /// Closes the device on all shards, and marks its superblock so that nobody starts it as an array of its own.
    pub(crate) async fn has_left(&self, former: Former) {
        let Former { nr, opener, superblock, reservation } = former;
        self.record.engines.close_member(nr).await;
        let (array, name) = (&self.record.name, opener.name());
        let owed = self.unanswered.owed(name).await;
        let marked = match owed {
            0 => self.record.retire(&*opener, &superblock, Left::Replaced).await,
            // It would be waited for, or the mark be overtaken by what it still has.
            owed => Err(format!("it has not ended {owed} requests yet")),
        };
        if let Some(disk) = reservation {
            disk.leave().await;
        }
        match marked {
            Ok(()) => tracing::info!("array {array}: {name} is no member any more"),
            Err(why) => tracing::warn!(
                "array {array}: {name} is no member any more, and its superblock could not be marked: {why}"
            ),
        }
    }
}
