//! A filter that counts: requests, bytes and sizes, per kind of operation.
//!
//! Invariant: it changes neither order nor time nor outcome of requests.

use crate::completion::Completion;
use crate::counts::Counts;
use crate::device::Device;
use crate::info::DeviceInfo;
use crate::request::Request;
use std::cell::RefCell;
use std::rc::Rc;

/// A device whose requests are counted on their way.
pub struct Trace {
    inner: Rc<dyn Device>,
    counts: RefCell<Counts>,
}

impl Trace {
    /// Counts the requests to `inner`.
    pub fn new(inner: Rc<dyn Device>) -> Rc<Trace> {
        Rc::new(Trace { inner, counts: RefCell::default() })
    }

    /// Counts of the requests submitted so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }
}

impl Device for Trace {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        self.counts.borrow_mut().add(&request.op, request.len());
        self.inner.submit(request, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Count;
    use crate::ram::Ram;
    use crate::testing::{ask, fill, shard};

    #[test]
    fn every_kind_is_counted_apart() {
        let shard = shard();
        let trace = Trace::new(Ram::new("ram", 1 << 20).device());
        let device: Rc<dyn Device> = Rc::clone(&trace) as Rc<dyn Device>;
        ask(&shard, &device, fill(&shard, 0, 8192, 1)).result.unwrap();
        let earlier = trace.counts();
        ask(&shard, &device, Request::read(0, shard.pool().get(4096))).result.unwrap();
        ask(&shard, &device, Request::flush()).result.unwrap();
        let buf = shard.pool().zeroed(512).freeze();
        ask(&shard, &device, Request::write(0, buf, true)).result.unwrap();
        let later = trace.counts().since(&earlier);
        assert_eq!((earlier.writes.requests, earlier.writes.bytes), (1, 8192));
        assert_eq!((later.reads.requests, later.reads.bytes, later.reads.sizes[3]), (1, 4096, 1));
        assert_eq!((later.writes.requests, later.forced.bytes, later.flushes), (1, 512, 1));
        assert_eq!(later.discards, Count::default());
    }
}
