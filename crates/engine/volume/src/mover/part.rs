//! The jobs of a volume, as a part of it: at most one moves something.

use super::running::{NewJob, Running};
use crate::commit::Commits;
use crate::extents::{Bricks, ExtentMap, Relief, Work};
use crate::files::Files;
use crate::gate::Gate;
use crate::membership::Membership;
use crate::namespace::{Inodes, Orphans};
use crate::pace::Pace;
use crate::parts::Parts;
use crate::progress::JobState;
use crate::record::Record;
use crate::snapshots::Snapshots;
use crate::stripes::Geometry;
use crate::transactions::Transactions;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::keys;
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The jobs of a volume.
pub struct Mover {
    pub(super) shard: Shard,
    pub(super) geometry: Geometry,
    pub(super) transactions: Rc<Transactions>,
    pub(super) commits: Rc<Commits>,
    pub(super) record: Rc<Record>,
    pub(super) bricks: Rc<Bricks>,
    pub(super) extents: Rc<ExtentMap>,
    pub(super) snapshots: Rc<Snapshots>,
    pub(super) inodes: Rc<Inodes>,
    pub(super) files: Rc<Files>,
    pub(super) membership: Rc<Membership>,
    pub(super) gate: Rc<Gate>,
    pub(super) pace: Rc<Pace>,
    /// The job under way, or that waits, or that failed.
    pub(super) current: RefCell<Option<Rc<Running>>>,
    state: RefCell<JobState>,
    /// Told whenever the state of the job changes.
    pub(super) ended: Notify,
    /// The bricks that were there when copies were made last without being asked.
    pub(super) tried_with: RefCell<Vec<u16>>,
    /// The copies that had missed something when the job that makes them began.
    pub(super) missed_before: Cell<u64>,
    /// The volume is being closed: no job starts or goes on any more.
    pub(super) suspended: Cell<bool>,
}

impl Mover {
    /// Over these parts; no job is under way.
    pub fn new(parts: &Parts, files: Rc<Files>, membership: Rc<Membership>) -> Mover {
        Mover {
            shard: parts.shard.clone(),
            geometry: parts.geometry,
            transactions: Rc::clone(&parts.transactions),
            commits: Rc::clone(&parts.commits),
            record: Rc::clone(&parts.record),
            bricks: Rc::clone(&parts.bricks),
            extents: Rc::clone(&parts.extents),
            snapshots: Rc::clone(&parts.snapshots),
            inodes: Rc::clone(&parts.inodes),
            files,
            membership,
            gate: Rc::clone(&parts.gate),
            pace: Rc::clone(&parts.pace),
            current: RefCell::new(None),
            state: RefCell::new(JobState::Running),
            ended: Notify::new(&parts.shard),
            tried_with: RefCell::default(),
            missed_before: Cell::new(0),
            suspended: Cell::new(false),
        }
    }

    /// The job under way, or that waits, or that failed.
    pub(super) fn current(&self) -> Option<Rc<Running>> {
        self.current.borrow().clone()
    }

    /// The state of that job.
    pub(super) fn state(&self) -> JobState {
        self.state.borrow().clone()
    }

    /// Changes how the job is, and tells those who wait for it.
    pub(super) fn set_state(&self, state: JobState) {
        *self.state.borrow_mut() = state;
        self.ended.notify_all();
    }

    /// Records where the job is, in the open transaction.
    pub(super) fn record_job(&self, running: &Running) {
        let record = JobRecord {
            cursor: running.cursor(),
            done: running.done.get(),
            paused: running.is_paused.get(),
            ..running.record.get()
        };
        running.record.set(record);
        running.is_recorded.set(true);
        self.transactions.set(keys::JOB.to_vec(), Some(record.encode()));
    }
}

/// Makes room on the bricks: by removals under way, and by a job that puts free space together.
pub struct Room {
    mover: Weak<Mover>,
    orphans: Rc<Orphans>,
}

impl Room {
    /// Made by these two.
    pub fn new(mover: &Rc<Mover>, orphans: Rc<Orphans>) -> Room {
        Room { mover: Rc::downgrade(mover), orphans }
    }
}

impl Relief for Room {
    fn is_freeing(&self) -> bool {
        self.orphans.is_busy()
    }

    fn work(&self) -> Work {
        let Some(mover) = self.mover.upgrade() else { return Work::Other };
        match mover.current().map(|running| running.record.get().kind) {
            None => Work::None,
            Some(JobKind::Defrag) => Work::Defragment,
            Some(_) => Work::Other,
        }
    }

    fn defragment(&self) {
        let Some(mover) = self.mover.upgrade() else { return };
        tracing::info!("free space is in pieces shorter than a stripe: putting it together");
        let shard = mover.shard.clone();
        shard.spawn(async move {
            if let Err(error) = mover.start(NewJob::Defrag).await {
                tracing::warn!("putting free space together: {error}");
            }
        });
    }
}
