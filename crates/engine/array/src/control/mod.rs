//! Control of one array, on its home shard: who is a member, what the superblocks say, which job
//! runs.
//!
//! | file | subject |
//! |---|---|
//! | `members` | what is known of each member; the view and the role table that follow |
//! | `superblocks` | writing them |
//! | `failing`, `changes`, `readding` | members that fail; members added and removed; former ones taken back |
//! | `only_source` | members that alone can give some block |
//! | `unanswered`, `awaited` | members that do not answer: given up, or waited for |
//! | `silent`, `questions` | members that say nothing while the array is being stopped |
//! | `space` | members that lie on a file system that is full: writes wait |
//! | `flags` | write-mostly and failfast, set and cleared |
//! | `flushing` | flushes of members, one at a time; failures that are not recorded yet |
//! | `read_errors` | errors that another copy made good: counted, and how many are too many |
//! | `bitmap` | its pages: bits set before data is written, cleared when writes have ended |
//! | `bad_blocks` | the members' bad-block logs |
//! | `growing` | a bitmap added to the running array, or taken away |
//! | `activity` | "active" before the first write, "clean" after the last |
//! | `schedule` | the job that runs, and what is remembered of the last |
//! | `supervisor`, `recovery` | which job is due, and what its progress and end mean |
//! | `setting`, `in_effect` | settings taken over while requests go on; stripes given to other shards |
//! | `report` | status |
//! | `stopping`, `end` | the end |
//! | `shards` | the engines of all shards: questions to them, and what they are told |
//!
//! Engines know members through views only. Everything that changes the roster holds the *turn*: one
//! change at a time, so superblocks are written in the order of their event counts.
//!
//! Does not know requests, stripes or parity.
//!
//! Invariant: a failed member is recorded on all survivors before an engine is told so, and the
//! superblocks say "active" before an engine writes.

mod activity;
mod awaited;
pub(crate) mod bad_blocks;
pub(crate) mod bad_list;
pub(crate) mod bitmap;
pub mod changes;
mod end;
mod failing;
mod flags;
mod flushing;
pub(crate) mod for_engines;
mod foreground;
mod growing;
mod in_effect;
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
mod schedule;
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
use crate::metadata::bitmap::keeper::Keeper;
use crate::options::{AssembleOptions, Context, MemberSelector};
use crate::state::ArrayId;
use crate::state::geometry::Geometry;
use crate::state::view::{MemberNr, ViewUpdate};
use awaited::Awaited;
use braid_shard::Shard;
use braid_shard::sync::{Budget, Notify, Share};
use end::End;
use in_effect::InEffect;
use members::Roster;
use questions::Questions;
use running_bitmap::Current;
use schedule::Schedule;
use shards::Engines;
use std::cell::RefCell;
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
    ctx: Context,
    engines: Engines,
    /// That of the home shard.
    engine: Rc<Engine>,
    left_out: Vec<String>,
    /// The turn.
    one_at_a_time: Rc<Budget>,
    pub(crate) roster: RefCell<Roster>,
    /// Told whenever the roster, the job or the end has changed.
    changed: Notify,
    suspects: Suspects,
    flushes: Flushes,
    current_bitmap: Current,
    schedule: Schedule,
    in_effect: InEffect,
    awaited: Awaited,
    questions: Questions,
    end: End,
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
        let found = keeper.map(|keeper| (keeper, roster.shared.bitmap_offset));
        let control = Rc::new(Control {
            shard: shard.clone(),
            id,
            name,
            read_only: options.read_only,
            ctx: ctx.clone(),
            engines: Engines::new(shard, &ctx.remotes, id),
            engine,
            left_out,
            one_at_a_time: Budget::new(shard, 1),
            roster: RefCell::new(roster),
            changed: Notify::new(shard),
            suspects: Suspects::new(shard),
            flushes: Flushes::new(shard),
            current_bitmap: Current::new(shard, found, options.bitmap_daemon_sleep_ms),
            schedule: Schedule::new(options.sync_speed),
            in_effect: InEffect::new(shard, options),
            awaited: Awaited::default(),
            questions: Questions::default(),
            end: End::default(),
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

    /// Has every engine take over what the roster says, and waits until all have. A shard that is gone uses no member
    /// any more.
    pub(crate) async fn send_view(&self) {
        self.suspects.unrecorded.set(false);
        let update = self.next_view();
        self.engines.ask(move |engine| engine.members.apply(update.clone())).await;
    }

    /// Like [`send_view`](Control::send_view), but does not wait: enough for a view that allows more.
    /// Not while a failure is being recorded: the view would tell of it too early.
    fn post_view(&self) {
        if !self.suspects.unrecorded.get() {
            let update = self.next_view();
            self.engines.tell(move |engine| engine.members.apply(update.clone()));
        }
    }

    fn next_view(&self) -> ViewUpdate {
        let (view, suspects) = (self.engine.view(), self.distrusted());
        self.roster.borrow().view(view.geometries(), self.read_only, &suspects)
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
        if self.end.has_begun() {
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
