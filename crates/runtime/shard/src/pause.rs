//! Futures with which a task pauses: until a time, until the next turn, or until the others have run.

use crate::reactor::Nanos;
use crate::shard::Shard;
use crate::task::TaskId;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

impl Shard {
    /// Completes after `nanos` nanoseconds.
    pub fn sleep(&self, nanos: Nanos) -> Sleep {
        Sleep {
            shard: self.clone(),
            deadline: self.now().saturating_add(nanos),
            armed: TaskId::NONE,
        }
    }

    /// Lets everything else that is runnable run first.
    pub fn yield_now(&self) -> Yield {
        Yield { shard: self.clone(), yielded: false }
    }

    /// Completes in the next turn: everything that is runnable has run by then, and completions and messages have
    /// been taken.
    pub fn next_turn(&self) -> NextTurn {
        NextTurn { shard: self.clone(), after: None }
    }
}

/// See [`Shard::sleep`].
pub struct Sleep {
    shard: Shard,
    deadline: Nanos,
    armed: TaskId,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.shard.now() >= self.deadline {
            return Poll::Ready(());
        }
        let task = self.shard.current_task();
        if self.armed != task {
            self.armed = task;
            self.shard.wake_at(self.deadline, task);
        }
        Poll::Pending
    }
}

/// See [`Shard::next_turn`].
pub struct NextTurn {
    shard: Shard,
    after: Option<u64>,
}

impl Future for NextTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let now = self.shard.turns();
        match self.after {
            Some(turn) if turn != now => return Poll::Ready(()),
            Some(_) => {}
            None => {
                self.shard.wake_next_turn(self.shard.current_task());
                self.after = Some(now);
            }
        }
        Poll::Pending
    }
}

/// See [`Shard::yield_now`].
pub struct Yield {
    shard: Shard,
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.shard.wake(self.shard.current_task());
        Poll::Pending
    }
}
