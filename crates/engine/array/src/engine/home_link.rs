//! An engine's link to control on the home shard: it tells news, asks questions, and the tasks that asked go on when the
//! answers come back.
//!
//! Does not know views or requests.

use crate::engine::home::{Flushed, Home, News, Question};
use crate::state::ArrayId;
use crate::state::reports::Reports;
use crate::state::view::MemberNr;
use braid_device::{IoError, IoErrorKind};
use braid_shard::Shard;
use braid_shard::plant::planted;
use braid_shard::sync::{Promise, Promised, promise};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The tasks of a shard, of any of its arrays, that wait for answers of one kind. The answer names the key.
struct Waiters<T>(RefCell<Slab<Promise<T>>>);

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Waiters(RefCell::default())
    }
}

impl<T: Send + 'static> Waiters<T> {
    /// The end that is called on the home shard, and the end that waits on `shard`.
    fn answer(&self, shard: &Shard) -> (Box<dyn FnOnce(T) + Send>, Promised<T>) {
        let (give, wait) = promise(shard);
        let key = self.0.borrow_mut().insert(give);
        let own = shard.remote();
        let answer = Box::new(move |value| {
            own.run(move |shard| {
                let promise = shard.local::<Waiters<T>>().0.borrow_mut().try_remove(key);
                if let Some(promise) = promise {
                    promise.fulfil(value);
                }
            });
        });
        (answer, wait)
    }
}

/// See the module's documentation.
pub(crate) struct HomeLink {
    shard: Shard,
    id: ArrayId,
    /// The address of the array's control.
    pub(crate) address: Home,
    questions: Rc<Waiters<bool>>,
    flushes: Rc<Waiters<Flushed>>,
    /// State that all shards of the array share without a message.
    pub(crate) reports: Arc<Reports>,
    /// The array is being stopped: writes that find no space are not waited for any more.
    ending: Cell<bool>,
}

impl HomeLink {
    /// The link of array `id` from `shard` to its control at `address`.
    pub(super) fn new(
        shard: &Shard,
        id: ArrayId,
        address: Home,
        reports: Arc<Reports>,
    ) -> HomeLink {
        HomeLink {
            shard: shard.clone(),
            id,
            address,
            questions: shard.local(),
            flushes: shard.local(),
            reports,
            ending: Cell::new(false),
        }
    }

    /// The array.
    pub(super) fn id(&self) -> ArrayId {
        self.id
    }

    /// Tells control something. Nothing comes back.
    pub(crate) fn tell(&self, news: News) {
        self.address.tell(news);
    }

    /// Asks control.
    pub(crate) fn ask(&self, question: Question) -> Promised<bool> {
        let (answer, wait) = self.questions.answer(&self.shard);
        self.address.ask(question, answer);
        wait
    }

    /// Has the home shard flush all members.
    pub(crate) fn flush_members(&self) -> Promised<Flushed> {
        let (answer, wait) = self.flushes.answer(&self.shard);
        self.address.flush(answer);
        wait
    }

    /// Has control know that member `nr` has failed with `error`; [`HomeLink::fail_member`] has to follow, which records
    /// it. Until then nothing that the member makes durable counts. False when it has not failed, because the array is
    /// being stopped.
    pub(crate) fn suspect_member(&self, nr: MemberNr, error: IoError) -> bool {
        let failed = !self.is_unfinished(error);
        if failed {
            self.tell(News::Suspect(nr, error, self.reports.begin()));
        }
        failed
    }

    /// Has control record that member `nr` has failed with `error`; comes back when the surviving superblocks say so and
    /// no shard uses the member any more.
    pub(crate) async fn fail_member(&self, nr: Option<MemberNr>, error: IoError) {
        let Some(nr) = nr.filter(|nr| self.suspect_member(*nr, error)) else { return };
        let answer = self.ask(Question::Fail(nr, error));
        if planted("failure-after-reply") {
            return;
        }
        // No answer means that the array was stopped meanwhile.
        let _ = answer.await;
    }

    /// The array is being stopped: writes that find no space from now on do so because of that.
    pub(super) fn end_waiting_for_space(&self) {
        self.ending.set(true);
    }

    /// True when `error` is that of a write that found no space because the array is being stopped: the member has not
    /// failed, and nobody is told that the write was done.
    pub(crate) fn is_unfinished(&self, error: IoError) -> bool {
        let unfinished = self.ending.get() && error.kind == IoErrorKind::NoSpace;
        if unfinished {
            self.reports.note_unfinished();
        }
        unfinished
    }
}
