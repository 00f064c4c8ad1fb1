//! An export of another server as a device: reached and looked at once, then opened on any shard.
//!
//! Owns what such an export must be to be used. Each opened device has a connection of its own, made with its first
//! request, and made anew where nothing can have been lost with it (`returning`). Does not know what is on it.

use std::rc::Rc;
use std::time::Duration;

use braid_device::{Device, OpenError, Opener};
use braid_shard::Shard;

use crate::client::Client;
use crate::dial::{self, ANSWER_WITHIN};
use crate::fitted::{BLOCK_MAX, Fitted};
use crate::protocol::ServerOffer;
use crate::returning::{Connected, Returning};
use crate::uri::ExportUri;

/// An export that was reached.
#[derive(Debug)]
pub struct RemoteExport {
    name: String,
    uri: ExportUri,
    offer: ServerOffer,
}

impl RemoteExport {
    /// Asks the server of `uri` what it offers, and leaves again. Blocks for [`ANSWER_WITHIN`] at most, so it must not be
    /// called on a shard.
    ///
    /// # Errors
    /// When nobody listens or answers, the server refuses, what it offers has blocks of more than 4096 bytes, or is
    /// read-only although it is to be `writable`.
    pub fn reach(uri: &ExportUri, writable: bool) -> Result<RemoteExport, OpenError> {
        RemoteExport::reach_within(uri, writable, ANSWER_WITHIN)
    }

    fn reach_within(
        uri: &ExportUri,
        writable: bool,
        within: Duration,
    ) -> Result<RemoteExport, OpenError> {
        let offer = offer_of(uri, writable, within)?;
        Ok(RemoteExport { name: uri.to_string(), uri: uri.clone(), offer })
    }
}

/// The offer of the server of `uri`, if a device can be made of it.
pub(crate) fn offer_of(
    uri: &ExportUri,
    writable: bool,
    within: Duration,
) -> Result<ServerOffer, OpenError> {
    let failed = |why: String| OpenError { name: uri.to_string(), why };
    let offer = dial::ask(uri, within).map_err(|error| failed(error.to_string()))?;
    let (block, features) = (offer.export.block, offer.export.features);
    if writable && features.read_only {
        return Err(failed(
            "the server exports it read-only; have the server allow writing, or use it with --read-only".to_string(),
        ));
    }
    if block.minimum > BLOCK_MAX || block.maximum < BLOCK_MAX {
        return Err(failed(format!(
            "the server takes requests of {} to {} bytes; one that takes {BLOCK_MAX} is needed",
            block.minimum, block.maximum
        )));
    }
    Ok(offer)
}

/// Notes for the user of a server with this offer.
pub(crate) fn notes_on(name: &str, offer: &ServerOffer) -> Vec<String> {
    let features = offer.export.features;
    if features.flush || features.read_only {
        return Vec::new();
    }
    vec![format!(
        "{name}: the server has no flush, so what it has taken counts as durable: that it is, nobody can check"
    )]
}

impl Connected for Client {
    fn is_gone(&self) -> bool {
        Client::is_gone(self)
    }
}

impl Opener for RemoteExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let (own, uri, offer) = (shard.clone(), self.uri.clone(), self.offer.clone());
        let connect =
            move || -> Rc<dyn Connected> { Client::when_needed(&own, &uri, offer.clone()) };
        let returning = Rc::new(Returning::new(shard, connect));
        Ok(Rc::new(Fitted::new(shard, returning, &self.offer)))
    }

    fn notes(&self) -> Vec<String> {
        notes_on(&self.name, &self.offer)
    }

    fn is_remote(&self) -> bool {
        true
    }
}
