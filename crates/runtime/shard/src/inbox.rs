//! The receiving ends that a shard looks at in every turn.

use std::cell::RefCell;
use std::sync::mpsc;

/// A source of messages that the shard empties in every turn.
pub(crate) trait Inbox {
    /// Handles the messages that are there; true when there was one.
    fn take(&self) -> bool;
    /// True when there are messages to handle, or to pass on.
    fn waiting(&self) -> bool;
}

/// The receiving end of a channel that can be asked whether it is empty.
pub(crate) struct Queue<T> {
    /// `None` once it is closed.
    receiver: RefCell<Option<mpsc::Receiver<T>>>,
    /// Taken from the channel to see whether there is one: std's receiver cannot peek.
    peeked: RefCell<Option<T>>,
}

impl<T> Queue<T> {
    pub(crate) fn new(receiver: mpsc::Receiver<T>) -> Queue<T> {
        Queue { receiver: RefCell::new(Some(receiver)), peeked: RefCell::new(None) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let mut peeked = self.peeked.borrow_mut();
        if peeked.is_none() {
            *peeked = self.receive();
        }
        peeked.is_none()
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let peeked = self.peeked.borrow_mut().take();
        peeked.or_else(|| self.receive())
    }

    /// Drops the messages that are there, and has every later send fail.
    pub(crate) fn close(&self) {
        let (receiver, peeked) = (self.receiver.take(), self.peeked.take());
        // Outside of the cells: what a message holds may send another when it is dropped.
        drop((receiver, peeked));
    }

    fn receive(&self) -> Option<T> {
        self.receiver.borrow().as_ref()?.try_recv().ok()
    }
}
