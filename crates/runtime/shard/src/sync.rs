//! Waiting inside one shard: an event to wait for, a value handed over, a bounded budget.
//!
//! All are single-threaded; waiting tasks are woken in the order in which they came.

use crate::shard::Shard;
use crate::task::TaskId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

/// Wakes everybody who waits. Waiters check their condition themselves.
pub struct Notify {
    shard: Shard,
    waiters: RefCell<VecDeque<TaskId>>,
}

impl Notify {
    /// With nobody waiting.
    pub fn new(shard: &Shard) -> Notify {
        Notify { shard: shard.clone(), waiters: RefCell::new(VecDeque::new()) }
    }

    /// Wakes all that wait now.
    pub fn notify_all(&self) {
        for task in self.waiters.borrow_mut().drain(..) {
            self.shard.wake(task);
        }
    }

    /// True when at least one task waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    /// Completes as soon as `condition` gives a value; asked now and after each notification.
    pub fn wait_for<'a, T>(
        &'a self,
        mut condition: impl FnMut() -> Option<T> + 'a,
    ) -> impl Future<Output = T> + 'a {
        let mut noted = TaskId::NONE;
        poll_fn(move |_| {
            if let Some(value) = condition() {
                return Poll::Ready(value);
            }
            let task = self.shard.current_task();
            let mut waiters = self.waiters.borrow_mut();
            if noted != task || !waiters.contains(&task) {
                noted = task;
                waiters.push_back(task);
            }
            Poll::Pending
        })
    }
}

/// The giving side of a value that comes later; see [`promise`].
pub struct Promise<T> {
    shared: Rc<PromiseState<T>>,
    shard: Shard,
}

/// The waiting side of a [`Promise`].
pub struct Promised<T> {
    shared: Rc<PromiseState<T>>,
    shard: Shard,
}

struct PromiseState<T> {
    value: Cell<Option<T>>,
    broken: Cell<bool>,
    waiter: Cell<TaskId>,
}

/// The two sides of a value that comes later: [`Promise::fulfil`] gives it, and awaiting the [`Promised`] takes it. That
/// yields `None` when the promise is dropped without being fulfilled.
pub fn promise<T>(shard: &Shard) -> (Promise<T>, Promised<T>) {
    let shared = Rc::new(PromiseState {
        value: Cell::new(None),
        broken: Cell::new(false),
        waiter: Cell::new(TaskId::NONE),
    });
    (
        Promise { shared: Rc::clone(&shared), shard: shard.clone() },
        Promised { shared, shard: shard.clone() },
    )
}

impl<T> Promise<T> {
    /// Gives the value and wakes the waiter.
    pub fn fulfil(self, value: T) {
        self.shared.value.set(Some(value));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.shared.broken.set(true);
        self.shard.wake(self.shared.waiter.replace(TaskId::NONE));
    }
}

impl<T> Future for Promised<T> {
    type Output = Option<T>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.shared.value.take() {
            return Poll::Ready(Some(value));
        }
        if self.shared.broken.get() {
            return Poll::Ready(None);
        }
        self.shared.waiter.set(self.shard.current_task());
        Poll::Pending
    }
}

/// A bounded amount (of bytes, of operations) that tasks take and give back. Requests are served in
/// order, so that small ones cannot starve a large one.
pub struct Budget {
    shard: Shard,
    limit: u64,
    left: Cell<u64>,
    queue: RefCell<VecDeque<(TaskId, u64, u64)>>,
    /// Somebody is in the queue.
    any_waits: Cell<bool>,
    next_ticket: Cell<u64>,
}

/// A share taken from a [`Budget`]; dropping it gives it back.
pub struct Share {
    budget: Rc<Budget>,
    amount: u64,
}

impl Budget {
    /// A budget of `limit`, all of it free.
    pub fn new(shard: &Shard, limit: u64) -> Rc<Budget> {
        Rc::new(Budget {
            shard: shard.clone(),
            limit,
            left: Cell::new(limit),
            queue: RefCell::new(VecDeque::new()),
            any_waits: Cell::new(false),
            next_ticket: Cell::new(0),
        })
    }

    /// The amount that is free now.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// A share if the amount is free and no other task waits for one; never waits.
    #[inline(always)]
    pub fn try_take(self: &Rc<Budget>, amount: u64) -> Option<Share> {
        let amount = amount.min(self.limit);
        if self.any_waits.get() || self.left.get() < amount {
            return None;
        }
        self.left.set(self.left.get() - amount);
        Some(Share { budget: Rc::clone(self), amount })
    }

    /// Waits for a share of `amount`, or of the whole budget if that is less.
    pub fn take(self: &Rc<Budget>, amount: u64) -> impl Future<Output = Share> + use<> {
        let amount = amount.min(self.limit);
        let mut entry = Entry { budget: Rc::clone(self), ticket: None };
        poll_fn(move |_| {
            let budget = Rc::clone(&entry.budget);
            let Some(mine) = entry.ticket else {
                if let Some(share) = budget.try_take(amount) {
                    return Poll::Ready(share);
                }
                let new = budget.next_ticket.replace(budget.next_ticket.get() + 1);
                entry.ticket = Some(new);
                let task = budget.shard.current_task();
                budget.queue.borrow_mut().push_back((task, amount, new));
                budget.any_waits.set(true);
                return Poll::Pending;
            };
            let mut queue = budget.queue.borrow_mut();
            let first = queue.front().is_some_and(|(_, _, ticket)| *ticket == mine);
            if !first || budget.left.get() < amount {
                return Poll::Pending;
            }
            queue.pop_front();
            budget.any_waits.set(!queue.is_empty());
            entry.ticket = None;
            budget.left.set(budget.left.get() - amount);
            drop(queue);
            budget.wake_first();
            Poll::Ready(Share { budget: Rc::clone(&budget), amount })
        })
    }

    fn wake_first(&self) {
        if let Some((task, amount, _)) = self.queue.borrow().front()
            && self.left.get() >= *amount
        {
            self.shard.wake(*task);
        }
    }
}

/// A waiting task's entry in the queue; dropping it removes the entry, so that a task that was dropped does not block
/// the others.
struct Entry {
    budget: Rc<Budget>,
    ticket: Option<u64>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(mine) = self.ticket {
            let mut queue = self.budget.queue.borrow_mut();
            queue.retain(|(_, _, ticket)| *ticket != mine);
            self.budget.any_waits.set(!queue.is_empty());
            drop(queue);
            self.budget.wake_first();
        }
    }
}

impl Drop for Share {
    #[inline]
    fn drop(&mut self) {
        self.budget.left.set(self.budget.left.get() + self.amount);
        if self.budget.any_waits.get() {
            self.budget.wake_first();
        }
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
