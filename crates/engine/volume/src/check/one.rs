//! One check: how far it is, and how it ended.

use super::report::CheckReport;
use crate::progress::{JobState, JobStatus};
use braid_filesystem::Errno;
use braid_format::volume::job::{JobKind, JobRecord};
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
    kind: JobKind,
    /// It waits to be resumed.
    paused: Cell<bool>,
    /// It is to end before its time.
    ends: Cell<bool>,
    /// Bytes that there are to look at: of metadata, or of data.
    total: u64,
    /// The part of `total` that is done.
    done: Cell<u64>,
    /// Bytes looked at since the last rest.
    fresh: Cell<u64>,
    /// Its end.
    end: RefCell<Option<CheckEnd>>,
    /// Told when it is paused, resumed or ended.
    changed: Notify,
}

impl Check {
    /// One over `total` bytes of metadata, or of data for a scrub.
    pub fn new(shard: &Shard, total: u64, kind: JobKind) -> Rc<Check> {
        Rc::new(Check {
            kind,
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
        self.kind == JobKind::Repair
    }

    /// So much of it is done, 0 to 1.
    pub fn set_part(&self, part: f64) {
        let done = (self.total as f64 * part) as u64;
        self.done.set(done.clamp(self.done.get(), self.total));
    }

    /// So many bytes are done.
    pub(super) fn set_done(&self, bytes: u64) {
        self.done.set(bytes.min(self.total));
    }

    /// So many bytes were looked at.
    pub fn looked_at(&self, bytes: u64) {
        self.fresh.set(self.fresh.get() + bytes);
    }

    /// Takes the number of bytes that were looked at since this was asked last.
    pub(super) fn take_fresh(&self) -> u64 {
        self.fresh.take()
    }

    /// Waits while it is paused; fails once it is to end.
    pub(super) async fn goes_on(&self) -> Result<(), Halt> {
        let goes_on = || (self.ends.get() || !self.paused.get()).then_some(());
        self.changed.wait_for(goes_on).await;
        if self.ends.get() { Err(Halt::Ended) } else { Ok(()) }
    }

    /// It stops after the step under way, or goes on.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.set(paused);
        self.changed.notify_all();
    }

    /// It ends after the step under way.
    pub(super) fn cancel(&self) {
        self.ends.set(true);
        self.changed.notify_all();
    }

    /// It has ended.
    pub(super) fn finish(&self, end: CheckEnd) {
        *self.end.borrow_mut() = Some(end);
        self.changed.notify_all();
    }

    /// Waits until it has ended or is paused.
    pub(super) async fn wait_stopped(&self) {
        let stopped = || (self.end.borrow().is_some() || self.paused.get()).then_some(());
        self.changed.wait_for(stopped).await;
    }

    /// Its progress.
    pub(super) fn status(&self) -> JobStatus {
        JobStatus {
            kind: self.kind(),
            brick: None,
            ino: None,
            done: self.done.get(),
            total: self.total,
            state: if self.paused.get() { JobState::Paused } else { JobState::Running },
        }
    }

    /// Its record, which has it begun anew by the next mount.
    pub(super) fn record(&self) -> JobRecord {
        JobRecord {
            kind: self.kind(),
            brick: None,
            ino: 0,
            cursor: (0, 0),
            done: 0,
            total: self.total,
            paused: self.paused.get(),
        }
    }

    /// A check, a repair, or a scrub.
    pub fn kind(&self) -> JobKind {
        self.kind
    }

    /// Waits until it has ended.
    pub async fn wait_end(&self) -> CheckEnd {
        self.changed.wait_for(|| self.end.borrow().clone()).await
    }
}
