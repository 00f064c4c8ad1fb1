//! Members that do not answer, as one shard sees them: control is told of requests that are under way for too long, and
//! says which member is given up.
//!
//! Does not know which members can be spared: control decides.

use crate::engine::home::{Home, News};
use crate::engine::{Engine, OpenMember};
use crate::settings::Settings;
use crate::state::reports::Reports;
use crate::state::view::MemberNr;
use braid_device::meter::Metered;
use braid_device::space::Space;
use braid_device::watch::Overdue;
use braid_device::{Device, IoError, IoErrorKind};
use braid_shard::{Nanos, Shard};
use std::rc::Rc;
use std::sync::Arc;

/// Has control told when `device`, a handle on a member, does not answer within the limit.
pub(crate) fn limit(device: &Metered, settings: &Settings, home: &Home) {
    // A member that is an array itself finds out first which of its own members does not answer.
    let each = u64::from(device.layers()) + 1;
    let overdue = settings.member_timeout.limit().map(|limit| {
        let home = home.clone();
        let tell = move |_| {
            home.tell(News::Overdue);
        };
        Overdue { limit: limit.saturating_mul(each), tell: Box::new(tell) }
    });
    device.when_overdue(overdue);
}

/// Requests to devices that `opener` opens which were given up on this shard and are still under way.
pub(crate) fn owed(shard: &Shard, opener: &str) -> u32 {
    shard.local::<braid_device::meter::Watch>().owed(opener)
}

/// Has writes to a member that find no space wait, and control told.
pub(crate) fn wait_for_space(device: &Metered, reports: &Reports, home: &Home) {
    let (waiting, home) = (Arc::clone(&reports.waiting_for_space), home.clone());
    let tell = move || {
        home.tell(News::Space);
    };
    device.wait_for_space(Space { waiting, tell: Box::new(tell) });
}

impl Engine {
    /// Has control told when a member that was just opened does not answer, or has no space.
    pub(crate) fn watch_member(&self, member: &OpenMember) {
        self.limit_member(member);
        wait_for_space(&member.metered, &self.reports, &self.home);
    }

    fn metered(&self) -> Vec<(MemberNr, Rc<Metered>)> {
        let devices = self.devices.borrow();
        devices.iter().map(|member| (member.nr, Rc::clone(&member.metered))).collect()
    }

    /// Writes to each member that wait for space.
    pub(crate) fn held(&self) -> Vec<(MemberNr, usize)> {
        self.metered().iter().map(|(nr, metered)| (*nr, metered.held())).collect()
    }

    /// Tries them again; says how many.
    pub(crate) fn try_again(&self) -> usize {
        self.metered().iter().map(|(_, metered)| metered.try_again()).sum()
    }

    /// The array is being stopped: they are answered that there is no space, which fails no member.
    pub(crate) fn end_waiting_for_space(&self) {
        self.ending.set(true);
        self.metered().iter().for_each(|(_, metered)| metered.end_waiting());
    }

    /// A write that found no space because the array is being stopped: the member has not failed, and nobody is
    /// told that the write was done.
    pub(crate) fn is_unfinished(&self, error: IoError) -> bool {
        let unfinished = self.ending.get() && error.kind == IoErrorKind::NoSpace;
        if unfinished {
            self.reports.note_unfinished();
        }
        unfinished
    }

    fn limit_member(&self, member: &OpenMember) {
        limit(&member.metered, &self.settings.get(), &self.home);
    }

    /// The limit has been set to something else.
    pub(crate) fn limit_members(&self) {
        self.devices.borrow().iter().for_each(|member| self.limit_member(member));
    }

    /// For how long the oldest request to each member is under way, in nanoseconds.
    pub(crate) fn waiting(&self) -> Vec<(MemberNr, Nanos)> {
        let devices = self.devices.borrow();
        let waiting = |member: &OpenMember| Some((member.nr, member.metered.waiting()?));
        devices.iter().filter_map(waiting).collect()
    }

    /// Requests that each member has completed on this shard.
    pub(crate) fn answers(&self) -> Vec<(MemberNr, u64)> {
        self.metered().iter().map(|(nr, metered)| (*nr, metered.answers())).collect()
    }

    /// Whoever waits for member `nr` is answered that it is gone; it gets no more requests.
    pub(crate) fn give_up_member(&self, nr: MemberNr) {
        // Taken out first: who is answered may ask for members.
        let given_up: Vec<Rc<Metered>> = {
            let devices = self.devices.borrow();
            let same = devices.iter().filter(|member| member.nr == nr);
            same.map(|member| Rc::clone(&member.metered)).collect()
        };
        given_up.iter().for_each(|metered| metered.give_up());
    }

    /// See [`Device::hurry`].
    pub(crate) fn hurry(&self) {
        self.home.tell(News::Hurry);
    }

    /// See [`Device::layers`].
    pub(crate) fn layers(&self) -> u32 {
        1 + self.devices.borrow().iter().map(|member| member.device.layers()).max().unwrap_or(0)
    }

    /// See [`Device::may_hang`].
    pub(crate) fn may_hang(&self) -> bool {
        self.devices.borrow().iter().any(|member| member.device.may_hang())
    }
}
