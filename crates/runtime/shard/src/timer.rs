//! Timers of one shard: a heap of deadlines, each naming the task to wake.

use crate::reactor::Nanos;
use crate::task::TaskId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines in order. A task may have any number of them; a stale one only causes a spurious poll.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, TaskId)>>,
}

impl Timers {
    pub(crate) fn add(&mut self, deadline: Nanos, task: TaskId) {
        self.heap.push(Reverse((deadline, task)));
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The next task whose deadline is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<TaskId> {
        match self.heap.peek() {
            Some(Reverse((deadline, _))) if *deadline <= now => {
                self.heap.pop().map(|Reverse((_, task))| task)
            }
            _ => None,
        }
    }
}
