//! A job under way: which it is, how far it is, and why it stops.

use braid_filesystem::{Errno, Ino};
use braid_format::volume::job::JobRecord;
use braid_shard::Shard;
use braid_shard::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A job to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewJob {
    /// Stripes go where placement says.
    Balance,
    /// All stripes leave a brick, which is then detached.
    Remove {
        /// The brick.
        brick: u16,
    },
    /// Stripes leave the proxy.
    Flush,
    /// The stripes of a file go to a brick, and new ones too from now on.
    Migrate {
        /// The file.
        ino: Ino,
        /// The brick.
        brick: u16,
    },
    /// The stripes of all files that were told to be on a brick go there; see
    /// [`migrate_files`](crate::Volume::migrate_files).
    MigrateTold {
        /// The brick.
        brick: u16,
    },
    /// Stripes of a file that lie apart on a brick are put together.
    Defrag,
    /// Files get the copies that they are to have.
    Copies,
}

/// Why a job stopped before its end.
#[derive(Clone, Debug)]
pub enum Stop {
    Paused,
    Cancelled,
    Failed(String),
}

impl Stop {
    /// For extents of files that cannot be read.
    pub fn errno(error: Errno) -> Stop {
        Stop::Failed(format!("reading the extents of files: {error}"))
    }
}

/// A job under way.
pub struct Running {
    /// As it was recorded last.
    pub(super) record: Cell<JobRecord>,
    /// Bytes that have been moved.
    pub(super) done: Cell<u64>,
    /// Moves that have failed.
    pub(super) errors: Cell<u64>,
    /// The group that the walk has come to.
    pub(super) walked: Cell<(Ino, u64)>,
    moving: RefCell<BTreeMap<(Ino, u64), u32>>,
    /// The metadata knows it.
    pub(super) is_recorded: Cell<bool>,
    /// The user wants it to be paused.
    pub(super) is_paused: Cell<bool>,
    /// Why it is to stop, once somebody has asked for that.
    pub(super) stop: RefCell<Option<Stop>>,
    changed: Notify,
    /// Times that somebody is to look again at how many moves may be under way.
    looks: Cell<u32>,
}

impl Running {
    /// One that has recorded `record` last.
    pub fn new(shard: &Shard, record: JobRecord) -> Rc<Running> {
        Rc::new(Running {
            record: Cell::new(record),
            done: Cell::new(record.done),
            errors: Cell::new(0),
            walked: Cell::new(record.cursor),
            is_recorded: Cell::new(false),
            is_paused: Cell::new(record.paused),
            moving: RefCell::default(),
            stop: RefCell::new(None),
            changed: Notify::new(shard),
            looks: Cell::new(0),
        })
    }

    /// Fails when it is to stop.
    pub fn check(&self) -> Result<(), Stop> {
        match &*self.stop.borrow() {
            Some(stop) => Err(stop.clone()),
            None => Ok(()),
        }
    }

    /// Moves under way.
    pub fn under_way(&self) -> u32 {
        self.moving.borrow().values().sum()
    }

    /// A move of this group begins.
    pub fn begin(&self, group: (Ino, u64)) {
        *self.moving.borrow_mut().entry(group).or_default() += 1;
    }

    /// A move of this group has ended.
    pub fn end(&self, group: (Ino, u64)) {
        let mut moving = self.moving.borrow_mut();
        if let Some(count) = moving.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                moving.remove(&group);
            }
        }
        drop(moving);
        self.changed.notify_all();
    }

    /// Waits until a move has ended, or the job is to stop, or perhaps more moves may be under way.
    pub async fn wait_change(&self) {
        let (before, looks) = (self.under_way(), self.looks.get());
        let is_other = || {
            let ended = self.under_way() < before;
            (ended || self.looks.get() != looks || self.stop.borrow().is_some()).then_some(())
        };
        self.changed.wait_for(is_other).await;
    }

    /// Perhaps more moves may be under way than before.
    pub fn look_again(&self) {
        self.looks.set(self.looks.get().wrapping_add(1));
        self.changed.notify_all();
    }

    /// Waits until no move is under way.
    pub async fn idle(&self) {
        self.changed.wait_for(|| (self.under_way() == 0).then_some(())).await;
    }

    /// The walk goes on from this group; everything before it is done.
    pub fn set_cursor(&self, cursor: (Ino, u64)) {
        self.record.set(JobRecord { cursor, ..self.record.get() });
        self.walked.set(cursor);
    }

    /// Everything before this group is done.
    pub fn cursor(&self) -> (Ino, u64) {
        self.moving
            .borrow()
            .keys()
            .next()
            .copied()
            .unwrap_or(self.walked.get())
            .min(self.walked.get())
    }

    /// Asks the job to stop after the moves under way; what was asked first counts.
    pub fn ask_stop(&self, stop: Stop) {
        self.stop.borrow_mut().get_or_insert(stop);
        self.changed.notify_all();
    }
}
