//! The trait that every device has, an array as well.

use crate::completion::Completion;
use crate::info::DeviceInfo;
use crate::request::Request;

/// A flat range of bytes on one shard.
pub trait Device {
    /// Its description. Constant for the life of the device, except that an array may grow.
    fn info(&self) -> &DeviceInfo;

    /// Takes `request`; completes `done` exactly once, perhaps before this returns. Requests in
    /// flight at the same time may be carried out in any order. The caller has checked bounds and
    /// alignment ([`Request::check`]).
    fn submit(&self, request: Request, done: Completion);

    /// Announces that requests from now on are cut from larger ones of about so many bytes (0: not known any more). A
    /// device that hands requests on, merged or divided, makes them no smaller than that if it can.
    fn cut_from(&self, bytes: u64) {
        let _ = bytes;
    }

    /// The number of arrays stacked in it: 0 if it is no array. Every layer may take its time to find out
    /// that a member does not answer.
    fn layers(&self) -> u32 {
        0
    }

    /// A request may stay under way for long, or for ever. False where all complete at submit: nobody need look.
    fn may_hang(&self) -> bool {
        true
    }

    /// An array above is being stopped and waits for what is under way here. Whatever lies below and answers nothing is
    /// given up as by a stop of its own, where it can be spared. Said again twice a second, for as long as it is so.
    fn hurry(&self) {}

    /// After [`hurry`](Device::hurry): something below has answered nothing for too long and cannot be spared there, so what
    /// is under way here may never end.
    fn waits_for_silent(&self) -> bool {
        false
    }

    /// Requests wait because what the device lies on is full: they are not overdue.
    fn waits_for_space(&self) -> bool {
        false
    }
}
