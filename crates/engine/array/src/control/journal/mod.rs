//! The write journal of a running array: what shards have to log is written to the ring, one request at a time, each with all
//! that waits.
//!
//! ```text
//!  shards ─► batches ─► meta blocks and their blocks ─► durable ─► yes: the writes go to the members
//!                                                                             │ ended
//!                          tail ◄── flush of the members ◄────────────────────┘
//! ```
//!
//! What was written to the ring by one request is a *group*. The log consists of the groups from the tail on; the tail stands
//! at the first meta block of the oldest. A group's place is used again when all its writes have ended, the members have been
//! flushed since, and the tail on disk is behind it.
//!
//! | file | subject |
//! |---|---|
//! | `group` | a group, and its bytes |
//! | `writing` | groups written to the ring |
//! | `space` | places used again: the tail |
//! | `adding` | a journal given to the running array |
//!
//! Invariant: of a block that the log has, the newest in the log is what the array holds. So all writes are logged, and
//! before something counts that jobs have made (a member that is filled, parity that is made to match) what the log had
//! before is *drained*: it holds what writes took for parity until then.
//!
//! Nobody who holds the turn waits for anything here: failures that are met here are recorded under it.

mod adding;
mod group;
mod space;
mod writing;

use crate::consistency::journal::{JournalBatch, JournalShape};
use crate::control::record::Record;
use crate::engine::home::Answer;
use crate::engine::recorded::Recorded;
use crate::metadata::journal::Begun;
use crate::metadata::journal::ring::Ring;
use crate::state::view::MemberNr;
use braid_device::IoError;
use braid_format::journal::Seed;
use braid_shard::plant::planted;
use braid_shard::sync::{Budget, Notify};
use group::{BatchId, Group, blocks_of};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Blocks of a group at most, if it has more than one batch.
const GROUP_MAX: u64 = 1024;

/// See the module's documentation.
pub struct WriteJournal {
    record: Rc<Record>,
    log: RefCell<Option<Log>>,
    /// Batches that wait for the next group.
    waiting: RefCell<VecDeque<(JournalBatch, Answer)>>,
    /// A task writes groups.
    busy: Cell<bool>,
    /// A task makes room.
    clearing: Cell<bool>,
    /// Held by whoever writes to the ring.
    writing: Rc<Budget>,
    /// Held by whoever moves the tail.
    moving: Rc<Budget>,
    /// Told whenever a batch has ended.
    changed: Notify,
    /// Groups written so far.
    count: Cell<u64>,
}

/// The log on the ring.
struct Log {
    /// The journal device.
    nr: MemberNr,
    ring: Ring,
    seed: Seed,
    /// Where the next group goes, and the number of its first meta block.
    head: Begun,
    /// Never empty: the tail on disk stands at the first.
    groups: VecDeque<Group>,
}

impl Log {
    /// Blocks of the ring that are not in use. One of them is kept for an empty meta block.
    fn free(&self) -> u64 {
        self.ring.blocks() - self.groups.iter().map(|group| group.blocks).sum::<u64>()
    }
}

impl WriteJournal {
    pub(super) fn new(record: &Rc<Record>, begun: Option<Begun>) -> Rc<WriteJournal> {
        let journal = Rc::new(WriteJournal {
            record: Rc::clone(record),
            log: RefCell::default(),
            waiting: RefCell::default(),
            busy: Cell::default(),
            clearing: Cell::default(),
            writing: Budget::new(&record.shard, 1),
            moving: Budget::new(&record.shard, 1),
            changed: Notify::new(&record.shard),
            count: Cell::default(),
        });
        if let Some(begun) = begun {
            journal.begin(begun);
        }
        journal
    }

    /// The journal device has a log that consists of the empty meta block at `begun`: it is written from now on. Gives what
    /// shards must know; `None`: there is no such device.
    fn begin(&self, begun: Begun) -> Option<Recorded> {
        let roster = self.record.roster.borrow();
        let member = roster.journal()?;
        let ring = Ring::of(&member.name, &member.device.as_device(), &member.superblock)?;
        let seed = Seed::of(&roster.shared.set_uuid);
        let empty = Group { nr: self.count.get(), at: begun.position, blocks: 1, open: Vec::new() };
        self.count.set(self.count.get() + 1);
        let position = ring.after(begun.position, 1);
        let head = Begun { position, seq: begun.seq.wrapping_add(1) };
        let shape = JournalShape::of(seed, ring.blocks(), self.record.geometry().slots());
        let groups = VecDeque::from([empty]);
        *self.log.borrow_mut() = Some(Log { nr: member.nr, ring, seed, head, groups });
        Some(Recorded::Journal(shape))
    }

    /// Nothing will be logged any more: lets go of the device.
    pub(super) fn close(&self) {
        *self.log.borrow_mut() = None;
    }

    /// Groups written so far.
    pub fn groups(&self) -> u64 {
        self.count.get()
    }

    /// All that is written is logged, and what a crash leaves is whole without a resync.
    pub fn is_in_use(&self) -> bool {
        self.is_there() && self.record.roster.borrow().resynced == u64::MAX
    }

    /// The journal device is there and takes what is logged.
    fn is_there(&self) -> bool {
        let log = self.log.borrow();
        let roster = self.record.roster.borrow();
        log.as_ref().is_some_and(|log| roster.journal().is_some_and(|member| member.nr == log.nr))
    }

    /// A shard wants a batch to be logged; `answer` is called with true when it is durable, or with false when nothing may
    /// be written.
    pub(crate) fn log(self: &Rc<Self>, batch: JournalBatch, answer: Answer) {
        self.waiting.borrow_mut().push_back((batch, answer));
        if !self.busy.replace(true) {
            let own = Rc::clone(self);
            self.record.shard.spawn(async move { own.write_groups().await });
        }
    }

    /// All writes of a batch that was answered with true have ended.
    pub(crate) fn ended(&self, shard: u16, nr: usize) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            for group in &mut log.groups {
                group.open.retain(|open| *open != (shard, nr));
            }
        }
        self.changed.notify_all();
    }

    async fn write_groups(self: Rc<Self>) {
        loop {
            let writing = self.writing.take(1).await;
            let (batches, answers) = self.take();
            if batches.is_empty() {
                self.busy.set(false);
                return;
            }
            let ids: Vec<BatchId> = batches.iter().map(|batch| (batch.shard, batch.nr)).collect();
            let mut yes = self.record.may_record() && self.is_there();
            // The planted bug has members written that nothing was logged for.
            let unlogged = !self.is_there() && planted("journal-loss-ignored");
            yes |= unlogged;
            if yes && !unlogged {
                let rows = batches.into_iter().flat_map(|batch| batch.rows).collect();
                yes = self.write_group(&writing, rows, ids).await;
            }
            drop(writing);
            for answer in answers {
                answer(yes);
            }
            self.clear_in_time();
        }
    }

    /// Takes what goes into the next group.
    fn take(&self) -> (Vec<JournalBatch>, Vec<Answer>) {
        let ring = self.log.borrow().as_ref().map_or(0, |log| log.ring.blocks());
        let most = GROUP_MAX.min(ring / 4);
        let (mut blocks, mut batches, mut answers) = (0, Vec::new(), Vec::new());
        let mut waiting = self.waiting.borrow_mut();
        while let Some((batch, _)) = waiting.front() {
            blocks += blocks_of(&batch.rows);
            if !batches.is_empty() && blocks > most {
                break;
            }
            if let Some((batch, answer)) = waiting.pop_front() {
                batches.push(batch);
                answers.push(answer);
            }
        }
        (batches, answers)
    }

    /// The journal device has failed: nothing is written any more.
    async fn lost(&self, doing: &str, error: IoError) {
        let nr = self.log.borrow().as_ref().map(|log| log.nr);
        let Some(nr) = nr.filter(|_| self.is_there()) else { return };
        self.record.fail_nr(nr, &format!("{doing}: {error}")).await;
        self.changed.notify_all();
    }
}
