//! One array on one shard: its members' handles, its locks, its view, and what requests share.
//!
//! | file | subject |
//! |---|---|
//! | `home` | the news and questions that control on the home shard takes, and its address |
//! | `home_link` | the link there: answers that are waited for, and state that all shards share |
//! | `split` | a request that was split into parts: it completes with the last of them |
//! | `mesh` | work for units that other shards own |
//! | `work` | what requests hand to the tasks that carry them out |
//! | `queues` | writes that wait for their stripe |
//! | `lock` | the table of locked rows |
//! | `by_unit` | a small table with an entry for each unit under way |
//! | `recorded` | the consistency policy that an engine is given |
//! | `recording` | what the consistency policy wants recorded before a write |
//! | `hold` | requests that wait while stripes move to other shards |
//! | `balance` | the choice among copies |
//! | `caching` | the stripe cache as settings and idleness would have it |
//! | `cut_from` | the size of the requests that all is cut from |
//! | `measured` | what is counted and timed |
//! | `scratch` | memory that requests hold besides their payload |
//! | `members` | the members as one shard has them: handles, and the view |
//! | `unanswered` | what control is told of members that do not answer |
//! | `window` | a window of a job as shards hand it to each other |
//!
//! None of them knows a step of a request: those stand above and use what is here.

pub(crate) mod balance;
mod by_unit;
mod caching;
mod cut_from;
mod hold;
pub(crate) mod home;
mod home_link;
pub(crate) mod lock;
mod measured;
mod members;
pub(crate) mod mesh;
pub(crate) mod queues;
pub(crate) mod recorded;
mod recording;
mod scratch;
pub(crate) mod split;
pub(crate) mod unanswered;
pub(crate) mod window;
pub(crate) mod work;

use self::balance::Balance;
use self::caching::Caching;
use self::home::Home;
use self::home_link::HomeLink;
use self::lock::RangeLocks;
use self::measured::Measured;
use self::members::Members;
use self::mesh::Mesh;
use self::queues::{Key, Waiting};
use self::recorded::Recorded;
use self::scratch::Scratch;
use self::split::{RequestInFlight, Split, Splits};
use self::work::{RecoverArgs, WriteArgs};
use crate::consistency::Consistency;
use crate::settings::Settings;
use crate::state::ArrayId;
use crate::state::array_size::ArraySize;
use crate::state::reports::Reports;
use crate::state::view::{MemberNr, View, ViewUpdate};
use braid_device::{Completion, DeviceInfo, IoSets, OpenError, Opener};
use braid_layout::Slot;
use braid_shard::{Shard, Spawner};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// See the module's documentation.
pub struct Engine {
    pub(crate) shard: Shard,
    pub(crate) locks: RangeLocks,
    pub(crate) sets: IoSets,
    pub(crate) scratch: Scratch,
    /// Writes that wait for their stripe.
    pub(crate) waiting: Waiting,
    pub(crate) cache: Caching,
    /// The settings in effect.
    pub(crate) settings: Cell<Settings>,
    pub(crate) mesh: Rc<Mesh>,
    /// The gates that each write of a unit passes.
    pub(crate) consistency: Consistency,
    tasks: Rc<Tasks>,
    /// Control on the home shard.
    pub(crate) home: HomeLink,
    /// The array as a device, and the block of which every request is a multiple. Its size is that of the start.
    pub(crate) info: Rc<DeviceInfo>,
    /// Its size now.
    pub(crate) size: Arc<ArraySize>,
    /// One more holder for each device of the array that somebody has open on this shard.
    pub(crate) opened: Rc<()>,
    pub(crate) members: Members,
    pub(crate) splits: Rc<Splits>,
    pub(crate) measured: Measured,
}

/// The arguments of a new engine.
pub(crate) struct Setup {
    /// The way to the array's control.
    pub(crate) home: Home,
    /// The tasks that requests start.
    pub(crate) tasks: Rc<Tasks>,
    /// The array as a device.
    pub(crate) info: DeviceInfo,
    /// Its size, shared with the array's other engines and its handles.
    pub(crate) size: Arc<ArraySize>,
    pub(crate) mesh: Rc<Mesh>,
    pub(crate) update: ViewUpdate,
    /// The consistency policy.
    pub(crate) recorded: Recorded,
    pub(crate) settings: Settings,
    /// Bytes that a cache may take at most.
    pub(crate) memory_max: u64,
    /// Requests are collected and merged.
    pub(crate) aggregate: bool,
    /// Shared with the array's other engines.
    pub(crate) reports: Arc<Reports>,
}

/// The tasks that requests start. One slab each for a shard, whatever the number of its arrays.
pub(crate) struct Tasks {
    /// A write whose bits in the bitmap have to be recorded first.
    pub(crate) record: Spawner<(Rc<Engine>, WriteArgs)>,
    /// The watch over stripes whose writes wait for others.
    pub(crate) watch: Spawner<Rc<Engine>>,
    /// The leader of the writes in a queue.
    pub(crate) lead: Spawner<(Rc<Engine>, Key)>,
    /// A write of a stripe that has nothing in common with the others that came with it.
    pub(crate) write_alone: Spawner<(Rc<Engine>, WriteArgs)>,
    pub(crate) write_copies: Spawner<(Rc<Engine>, WriteArgs)>,
    pub(crate) recover_from_parity: Spawner<(Rc<Engine>, RecoverArgs)>,
    pub(crate) recover_from_copies: Spawner<(Rc<Engine>, RecoverArgs)>,
    /// A flush; with the losses that its connection has been told of.
    pub(crate) flush: Spawner<(Rc<Engine>, Rc<Cell<u64>>, Completion)>,
}

/// The arrays that run on a shard, found by closures that come from other shards.
#[derive(Default)]
struct Engines(RefCell<Vec<Rc<Engine>>>);

impl Engine {
    /// Makes the engine of array `id` and registers it with `shard`.
    pub(crate) fn start(shard: &Shard, id: ArrayId, setup: Setup) -> Rc<Engine> {
        let Setup { home, tasks, info, size, mesh, update, recorded, settings, .. } = setup;
        let reports = setup.reports;
        let policy = recorded.policy(shard, &home);
        let geometry = update.geometries.whole();
        let balance = Rc::new(Balance::new(geometry.slots()));
        let losses = (!geometry.level.has_redundancy()).then(|| Arc::clone(&reports));
        let splits = Splits::new(shard, &balance, losses);
        let engine = Rc::new(Engine {
            shard: shard.clone(),
            locks: RangeLocks::new(shard),
            sets: IoSets::new(shard),
            scratch: Scratch::new(shard),
            waiting: Waiting::default(),
            cache: Caching::new(setup.memory_max),
            settings: Cell::new(Settings::default()),
            mesh,
            consistency: Consistency::new(policy),
            tasks,
            home: HomeLink::new(shard, id, home, reports),
            info: Rc::new(info),
            size,
            opened: Rc::default(),
            members: Members::new(update, balance, setup.aggregate),
            splits,
            measured: Measured::new(shard),
        });
        engine.set(settings);
        shard.local::<Engines>().0.borrow_mut().push(Rc::clone(&engine));
        engine
    }

    /// The engine of array `id` on this shard.
    pub fn find(shard: &Shard, id: ArrayId) -> Option<Rc<Engine>> {
        shard.local::<Engines>().0.borrow().iter().find(|engine| engine.home.id() == id).cloned()
    }

    /// Requests are refused, and jobs do nothing more.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.splits.is_stopping()
    }

    /// Requests that come from now on are refused; those that are under way go on.
    pub(crate) fn refuse_requests(&self) {
        self.splits.stop();
    }

    /// Takes the engine off its shard; requests that come afterwards are refused.
    pub(crate) fn stop(&self) {
        self.refuse_requests();
        self.shard
            .local::<Engines>()
            .0
            .borrow_mut()
            .retain(|engine| engine.home.id() != self.home.id());
        self.members.close_all();
        let geometries = self.view().geometries().clone();
        let slots = geometries.widest().slots();
        let update = ViewUpdate {
            geometries,
            slots: vec![crate::state::view::SlotUpdate::EMPTY; slots],
            replacements: Vec::new(),
            resynced: u64::MAX,
            broken: true,
            read_only: true,
        };
        self.members.apply(update);
        self.mesh.detach();
    }

    #[inline]
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The members and the geometry as they are now.
    #[inline]
    pub fn view(&self) -> Rc<View> {
        self.members.view()
    }

    /// The slot is still that of the member that it is in `view`. One that has been replaced meanwhile does not answer any
    /// more, and the member that has its slot now does.
    pub(crate) fn still_holds(&self, view: &View, slot: Slot) -> bool {
        view.member_nr(slot) == self.view().member_nr(slot)
    }

    /// Opens member `nr` on this shard; a later view may name it.
    ///
    /// # Errors
    /// When the device does not open here.
    pub(crate) fn open_member(&self, nr: MemberNr, opener: &dyn Opener) -> Result<(), OpenError> {
        let device = opener.open(&self.shard)?;
        let member = self.members.prepare(&self.shard, nr, device);
        if member.wants_plug() {
            self.measured.time_requests();
        }
        self.watch_member(&member);
        self.members.enter(member);
        Ok(())
    }

    /// Opens member `nr` anew, since its device has another size now; what is asked of it from then on goes there. Nothing
    /// of the array is under way.
    ///
    /// # Errors
    /// When the device does not open here: the member stays as it was.
    pub(crate) fn reopen_member(&self, nr: MemberNr, opener: &dyn Opener) -> Result<(), OpenError> {
        let device = opener.open(&self.shard)?;
        let member = self.members.prepare(&self.shard, nr, device);
        self.watch_member(&member);
        self.members.exchange(member);
        Ok(())
    }

    /// Devices of the array that somebody has open on this shard.
    pub(crate) fn devices_open(&self) -> usize {
        Rc::strong_count(&self.opened) - 1
    }

    /// The array has another shape than before: the stripe cache forgets what it knew, and its lines are those of the new one.
    pub(crate) fn has_other_shape(&self) {
        let (view, settings) = (self.view(), self.settings.get());
        self.cache.renew(self.shard.pool(), view.geometries(), &settings);
        self.members.balance.suit(view.geometries().widest().slots());
    }

    /// Takes over new settings, which suit the array.
    pub(crate) fn set(&self, settings: Settings) {
        let old = self.settings.replace(settings);
        if old.member_timeout != settings.member_timeout {
            self.limit_members();
        }
        let view = self.view();
        self.cache.suit(self.shard.pool(), view.geometries(), &old, &settings);
    }

    /// A request of `len` bytes has come, from a client or an array above.
    #[inline(always)]
    pub(crate) fn note_size(&self, len: u64) {
        if self.measured.is_timed() {
            self.members.note_size(len);
        }
    }

    /// Requests that have not completed: zero when the engine may be taken away.
    pub(crate) fn requests_in_flight(&self) -> u32 {
        self.splits.under_way()
    }

    /// Takes a [`Split`] for one request.
    pub(crate) fn split(&self) -> Rc<Split> {
        self.splits.take()
    }

    /// Enters a request that needs no split of its own.
    pub(crate) fn begin_request(&self) -> RequestInFlight {
        self.splits.enter()
    }
}
