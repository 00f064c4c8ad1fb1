//! A modelled device on one shard: memory, and requests that complete when the timeline says.

use super::parameters::{ModelSpec, Parameters};
use super::timeline::Timeline;
use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::ram::{carry_out, memory_for};
use crate::request::Request;
use crate::target::{OpenError, Opener};
use braid_shard::buffer::SharedMemory;
use braid_shard::{Nanos, Shard, TaskId};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A modelled device for all shards of a process.
pub struct Model {
    info: DeviceInfo,
    memory: Arc<SharedMemory>,
    timeline: Arc<Timeline>,
}

impl Model {
    /// A device of the size that `spec` gives, all zeroes.
    ///
    /// # Errors
    /// When there is not that much memory, or it is less than a block.
    pub fn new(spec: &ModelSpec) -> Result<Model, OpenError> {
        Model::with_parameters(format!("model:{spec}"), spec.size, spec.parameters())
    }

    /// A device of `size` bytes with any parameters.
    ///
    /// # Errors
    /// When there is not that much memory, or it is less than a block.
    pub fn with_parameters(
        name: impl Into<String>,
        size: u64,
        parameters: Parameters,
    ) -> Result<Model, OpenError> {
        let name = name.into();
        let memory = memory_for(&name, size)?;
        let size = memory.len() as u64;
        let info = DeviceInfo {
            wants_plug: true,
            rotational: parameters.seek.is_some(),
            discards: parameters.seek.is_none(),
            volatile_cache: parameters.flush > 0,
            ..DeviceInfo::plain(name, size)
        };
        let timeline = Arc::new(Timeline::new(parameters, size));
        Ok(Model { info, memory: Arc::new(memory), timeline })
    }
}

impl Opener for Model {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let inner = Rc::new(Inner {
            shard: shard.clone(),
            memory: Arc::clone(&self.memory),
            timeline: Arc::clone(&self.timeline),
            requests: RefCell::new(Slab::new()),
            queue: RefCell::new(BinaryHeap::new()),
            arrivals: Cell::new(0),
            task: Cell::new(TaskId::NONE),
            armed: Cell::new(Nanos::MAX),
            closing: Cell::new(false),
        });
        let ends = Rc::clone(&inner);
        shard.spawn(poll_fn(move |_| ends.end_due()));
        Ok(Rc::new(ModelDevice { info: self.info.clone(), inner }))
    }
}

struct ModelDevice {
    info: DeviceInfo,
    inner: Rc<Inner>,
}

struct Inner {
    shard: Shard,
    memory: Arc<SharedMemory>,
    timeline: Arc<Timeline>,
    requests: RefCell<Slab<(Request, Completion)>>,
    /// Completion time, order of arrival, key in `requests`.
    queue: RefCell<BinaryHeap<Reverse<(Nanos, u64, usize)>>>,
    arrivals: Cell<u64>,
    /// The task that completes requests.
    task: Cell<TaskId>,
    /// The time for which that task has asked to be woken.
    armed: Cell<Nanos>,
    closing: Cell<bool>,
}

impl Device for ModelDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let inner = &self.inner;
        let (now, len) = (inner.shard.now(), request.len());
        let end = inner.timeline.end_of(now, request.offset, len, &request.op);
        let arrival = inner.arrivals.replace(inner.arrivals.get() + 1);
        let key = inner.requests.borrow_mut().insert((request, done));
        inner.queue.borrow_mut().push(Reverse((end, arrival, key)));
        inner.arm(end);
    }
}

impl Inner {
    fn arm(&self, end: Nanos) {
        if end < self.armed.get() {
            self.armed.set(end);
            self.shard.wake_at(end, self.task.get());
        }
    }

    fn pop_due(&self, now: Nanos) -> Option<(Request, Completion)> {
        let mut queue = self.queue.borrow_mut();
        let Reverse((end, _, key)) = *queue.peek()?;
        if end > now {
            return None;
        }
        queue.pop();
        self.requests.borrow_mut().try_remove(key)
    }

    fn end_due(&self) -> Poll<()> {
        self.task.set(self.shard.current_task());
        let now = self.shard.now();
        while let Some((request, done)) = self.pop_due(now) {
            let Request { offset, mut op } = request;
            if carry_out(&self.memory, offset, &mut op) {
                done.complete(Outcome::ok(op));
            } else {
                done.complete(Outcome::failed(IoError::new(IoErrorKind::Invalid), op));
            }
        }
        let next = self.queue.borrow().peek().map(|Reverse((end, _, _))| *end);
        // The armed timer may have fired, and must then be armed again.
        if self.armed.get() <= now {
            self.armed.set(Nanos::MAX);
        }
        match next {
            Some(end) => self.arm(end),
            None if self.closing.get() => return Poll::Ready(()),
            None => {}
        }
        Poll::Pending
    }
}

impl Drop for ModelDevice {
    fn drop(&mut self) {
        // Requests in flight still complete at their times; the task ends after the last.
        self.inner.closing.set(true);
        self.inner.shard.wake(self.inner.task.get());
    }
}
