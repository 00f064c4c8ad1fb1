//! Tasks of one shard: slabs of typed futures, advanced by index, without wakers.
//!
//! A [`Spawner`] owns one slab of one future type. Spawning places the future into a slot that was
//! used before (no allocation once the slab has grown to the working set) and polls it at once, so
//! an operation whose devices complete at submit never touches the run queue.
//!
//! A future must tolerate being polled although nothing happened: a task identity may be reused,
//! so a late wake-up can reach the slot's next tenant.

use crate::shard::Core;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// Names a slot of a slab: what a leaf future notes to be woken later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    pub(crate) group: u32,
    pub(crate) index: u32,
}

impl TaskId {
    /// No task: waking it does nothing.
    pub const NONE: TaskId = TaskId { group: u32::MAX, index: u32::MAX };
}

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
    core: Weak<Core>,
    id: u32,
    make: M,
    slab: RefCell<Slab<F>>,
}

impl<F: Future<Output = ()>, M> TypedGroup<F, M> {
    fn advance(&self, core: &Core, index: u32, mut slot: Slot<F>) {
        let task = TaskId { group: self.id, index };
        let outer = core.current.replace(task);
        let mut cx = Context::from_waker(Waker::noop());
        let finished = match slot.as_mut().as_pin_mut() {
            Some(future) => matches!(future.poll(&mut cx), Poll::Ready(())),
            None => false,
        };
        if finished {
            slot.set(None);
        }
        core.current.set(outer);
        let mut slab = self.slab.borrow_mut();
        // Not there any more when the slab was cleared meanwhile: the task goes too.
        let Some(place) = slab.slots.get_mut(index as usize) else {
            drop(slab);
            drop(slot);
            return;
        };
        *place = Some(slot);
        if finished {
            slab.free.push(index);
        }
    }
}

impl<F: Future<Output = ()> + 'static, M> Group for TypedGroup<F, M> {
    fn poll_task(&self, index: u32) {
        let Some(core) = self.core.upgrade() else { return };
        let slot = self.slab.borrow_mut().slots.get_mut(index as usize).and_then(Option::take);
        if let Some(slot) = slot {
            self.advance(&core, index, slot);
        }
    }

    fn live(&self) -> usize {
        let slab = self.slab.borrow();
        slab.slots.len() - slab.free.len()
    }

    fn abandon(&self) {
        loop {
            // A dropped task may reach back into this slab, so the slab is not borrowed meanwhile.
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
        let Some(core) = self.core.upgrade() else { return };
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
        self.advance(&core, index, slot);
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

pub(crate) fn new_group<A, F, M>(core: &Rc<Core>, make: M) -> Spawner<A>
where
    A: 'static,
    F: Future<Output = ()> + 'static,
    M: Fn(A) -> F + 'static,
{
    let mut groups = core.groups.borrow_mut();
    let group = Rc::new(TypedGroup {
        core: Rc::downgrade(core),
        id: groups.len() as u32,
        make,
        slab: RefCell::new(Slab { slots: Vec::new(), free: Vec::new() }),
    });
    groups.push(Rc::clone(&group) as Rc<dyn Group>);
    Spawner(group)
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
