//! An array that another host has taken: from here on nothing is written to it any more, superblocks included.

use crate::control::record::Record;
use crate::state::view::MemberNr;
use braid_device::{IoError, IoErrorKind};

impl Record {
    /// Why the array takes no more writes, when that is because another host has it.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// True when member `nr` gave `error` because its disk, which was reserved for this host, takes the writes of another:
    /// the array is lost, and the member has not failed.
    pub(crate) fn is_taken(&self, nr: MemberNr, error: IoError) -> bool {
        let held = |record: &Record| {
            let roster = record.roster.borrow();
            roster.member(nr).is_some_and(|member| member.reservation.is_some())
        };
        if error.kind != IoErrorKind::Reserved || !held(self) {
            return false;
        }
        let name = self.member_name(nr);
        if self
            .lose(format!("{name} refuses the writes of this host, since another has reserved it"))
        {
            // Not waited for: the disks keep all shards from writing.
            let update = self.next_view();
            self.engines.tell(move |engine| engine.members.apply(update.clone()));
            self.members_changed();
        }
        true
    }

    /// No superblock of this host follows. True the first time; [`Record::tell_lost`] has to follow then.
    pub(crate) fn lose(&self, why: String) -> bool {
        if self.lost.borrow().is_some() {
            return false;
        }
        tracing::error!(
            "array {}: {why}; it takes no more writes here. Stop it here, find out which host is to have it, and start it \
             there",
            self.name
        );
        *self.lost.borrow_mut() = Some(why);
        self.roster.borrow_mut().broken = true;
        true
    }

    /// Comes back when all shards know that the array takes no more writes.
    pub(crate) async fn tell_lost(&self) {
        let turn = self.turn().await;
        self.send_view().await;
        drop(turn);
        self.members_changed();
    }
}
