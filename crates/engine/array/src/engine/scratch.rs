//! Memory that requests hold besides their payload: a budget for it, and zeroes to write.

use braid_shard::sync::{Budget, Share};
use braid_shard::{Buf, Shard};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes that stripes being written or recovered may hold besides their payload, per shard.
const SCRATCH_MAX: u64 = 128 << 20;

/// See the module's documentation.
pub(crate) struct Scratch {
    shard: Shard,
    budget: Rc<Budget>,
    /// As many as somebody has wanted at once so far.
    zeroes: RefCell<Option<Buf>>,
}

impl Scratch {
    /// All of it is free.
    pub(super) fn new(shard: &Shard) -> Scratch {
        let budget = Budget::new(shard, SCRATCH_MAX);
        Scratch { shard: shard.clone(), budget, zeroes: RefCell::new(None) }
    }

    /// Takes `bytes` of the budget where so many are free and nobody waits.
    #[inline(always)]
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Share> {
        self.budget.try_take(bytes)
    }

    /// Waits for `bytes` of the budget.
    pub(crate) fn take(&self, bytes: u64) -> impl Future<Output = Share> + use<> {
        self.budget.take(bytes)
    }

    /// `len` zero bytes to write.
    pub(crate) fn zeroes(&self, len: usize) -> Buf {
        let mut zeroes = self.zeroes.borrow_mut();
        match zeroes.as_ref() {
            Some(buf) if buf.len() >= len => buf.slice(0..len),
            _ => {
                let buf = self.shard.pool().zeroed(len).freeze();
                zeroes.insert(buf).slice(0..len)
            }
        }
    }
}
