//! Requests that are under way for too long: looked for once a second, on each shard, while anything is under way.
//!
//! No request has a timer of its own. A [`Metered`] device notes when each was submitted; the watch asks for the oldest
//! of every device and tells whoever wants to know ([`Overdue`]). It starts with the first request of an idle device and
//! ends when nothing is under way, so an idle shard sleeps.
//!
//! It also knows which devices were given up and still have requests: nobody may use such a device for something else.
//!
//! Does not know who waits, nor decides that a device has failed.

use crate::device::Device;
use crate::meter::Metered;
use braid_shard::{Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Between two looks, in nanoseconds.
pub const LOOK_EVERY: Nanos = 1_000_000_000;

/// The receiver of reports about requests that are under way for too long.
pub struct Overdue {
    /// Nanoseconds that a request may take.
    pub limit: Nanos,
    /// Called with the nanoseconds for which the oldest request is under way, at each look while that is
    /// more than the limit. Must not submit requests.
    pub tell: Box<dyn Fn(Nanos)>,
}

/// See the module's documentation. A shard has one: `shard.local::<Watch>()`.
#[derive(Default)]
pub struct Watch {
    watched: RefCell<Vec<Weak<Metered>>>,
    /// Given up, with requests that the device has not completed.
    owing: RefCell<Vec<Rc<Metered>>>,
    looking: Cell<bool>,
}

impl Watch {
    pub(crate) fn add(&self, device: &Weak<Metered>) {
        let mut watched = self.watched.borrow_mut();
        watched.retain(|known| known.strong_count() > 0 && !known.ptr_eq(device));
        watched.push(Weak::clone(device));
    }

    pub(crate) fn owes(&self, device: Rc<Metered>) {
        self.owing.borrow_mut().push(device);
    }

    /// Lets go of the devices that have completed all requests.
    pub(crate) fn let_go(&self) {
        let (owing, free): (Vec<_>, Vec<_>) =
            self.owing.take().into_iter().partition(|device| device.owed() > 0);
        self.owing.borrow_mut().extend(owing);
        // After that: what a device does as it is closed may come back here.
        drop(free);
    }

    /// Requests of devices of this name that were given up on this shard and are not completed.
    pub fn owed(&self, name: &str) -> u32 {
        let owing = self.owing.borrow();
        owing.iter().filter(|device| device.info().name == name).map(|device| device.owed()).sum()
    }

    /// Looks once a second from now on, until nothing is under way.
    #[inline]
    pub(crate) fn start(self: &Rc<Watch>, shard: &Shard) {
        if !self.looking.get() {
            self.look_from_now_on(shard);
        }
    }

    #[cold]
    fn look_from_now_on(self: &Rc<Watch>, shard: &Shard) {
        // Without this a device whose requests nobody wants to know about would keep the shard awake.
        if self.watched.borrow().is_empty() {
            return;
        }
        self.looking.set(true);
        let (watch, shard) = (Rc::clone(self), shard.clone());
        shard.clone().spawn(async move {
            loop {
                shard.sleep(LOOK_EVERY).await;
                if !watch.look() {
                    break;
                }
            }
            watch.looking.set(false);
        });
    }

    fn look(&self) -> bool {
        let watched: Vec<Rc<Metered>> = {
            let mut watched = self.watched.borrow_mut();
            watched.retain(|device| device.strong_count() > 0);
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        let mut under_way = false;
        for device in watched {
            under_way |= device.look();
        }
        under_way
    }
}
