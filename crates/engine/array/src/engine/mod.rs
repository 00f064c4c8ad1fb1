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
//! | `balance` | the choice among copies |
//! | `caching` | the stripe cache as settings and idleness would have it |
//! | `cut_from` | the size of the requests that all is cut from |
//! | `unanswered` | members that do not answer, as one shard sees them |
//! | `window` | a window of a job as shards hand it to each other |
//!
//! None of them knows a step of a request: those stand above and use what is here.

mod asking;
pub(crate) mod balance;
mod caching;
mod cut_from;
pub(crate) mod gather;
pub(crate) mod home;
pub(crate) mod lock;
pub(crate) mod mesh;
pub(crate) mod queues;
mod recording;
pub(crate) mod unanswered;
pub(crate) mod window;
pub(crate) mod work;

use self::balance::Balance;
use self::cut_from::CutFrom;
use self::gather::{Gather, Gathers, RequestInFlight};
use self::home::{Asked, Home};
use self::lock::RangeLocks;
use self::mesh::Mesh;
use self::queues::{Key, Waiting};
use self::work::{RecoverArgs, WriteArgs};
use crate::cache::StripeCache;
use crate::consistency::{Consistency, Policy};
use crate::figures::MemberFigures;
use crate::metadata::bitmap::{FIRST_BITMAP, Shape};
use crate::settings::Settings;
use crate::state::ArrayId;
use crate::state::reports::Reports;
use crate::state::view::{MemberNr, View, ViewUpdate};
use crate::status::Counters;
use braid_device::meter::{Figures, Meter, Metered};
use braid_device::plug::{Plug, PlugStats};
use braid_device::{Completion, Device, DeviceInfo, IoSets, Op, OpenError, Opener, Request};
use braid_layout::Level;
use braid_shard::sync::Budget;
use braid_shard::{Buf, Shard, Spawner};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes that stripes being written or recovered may hold besides their payload, per shard.
const SCRATCH_MAX: u64 = 128 << 20;
/// A member that is open on this shard.
pub(crate) struct OpenMember {
    pub(crate) nr: MemberNr,
    pub(crate) device: Rc<dyn Device>,
    plug: Option<Rc<Plug>>,
    /// Measures what the member is asked.
    pub(crate) metered: Rc<Metered>,
}

/// A request that waits, and where it came in.
type HeldBack = (Request, Rc<dyn Device>, Completion);

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
    /// Requests wait: stripes are being given to other shards.
    held: Cell<bool>,
    held_back: RefCell<VecDeque<HeldBack>>,
    pub(crate) mesh: Rc<Mesh>,
    /// The gates that each write of a unit passes.
    pub(crate) consistency: Consistency,
    tasks: Rc<Tasks>,
    pub(crate) home: Home,
    info: RefCell<Rc<DeviceInfo>>,
    view: RefCell<Rc<View>>,
    update: RefCell<ViewUpdate>,
    pub(crate) devices: RefCell<Vec<OpenMember>>,
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
            held: Cell::new(false),
            held_back: RefCell::new(VecDeque::new()),
            mesh,
            consistency: Consistency::new(policy),
            tasks,
            home,
            info: RefCell::new(Rc::new(info)),
            view: RefCell::new(Rc::new(View::new(&update, |_| None))),
            update: RefCell::new(update),
            devices: RefCell::new(Vec::new()),
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
        for member in self.devices.take() {
            member.device.cut_from(0);
        }
        let geometries = self.view().geometries().clone();
        let slots = geometries.whole().slots();
        let update = ViewUpdate {
            geometries,
            slots: vec![crate::state::view::SlotUpdate::EMPTY; slots],
            resynced: u64::MAX,
            broken: true,
            read_only: true,
        };
        self.apply(update);
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
        Rc::clone(&self.view.borrow())
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

    /// Counts of each member's requests, before and after merging.
    pub fn member_figures(&self) -> Vec<(MemberNr, MemberFigures)> {
        let devices = self.devices.borrow();
        let figures = devices.iter().map(|member| {
            let io = member.metered.figures();
            let requested = member.plug.as_ref().map_or(io.counts, |plug| plug.arrived());
            (member.nr, MemberFigures { requested, io })
        });
        figures.collect()
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

    /// Counts of requests into and out of each member's plug.
    pub fn plug_stats(&self) -> Vec<(MemberNr, PlugStats)> {
        let devices = self.devices.borrow();
        let stats =
            devices.iter().filter_map(|member| Some((member.nr, member.plug.as_ref()?.stats())));
        stats.collect()
    }

    /// Opens member `nr` on this shard; a later view may name it.
    ///
    /// # Errors
    /// When the device does not open here.
    pub(crate) fn open_member(&self, nr: MemberNr, opener: &dyn Opener) -> Result<(), OpenError> {
        let mut device = opener.open(&self.shard)?;
        let wants_plug = device.info().wants_plug;
        let metered = Metered::new(&self.shard, device);
        device = Rc::clone(&metered) as Rc<dyn Device>;
        let plug = wants_plug.then(|| match self.aggregate {
            true => Plug::metered(&self.shard, Rc::clone(&metered)),
            false => Plug::disabled(&self.shard, Rc::clone(&device)),
        });
        if let Some(plug) = &plug {
            device = Rc::clone(plug) as Rc<dyn Device>;
        }
        self.timed.set(self.timed.get() || wants_plug);
        device.cut_from(self.cut_from.bytes());
        let member = OpenMember { nr, device, plug, metered };
        self.watch_member(&member);
        self.devices.borrow_mut().push(member);
        Ok(())
    }

    /// Lets go of member `nr`.
    pub(crate) fn close_member(&self, nr: MemberNr) {
        if let Some(device) = self.member_device(nr) {
            // An array that is no member any more may have clients again.
            device.cut_from(0);
        }
        self.devices.borrow_mut().retain(|member| member.nr != nr);
        let update = self.update.borrow().clone();
        self.apply(update);
    }

    /// This shard's handle on member `nr`.
    pub(crate) fn member_device(&self, nr: MemberNr) -> Option<Rc<dyn Device>> {
        let devices = self.devices.borrow();
        devices.iter().find(|member| member.nr == nr).map(|member| Rc::clone(&member.device))
    }

    /// Takes over what control has decided.
    pub(crate) fn apply(&self, update: ViewUpdate) {
        let view = View::new(&update, |nr| self.member_device(nr));
        *self.view.borrow_mut() = Rc::new(view);
        *self.update.borrow_mut() = update;
    }

    /// These members have failed and are read no more. All else stays as control decided last: a failure that is being
    /// recorded beside theirs is not to be known yet.
    pub(crate) fn distrust(&self, suspects: &[MemberNr]) {
        let mut update = self.update.borrow().clone();
        for slot in &mut update.slots {
            slot.suspect |= slot.member.is_some_and(|nr| suspects.contains(&nr));
        }
        self.apply(update);
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
        for member in self.devices.borrow().iter() {
            member.device.cut_from(bytes);
        }
    }

    // --- Requests that wait while stripes move to other shards --------------------------------

    /// Requests that come from now on wait.
    pub(crate) fn hold(&self) {
        self.held.set(true);
    }

    /// True when `request` was taken to wait.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.held.get()
    }

    /// Keeps a request until [`Engine::release`].
    pub(crate) fn keep(&self, request: Request, device: Rc<dyn Device>, done: Completion) {
        self.held_back.borrow_mut().push_back((request, device, done));
    }

    /// Requests go on, those that waited first.
    pub(crate) fn release(self: &Rc<Engine>) {
        self.held.set(false);
        // Taken out first: what is submitted may complete at once and submit more.
        for (request, device, done) in self.held_back.take() {
            device.submit(request, done);
        }
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
