//! The end of an array: writes drained, the job at its checkpoint, members marked clean and let go.

use crate::control::Control;
use crate::control::shards::ask;
use crate::engine::Engine;
use std::rc::Rc;

/// How often engines are asked whether their writes have ended, in nanoseconds.
const ASK_EVERY: u64 = 1_000_000;

/// How an array was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Some of what was acknowledged may be lost, and no redundancy has it: a sentence that says why.
    pub not_durable: Option<String>,
}

impl Control {
    /// Stops the array. New requests are refused at once, writes under way are completed, the job
    /// is interrupted at a checkpoint, members are flushed and marked clean (unless too many have
    /// failed: then they stay as they are) and closed on all shards. A second call waits for the
    /// first, and gives the same.
    pub async fn stop(self: &Rc<Self>) -> Stopped {
        if self.stopping.replace(true) {
            return self.changed.wait_for(|| self.stopped.borrow().clone()).await;
        }
        self.limit_the_end().await;
        self.end_waiting_for_space().await;
        self.cancel_running();
        self.changed.notify_all();
        self.changed.wait_for(|| (!self.work.borrow().busy).then_some(())).await;

        self.ask_engines(|engine: &Engine| engine.stopping.set(true)).await;
        // Not under the turn: a write that finds a failed member ends only when that is recorded.
        loop {
            let ended =
                |engine: &Engine| engine.requests_in_flight() == 0 && engine.try_deactivate(false);
            let agreed = self.ask_engines(ended).await;
            if !agreed.contains(&Some(false)) {
                break;
            }
            self.shard.sleep(ASK_EVERY).await;
        }
        // What members may differ in is resynced at the next start.
        let whole = |control: &Control| !control.engine.reports.any_unfinished();
        if whole(self) {
            self.clear_idle_bits(true).await;
        }
        if !whole(self) {
            tracing::error!(
                "array {}: writes that found no space were ended by the stop; it is left as after an unclean stop, and \
                 is resynced when it starts",
                self.name
            );
        }
        let turn = self.turn().await;
        let broken = self.roster.borrow().broken;
        let mut stopped = Stopped::default();
        if !self.read_only && !broken && whole(self) {
            let before = self.engine.reports.losses();
            self.mark_clean(&turn).await;
            if self.roster.borrow().broken || self.engine.reports.losses() != before {
                stopped.not_durable = self.flushes.last_failure();
            }
        }
        self.stop_engines().await;
        self.roster.borrow_mut().members.clear();
        self.unregister();
        *self.stopped.borrow_mut() = Some(stopped.clone());
        self.changed.notify_all();
        stopped
    }

    async fn stop_engines(&self) {
        stop_engines(&self.shard, &self.remotes, self.id).await;
    }
}

/// Takes the engines of array `id` off their shards and waits until all are.
pub(crate) async fn stop_engines(
    shard: &braid_shard::Shard,
    remotes: &[braid_shard::mailbox::Remote],
    id: crate::engine::ArrayId,
) {
    let mut answers = Vec::with_capacity(remotes.len());
    for remote in remotes {
        answers.push(ask(shard, remote, move |shard| {
            if let Some(engine) = Engine::find(shard, id) {
                engine.stop();
            }
        }));
    }
    for answer in answers {
        let _ = answer.get().await;
    }
}
