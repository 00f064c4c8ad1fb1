//! The check of a volume: how far it is, and how the last one ended.

use super::report::CheckReport;
use braid_filesystem::Errno;
use braid_format::volume::job::JobKind;
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Why a check did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Metadata cannot be read.
    Failed(Errno),
    /// Somebody ended it.
    Ended,
}

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Halt {
        Halt::Failed(errno)
    }
}

/// The end of a check.
#[derive(Clone, Debug)]
pub enum CheckEnd {
    /// It has looked at everything.
    Done(Arc<CheckReport>),
    /// Metadata could not be read.
    Failed(Errno),
    /// It was cancelled, or the volume unmounted.
    Cancelled,
}

/// A check under way.
pub struct Check {
    repair: bool,
    /// It waits to be resumed.
    pub paused: Cell<bool>,
    /// It is to end before its time.
    pub ends: Cell<bool>,
    /// Bytes of metadata that there are.
    pub total: u64,
    /// The part of `total` that is done.
    pub done: Cell<u64>,
    /// Bytes looked at since the last rest.
    pub fresh: Cell<u64>,
    /// Its end.
    pub end: RefCell<Option<CheckEnd>>,
    /// Told when it is paused, resumed or ended.
    pub changed: Notify,
}

impl Check {
    /// One over `total` bytes of metadata.
    pub fn new(shard: &Shard, total: u64, repair: bool) -> Rc<Check> {
        Rc::new(Check {
            repair,
            paused: Cell::new(false),
            ends: Cell::new(false),
            total,
            done: Cell::new(0),
            fresh: Cell::new(0),
            end: RefCell::new(None),
            changed: Notify::new(shard),
        })
    }

    /// It puts right what is wrong.
    pub fn repairs(&self) -> bool {
        self.repair
    }

    /// So much of it is done, 0 to 1.
    pub fn set_part(&self, part: f64) {
        let done = (self.total as f64 * part) as u64;
        self.done.set(done.clamp(self.done.get(), self.total));
    }

    /// So many bytes of metadata were looked at.
    pub fn looked_at(&self, bytes: u64) {
        self.fresh.set(self.fresh.get() + bytes);
    }

    /// A check, or a repair.
    pub fn kind(&self) -> JobKind {
        if self.repair { JobKind::Repair } else { JobKind::Check }
    }

    /// Waits until it has ended.
    pub async fn wait_end(&self) -> CheckEnd {
        self.changed.wait_for(|| self.end.borrow().clone()).await
    }
}

/// The checks of a volume: one under way at most.
pub struct Checks {
    /// The check under way.
    pub current: RefCell<Option<Rc<Check>>>,
    /// The end of the last one since the mount.
    pub last: RefCell<Option<CheckEnd>>,
}

impl Checks {
    /// None under way, and none that has ended.
    pub fn new() -> Checks {
        Checks { current: RefCell::new(None), last: RefCell::new(None) }
    }

    /// The check under way.
    pub fn current(&self) -> Option<Rc<Check>> {
        self.current.borrow().clone()
    }
}
