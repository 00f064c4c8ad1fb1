//! Waiting for one ring operation in async code: `shard.perform(op).await`.

use crate::ring::{RingOp, RingSink};
use crate::shard::Shard;
use crate::sync::{Promise, Promised, promise};
use std::cell::Cell;
use std::rc::Rc;

struct OneShot(Cell<Option<Promise<(i32, RingOp)>>>);

impl RingSink for OneShot {
    fn ring_done(&self, _: u64, result: i32, op: RingOp) {
        if let Some(promise) = self.0.take() {
            promise.fulfil((result, op));
        }
    }
}

impl Shard {
    /// Performs `op`; gives the result as the system call would (negative errno) with the
    /// operation and its buffers. `None` when this shard has no ring or the ring is gone.
    pub fn perform(&self, op: RingOp) -> Promised<(i32, RingOp)> {
        let (give, wait) = promise(self);
        if let Some(ring) = self.ring() {
            ring.submit(op, Rc::new(OneShot(Cell::new(Some(give)))), 0);
        }
        wait
    }
}
