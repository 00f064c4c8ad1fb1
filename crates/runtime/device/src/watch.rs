//! The watch for overdue requests: on each shard it polls the devices once a second while requests are in flight.
//!
//! No request has a timer of its own. A watched device notes the time at which each was submitted; the watch polls
//! it, and it reports if the oldest has been in flight for too long ([`Overdue`]). The watch starts with the first request
//! to an idle device and ends when nothing is in flight, so an idle shard sleeps.
//!
//! It also keeps the devices that were given up with requests still in flight: such a device may yet write, so nobody may
//! use it for anything else.
//!
//! It does not know who waits, and does not decide that a device has failed.

use braid_shard::{Nanos, Shard};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Interval of the polls, in nanoseconds.
pub const POLL_INTERVAL: Nanos = 1_000_000_000;

/// The receiver of reports about requests that are in flight for too long.
pub struct Overdue {
    /// Nanoseconds that a request may be in flight.
    pub limit: Nanos,
    /// Called at each poll with the nanoseconds for which the oldest request has been in flight, if these are at least the
    /// limit. Must not submit requests.
    pub tell: Box<dyn Fn(Nanos)>,
}

/// A device that a watch polls.
pub(crate) trait Watched: 'static {
    /// Polls the requests in flight; true while there are any.
    fn poll(&self) -> bool;
    /// Requests that were given up and that the device has not completed.
    fn owed(&self) -> u32;
    /// The device's name.
    fn name(&self) -> &str;
}

/// See the module's documentation. A shard has one for each kind of device: `shard.local::<Watch<_>>()`.
pub struct Watch<D> {
    watched: RefCell<Vec<Weak<D>>>,
    /// Given up, with requests that the device has not completed.
    owing: RefCell<Vec<Rc<D>>>,
    polling: Cell<bool>,
}

impl<D> Default for Watch<D> {
    fn default() -> Watch<D> {
        Watch { watched: RefCell::default(), owing: RefCell::default(), polling: Cell::new(false) }
    }
}

#[allow(private_bounds)] // Only the meter's devices can be watched.
impl<D: Watched> Watch<D> {
    pub(crate) fn add(&self, device: &Weak<D>) {
        let mut watched = self.watched.borrow_mut();
        watched.retain(|known| known.strong_count() > 0 && !known.ptr_eq(device));
        watched.push(Weak::clone(device));
    }

    pub(crate) fn keep(&self, device: Rc<D>) {
        self.owing.borrow_mut().push(device);
    }

    /// Releases the given-up devices that have completed all requests by now.
    pub(crate) fn release_completed(&self) {
        let (owing, free): (Vec<_>, Vec<_>) =
            self.owing.take().into_iter().partition(|device| device.owed() > 0);
        self.owing.borrow_mut().extend(owing);
        // Only now, because closing a device may call this watch again.
        drop(free);
    }

    /// Requests to devices of this name that were given up on this shard and have not been completed.
    pub fn owed(&self, name: &str) -> u32 {
        let owing = self.owing.borrow();
        owing.iter().filter(|device| device.name() == name).map(|device| device.owed()).sum()
    }

    /// Polls once a second from now on, until nothing is in flight.
    #[inline]
    pub(crate) fn start(self: &Rc<Watch<D>>, shard: &Shard) {
        if !self.polling.get() {
            self.start_polling(shard);
        }
    }

    #[cold]
    fn start_polling(self: &Rc<Watch<D>>, shard: &Shard) {
        // Otherwise a device that nobody has asked to watch would keep the shard awake.
        if self.watched.borrow().is_empty() {
            return;
        }
        self.polling.set(true);
        let (watch, shard) = (Rc::clone(self), shard.clone());
        shard.clone().spawn(async move {
            loop {
                shard.sleep(POLL_INTERVAL).await;
                if !watch.poll() {
                    break;
                }
            }
            watch.polling.set(false);
        });
    }

    fn poll(&self) -> bool {
        let watched: Vec<Rc<D>> = {
            let mut watched = self.watched.borrow_mut();
            watched.retain(|device| device.strong_count() > 0);
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        let mut in_flight = false;
        for device in watched {
            in_flight |= device.poll();
        }
        in_flight
    }
}
