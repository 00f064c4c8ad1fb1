//! Facts that all shards of an array must see before a message could tell them: a member has failed
//! a request, or acknowledged writes were lost.
//!
//! Counters only. What follows from them is the business of [`Control`](crate::control::Control).
//!
//! Invariant: from the moment at which a shard finds a failure until the home shard has noted which member it
//! was, [`Reports::any_on_the_way`] is true.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// See the module's documentation; all shards of the array share one.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    on_the_way: AtomicU32,
    losses: AtomicU64,
    /// Handles on members, on any shard, whose writes wait for space.
    pub(crate) waiting_for_space: Arc<AtomicU32>,
    unfinished: AtomicBool,
    waits_for_silent: AtomicBool,
}

/// A report that the home shard has not taken note of yet; dropped once it has, or when it is gone.
#[derive(Debug)]
pub(crate) struct Report(Arc<Reports>);

impl Reports {
    /// A shard has found that a member failed, and is about to tell the home shard.
    pub(crate) fn begin(self: &Arc<Reports>) -> Report {
        self.on_the_way.fetch_add(1, Ordering::SeqCst);
        Report(Arc::clone(self))
    }

    /// The home shard has yet to hear of some failure.
    pub(crate) fn any_on_the_way(&self) -> bool {
        self.on_the_way.load(Ordering::SeqCst) > 0
    }

    /// Writes wait because what a member lies on is full.
    pub(crate) fn any_waits_for_space(&self) -> bool {
        self.waiting_for_space.load(Ordering::SeqCst) > 0
    }

    /// A stop has ended a write that some members have taken and others have no space for.
    pub(crate) fn note_unfinished(&self) {
        self.unfinished.store(true, Ordering::SeqCst);
    }

    /// An array above is being stopped, and here is a member that answers nothing and cannot be spared; or no more.
    pub(crate) fn set_waits_for_silent(&self, waits: bool) {
        self.waits_for_silent.store(waits, Ordering::SeqCst);
    }

    /// True while [`set_waits_for_silent`](Reports::set_waits_for_silent) says so.
    pub(crate) fn waits_for_silent(&self) -> bool {
        self.waits_for_silent.load(Ordering::SeqCst)
    }

    /// Members may differ where nobody was told that a write has been done: the array is not clean.
    pub(crate) fn any_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::SeqCst)
    }

    /// Writes that were acknowledged may be gone, and no redundancy has them.
    pub(crate) fn count_loss(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Losses so far. Who finds more than at the time before has to tell its client.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.0.on_the_way.fetch_sub(1, Ordering::SeqCst);
    }
}
