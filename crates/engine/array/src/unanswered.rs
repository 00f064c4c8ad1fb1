//! Members that do not answer, as one shard sees them: control is told of requests that are under way for too long, and
//! says which member is given up.
//!
//! Does not know which members can be spared: control decides.

use crate::control::Control;
use crate::engine::{ArrayId, Engine, OpenMember};
use crate::settings::Settings;
use crate::view::MemberNr;
use braid_device::Device;
use braid_device::meter::Metered;
use braid_device::watch::Overdue;
use braid_shard::mailbox::Remote;
use braid_shard::{Nanos, Shard};
use std::rc::Rc;

/// Has the control of array `id` told when `device`, a handle on a member, does not answer within the limit.
pub(crate) fn limit(device: &Metered, settings: &Settings, home: &Remote, id: ArrayId) {
    // A member that is an array itself finds out first which of its own members does not answer.
    let each = u64::from(device.layers()) + 1;
    let overdue = settings.member_timeout.limit().map(|limit| {
        let home = home.clone();
        let tell = move |_| {
            home.run(move |shard| Control::overdue_for_engine(shard, id));
        };
        Overdue { limit: limit.saturating_mul(each), tell: Box::new(tell) }
    });
    device.when_overdue(overdue);
}

/// Requests to devices that `opener` opens which were given up on this shard and are still under way.
pub(crate) fn owed(shard: &Shard, opener: &str) -> u32 {
    shard.local::<braid_device::watch::Watch>().owed(opener)
}

impl Engine {
    pub(crate) fn limit_member(&self, member: &OpenMember) {
        if let Some(metered) = &member.metered {
            limit(metered, &self.settings.get(), &self.home, self.id);
        }
    }

    /// The limit has been set to something else.
    pub(crate) fn limit_members(&self) {
        self.devices.borrow().iter().for_each(|member| self.limit_member(member));
    }

    /// For how long the oldest request to each member is under way, in nanoseconds.
    pub(crate) fn waiting(&self) -> Vec<(MemberNr, Nanos)> {
        let devices = self.devices.borrow();
        let waiting = |member: &OpenMember| Some((member.nr, member.metered.as_ref()?.waiting()?));
        devices.iter().filter_map(waiting).collect()
    }

    /// Whoever waits for member `nr` is answered that it is gone; it gets no more requests.
    pub(crate) fn give_up_member(&self, nr: MemberNr) {
        // Taken out first: who is answered may ask for members.
        let given_up: Vec<Rc<Metered>> = {
            let devices = self.devices.borrow();
            let same = devices.iter().filter(|member| member.nr == nr);
            same.filter_map(|member| member.metered.clone()).collect()
        };
        given_up.iter().for_each(|metered| metered.give_up());
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
