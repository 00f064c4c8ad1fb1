//! The state that all handles on a member share, on whatever shards, and their devices.
//!
//! Invariant: a shard has one device for a life, and so one connection.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use braid_shard::Shard;
use braid_shard::mailbox::Remote;

use crate::client::Client;
use crate::fitted::Fitted;
use crate::protocol::ServerOffer;
use crate::uri::ExportUri;

/// Numbers for lives, so that a shard tells the devices of one from those of another.
static LIVES: AtomicU64 = AtomicU64::new(0);

/// From when a member was reached until a connection to it is lost.
#[derive(Debug)]
pub(super) struct Life {
    number: u64,
    uri: ExportUri,
    pub(super) offer: ServerOffer,
    /// A connection was lost, and with it perhaps what the server had not made durable.
    lost: Arc<AtomicBool>,
    /// The shard that has opened it first.
    first: OnceLock<First>,
}

/// A shard, and the way to it.
struct First(Remote);

impl fmt::Debug for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0.id())
    }
}

/// The devices of members that are open on a shard.
#[derive(Default)]
struct OpenHere {
    devices: RefCell<HashMap<u64, Weak<Fitted>>>,
}

impl Life {
    /// One that begins.
    pub(super) fn new(uri: ExportUri, offer: ServerOffer) -> Life {
        let number = LIVES.fetch_add(1, Ordering::Relaxed);
        Life { number, uri, offer, lost: Arc::default(), first: OnceLock::new() }
    }

    /// A connection to it was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The shard that has opened it first: this one, if none has.
    pub(super) fn first(&self, shard: &Shard) -> &Remote {
        &self.first.get_or_init(|| First(shard.remote())).0
    }

    /// The device of this life on `shard`, which connects with its first request; the same for all who have one there.
    pub(super) fn device(&self, shard: &Shard) -> Rc<Fitted> {
        let here = shard.local::<OpenHere>();
        let mut devices = here.devices.borrow_mut();
        if let Some(known) = devices.get(&self.number).and_then(Weak::upgrade) {
            return known;
        }
        devices.retain(|_, device| device.strong_count() > 0);
        let lost = Arc::clone(&self.lost);
        let client = Client::sharing(shard, &self.uri, self.offer.clone(), lost);
        let fitted = Fitted::new(shard, client, &self.offer);
        let device = Rc::new(fitted.plugged());
        devices.insert(self.number, Rc::downgrade(&device));
        device
    }

    /// The device of this life on `shard`, if anybody has it there.
    pub(super) fn device_in_use(&self, shard: &Shard) -> Option<Rc<Fitted>> {
        let here = shard.local::<OpenHere>();
        let devices = here.devices.borrow();
        devices.get(&self.number).and_then(Weak::upgrade)
    }
}
