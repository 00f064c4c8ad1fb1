//! Control of one array, on its home shard: who is a member, what the superblocks say, which job
//! runs.
//!
//! | file | subject |
//! |---|---|
//! | `record` | who is a member, as the superblocks say and the engines know; members that fail; flushes of members |
//! | `membership` | members added, removed, failed by command; former ones taken back; their flags |
//! | `commands` | the checks that commands have in common |
//! | `unanswered` | members that do not answer, or have no space: given up, or waited for |
//! | `read_errors` | errors that another copy made good: counted, and how many are too many |
//! | `heartbeat` | other hosts told that the array is in use, and seen when they use it |
//! | `slow_members` | members that are slow for long: failed, where that is asked for |
//! | `client_flushes` | flushes that clients ask for |
//! | `bitmap` | the write-intent bitmap: bits set before data is written, cleared when writes have ended; added and taken away |
//! | `ppl` | the partial parity log: written before data, its areas prepared; added and taken away |
//! | `journal` | the write journal: written before the members, its space used again |
//! | `activity` | "active" before the first write, "clean" after the last |
//! | `jobs` | which job is due, and what its progress and end mean |
//! | `setting`, `in_effect` | settings taken over while requests go on; stripes given to other shards |
//! | `levels` | another level, without anything being moved |
//! | `reshaping` | another shape, to which a job moves the data |
//! | `steps` | another level and shape, in several steps of both kinds |
//! | `following` | what the array is to become by steps that have not begun |
//! | `holders` | the members by slots, now or after a change of shape |
//! | `resizing` | more or less of each component in use; the size that users see |
//! | `report` | status |
//! | `stopping` | the end |
//! | `shards` | the engines of all shards: questions to them, and what they are told |
//!
//! Engines know members through views only.
//!
//! Does not know requests, stripes or parity.
//!
//! Invariant: a failed member is recorded on all survivors before an engine is told so, and the
//! superblocks say "active" before an engine writes.

mod activity;
pub mod bitmap;
mod client_flushes;
mod commands;
pub mod following;
pub(crate) mod for_engines;
mod heartbeat;
pub(crate) mod holders;
mod in_effect;
pub mod jobs;
pub mod journal;
pub mod levels;
pub mod membership;
pub mod ppl;
pub(crate) mod read_errors;
pub(crate) mod record;
mod report;
pub mod reshaping;
pub mod resizing;
mod setting;
pub(crate) mod shards;
mod slow_members;
pub mod steps;
pub(crate) mod stopping;
#[cfg(test)]
mod tests;
pub mod unanswered;

use crate::error::ControlError;
use crate::options::{AssembleOptions, Context};
use crate::state::ArrayId;
use crate::state::geometry::Geometry;
use crate::state::in_doubt::InDoubt;
use bitmap::WriteIntent;
use braid_shard::Shard;
use client_flushes::ClientFlushes;
use following::Following;
use heartbeat::Heart;
use in_effect::InEffect;
use jobs::Jobs;
use journal::WriteJournal;
use membership::Membership;
use ppl::PartialParity;
pub(crate) use record::Parts;
use record::Record;
use slow_members::SlowMembers;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use unanswered::Unanswered;

/// See the module's documentation. Lives on the home shard; from elsewhere use
/// [`Array::control`](crate::array::Array::control).
pub struct Control {
    pub(crate) record: Rc<Record>,
    client_flushes: Rc<ClientFlushes>,
    bitmap: Rc<WriteIntent>,
    ppl: Rc<PartialParity>,
    journal: Rc<WriteJournal>,
    jobs: Rc<Jobs>,
    given: Given,
    unanswered: Rc<Unanswered>,
    membership: Rc<Membership>,
    slow_members: Rc<SlowMembers>,
    in_effect: Rc<InEffect>,
    heart: Rc<Heart>,
    following: Following,
}

/// The remarks of an assembly on the devices that it was given.
#[derive(Default)]
pub(crate) struct Given {
    /// Sentences on devices that are no members, and why.
    pub(crate) left_out: Vec<String>,
    /// Sentences on members that are stale.
    pub(crate) taken_by_force: Vec<String>,
    /// The places that may be wrong, since it was started by force.
    pub(crate) in_doubt: Option<Arc<InDoubt>>,
}

#[derive(Default)]
struct Controls(RefCell<Vec<Rc<Control>>>);

impl Control {
    /// Makes the control of an array whose engines run, and registers it with the home shard.
    /// [`Control::begin`] starts its tasks.
    pub(crate) fn start(
        ctx: &Context,
        options: &AssembleOptions,
        parts: Parts,
        given: Given,
    ) -> Rc<Control> {
        let (begun, beat) = (parts.journal, parts.beat.clone());
        let record = Record::new(ctx, options, parts);
        let bitmap = WriteIntent::new(&record);
        let ppl = PartialParity::new(&record);
        let journal = WriteJournal::new(&record, begun);
        let in_effect = Rc::new(InEffect::new(&ctx.shard, options));
        let unanswered = Unanswered::new(&record, &in_effect);
        let control = Rc::new(Control {
            client_flushes: ClientFlushes::new(&record),
            membership: Membership::new(&record, &bitmap, (&ppl, &journal), &unanswered),
            jobs: Jobs::new(&record, &bitmap, (&ppl, &journal), options),
            slow_members: SlowMembers::new(&record, &in_effect),
            heart: Heart::new(&record, beat),
            unanswered,
            record,
            bitmap,
            ppl,
            journal,
            given,
            in_effect,
            following: Following::default(),
        });
        ctx.shard.local::<Controls>().0.borrow_mut().push(Rc::clone(&control));
        control
    }

    /// Writes the superblocks of the start and starts the tasks that go on until the end.
    pub(crate) async fn begin(self: &Rc<Self>) {
        if self.record.read_only {
            return;
        }
        self.heart.start();
        let turn = self.record.turn().await;
        self.record.catch_up(&turn).await;
        let without_bitmap = match self.record.bitmap() {
            Some(bitmap) => self.record.write_whole_bitmap(&bitmap).await,
            None => Vec::new(),
        };
        for (nr, error) in &without_bitmap {
            self.record.note_away(*nr, *error);
            self.record.drop_member(*nr, &format!("its bitmap could not be written: {error}"));
        }
        self.ppl.note_rings();
        self.record.write_superblocks(&turn).await;
        self.ppl.clear_areas(&turn).await;
        if !without_bitmap.is_empty() {
            self.record.send_view().await;
        }
        drop(turn);
        self.ppl.open().await;
        if self.record.geometry().level.has_redundancy() {
            if let Some(bitmap) = self.record.bitmap() {
                let clearing = Rc::clone(&self.bitmap);
                self.record.shard.spawn(async move { clearing.clear_now_and_then(bitmap).await });
            }
            self.keep_watch();
        }
    }

    /// Starts what goes on in an array with redundancy until its end, unless it does already.
    fn keep_watch(self: &Rc<Self>) {
        if !self.in_effect.watched.replace(true) {
            let (safe_mode, jobs) = (Rc::clone(self), Rc::clone(&self.jobs));
            self.record.shard.spawn(async move { safe_mode.safe_mode().await });
            self.record.shard.spawn(async move { jobs.supervise().await });
        }
        self.slow_members.watch();
    }

    /// The control of array `id`, whose home `shard` is; `None` when there is none (any more).
    pub fn find(shard: &Shard, id: ArrayId) -> Option<Rc<Control>> {
        let controls = shard.local::<Controls>();
        controls.0.borrow().iter().find(|control| control.record.id == id).cloned()
    }

    /// The name of a running array with this uuid whose home is `shard`.
    pub(crate) fn running(shard: &Shard, uuid: [u8; 16]) -> Option<String> {
        let controls = shard.local::<Controls>();
        let controls = controls.0.borrow();
        let found =
            controls.iter().find(|control| control.record.roster.borrow().shared.set_uuid == uuid);
        found.map(|control| control.record.name.clone())
    }

    fn unregister(&self) {
        let controls = self.record.shard.local::<Controls>();
        controls.0.borrow_mut().retain(|control| control.record.id != self.record.id);
    }

    /// Resync, rebuild, check and repair.
    pub fn jobs(&self) -> &Rc<Jobs> {
        &self.jobs
    }

    /// The write-intent bitmap.
    pub fn bitmap(&self) -> &Rc<WriteIntent> {
        &self.bitmap
    }

    /// The partial parity log.
    pub fn ppl(&self) -> &Rc<PartialParity> {
        &self.ppl
    }

    /// The write journal.
    pub fn journal(&self) -> &Rc<WriteJournal> {
        &self.journal
    }

    /// Members that do not answer, or have no space.
    pub fn unanswered(&self) -> &Rc<Unanswered> {
        &self.unanswered
    }

    /// Members added and removed.
    pub fn membership(&self) -> &Rc<Membership> {
        &self.membership
    }

    /// The array's number within the process.
    pub fn id(&self) -> ArrayId {
        self.record.id
    }

    /// The name that it runs under.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    // --- What commands need in common ---------------------------------------------------------

    fn no_shape(&self, doing: &'static str, why: String) -> ControlError {
        ControlError::Shape { doing, array: self.record.name.clone(), why }
    }

    /// Refuses a geometry that the settings do not suit.
    ///
    /// # Errors
    /// They do not; which one, and how to do without it.
    fn settings_suit(&self, new: &Geometry, doing: &'static str) -> Result<(), ControlError> {
        let (settings, there) = (self.in_effect.settings.get(), self.record.engines.shards());
        let suits = settings.check(new, there, self.in_effect.memory_max);
        suits.map_err(|why| self.no_shape(doing, why.after_a_change(&self.record.name)))
    }

    /// Refuses where the array is on its way to another shape, of which this is no step.
    ///
    /// # Errors
    /// It is.
    fn leads_nowhere_else(&self, doing: &'static str) -> Result<(), ControlError> {
        let Some(goal) = self.following.of_others() else { return Ok(()) };
        let (name, level, now) = (&self.record.name, goal.level, self.record.geometry().level);
        let why = format!(
            "it is on its way to {level} in several steps; wait for them: braid wait {name}; or have it stay as it is when the \
             one under way has ended: braid grow {name} --level {} --layout preserve",
            now.md_number()
        );
        Err(self.no_shape(doing, why))
    }

    /// Carries out a change of the array's shape or size while no job runs and requests wait.
    ///
    /// # Errors
    /// A job is running, and then nothing has begun; else those of `change`.
    async fn change_shape(
        &self,
        doing: &'static str,
        change: impl Future<Output = Result<(), ControlError>>,
    ) -> Result<(), ControlError> {
        let busy = |job| self.no_shape(doing, commands::running(&self.record, job));
        if let Some(job) = self.jobs.job_kind_now() {
            return Err(busy(job));
        }
        self.jobs.forbid().map_err(busy)?;
        self.record.engines.hold_requests().await;
        let done = change.await;
        self.record.engines.end_hold().await;
        self.jobs.allow();
        self.record.members_changed();
        done
    }
}
