//! One array on one shard: its members' handles, its locks, its view, and what requests share.
//!
//! | file | subject |
//! |---|---|
//! | `home` | what is told to control on the home shard, and asked there |
//! | `asking` | answers from there that are waited for |
//! | `gather` | the parts of one request, joined when the last has ended |
//! | `mesh` | work for units that other shards own |
//! | `work` | what requests hand to the tasks that carry them out |
//! | `queues` | writes that wait for their stripe |
//! | `lock` | the table of locked rows |
//! | `recording` | what the consistency policy wants recorded before a write |
//! | `hold` | requests that wait while stripes move to other shards |
//! | `balance` | the choice among copies |
//! | `caching` | the stripe cache as settings and idleness would have it |
//! | `cut_from` | the size of the requests that all is cut from |
//! | `members` | the members as one shard has them: handles, and the view |
//! | `unanswered` | what control is told of members that do not answer |
//! | `window` | a window of a job as shards hand it to each other |
//!
//! None of them knows a step of a request: those stand above and use what is here.

mod asking;
pub(crate) mod balance;
mod caching;
mod cut_from;
pub(crate) mod gather;
mod hold;
pub(crate) mod home;
pub(crate) mod lock;
mod members;
pub(crate) mod mesh;
pub(crate) mod queues;
mod recording;
pub(crate) mod unanswered;
pub(crate) mod window;
pub(crate) mod work;

use self::balance::Balance;
use self::cut_from::CutFrom;
use self::gather::{Gather, Gathers, RequestInFlight};
use self::hold::Hold;
use self::home::{Asked, Home};
use self::lock::RangeLocks;
use self::members::{Members, OpenMember};
use self::mesh::Mesh;
use self::queues::{Key, Waiting};
use self::work::{RecoverArgs, WriteArgs};
use crate::cache::StripeCache;
use crate::consistency::{Consistency, Policy};
use crate::metadata::bitmap::{FIRST_BITMAP, Shape};
use crate::settings::Settings;
use crate::state::ArrayId;
use crate::state::reports::Reports;
use crate::state::view::{MemberNr, View, ViewUpdate};
use crate::status::Counters;
use braid_device::meter::{Figures, Meter};
use braid_device::{Completion, DeviceInfo, IoSets, Op, OpenError, Opener};
use braid_layout::Level;
use braid_shard::sync::Budget;
use braid_shard::{Buf, Shard, Spawner};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes that stripes being written or recovered may hold besides their payload, per shard.
const SCRATCH_MAX: u64 = 128 << 20;

/// See the module's documentation.
pub struct Engine {
    pub(crate) shard: Shard,
    pub(crate) id: ArrayId,
    /// Constant for the array's life, as the next.
    pub(crate) level: Level,
    /// Every request is a multiple of this, in bytes.
    pub(crate) logical_block: u32,
    pub(crate) locks: RangeLocks,
    /// Chooses the member to read from where several hold the same bytes.
    pub(crate) balance: Rc<Balance>,
    /// The size of the requests that arrive, or that they were cut from.
    cut_from: CutFrom,
    pub(crate) sets: IoSets,
    pub(crate) scratch: Rc<Budget>,
    /// Writes that wait for their stripe.
    pub(crate) waiting: Waiting,
    /// Blocks of stripes; `None` where the level has no parity.
    pub(crate) cache: RefCell<Option<StripeCache>>,
    /// The settings in effect.
    pub(crate) settings: Cell<Settings>,
    /// Bytes that a cache may take at most.
    pub(crate) memory_max: u64,
    /// Requests to members are plugged and merged, and writes of one stripe are batched.
    pub(crate) aggregate: bool,
    pub(crate) hold: Hold,
    pub(crate) mesh: Rc<Mesh>,
    /// The gates that each write of a unit passes.
    pub(crate) consistency: Consistency,
    tasks: Rc<Tasks>,
    pub(crate) home: Home,
    info: RefCell<Rc<DeviceInfo>>,
    pub(crate) members: Members,
    pub(crate) gathers: Rc<Gathers>,
    counters: Cell<Counters>,
    /// Measures the requests that come to the array.
    pub(crate) meter: Rc<Meter>,
    /// Some member is worth a look at the clock.
    timed: Cell<bool>,
    zeroes: RefCell<Option<Buf>>,
    asked: Asked,
    /// State that all shards of the array share without a message.
    pub(crate) reports: Arc<Reports>,
    /// Writes that find no space are not waited for any more.
    pub(crate) ending: Cell<bool>,
}

/// The arguments of a new engine.
pub(crate) struct Setup {
    /// The way to the array's control.
    pub(crate) home: Home,
    /// The tasks that requests start.
    pub(crate) tasks: Rc<Tasks>,
    /// The array as a device.
    pub(crate) info: DeviceInfo,
    pub(crate) mesh: Rc<Mesh>,
    pub(crate) update: ViewUpdate,
    pub(crate) bitmap: Option<Shape>,
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
        let Setup { home, tasks, info, mesh, update, bitmap, settings, .. } = setup;
        let (memory_max, aggregate, reports) = (setup.memory_max, setup.aggregate, setup.reports);
        let policy = Policy::of(shard, bitmap.map(|shape| (FIRST_BITMAP, shape)));
        let geometry = update.geometries.whole();
        let (level, logical_block) = (geometry.level, geometry.logical_block);
        let balance = Rc::new(Balance::new(geometry.slots()));
        let losses = (!level.has_redundancy()).then(|| Arc::clone(&reports));
        let gathers = Gathers::new(shard, &balance, losses);
        let engine = Rc::new(Engine {
            shard: shard.clone(),
            id,
            balance,
            cut_from: CutFrom::default(),
            level,
            logical_block,
            locks: RangeLocks::new(shard),
            sets: IoSets::new(shard),
            scratch: Budget::new(shard, SCRATCH_MAX),
            waiting: Waiting::default(),
            cache: RefCell::new(None),
            settings: Cell::new(Settings::default()),
            memory_max,
            aggregate,
            hold: Hold::default(),
            mesh,
            consistency: Consistency::new(policy),
            tasks,
            home,
            info: RefCell::new(Rc::new(info)),
            members: Members::new(update),
            gathers,
            counters: Cell::new(Counters::default()),
            meter: Meter::new(shard),
            timed: Cell::new(false),
            zeroes: RefCell::new(None),
            asked: Asked::default(),
            reports,
            ending: Cell::new(false),
        });
        engine.set(settings);
        shard.local::<Engines>().0.borrow_mut().push(Rc::clone(&engine));
        engine
    }

    /// The engine of array `id` on this shard.
    pub fn find(shard: &Shard, id: ArrayId) -> Option<Rc<Engine>> {
        shard.local::<Engines>().0.borrow().iter().find(|engine| engine.id == id).cloned()
    }

    /// Requests are refused, and jobs do nothing more.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.gathers.is_stopping()
    }

    /// Requests that come from now on are refused; those that are under way go on.
    pub(crate) fn refuse_requests(&self) {
        self.gathers.stop();
    }

    /// Takes the engine off its shard; requests that come afterwards are refused.
    pub(crate) fn stop(&self) {
        self.refuse_requests();
        self.shard.local::<Engines>().0.borrow_mut().retain(|engine| engine.id != self.id);
        self.members.close_all();
        let geometries = self.view().geometries().clone();
        let slots = geometries.whole().slots();
        let update = ViewUpdate {
            geometries,
            slots: vec![crate::state::view::SlotUpdate::EMPTY; slots],
            resynced: u64::MAX,
            broken: true,
            read_only: true,
        };
        self.members.apply(update);
        self.mesh.detach();
    }

    pub(crate) fn info(&self) -> Rc<DeviceInfo> {
        Rc::clone(&self.info.borrow())
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

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        let arrived = self.meter.counts();
        Counters {
            reads: arrived.reads.requests,
            read_bytes: arrived.reads.bytes,
            writes: arrived.writes.requests,
            written_bytes: arrived.writes.bytes,
            ..self.counters.get()
        }
    }

    /// Counts, sizes and latencies of the requests that came to the array.
    pub fn figures(&self) -> Figures {
        Figures { timed: self.timed.get(), ..self.meter.figures() }
    }

    /// `done`, measured until then where that costs little of a request.
    #[inline]
    pub(crate) fn time(&self, op: &Op, done: Completion) -> Completion {
        if self.timed.get() { self.meter.time(op, done) } else { done }
    }

    #[inline]
    pub(crate) fn count(&self, more: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        more(&mut counters);
        self.counters.set(counters);
    }

    /// Opens member `nr` on this shard; a later view may name it.
    ///
    /// # Errors
    /// When the device does not open here.
    pub(crate) fn open_member(&self, nr: MemberNr, opener: &dyn Opener) -> Result<(), OpenError> {
        let device = opener.open(&self.shard)?;
        let member = OpenMember::new(&self.shard, nr, device, self.aggregate);
        self.timed.set(self.timed.get() || member.wants_plug());
        member.device.cut_from(self.cut_from.bytes());
        self.watch_member(&member);
        self.members.enter(member);
        Ok(())
    }

    // --- How large the requests are that all is cut from ---------------------------------------

    /// A request of `len` bytes has come, from a client or an array above.
    #[inline]
    pub(crate) fn note_size(&self, len: u64) {
        if self.timed.get() && self.cut_from.note(len) {
            self.tell_members();
        }
    }

    /// An array above says what it cuts its requests from.
    pub(crate) fn set_cut_from(&self, bytes: u64) {
        self.cut_from.tell(bytes);
        self.tell_members();
    }

    fn tell_members(&self) {
        let bytes = self.cut_from.bytes();
        self.balance.set_run(bytes, self.cut_from.is_told());
        self.members.each(|member| member.device.cut_from(bytes));
    }

    /// `len` zero bytes to write.
    pub(crate) fn zeroes(&self, len: usize) -> Buf {
        let mut zeroes = self.zeroes.borrow_mut();
        if zeroes.as_ref().is_none_or(|buf| buf.len() < len) {
            *zeroes = Some(self.shard.pool().zeroed(len).freeze());
        }
        match zeroes.as_ref() {
            Some(buf) => buf.slice(0..len),
            // Set by the lines above.
            None => unreachable!("zeroes were just made"),
        }
    }

    /// Requests that have not completed: zero when the engine may be taken away.
    pub(crate) fn requests_in_flight(&self) -> u32 {
        self.gathers.under_way()
    }

    /// A gather for one request.
    pub(crate) fn gather(&self) -> Rc<Gather> {
        self.gathers.take()
    }

    /// Enters a request that is not joined by a gather of its own.
    pub(crate) fn begin_request(&self) -> RequestInFlight {
        self.gathers.enter()
    }
}
