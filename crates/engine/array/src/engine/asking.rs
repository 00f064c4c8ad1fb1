//! What an engine has decided on the home shard before it goes on: who waits for an answer here.

use crate::engine::home::{Flushed, News, Question};
use crate::engine::{Engine, WriteInFlight};
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind};
use braid_layout::Slot;
use braid_shard::plant::planted;
use braid_shard::sync::{Promised, promise};
use std::rc::Rc;

impl Engine {
    /// Asks control. `None` when the array was stopped meanwhile.
    pub(crate) fn ask(self: &Rc<Engine>, question: Question) -> Promised<bool> {
        let (give, wait) = promise(&self.shard);
        let key = self.asked.questions.borrow_mut().insert(give);
        let (own, id) = (self.shard.remote(), self.id);
        let answer = Box::new(move |value: bool| {
            own.run(move |shard| {
                if let Some(engine) = Engine::find(shard, id) {
                    let promise = engine.asked.questions.borrow_mut().try_remove(key);
                    if let Some(promise) = promise {
                        promise.fulfil(value);
                    }
                }
            });
        });
        self.home.ask(question, answer);
        wait
    }

    /// Has the home shard flush all members. `None`: the array was stopped meanwhile.
    pub(crate) async fn flush_members(self: &Rc<Engine>) -> Option<Flushed> {
        let (give, wait) = promise(&self.shard);
        let key = self.asked.flushes.borrow_mut().insert(give);
        let (own, id) = (self.shard.remote(), self.id);
        self.home.flush(Box::new(move |flushed| {
            own.run(move |shard| {
                if let Some(engine) = Engine::find(shard, id) {
                    let promise = engine.asked.flushes.borrow_mut().try_remove(key);
                    if let Some(promise) = promise {
                        promise.fulfil(flushed);
                    }
                }
            });
        }));
        wait.await
    }

    /// Has control record that the member of `slot` has failed; comes back when the surviving
    /// superblocks say so and no shard uses the member any more.
    pub(crate) async fn fail_member(self: &Rc<Engine>, slot: Slot, view: &View, error: IoError) {
        let Some(nr) = view.member_nr(slot) else { return };
        if self.is_unfinished(error) {
            return;
        }
        let answer = self.ask(Question::Fail(nr, error, self.reports.begin()));
        if planted("failure-after-reply") {
            return;
        }
        // No answer means that the array was stopped meanwhile.
        let _ = answer.await;
    }

    /// Has control know that the member of `slot` has failed; it is recorded by
    /// [`Engine::fail_member`], which has to follow. Until then nothing that it makes durable counts.
    pub(crate) fn suspect_member(&self, slot: Slot, view: &View, error: IoError) {
        let Some(nr) = view.member_nr(slot) else { return };
        if self.is_unfinished(error) {
            return;
        }
        self.home.tell(News::Suspect(nr, error, self.reports.begin()));
    }

    /// Enters a write: the superblocks say "active" before the first byte is written.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when the array is read-only or stopping, [`IoErrorKind::Lost`]
    /// when too many members have failed.
    pub(crate) async fn begin_write(self: &Rc<Engine>) -> Result<WriteInFlight, IoError> {
        loop {
            self.may_write()?;
            if let Some(writing) = self.try_begin_write() {
                return Ok(writing);
            }
            if self.ask(Question::Activate).await != Some(true) {
                self.may_write()?;
                return Err(IoError::new(IoErrorKind::Refused));
            }
        }
    }
}
