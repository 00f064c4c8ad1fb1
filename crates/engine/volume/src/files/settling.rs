//! Tasks that put regions right which are in doubt: are there any?

use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::Cell;

/// Tells when nobody puts regions right any more.
pub(super) struct Settling {
    /// The number of tasks that do.
    under_way: Cell<u32>,
    ended: Notify,
}

impl Settling {
    pub(super) fn new(shard: &Shard) -> Settling {
        Settling { under_way: Cell::new(0), ended: Notify::new(shard) }
    }

    /// A task begins.
    pub(super) fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// A task has ended, with what could be put right.
    pub(super) fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.ended.notify_all();
    }

    /// Waits until all have ended.
    pub(super) async fn wait(&self) {
        self.ended.wait_for(|| (self.under_way.get() == 0).then_some(())).await;
    }
}
