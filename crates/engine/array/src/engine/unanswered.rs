//! News for control of members that do not answer: requests that have been in flight for too long, and writes that wait
//! for space.
//!
//! Does not know which members can be spared: control decides.

use crate::engine::Engine;
use crate::engine::home::{Home, News};
use crate::engine::members::OpenMember;
use crate::settings::Settings;
use crate::state::reports::Reports;
use braid_device::Device;
use braid_device::meter::Metered;
use braid_device::space::Space;
use braid_device::watch::Overdue;
use braid_shard::Shard;
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
        wait_for_space(&member.metered, &self.home.reports, &self.home.address);
    }

    /// The array is being stopped: writes that wait for space are answered that there is none, which fails no member.
    pub(crate) fn end_waiting_for_space(&self) {
        self.home.end_waiting_for_space();
        self.members.end_waiting_for_space();
    }

    fn limit_member(&self, member: &OpenMember) {
        limit(&member.metered, &self.settings.get(), &self.home.address);
    }

    /// The limit has been set to something else.
    pub(crate) fn limit_members(&self) {
        self.members.each(|member| self.limit_member(member));
    }
}
