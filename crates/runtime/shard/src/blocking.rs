//! Work that may block, for async code: `shard.on_thread(work).await`.

use crate::shard::Shard;
use crate::sync::{Promise, Promised, promise};
use slab::Slab;
use std::cell::RefCell;
use std::thread;

/// The tasks of a shard that wait for a result of this kind.
struct Waiting<T>(RefCell<Slab<Promise<T>>>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Waiting(RefCell::default())
    }
}

impl Shard {
    /// Has a thread of its own do `work`, which may block, and gives the result. `None` when no thread can be started. Not
    /// for requests: each call starts a thread.
    pub fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Promised<T> {
        let (give, wait) = promise(self);
        let waiting = self.local::<Waiting<T>>();
        let key = waiting.0.borrow_mut().insert(give);
        let own = self.remote();
        let started = thread::Builder::new().name("blocking".to_string()).spawn(move || {
            let result = work();
            // Nobody waits any more when the shard has ended.
            own.run(move |shard| {
                let promise = shard.local::<Waiting<T>>().0.borrow_mut().try_remove(key);
                if let Some(promise) = promise {
                    promise.fulfil(result);
                }
            });
        });
        if started.is_err() {
            waiting.0.borrow_mut().try_remove(key);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_threads_come_to_the_tasks_that_asked() {
        let shard = Shard::with_ring(0).unwrap();
        let on = shard.clone();
        let both = shard.block_on(async move {
            let (one, other) = (on.on_thread(|| 1), on.on_thread(|| 2));
            (other.await, one.await)
        });
        assert_eq!(both, (Some(2), Some(1)));
    }
}
