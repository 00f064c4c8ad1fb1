//! Asking the array's shards: a closure goes there, its answer comes back to the home shard.

use crate::engine::Engine;
use crate::state::ArrayId;
use crate::state::view::MemberNr;
use braid_device::{OpenError, Opener};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::RefCell;
use std::sync::Arc;

/// Interval after which engines are asked again whether their requests have ended, in nanoseconds: short at first,
/// longer the longer it takes.
const ASK_AGAIN: std::ops::Range<u64> = 100_000..10_000_000;

/// Answers of type `T` that tasks of this shard wait for.
struct Answers<T>(RefCell<Slab<Promise<T>>>);

impl<T> Default for Answers<T> {
    fn default() -> Answers<T> {
        Answers(RefCell::new(Slab::new()))
    }
}

/// An answer that is there, or will be.
pub(crate) enum Answer<T> {
    Here(T),
    Later(braid_shard::sync::Promised<T>),
    Never,
}

impl<T> Answer<T> {
    /// The answer; `None` when the shard is gone.
    pub(crate) async fn get(self) -> Option<T> {
        match self {
            Answer::Here(value) => Some(value),
            Answer::Later(promised) => promised.await,
            Answer::Never => None,
        }
    }
}

/// Runs `job` on the shard of `remote`; at once when that is this one. Jobs for one shard run in
/// the order in which they were asked for.
pub(crate) fn ask<T: Send + 'static>(
    home: &Shard,
    remote: &Remote,
    job: impl FnOnce(&Shard) -> T + Send + 'static,
) -> Answer<T> {
    if remote.id() == home.id() {
        return Answer::Here(job(home));
    }
    let (give, wait) = promise(home);
    let key = home.local::<Answers<T>>().0.borrow_mut().insert(give);
    let back = home.remote();
    let sent = remote.run(move |shard| {
        let value = job(shard);
        back.run(move |home| {
            let answers = home.local::<Answers<T>>();
            let promise = answers.0.borrow_mut().try_remove(key);
            if let Some(promise) = promise {
                promise.fulfil(value);
            }
        });
    });
    if sent {
        return Answer::Later(wait);
    }
    home.local::<Answers<T>>().0.borrow_mut().try_remove(key);
    Answer::Never
}

/// The engines of one array on all its shards, as its control sees them.
pub(crate) struct Engines {
    home: Shard,
    remotes: Vec<Remote>,
    id: ArrayId,
}

impl Engines {
    /// Those of array `id`: one on the shard of each of `remotes`.
    pub(crate) fn new(home: &Shard, remotes: &[Remote], id: ArrayId) -> Engines {
        Engines { home: home.clone(), remotes: remotes.to_vec(), id }
    }

    /// Number of shards.
    pub(crate) fn shards(&self) -> u16 {
        u16::try_from(self.remotes.len()).unwrap_or(u16::MAX)
    }

    /// Asks every engine and gives the answers in the shards' order; `None` where the engine or the shard is gone.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        job: impl Fn(&Engine) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let id = self.id;
        let asked = move |shard: &Shard| Engine::find(shard, id).map(|engine| job(&engine));
        self.ask_shards(asked).await.into_iter().map(Option::flatten).collect()
    }

    /// Has every engine do something, and does not wait until they have.
    pub(crate) fn tell(&self, job: impl Fn(&Engine) + Clone + Send + 'static) {
        let id = self.id;
        drop(self.begin(move |shard| {
            if let Some(engine) = Engine::find(shard, id) {
                job(&engine);
            }
        }));
    }

    /// Asks every shard, also one on which the array has no engine (any more).
    pub(crate) async fn ask_shards<T: Send + 'static>(
        &self,
        job: impl Fn(&Shard) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let mut values = Vec::with_capacity(self.remotes.len());
        for answer in self.begin(job) {
            values.push(answer.get().await);
        }
        values
    }

    /// Opens a device on all shards, as member `nr`.
    pub(crate) async fn open_member(
        &self,
        nr: MemberNr,
        opener: &Arc<dyn Opener>,
    ) -> Result<(), OpenError> {
        let opener = Arc::clone(opener);
        let answers = self.ask(move |engine: &Engine| engine.open_member(nr, &*opener)).await;
        answers.into_iter().flatten().collect()
    }

    /// Closes member `nr` on all shards.
    pub(crate) async fn close_member(&self, nr: MemberNr) {
        self.ask(move |engine: &Engine| engine.members.close(nr)).await;
    }

    /// Has requests that come from now on wait until [`Engines::end_hold`], and waits until those under way have ended.
    pub(crate) async fn hold_requests(&self) {
        self.hold_new_requests().await;
        let mut pause = ASK_AGAIN.start;
        loop {
            let ended = |engine: &Engine| engine.requests_in_flight() == 0;
            if !self.ask(ended).await.contains(&Some(false)) {
                break;
            }
            self.home.sleep(pause).await;
            pause = (pause + pause / 8).min(ASK_AGAIN.end);
        }
    }

    /// Requests that come from now on wait; those under way are not waited for.
    pub(crate) async fn hold_new_requests(&self) {
        self.ask(|engine| engine.splits.hold.begin()).await;
    }

    /// Requests go on, those that waited first.
    pub(crate) async fn end_hold(&self) {
        self.ask(|engine| engine.splits.hold.end()).await;
    }

    /// Takes the engines off their shards and waits until all are.
    pub(crate) async fn stop(&self) {
        self.ask(|engine| engine.stop()).await;
    }

    fn begin<T: Send + 'static>(
        &self,
        job: impl Fn(&Shard) -> T + Clone + Send + 'static,
    ) -> Vec<Answer<T>> {
        self.remotes.iter().map(|remote| ask(&self.home, remote, job.clone())).collect()
    }
}
