//! The record of an array: who is a member, as its superblocks say and as the engines of all shards know.
//!
//! | file | subject |
//! |---|---|
//! | `members`, `only_source` | what is known of each member; the view and the role table that follow; who alone has a block |
//! | `superblocks`, `outcomes` | writing them; members that did not take theirs |
//! | `bitmap_pages`, `running_bitmap` | the bitmap's pages on the members; the bits themselves |
//! | `bad_blocks`, `bad_list` | the members' bad-block logs |
//! | `failing` | members that fail: given up, dropped, recorded |
//! | `replacements` | members that are filled to replace others, and slots that change hands |
//! | `retiring` | members that have left, marked in their own superblocks |
//! | `flushing`, `flushes` | flushes of members, one at a time |
//! | `suspects` | members that have failed and are not recorded as failed yet |
//! | `read_error_count` | errors that another copy made good |
//! | `lost` | an array that another host has taken |
//! | `end` | how far the end of the array has come |
//!
//! Everything that changes the roster holds the *turn*: one change at a time, so superblocks are written in the order of
//! their event counts.
//!
//! Does not know jobs, commands or clients. Who wants to hear of members that come and go says so once
//! ([`Record::when_members_change`]).

pub(crate) mod bad_blocks;
pub(crate) mod bad_list;
pub(crate) mod bitmap_pages;
mod end;
pub(crate) mod failing;
mod flushes;
mod flushing;
mod lost;
pub(crate) mod members;
mod only_source;
mod outcomes;
pub(crate) mod read_error_count;
pub(crate) mod replacements;
pub(crate) mod retiring;
pub(crate) mod running_bitmap;
mod superblocks;
mod suspects;

use crate::control::shards::Engines;
use crate::engine::Engine;
use crate::metadata::bitmap::keeper::Keeper;
use crate::metadata::heartbeat::FirstBeat;
use crate::metadata::journal::Begun;
use crate::metadata::reservations::{Held, Reserving};
use crate::options::{AssembleOptions, Context};
use crate::state::ArrayId;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use crate::state::view::{MemberNr, ViewUpdate};
use braid_shard::Shard;
use braid_shard::sync::{Budget, Notify, Share};
use end::End;
use flushes::Flushes;
use members::Roster;
use running_bitmap::Current;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use suspects::Suspects;

/// See the module's documentation. Lives on the home shard.
pub(crate) struct Record {
    pub(crate) shard: Shard,
    pub(crate) id: ArrayId,
    pub(crate) name: String,
    pub(crate) read_only: bool,
    pub(crate) ctx: Context,
    pub(crate) engines: Engines,
    /// That of the home shard.
    pub(crate) engine: Rc<Engine>,
    /// The turn.
    one_at_a_time: Rc<Budget>,
    pub(crate) roster: RefCell<Roster>,
    /// Told whenever the roster, the job or the end has changed.
    pub(crate) changed: Notify,
    pub(crate) suspects: Suspects,
    pub(crate) flushes: Flushes,
    /// Held by whoever writes the superblock of the journal device.
    pub(crate) tail_alone: Rc<Budget>,
    /// Held by whoever marks a member that has left.
    marking: Rc<Budget>,
    pub(crate) current_bitmap: Current,
    pub(crate) end: End,
    /// Users see all that the members hold, not less by command.
    pub(crate) shows_all: Cell<bool>,
    /// Why another host has the array.
    lost: RefCell<Option<String>>,
    /// The reservations that it takes; `None` when it takes none.
    pub(crate) reserving: Option<Reserving>,
    /// Called when members have come or gone.
    members_change: OnceCell<Box<dyn Fn()>>,
}

/// The array as it was assembled.
pub(crate) struct Parts {
    pub(crate) id: ArrayId,
    pub(crate) name: String,
    pub(crate) engine: Rc<Engine>,
    pub(crate) roster: Roster,
    pub(crate) keeper: Option<Keeper>,
    /// The log of the write journal.
    pub(crate) journal: Option<Begun>,
    /// The first beat of its heartbeat, which stands on members.
    pub(crate) beat: Option<FirstBeat>,
}

impl Record {
    /// The record of an array whose engines run. Nothing is written yet.
    pub(crate) fn new(ctx: &Context, options: &AssembleOptions, parts: Parts) -> Rc<Record> {
        let Parts { id, name, engine, mut roster, keeper, beat, .. } = parts;
        let (reserving, held) = beat.map(|beat| (beat.reserving, beat.held)).unzip();
        for member in &mut roster.members {
            let held = held.iter().flatten().find(|held: &&Held| held.name == member.name);
            member.reservation = held.cloned();
        }
        let shard = &ctx.shard;
        let found = keeper.map(|keeper| (keeper, roster.shared.bitmap_offset));
        Rc::new(Record {
            shard: shard.clone(),
            id,
            name,
            read_only: options.read_only,
            ctx: ctx.clone(),
            engines: Engines::new(shard, &ctx.remotes, id),
            suspects: Suspects::new(shard, &engine.home.reports),
            engine,
            one_at_a_time: Budget::new(shard, 1),
            roster: RefCell::new(roster),
            changed: Notify::new(shard),
            flushes: Flushes::new(shard),
            tail_alone: Budget::new(shard, 1),
            marking: Budget::new(shard, 1),
            current_bitmap: Current::new(shard, found, options.bitmap_daemon_sleep_ms),
            end: End::default(),
            shows_all: Cell::new(true),
            lost: RefCell::default(),
            reserving: reserving.flatten(),
            members_change: OnceCell::new(),
        })
    }

    /// Has `call` called whenever members have come or gone. Once in the life of an array.
    pub(crate) fn when_members_change(&self, call: impl Fn() + 'static) {
        let first = self.members_change.set(Box::new(call)).is_ok();
        debug_assert!(first, "the record of {} has two that it calls", self.name);
    }

    /// The members are not what they were.
    pub(crate) fn members_changed(&self) {
        if let Some(call) = self.members_change.get() {
            call();
        }
        self.changed.notify_all();
    }

    /// The geometry of the whole array, as the home shard's view has it: views are the only place where it is kept, and the
    /// next is made from the last.
    pub(crate) fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(self.engine.view().geometries().whole())
    }

    /// Both of an array that is being reshaped.
    pub(crate) fn geometries(&self) -> Geometries {
        self.engine.view().geometries().clone()
    }

    /// The geometry that has all slots, which while members are taken away is not the one that the array will have.
    pub(crate) fn widest(&self) -> Arc<Geometry> {
        Arc::clone(self.engine.view().geometries().widest())
    }

    /// The right to change the roster; waits for its turn.
    pub(crate) async fn turn(&self) -> Share {
        self.one_at_a_time.take(1).await
    }

    /// Has every engine take over what the roster says, and waits until all have. A shard that is gone uses no member
    /// any more.
    pub(crate) async fn send_view(&self) {
        self.suspects.set_recording(false);
        let update = self.next_view();
        self.engines.ask(move |engine| engine.members.apply(update.clone())).await;
    }

    /// Like [`send_view`](Record::send_view), with other geometries than before.
    pub(crate) async fn send_geometries(&self, geometries: &Geometries) {
        self.suspects.set_recording(false);
        let suspects = self.distrusted();
        let update = self.roster.borrow().view(geometries, self.read_only, &suspects);
        self.engines.ask(move |engine| engine.members.apply(update.clone())).await;
    }

    /// Like [`send_view`](Record::send_view), but does not wait: enough for a view that allows more.
    /// Not while a failure is being recorded: the view would tell of it too early.
    pub(crate) fn post_view(&self) {
        if !self.suspects.is_recording() {
            let update = self.next_view();
            self.engines.tell(move |engine| engine.members.apply(update.clone()));
        }
    }

    /// Users see the array in the size that it has by now, unless they are shown less by command.
    pub(crate) fn show_all(&self) {
        let all = self.geometry().whole_blocks();
        if self.shows_all.get() || self.engine.size.get() >= all {
            self.shows_all.set(true);
            self.engine.size.set(all);
        }
    }

    fn next_view(&self) -> ViewUpdate {
        let (view, suspects) = (self.engine.view(), self.distrusted());
        self.roster.borrow().view(view.geometries(), self.read_only, &suspects)
    }

    /// The name of member `nr`, for messages.
    pub(crate) fn member_name(&self, nr: MemberNr) -> String {
        let roster = self.roster.borrow();
        roster.member(nr).map_or_else(|| format!("member {nr}"), |member| member.name.clone())
    }
}
