//! Members that lie on a file system that is full: their writes wait, and the array with them; none of them fails.
//!
//! Reads go on. What waits is tried again every few seconds, and at once by [`Unanswered::resume`]. A stop ends it: writes
//! that some members have taken and others not are answered with an error, and the array is left as after an unclean
//! stop, so that the next start makes the members agree.
//!
//! Does not know which write it was: the meters before the members keep them.

use crate::control::unanswered::Unanswered;
use crate::engine::Engine;
use crate::state::view::MemberNr;
use std::rc::Rc;

impl Unanswered {
    /// Writes to a member have begun to wait for space, or do so no more.
    pub(crate) fn space_changed(self: Rc<Self>) {
        let waits = self.record.engine.home.reports.any_waits_for_space();
        if self.awaited.full.replace(waits) == waits || self.record.end.has_begun() {
            return;
        }
        self.record.shard.clone().spawn(async move { self.say_space(waits).await });
    }

    async fn say_space(self: &Rc<Self>, waits: bool) {
        let array = &self.record.name;
        if !waits {
            tracing::warn!("array {array}: writes go on, no member lacks space any more");
            return;
        }
        let held = self.held().await;
        let names: Vec<String> = held.iter().map(|(nr, _)| self.record.member_name(*nr)).collect();
        tracing::error!(
            "array {array}: no space is left where {} lies: writes wait until there is room, and are tried again every \
             few seconds (at once: braid resume {array}); or fail the member, and they go on without it",
            names.join(", ")
        );
    }

    /// Writes that wait for space, by member.
    pub(crate) async fn held(&self) -> Vec<(MemberNr, usize)> {
        let engines = self.record.engines.ask(|engine| engine.members.held()).await;
        let roster = self.record.roster.borrow();
        let sum = |nr: MemberNr| {
            let own = roster.member(nr).map_or(0, |member| member.device.held());
            let others = engines.iter().flatten().flatten().filter(|(known, _)| *known == nr);
            own + others.map(|(_, held)| held).sum::<usize>()
        };
        let all = roster.members.iter().map(|member| (member.nr, sum(member.nr)));
        all.filter(|(_, held)| *held > 0).collect()
    }

    /// Tries writes again that wait for space; says how many there were.
    pub async fn resume(&self) -> usize {
        let own = self.record.roster.borrow().devices();
        let own: usize = own.iter().map(|device| device.try_again()).sum();
        let others = self.record.engines.ask(|engine| engine.members.try_again()).await;
        own + others.into_iter().flatten().sum::<usize>()
    }

    /// The array is being stopped: nothing waits for space any more.
    pub(crate) async fn end_waiting_for_space(&self) {
        let own = self.record.roster.borrow().devices();
        own.iter().for_each(|device| device.end_waiting());
        self.record.engines.ask(Engine::end_waiting_for_space).await;
    }
}
