//! Locks on ranges of one object (bytes of a file, blocks of a device), shared or exclusive, granted in the order in which
//! they were asked for.
//!
//! One thread owns the table; a lock is an entry in a short list.

use crate::shard::Shard;
use crate::sync::Notify;
use crate::version::Version;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The whole, whatever its size.
pub const WHOLE: Range<u64> = 0..u64::MAX;

struct Entry {
    ticket: u64,
    range: Range<u64>,
    exclusive: bool,
}

/// The locks of one object.
pub struct RangeLocks {
    /// In the order of asking; an entry is granted when no earlier one is in its way.
    entries: RefCell<Vec<Entry>>,
    next: Cell<u64>,
    released: Notify,
    /// Changes with each exclusive lock that is granted, before its holder has it.
    pub version: Version,
}

/// A granted lock, given back when it is dropped.
pub struct Held {
    locks: Rc<RangeLocks>,
    ticket: u64,
}

impl RangeLocks {
    /// Nothing is locked.
    pub fn new(shard: &Shard) -> Rc<RangeLocks> {
        Rc::new(RangeLocks {
            entries: RefCell::new(Vec::new()),
            next: Cell::new(0),
            released: Notify::new(shard),
            version: Version::default(),
        })
    }

    /// Waits until `range` may be read.
    pub async fn shared(self: &Rc<Self>, range: Range<u64>) -> Held {
        self.lock(range, false).await
    }

    /// Waits until nobody else uses `range`.
    pub async fn exclusive(self: &Rc<Self>, range: Range<u64>) -> Held {
        self.lock(range, true).await
    }

    /// Nobody holds or waits for anything.
    pub fn is_free(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    async fn lock(self: &Rc<Self>, range: Range<u64>, exclusive: bool) -> Held {
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        self.entries.borrow_mut().push(Entry { ticket, range, exclusive });
        // From here on the entry is taken out again, also when the waiting task is dropped.
        let held = Held { locks: Rc::clone(self), ticket };
        if !self.is_granted(ticket) {
            self.released.wait_for(|| self.is_granted(ticket).then_some(())).await;
        }
        if exclusive {
            self.version.changes();
        }
        held
    }

    fn is_granted(&self, ticket: u64) -> bool {
        let entries = self.entries.borrow();
        let Some(at) = entries.iter().position(|entry| entry.ticket == ticket) else {
            return true;
        };
        let own = &entries[at];
        !entries[..at].iter().any(|earlier| {
            (own.exclusive || earlier.exclusive)
                && earlier.range.start < own.range.end
                && own.range.start < earlier.range.end
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.entries.borrow_mut().retain(|entry| entry.ticket != self.ticket);
        self.locks.released.notify_all();
    }
}
