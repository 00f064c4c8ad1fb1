//! Asking the array's shards: a closure goes there, its answer comes back to the home shard.

use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::RefCell;

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
