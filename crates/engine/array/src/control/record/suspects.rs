//! Members that have failed and are not recorded as failed yet.
//!
//! Some of them are noted here, with the reason. Others are reports of engines that are on their way to the home shard.

use crate::state::reports::Reports;
use crate::state::view::MemberNr;
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// See the module's documentation.
pub(crate) struct Suspects {
    reports: Arc<Reports>,
    noted: RefCell<Vec<(MemberNr, String)>>,
    /// Told when a report of an engine has arrived.
    heard: Notify,
    /// A member is faulty in the roster and not yet in the survivors' superblocks.
    recording: Cell<bool>,
}

impl Suspects {
    /// None yet; `reports`: those of the array's engines.
    pub(super) fn new(shard: &Shard, reports: &Arc<Reports>) -> Suspects {
        Suspects {
            reports: Arc::clone(reports),
            noted: RefCell::default(),
            heard: Notify::new(shard),
            recording: Cell::new(false),
        }
    }

    /// Member `nr` has failed, and why.
    pub(super) fn note(&self, nr: MemberNr, why: String) {
        self.noted.borrow_mut().push((nr, why));
    }

    /// All that are noted, which are to be dropped now.
    pub(super) fn take(&self) -> Vec<(MemberNr, String)> {
        self.noted.take()
    }

    /// Member `nr` is being dropped, under the turn.
    pub(super) fn remove(&self, nr: MemberNr) {
        self.noted.borrow_mut().retain(|(known, _)| *known != nr);
    }

    /// Those that are noted.
    pub(super) fn noted(&self) -> Vec<MemberNr> {
        self.noted.borrow().iter().map(|(nr, _)| *nr).collect()
    }

    /// Member `nr` has failed, and that is not recorded yet.
    pub(crate) fn contains(&self, nr: MemberNr) -> bool {
        self.noted.borrow().iter().any(|(noted, _)| *noted == nr)
    }

    /// Some failure has been met that nobody has begun to record.
    pub(crate) fn any(&self) -> bool {
        self.reports.any_on_the_way() || !self.noted.borrow().is_empty()
    }

    /// Some failure has been met and is not in the superblocks.
    pub(crate) fn any_unrecorded(&self) -> bool {
        self.recording.get() || self.any()
    }

    /// Some member is faulty in the roster, and its failure is being recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.recording.get()
    }

    /// See [`Suspects::is_recording`].
    pub(crate) fn set_recording(&self, recording: bool) {
        self.recording.set(recording);
    }

    /// A report of an engine has arrived, and is noted.
    pub(super) fn heard(&self) {
        self.heard.notify_all();
    }

    /// Waits until failures that engines report now are noted, which happens without a turn.
    pub(crate) async fn all_heard(&self) {
        let heard = || (!self.reports.any_on_the_way()).then_some(());
        self.heard.wait_for(heard).await;
    }
}
