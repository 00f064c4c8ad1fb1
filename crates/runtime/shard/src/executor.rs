//! Tasks of one shard: slabs of typed futures, advanced by index, without wakers.
//!
//! A [`Spawner`] owns one slab of one future type. Spawning places the future into a free slot of
//! the slab (no allocation once the slab has grown to the working set) and polls it immediately, so
//! an operation whose devices complete at submit never touches the run queue.
//!
//! A future must tolerate being polled although nothing happened: slots are reused, so a late wake-up
//! can reach the next future in the slot.

use crate::task::TaskId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// A slab that the run queue can advance by index.
pub(crate) trait Group {
    fn poll_task(&self, index: u32);
    /// Tasks that have not finished.
    fn live(&self) -> usize;
    /// Drops all tasks unfinished.
    fn abandon(&self);
}

type Slot<F> = Pin<Box<Option<F>>>;

struct Slab<F> {
    /// `None` while the slot is being polled.
    slots: Vec<Option<Slot<F>>>,
    free: Vec<u32>,
}

struct TypedGroup<F, M> {
    tasks: Weak<Tasks>,
    id: u32,
    make: M,
    slab: RefCell<Slab<F>>,
}

impl<F: Future<Output = ()>, M> TypedGroup<F, M> {
    fn advance(&self, tasks: &Tasks, index: u32, mut slot: Slot<F>) {
        let task = TaskId { group: self.id, index };
        let outer = tasks.current.replace(task);
        let mut cx = Context::from_waker(Waker::noop());
        let finished = match slot.as_mut().as_pin_mut() {
            Some(future) => matches!(future.poll(&mut cx), Poll::Ready(())),
            None => false,
        };
        if finished {
            slot.set(None);
        }
        tasks.current.set(outer);
        let mut slab = self.slab.borrow_mut();
        // The slab may have been cleared while the task ran; then the task is dropped as well.
        let Some(emptied) = slab.slots.get_mut(index as usize) else {
            drop(slab);
            drop(slot);
            return;
        };
        *emptied = Some(slot);
        if finished {
            slab.free.push(index);
        }
    }
}

impl<F: Future<Output = ()> + 'static, M> Group for TypedGroup<F, M> {
    fn poll_task(&self, index: u32) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        let slot = self.slab.borrow_mut().slots.get_mut(index as usize).and_then(Option::take);
        if let Some(slot) = slot {
            self.advance(&tasks, index, slot);
        }
    }

    fn live(&self) -> usize {
        let slab = self.slab.borrow();
        slab.slots.len() - slab.free.len()
    }

    fn abandon(&self) {
        loop {
            // Dropping a task may spawn another one in this slab, so the slab must not be borrowed meanwhile.
            let slots = {
                let mut slab = self.slab.borrow_mut();
                slab.free.clear();
                std::mem::take(&mut slab.slots)
            };
            if slots.is_empty() {
                return;
            }
            drop(slots);
        }
    }
}

trait Spawn<A> {
    fn spawn(&self, args: A);
}

impl<A, F, M> Spawn<A> for TypedGroup<F, M>
where
    F: Future<Output = ()> + 'static,
    M: Fn(A) -> F,
{
    fn spawn(&self, args: A) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        let (index, slot) = {
            let mut slab = self.slab.borrow_mut();
            match slab.free.pop() {
                Some(index) => {
                    let slot = slab.slots[index as usize].take();
                    (index, slot)
                }
                None => {
                    slab.slots.push(None);
                    (slab.slots.len() as u32 - 1, None)
                }
            }
        };
        let mut slot = slot.unwrap_or_else(|| Box::pin(None));
        slot.set(Some((self.make)(args)));
        self.advance(&tasks, index, slot);
    }
}

/// Starts tasks of one kind, each made from an `A`.
pub struct Spawner<A>(Rc<dyn Spawn<A>>);

impl<A> Clone for Spawner<A> {
    fn clone(&self) -> Self {
        Spawner(Rc::clone(&self.0))
    }
}

impl<A> Spawner<A> {
    /// Makes the future for `args` and polls it once, now; it goes on by itself when woken.
    pub fn spawn(&self, args: A) {
        self.0.spawn(args);
    }
}

/// The tasks of one shard: every slab, and the queue of tasks to advance.
pub(crate) struct Tasks {
    groups: RefCell<Vec<Rc<dyn Group>>>,
    run: RefCell<VecDeque<TaskId>>,
    current: Cell<TaskId>,
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        Tasks {
            groups: RefCell::new(Vec::new()),
            run: RefCell::new(VecDeque::with_capacity(1024)),
            current: Cell::new(TaskId::NONE),
        }
    }

    /// A spawner with a slab of its own for the futures that `make` makes.
    pub(crate) fn spawner<A, F, M>(self: &Rc<Tasks>, make: M) -> Spawner<A>
    where
        A: 'static,
        F: Future<Output = ()> + 'static,
        M: Fn(A) -> F + 'static,
    {
        let mut groups = self.groups.borrow_mut();
        let group = Rc::new(TypedGroup {
            tasks: Rc::downgrade(self),
            id: groups.len() as u32,
            make,
            slab: RefCell::new(Slab { slots: Vec::new(), free: Vec::new() }),
        });
        groups.push(Rc::clone(&group) as Rc<dyn Group>);
        Spawner(group)
    }

    /// The task being advanced now.
    pub(crate) fn current(&self) -> TaskId {
        self.current.get()
    }

    /// Puts a task on the run queue.
    pub(crate) fn wake(&self, task: TaskId) {
        if task != TaskId::NONE {
            self.run.borrow_mut().push_back(task);
        }
    }

    pub(crate) fn wake_all(&self, tasks: impl Iterator<Item = TaskId>) {
        self.run.borrow_mut().extend(tasks);
    }

    /// True when no task is runnable.
    pub(crate) fn idle(&self) -> bool {
        self.run.borrow().is_empty()
    }

    /// Advances the first task of the run queue; false when there is none.
    pub(crate) fn advance_one(&self) -> bool {
        let Some(task) = self.run.borrow_mut().pop_front() else { return false };
        let group = self.groups.borrow().get(task.group as usize).cloned();
        if let Some(group) = group {
            group.poll_task(task.index);
        }
        true
    }

    /// Tasks that have not finished.
    pub(crate) fn live(&self) -> usize {
        self.groups.borrow().iter().map(|group| group.live()).sum()
    }

    /// Drops all tasks unfinished.
    pub(crate) fn abandon(&self) {
        let groups = self.groups.take();
        for group in &groups {
            group.abandon();
        }
    }

    /// Empties the run queue.
    pub(crate) fn clear_queue(&self) {
        self.run.borrow_mut().clear();
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
