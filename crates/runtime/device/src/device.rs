//! The trait of all devices, arrays included.

use crate::agreeing::{FindAgreeing, Sought};
use crate::completion::Completion;
use crate::holes::{FindHoles, Holes};
use crate::info::DeviceInfo;
use crate::request::Request;
use crate::reservation::Reservations;
use std::ops::Range;
use std::rc::Rc;

/// A flat range of bytes, used from one shard.
pub trait Device {
    /// Its description. Constant for the life of the device, except that an array may grow.
    fn info(&self) -> &DeviceInfo;

    /// Submits `request`. The device completes `done` exactly once, possibly before this returns. Requests that are in
    /// flight at the same time may be executed in any order. The caller has checked bounds and
    /// alignment ([`Request::check`]).
    fn submit(&self, request: Request, done: Completion);

    /// Announces that requests from now on are cut from larger ones of about `bytes` bytes (0 if that is unknown). A
    /// device that passes requests on, merged or split, makes them no smaller than that if it can.
    fn cut_from(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The number of arrays stacked in it: 0 if it is no array. Each layer has a timeout of its own for
    /// members that do not answer, so the timeouts of those above must be longer.
    fn layers(&self) -> u32 {
        0
    }

    /// True if a request may stay in flight for long, or for ever. False if all requests complete at submit, so that
    /// nobody has to watch them.
    fn may_hang(&self) -> bool {
        true
    }

    /// Announces that an array above is being stopped and waits for requests in flight here. An array then gives up its
    /// silent members, as if it were being stopped itself, if its redundancy allows. Called again twice a second
    /// while the stop waits.
    fn hurry(&self) {}

    /// After [`hurry`](Device::hurry): a silent member below cannot be given up because there is no redundancy left, so the
    /// requests in flight here may never complete.
    fn waits_for_silent(&self) -> bool {
        false
    }

    /// The holes within `bytes`, as they are at some moment between the call and the answer: what was written and completed
    /// before is in none. Whoever does not know of any says so.
    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        Holes::unknown(&bytes)
    }

    /// Looks for bytes that a read does not give as they were written: a device with redundancy tries its other copies, or what it
    /// computes from the rest, and writes what agrees over what does not. `None`: there is nothing that agrees. What is written
    /// to the same bytes meanwhile may be found or not; so whoever asks keeps writers away.
    fn find_agreeing(&self, sought: Sought) -> FindAgreeing {
        let _ = sought;
        Sought::nowhere()
    }

    /// The reservations of the disk; `None` where there is none that could have any.
    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        None
    }

    /// True while requests wait because the file system below is full. Such requests are not overdue.
    fn waits_for_space(&self) -> bool {
        false
    }
}
