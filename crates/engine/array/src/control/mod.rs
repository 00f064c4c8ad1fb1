//! Control of one array, on its home shard: who is a member, what the superblocks say, which job
//! runs.
//!
//! | file | subject |
//! |---|---|
//! | `members` | what is known of each member; the view and the role table that follow |
//! | `superblocks` | writing them |
//! | `failing`, `changes`, `readding` | members that fail; members added and removed; former ones taken back |
//! | `only_source` | members that alone can give some block |
//! | `unanswered` | members that do not answer: given up, or waited for |
//! | `silent`, `questions` | members that say nothing while the array is being stopped |
//! | `space` | members that lie on a file system that is full: writes wait |
//! | `flags` | write-mostly and failfast, set and cleared |
//! | `flushing` | flushes of members, one at a time; failures that are not recorded yet |
//! | `read_errors` | errors that another copy made good: counted, and how many are too many |
//! | `bitmap` | its pages: bits set before data is written, cleared when writes have ended |
//! | `bad_blocks` | the members' bad-block logs |
//! | `growing` | a bitmap added to the running array, or taken away |
//! | `activity` | "active" before the first write, "clean" after the last |
//! | `supervisor`, `recovery` | which job is due, and what its progress and end mean |
//! | `setting` | settings taken over while requests go on; stripes given to other shards |
//! | `report`, `stopping` | status; the end |
//! | `shards` | questions to the other shards |
//!
//! Engines know members through views only. Everything that changes the roster holds the *turn*: one
//! change at a time, so superblocks are written in the order of their event counts.
//!
//! Does not know requests, stripes or parity.
//!
//! Invariant: a failed member is recorded on all survivors before an engine is told so, and the
//! superblocks say "active" before an engine writes.

mod activity;
pub(crate) mod bad_blocks;
pub(crate) mod bad_list;
pub(crate) mod bitmap;
pub mod changes;
mod failing;
mod flags;
mod flushing;
pub(crate) mod for_engines;
mod foreground;
mod growing;
pub(crate) mod members;
mod moment;
mod only_source;
mod questions;
mod read_error_count;
pub(crate) mod read_errors;
mod readding;
mod recovery;
mod report;
mod running_bitmap;
mod setting;
pub(crate) mod shards;
mod silent;
mod space;
pub(crate) mod stopping;
mod superblocks;
mod supervisor;
mod suspects;
#[cfg(test)]
mod tests;
pub(crate) mod unanswered;

use crate::engine::Engine;
use crate::error::ControlError;
use crate::jobs::Job;
use crate::metadata::bitmap::keeper::Keeper;
use crate::metadata::bitmap::{BitmapNr, FIRST_BITMAP};
use crate::options::{AssembleOptions, Context, MemberSelector, SyncSpeed};
use crate::settings::Settings;
use crate::state::ArrayId;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use crate::status::{LastJob, Left, Scrubbed};
use braid_device::IoSets;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Budget, Notify, Share};
use foreground::Foreground;
use members::Roster;
use questions::Questions;
use running_bitmap::Bitmap;
use shards::ask;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use suspects::{Flushes, Suspects};

/// See the module's documentation. Lives on the home shard; from elsewhere use
/// [`Array::control`](crate::array::Array::control).
pub struct Control {
    pub(crate) shard: Shard,
    pub(crate) id: ArrayId,
    pub(crate) name: String,
    pub(crate) read_only: bool,
    remotes: Vec<Remote>,
    engine: Rc<Engine>,
    sets: IoSets,
    wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    new_uuid: Arc<dyn Fn() -> [u8; 16] + Send + Sync>,
    /// Nanoseconds.
    safe_mode_delay: u64,
    left_out: Vec<String>,
    one_at_a_time: Rc<Budget>,
    pub(crate) roster: RefCell<Roster>,
    bitmap: RefCell<Option<Rc<Bitmap>>>,
    next_bitmap: Cell<BitmapNr>,
    /// Instead of what a bitmap says, in milliseconds.
    bitmap_daemon_sleep_ms: Option<u64>,
    work: RefCell<Work>,
    speed: Rc<Cell<SyncSpeed>>,
    foreground: Foreground,
    /// Told whenever the roster, the job or the end has changed.
    changed: Notify,
    /// A member is faulty in the roster and not yet in the survivors' superblocks.
    unrecorded: Cell<bool>,
    suspects: Suspects,
    flushes: Flushes,
    stopping: Cell<bool>,
    /// The state that the stop left behind, once it is over.
    stopped: RefCell<Option<Left>>,
    settings: Cell<Settings>,
    /// Bytes that caches may take at most.
    memory_max: u64,
    settings_turn: Rc<Budget>,
    /// Stripes are being given to other shards: no job may start.
    moving: Cell<bool>,
    /// A task gives the memory of idle caches back.
    cooling: Cell<bool>,
    /// Members that do not answer are being looked at.
    judging: Cell<bool>,
    /// Members that the array waits for because it cannot do without them.
    awaited: RefCell<Vec<MemberNr>>,
    questions: Questions,
    /// Writes wait for space, and the log says so.
    full: Cell<bool>,
}

/// Jobs: the one that runs, and what decides on the next.
#[derive(Default)]
struct Work {
    job: Option<Rc<Job>>,
    last: Option<LastJob>,
    /// A check or repair that was asked for.
    wanted: Option<crate::status::JobKind>,
    /// Mismatches of the last check or repair, in sectors.
    mismatch_cnt: u64,
    /// The places that it found.
    scrubbed: Option<Scrubbed>,
    /// A recovery or resync could not go on; it is not tried again before members change.
    recovery_stuck: bool,
    resync_stuck: bool,
    paused: bool,
    /// The supervisor is at work on a job, its start or its end.
    busy: bool,
}

#[derive(Default)]
struct Controls(RefCell<Vec<Rc<Control>>>);

/// The result of assembly, from which control goes on.
pub(crate) struct Parts {
    pub(crate) id: ArrayId,
    pub(crate) name: String,
    pub(crate) engine: Rc<Engine>,
    pub(crate) roster: Roster,
    pub(crate) left_out: Vec<String>,
    pub(crate) keeper: Option<Keeper>,
}

impl Control {
    /// Makes the control of an array whose engines run, and registers it with the home shard.
    /// [`Control::begin`] starts its tasks.
    pub(crate) fn start(ctx: &Context, options: &AssembleOptions, parts: Parts) -> Rc<Control> {
        let Parts { id, name, engine, roster, left_out, keeper } = parts;
        let shard = &ctx.shard;
        let daemon_sleep = options.bitmap_daemon_sleep_ms;
        let bitmap = keeper.map(|keeper| {
            let place = (FIRST_BITMAP, roster.shared.bitmap_offset);
            Rc::new(Bitmap::new(shard, place, keeper, daemon_sleep))
        });
        let control = Rc::new(Control {
            shard: shard.clone(),
            id,
            name,
            read_only: options.read_only,
            remotes: ctx.remotes.clone(),
            engine,
            sets: IoSets::new(shard),
            wall_clock: Arc::clone(&ctx.wall_clock),
            new_uuid: Arc::clone(&ctx.new_uuid),
            safe_mode_delay: options.safe_mode_delay_ms.max(1).saturating_mul(1_000_000),
            left_out,
            one_at_a_time: Budget::new(shard, 1),
            roster: RefCell::new(roster),
            bitmap: RefCell::new(bitmap),
            next_bitmap: Cell::new(FIRST_BITMAP + 1),
            bitmap_daemon_sleep_ms: daemon_sleep,
            work: RefCell::new(Work::default()),
            speed: Rc::new(Cell::new(options.sync_speed)),
            foreground: Foreground::default(),
            changed: Notify::new(shard),
            unrecorded: Cell::new(false),
            suspects: Suspects::new(shard),
            flushes: Flushes::new(shard),
            stopping: Cell::new(false),
            stopped: RefCell::default(),
            settings: Cell::new(options.settings),
            memory_max: options.memory_max,
            settings_turn: Budget::new(shard, 1),
            moving: Cell::new(false),
            cooling: Cell::new(false),
            judging: Cell::new(false),
            awaited: RefCell::default(),
            questions: Questions::default(),
            full: Cell::new(false),
        });
        control.limit_members();
        control.roster.borrow().members.iter().for_each(|member| control.wait_for_space(member));
        shard.local::<Controls>().0.borrow_mut().push(Rc::clone(&control));
        control
    }

    /// The geometry of the whole array, as the home shard's view has it: views are the only place where it is kept, and the
    /// next is made from the last.
    pub(crate) fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(self.engine.view().geometries().whole())
    }

    /// Writes the superblocks of the start and starts the tasks that go on until the end.
    pub(crate) async fn begin(self: &Rc<Self>) {
        if self.read_only {
            return;
        }
        let turn = self.turn().await;
        self.catch_up(&turn).await;
        let without_bitmap = match self.bitmap() {
            Some(bitmap) => self.write_whole_bitmap(&bitmap).await,
            None => Vec::new(),
        };
        for (nr, error) in &without_bitmap {
            self.drop_member(*nr, &format!("its bitmap could not be written: {error}"));
        }
        self.write_superblocks(&turn).await;
        if !without_bitmap.is_empty() {
            self.send_view().await;
        }
        drop(turn);
        if self.geometry().level.has_redundancy() {
            let (safe_mode, supervisor) = (Rc::clone(self), Rc::clone(self));
            if let Some(bitmap) = self.bitmap() {
                let clearing = Rc::clone(self);
                self.shard.spawn(async move { clearing.clear_now_and_then(bitmap).await });
            }
            self.shard.spawn(async move { safe_mode.safe_mode().await });
            self.shard.spawn(async move { supervisor.supervise().await });
        }
    }

    /// The control of array `id`, whose home `shard` is; `None` when there is none (any more).
    pub fn find(shard: &Shard, id: ArrayId) -> Option<Rc<Control>> {
        let controls = shard.local::<Controls>();
        controls.0.borrow().iter().find(|control| control.id == id).cloned()
    }

    /// The name of a running array with this uuid whose home is `shard`.
    pub(crate) fn running(shard: &Shard, uuid: [u8; 16]) -> Option<String> {
        let controls = shard.local::<Controls>();
        let controls = controls.0.borrow();
        let found = controls.iter().find(|control| control.roster.borrow().shared.set_uuid == uuid);
        found.map(|control| control.name.clone())
    }

    fn unregister(&self) {
        let controls = self.shard.local::<Controls>();
        controls.0.borrow_mut().retain(|control| control.id != self.id);
    }

    /// The array's number within the process.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// The name that it runs under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The right to change the roster; waits for its turn.
    async fn turn(&self) -> Share {
        self.one_at_a_time.take(1).await
    }

    /// Has every engine take over what the roster says, and waits until all have.
    pub(crate) async fn send_view(&self) {
        self.unrecorded.set(false);
        let mut answers = Vec::with_capacity(self.remotes.len());
        for remote in &self.remotes {
            answers.push(self.send_view_to(remote));
        }
        for answer in answers {
            // A shard that is gone uses no member any more.
            let _ = answer.get().await;
        }
    }

    /// Like [`send_view`](Control::send_view), but does not wait: enough for a view that allows more.
    /// Not while a failure is being recorded: the view would tell of it too early.
    fn post_view(&self) {
        if self.unrecorded.get() {
            return;
        }
        for remote in &self.remotes {
            drop(self.send_view_to(remote));
        }
    }

    fn send_view_to(&self, remote: &Remote) -> shards::Answer<()> {
        let id = self.id;
        let (roster, suspects) = (self.roster.borrow(), self.distrusted());
        let (view, read_only) = (self.engine.view(), self.read_only);
        let update = roster.view(view.geometries(), read_only, &suspects);
        drop(roster);
        ask(&self.shard, remote, move |shard| {
            if let Some(engine) = Engine::find(shard, id) {
                engine.apply(update);
            }
        })
    }

    /// Asks the engine of every shard and gives the answers in the shards' order; `None` where the
    /// engine or the shard is gone.
    pub(crate) async fn ask_engines<T: Send + 'static>(
        &self,
        job: impl Fn(&Engine) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let id = self.id;
        let mut answers = Vec::with_capacity(self.remotes.len());
        for remote in &self.remotes {
            let job = job.clone();
            answers.push(ask(&self.shard, remote, move |shard| {
                Engine::find(shard, id).map(|engine| job(&engine))
            }));
        }
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            values.push(answer.get().await.flatten());
        }
        values
    }

    // --- What commands need in common ---------------------------------------------------------

    fn select(
        &self,
        doing: &'static str,
        selector: &MemberSelector,
    ) -> Result<MemberNr, ControlError> {
        let roster = self.roster.borrow();
        let found = roster.members.iter().find(|member| match selector {
            MemberSelector::Nr(nr) => member.nr == *nr,
            MemberSelector::Name(name) => member.name == *name,
        });
        found.map(|member| member.nr).ok_or_else(|| {
            let known: Vec<&str> =
                roster.members.iter().map(|member| member.name.as_str()).collect();
            ControlError::NoSuchMember {
                doing,
                array: self.name.clone(),
                selector: selector.clone(),
                known: known.join(", "),
            }
        })
    }

    fn member_name(&self, nr: MemberNr) -> String {
        let roster = self.roster.borrow();
        roster.member(nr).map_or_else(|| format!("member {nr}"), |member| member.name.clone())
    }

    fn needs_redundancy(&self, doing: &'static str) -> Result<(), ControlError> {
        let level = self.geometry().level;
        if level.has_redundancy() {
            return Ok(());
        }
        Err(ControlError::NoRedundancy { doing, array: self.name.clone(), level })
    }

    /// The array runs, may be written and has not failed.
    fn needs_working(&self, doing: &'static str) -> Result<(), ControlError> {
        let array = self.name.clone();
        if self.stopping.get() {
            return Err(ControlError::Stopping { doing, array });
        }
        if self.read_only {
            return Err(ControlError::ReadOnly { doing, array });
        }
        if self.roster.borrow().broken {
            return Err(ControlError::Failed { doing, array });
        }
        Ok(())
    }
}
