//! What control is told of members that do not answer: requests that are under way for too long, and writes that wait for
//! space.
//!
//! Does not know which members can be spared: control decides.

use crate::engine::Engine;
use crate::engine::home::{Home, News};
use crate::engine::members::OpenMember;
use crate::settings::Settings;
use crate::state::reports::Reports;
use braid_device::meter::Metered;
use braid_device::space::Space;
use braid_device::watch::Overdue;
use braid_device::{Device, IoError, IoErrorKind};
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
        wait_for_space(&member.metered, &self.reports, &self.home);
    }

    /// The array is being stopped: writes that wait for space are answered that there is none, which fails no member.
    pub(crate) fn end_waiting_for_space(&self) {
        self.ending.set(true);
        self.members.end_waiting_for_space();
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
        self.members.each(|member| self.limit_member(member));
    }

    /// See [`Device::hurry`].
    pub(crate) fn hurry(&self) {
        self.home.tell(News::Hurry);
    }
}
