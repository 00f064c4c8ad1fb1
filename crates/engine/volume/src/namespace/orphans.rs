//! Files that wait to be removed, or to lose the extents beyond their ends.

use crate::transactions::Transactions;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::keys;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Orphans that are looked for at a time at the mount.
const AT_ONCE: usize = 256;

/// Starts a task that takes files from the queue until it is empty. False: it cannot be started any more.
pub type Worker = Rc<dyn Fn() -> bool>;

/// The files that wait to be removed.
pub struct Orphans {
    transactions: Rc<Transactions>,
    /// In the order in which they are removed.
    queue: RefCell<VecDeque<Ino>>,
    /// A task is at work on the queue.
    running: Cell<bool>,
    worker: RefCell<Option<Worker>>,
    /// Files that are shorter than their extents, which are still to be taken away: before anything is written beyond their
    /// ends.
    cut: RefCell<BTreeSet<Ino>>,
}

impl Orphans {
    /// None is known of.
    pub fn new(transactions: Rc<Transactions>) -> Orphans {
        Orphans {
            transactions,
            queue: RefCell::default(),
            running: Cell::new(false),
            worker: RefCell::new(None),
            cut: RefCell::default(),
        }
    }

    /// From now on `worker` is called when the queue has become something to work on.
    pub fn work_by(&self, worker: Worker) {
        *self.worker.borrow_mut() = Some(worker);
    }

    /// Puts a file into the queue.
    pub fn push(&self, ino: Ino) {
        self.queue.borrow_mut().push_back(ino);
        let worker = self.worker.borrow().clone();
        if let Some(worker) = worker.filter(|_| !self.running.get()) {
            self.running.set(true);
            // It may have emptied the queue already.
            if !worker() {
                self.running.set(false);
            }
        }
    }

    /// The next file of the queue. `None`: the task that asks is done.
    pub fn next(&self) -> Option<Ino> {
        let next = self.queue.borrow_mut().pop_front();
        self.running.set(next.is_some());
        next
    }

    /// True while something is being removed.
    pub fn is_busy(&self) -> bool {
        self.running.get()
    }

    /// Extents beyond the end of the file are still to be taken away.
    pub fn is_cut(&self, ino: Ino) -> bool {
        self.cut.borrow().contains(&ino)
    }

    /// Notes, for the next mount too, that extents beyond the end of the file are still to be taken away.
    pub fn note_cut(&self, ino: Ino) {
        self.cut.borrow_mut().insert(ino);
        self.record(ino);
    }

    /// Nothing is beyond the end of the file any more. One without a name is still to be removed.
    pub fn is_trimmed(&self, ino: Ino, has_name: bool) {
        self.cut.borrow_mut().remove(&ino);
        if has_name {
            self.transactions.set(keys::orphan(ino), None);
        }
    }

    /// A file that had no name has got its first one: it is not to be removed. What is beyond its end still is.
    pub fn is_named(&self, ino: Ino) {
        if !self.is_cut(ino) {
            self.transactions.set(keys::orphan(ino), None);
        }
    }

    /// Notes, for the next mount, that the file is to be removed.
    pub fn record(&self, ino: Ino) {
        self.transactions.set(keys::orphan(ino), Some(Vec::new()));
    }

    /// The file is no more.
    pub fn forget(&self, ino: Ino) {
        self.cut.borrow_mut().remove(&ino);
        self.transactions.set(keys::orphan(ino), None);
    }

    /// The file never was, or is no more; what is recorded of it is removed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forget_stray(&self, ino: Ino) -> Result<(), Errno> {
        if self.transactions.stored(&keys::orphan(ino)).await?.is_some() {
            self.transactions.set(keys::orphan(ino), None);
        }
        self.cut.borrow_mut().remove(&ino);
        Ok(())
    }

    /// Queues what an earlier life left to be removed or trimmed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find(&self) -> Result<(), Errno> {
        let (mut from, to) = (keys::orphan(0), keys::after(b"O"));
        loop {
            let (pairs, next) = self.transactions.scanned(&from, &to, AT_ONCE).await?;
            for ino in pairs.iter().filter_map(|(key, _)| keys::ino_of(key)) {
                self.cut.borrow_mut().insert(ino);
                self.push(ino);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}
