//! An export of another server as a member of an array: one life, from when it was reached until a connection is lost.
//!
//! Whatever an array acknowledges after a flush must be on the server's disk, so a flush has to cover the writes of all shards.
//! The array flushes on the shard that has opened the member first. Where the server says that a flush on one connection
//! covers the writes of all (`NBD_FLAG_CAN_MULTI_CONN`), each shard has a connection; else requests of other shards go
//! through that of the first one ([`forward`]).
//!
//! | file | subject |
//! |---|---|
//! | this one | the member, and the way of a shard's requests |
//! | `life` | what all handles on a member have in common |
//! | `forward` | requests that are carried out on another shard |
//!
//! Invariant: when a connection is lost, the member is, on all shards, and no connection is made for it any more. So a
//! flush that succeeds was answered by the server that had taken the writes, not by one that was started since. Does not know
//! arrays: who wants the member back reaches it anew.

mod forward;
mod life;

use std::rc::Rc;
use std::sync::Arc;

use braid_device::{Completion, Device, DeviceInfo, OpenError, Opener, Request};
use braid_shard::{Shard, ShardId};

use crate::client::ANSWER_WITHIN;
use crate::fitted::Fitted;
use crate::protocol::Features;
use crate::remote::{notes_on, offer_of};
use crate::uri::ExportUri;
use forward::Forward;
use life::Life;

/// A member that was reached. See the module's documentation.
#[derive(Debug)]
pub struct RemoteMember {
    name: String,
    life: Arc<Life>,
}

/// The way of a shard's requests to the server.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// By a connection of its own.
    Own,
    /// By that of the shard that has opened the member first.
    First,
}

impl Way {
    /// Of shard `own`, when `first` has opened the member first and the server has these features.
    fn of(features: Features, own: ShardId, first: ShardId) -> Way {
        // A server that takes no writes has nothing to flush, and what it holds is the same for all connections.
        if own == first || features.multi_conn || features.read_only {
            Way::Own
        } else {
            Way::First
        }
    }
}

impl RemoteMember {
    /// Asks the server of `uri` what it offers, and leaves again. Blocks for [`ANSWER_WITHIN`] at most, so it must not be
    /// called on a shard.
    ///
    /// # Errors
    /// When nobody listens or answers, the server refuses, what it offers has blocks of more than 4096 bytes, or is
    /// read-only although it is to be `writable`.
    pub fn reach(uri: &ExportUri, writable: bool) -> Result<RemoteMember, OpenError> {
        let offer = offer_of(uri, writable, ANSWER_WITHIN)?;
        Ok(RemoteMember { name: uri.to_string(), life: Arc::new(Life::new(uri.clone(), offer)) })
    }
}

impl Opener for RemoteMember {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let life = &self.life;
        if life.is_lost() {
            let why = "the connection to its server was lost; it has to be added again".to_string();
            return Err(OpenError { name: self.name.clone(), why });
        }
        let first = life.first(shard);
        Ok(match Way::of(life.offer.export.features, shard.id(), first.id()) {
            Way::Own => Rc::new(Shared(life.device(shard))),
            Way::First => {
                let info = life.device(shard).info().clone();
                Rc::new(Forward::new(shard, info, Arc::clone(life), first.clone()))
            }
        })
    }

    fn notes(&self) -> Vec<String> {
        notes_on(&self.name, &self.life.offer)
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// One of several who use a device.
struct Shared(Rc<Fitted>);

impl Device for Shared {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        self.0.submit(request, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_a_connection_where_a_flush_covers_it() {
        let plain = Features { flush: true, ..Features::default() };
        let multi = Features { multi_conn: true, ..plain };
        let read_only = Features { read_only: true, ..plain };
        for (features, own, first, way) in [
            (plain, 0, 0, Way::Own),
            (plain, 1, 0, Way::First),
            (plain, 0, 1, Way::First),
            (multi, 0, 0, Way::Own),
            (multi, 1, 0, Way::Own),
            (read_only, 1, 0, Way::Own),
            // Without flush too: what one connection has written another may not see.
            (Features::default(), 1, 0, Way::First),
        ] {
            assert_eq!(Way::of(features, own, first), way, "{features:?}, {own} after {first}");
        }
    }
}
