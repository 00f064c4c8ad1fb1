//! Questions of an engine to the home shard, and the tasks here that go on when they are answered.

use crate::engine::Engine;
use crate::engine::home::{Asked, Flushed, News, Question, Waiters};
use crate::state::view::{MemberNr, View};
use braid_device::IoError;
use braid_layout::Slot;
use braid_shard::plant::planted;
use braid_shard::sync::{Promised, promise};
use std::rc::Rc;

impl Engine {
    /// Asks control. `None` when the array was stopped meanwhile.
    pub(crate) fn ask(&self, question: Question) -> Promised<bool> {
        let (answer, wait) = self.answer(|asked| &asked.questions);
        self.home.ask(question, answer);
        wait
    }

    /// Has the home shard flush all members. `None`: the array was stopped meanwhile.
    pub(crate) fn flush_members(&self) -> Promised<Flushed> {
        let (answer, wait) = self.answer(|asked| &asked.flushes);
        self.home.flush(answer);
        wait
    }

    /// The end that is called on the home shard, and the end that waits here; `of`: those that wait for the same kind.
    fn answer<T: Send + 'static>(
        &self,
        of: fn(&Asked) -> &Waiters<T>,
    ) -> (Box<dyn FnOnce(T) + Send>, Promised<T>) {
        let (give, wait) = promise(&self.shard);
        let key = of(&self.asked).borrow_mut().insert(give);
        let (own, id) = (self.shard.remote(), self.id);
        let answer = Box::new(move |value| {
            own.run(move |shard| {
                if let Some(engine) = Engine::find(shard, id) {
                    let promise = of(&engine.asked).borrow_mut().try_remove(key);
                    if let Some(promise) = promise {
                        promise.fulfil(value);
                    }
                }
            });
        });
        (answer, wait)
    }

    /// Has control record that the member of `slot` has failed; comes back when the surviving
    /// superblocks say so and no shard uses the member any more.
    pub(crate) async fn fail_member(self: &Rc<Engine>, slot: Slot, view: &View, error: IoError) {
        let Some(nr) = self.suspect_member(slot, view, error) else { return };
        let answer = self.ask(Question::Fail(nr, error));
        if planted("failure-after-reply") {
            return;
        }
        // No answer means that the array was stopped meanwhile.
        let _ = answer.await;
    }

    /// Waits until the failures of `view`'s suspects are recorded, if it has any. True when this shard has another view by
    /// then: what has no source in `view` may have one now. Shards learn that a rebuilt member is whole after the
    /// superblocks say so, and meanwhile the member that it was filled from may fail: it is a suspect at once.
    pub(crate) async fn suspects_recorded(self: &Rc<Engine>, view: &Rc<View>) -> bool {
        if view.any_suspect() {
            // No answer means that the array was stopped meanwhile.
            let _ = self.ask(Question::Record).await;
        }
        !Rc::ptr_eq(view, &self.view())
    }

    /// Has control know that the member of `slot` has failed; it is recorded by
    /// [`Engine::fail_member`], which has to follow. Until then nothing that it makes durable counts. Gives its number;
    /// `None` when there is no member, or when it has not failed but the array is being stopped.
    pub(crate) fn suspect_member(
        &self,
        slot: Slot,
        view: &View,
        error: IoError,
    ) -> Option<MemberNr> {
        let nr = view.member_nr(slot)?;
        if self.is_unfinished(error) {
            return None;
        }
        self.home.tell(News::Suspect(nr, error, self.reports.begin()));
        Some(nr)
    }
}
