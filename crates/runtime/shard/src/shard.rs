//! The shard itself: turns, timers, idle hooks, and the data that each crate keeps on it.

use crate::buffer::Pool;
use crate::doorbell::Doorbell;
use crate::executor::{Spawner, Tasks};
use crate::id::ShardId;
use crate::inbox::{Inbox, Queue};
use crate::reactor::{Nanos, Reactor};
use crate::ring::Ring;
use crate::task::TaskId;
use crate::timer::Timers;
use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

/// Tasks advanced in one turn before the shard looks at completions and messages again. Bounds the
/// data that a turn touches, so that the data of operations that complete at submit stays in the L2 cache.
const TASKS_PER_TURN_MAX: usize = 256;

/// Turns after which the idle hooks are called although tasks are still runnable. Without a bound, tasks
/// that always have more to do would keep plugged I/O waiting for ever.
const BUSY_TURNS_MAX: u32 = 4;

/// Interval at which a shard returns free buffers to the system: those that it has not used since the last time.
const TRIM_EVERY: Nanos = 10_000_000_000;

/// Called when nothing on the shard is runnable, and after a few turns in any case: a plug submits the I/O that it has
/// collected.
pub trait IdleHook {
    /// True when something was submitted.
    fn on_idle(&self) -> bool;
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Something ran or was delivered; another turn may find more.
    pub progressed: bool,
    /// The earliest timer still pending.
    pub next_deadline: Option<Nanos>,
}

/// A closure that another thread has sent to the shard.
pub(crate) type Job = Box<dyn FnOnce(&Shard) + Send>;

struct Core {
    id: ShardId,
    pool: Pool,
    tasks: Rc<Tasks>,
    timers: RefCell<Timers>,
    idle_hooks: RefCell<Vec<Rc<dyn IdleHook>>>,
    /// Turns since the idle hooks were called.
    busy_turns: Cell<u32>,
    /// The time at which free buffers are returned to the system next.
    next_trim: Cell<Nanos>,
    /// Turns so far.
    turns: Cell<u64>,
    /// The time as it was first read in the current phase of the turn.
    coarse_now: Cell<Option<Nanos>>,
    /// Tasks that wait for the next turn.
    next_turn: RefCell<Vec<TaskId>>,
    inboxes: RefCell<Vec<Rc<dyn Inbox>>>,
    reactor: Rc<dyn Reactor>,
    ring: Option<Rc<Ring>>,
    boxed: OnceCell<Spawner<Pin<Box<dyn Future<Output = ()>>>>>,
    jobs: Queue<Job>,
    job_sender: mpsc::Sender<Job>,
    doorbell: Arc<Doorbell>,
    locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    stopping: Cell<bool>,
    /// The shard has ended: no task is started any more.
    abandoned: Cell<bool>,
}

/// A handle on the shard of this thread; cheap to clone, not `Send`.
#[derive(Clone)]
pub struct Shard(Rc<Core>);

impl Shard {
    /// A shard over any reactor (the simulator's). [`threads::start`](crate::threads::start)
    /// makes the real ones.
    pub fn with_reactor(id: ShardId, reactor: Rc<dyn Reactor>) -> Shard {
        Shard::build(id, reactor, None, Arc::new(Doorbell::new()))
    }

    /// A real shard on this thread, over its own io_uring.
    ///
    /// # Errors
    /// When the kernel refuses an io_uring (not available, forbidden, or out of locked memory).
    pub fn with_ring(id: ShardId) -> Result<Shard, crate::ring::RingError> {
        let doorbell = Arc::new(Doorbell::new());
        let ring = Rc::new(Ring::new(Arc::clone(&doorbell))?);
        Ok(Shard::build(id, Rc::clone(&ring) as Rc<dyn Reactor>, Some(ring), doorbell))
    }

    fn build(
        id: ShardId,
        reactor: Rc<dyn Reactor>,
        ring: Option<Rc<Ring>>,
        doorbell: Arc<Doorbell>,
    ) -> Shard {
        let (job_sender, jobs) = mpsc::channel();
        let core = Rc::new(Core {
            id,
            pool: Pool::new(id),
            tasks: Rc::new(Tasks::new()),
            timers: RefCell::new(Timers::default()),
            idle_hooks: RefCell::new(Vec::new()),
            busy_turns: Cell::new(0),
            next_trim: Cell::new(0),
            turns: Cell::new(0),
            coarse_now: Cell::new(None),
            next_turn: RefCell::new(Vec::new()),
            inboxes: RefCell::new(Vec::new()),
            reactor,
            ring,
            boxed: OnceCell::new(),
            jobs: Queue::new(jobs),
            job_sender,
            doorbell,
            locals: RefCell::new(HashMap::new()),
            stopping: Cell::new(false),
            abandoned: Cell::new(false),
        });
        let boxed = core.tasks.spawner(|future: Pin<Box<dyn Future<Output = ()>>>| future);
        // Cannot fail: the cell was created empty above.
        let _ = core.boxed.set(boxed);
        Shard(core)
    }

    /// This shard's number.
    pub fn id(&self) -> ShardId {
        self.0.id
    }

    /// This shard's aligned buffers.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The io_uring, when this shard has a real one.
    pub fn ring(&self) -> Option<&Rc<Ring>> {
        self.0.ring.as_ref()
    }

    /// The sending end of the closures that other threads have the shard run, and the bell to ring after one was sent.
    pub(crate) fn job_sender(&self) -> (mpsc::Sender<Job>, Arc<Doorbell>) {
        (self.0.job_sender.clone(), Arc::clone(&self.0.doorbell))
    }

    /// The time now.
    pub fn now(&self) -> Nanos {
        self.0.reactor.now()
    }

    /// The time at which this was first called in the current phase of the turn (tasks, idle hooks, messages,
    /// completions): requests that are submitted or complete together read the clock once.
    pub fn coarse_now(&self) -> Nanos {
        match self.0.coarse_now.get() {
            Some(time) => time,
            None => {
                let now = self.now();
                self.0.coarse_now.set(Some(now));
                now
            }
        }
    }

    fn next_phase(&self) {
        self.0.coarse_now.set(None);
    }

    /// A spawner with a slab of its own for the futures that `make` makes.
    pub fn spawner<A, F, M>(&self, make: M) -> Spawner<A>
    where
        A: 'static,
        F: Future<Output = ()> + 'static,
        M: Fn(A) -> F + 'static,
    {
        self.0.tasks.spawner(make)
    }

    /// Starts a task of any type, boxed: for jobs and connections, not for requests.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if let (Some(boxed), false) = (self.0.boxed.get(), self.0.abandoned.get()) {
            boxed.spawn(Box::pin(future));
        }
    }

    /// The shard's only `T`, created at the first call: a crate keeps its data per shard here.
    pub fn local<T: Default + 'static>(&self) -> Rc<T> {
        let known = self.0.locals.borrow().get(&TypeId::of::<T>()).cloned();
        if let Some(Ok(known)) = known.map(Rc::downcast::<T>) {
            return known;
        }
        let new = Rc::new(T::default());
        let any = Rc::clone(&new) as Rc<dyn Any>;
        self.0.locals.borrow_mut().insert(TypeId::of::<T>(), any);
        new
    }

    /// The task being advanced now: a leaf future notes it before it returns `Pending`.
    pub fn current_task(&self) -> TaskId {
        self.0.tasks.current()
    }

    /// Puts a task on the run queue.
    pub fn wake(&self, task: TaskId) {
        self.0.tasks.wake(task);
    }

    /// Wakes `task` at `deadline`; the leaf future checks the clock itself.
    pub fn wake_at(&self, deadline: Nanos, task: TaskId) {
        self.0.timers.borrow_mut().add(deadline, task);
    }

    pub(crate) fn wake_next_turn(&self, task: TaskId) {
        self.0.next_turn.borrow_mut().push(task);
    }

    /// Turns so far: two events with the same number happened in one turn.
    #[inline]
    pub fn turns(&self) -> u64 {
        self.0.turns.get()
    }

    /// Calls `hook` whenever nothing is runnable, and every few turns while something always
    /// is, until it is removed.
    pub fn on_idle(&self, hook: Rc<dyn IdleHook>) {
        self.0.idle_hooks.borrow_mut().push(hook);
    }

    /// Stops calling `hook`.
    pub fn remove_idle_hook(&self, hook: &Rc<dyn IdleHook>) {
        self.0.idle_hooks.borrow_mut().retain(|known| !Rc::ptr_eq(known, hook));
    }

    pub(crate) fn add_inbox(&self, inbox: Rc<dyn Inbox>) {
        self.0.inboxes.borrow_mut().push(inbox);
    }

    pub(crate) fn remove_inbox(&self, inbox: &Rc<dyn Inbox>) {
        self.0.inboxes.borrow_mut().retain(|known| !Rc::ptr_eq(known, inbox));
    }

    /// Makes [`run`](Shard::run) return after the turn in progress.
    pub fn stop(&self) {
        self.0.stopping.set(true);
    }

    /// Tasks that have not finished: zero when the shard has nothing left to do.
    pub fn live_tasks(&self) -> usize {
        self.0.tasks.live()
    }

    /// Ends the shard's work for good, at the end of its thread or in a simulated crash: cancels the
    /// operations that the ring has in flight, drops every unfinished task and the data that crates keep per shard.
    /// Without this, tasks that hold handles on their shard would keep each other, its ring and its
    /// files alive for ever. Must not be called from a task.
    pub fn abandon(&self) {
        self.0.abandoned.set(true);
        self.cancel_ring();
        // A request in flight may keep the shard in memory, and whoever waits for an answer to a closure must hear that no
        // thread will run it.
        self.0.jobs.close();
        self.0.tasks.abandon();
        let hooks = self.0.idle_hooks.take();
        let inboxes = self.0.inboxes.take();
        let locals = self.0.locals.take();
        drop((hooks, inboxes, locals, self.0.timers.take()));
        // They may have submitted requests while they were dropped.
        self.cancel_ring();
        self.0.tasks.clear_queue();
        self.0.next_turn.borrow_mut().clear();
        // A loan that is still on its way keeps the pool alive, but the pool's free memory is not needed any more.
        self.0.pool.trim();
    }

    fn cancel_ring(&self) {
        if let Some(ring) = &self.0.ring {
            ring.cancel_all();
        }
    }

    /// Advances runnable tasks, lets plugs submit, takes completions and messages; never waits.
    pub fn turn(&self) -> Turn {
        self.turn_of(false)
    }

    /// With `parks` the caller promises to park after a turn without progress.
    fn turn_of(&self, parks: bool) -> Turn {
        self.next_phase();
        let mut progressed = self.run_tasks();
        let busy_turns = self.0.busy_turns.get() + 1;
        let mut more = false;
        if self.0.tasks.idle() || busy_turns >= BUSY_TURNS_MAX {
            self.0.busy_turns.set(0);
            self.next_phase();
            more |= self.run_idle_hooks();
        } else {
            self.0.busy_turns.set(busy_turns);
        }
        self.next_phase();
        more |= self.take_messages();
        self.next_phase();
        more |= !self.0.tasks.idle() || !self.0.next_turn.borrow().is_empty();
        progressed |= more;
        progressed |= if parks && !more && !self.0.stopping.get() {
            self.0.reactor.poll_before_park()
        } else {
            self.0.reactor.poll()
        };
        self.next_phase();
        progressed |= self.fire_timers();
        self.0.turns.set(self.0.turns.get() + 1);
        self.0.tasks.wake_all(self.0.next_turn.borrow_mut().drain(..));
        let next_deadline = self.0.timers.borrow().next();
        Turn { progressed: progressed || !self.0.tasks.idle(), next_deadline }
    }

    fn run_tasks(&self) -> bool {
        let mut ran = 0;
        while ran < TASKS_PER_TURN_MAX {
            if !self.0.tasks.advance_one() {
                break;
            }
            ran += 1;
        }
        ran > 0
    }

    fn run_idle_hooks(&self) -> bool {
        let mut progressed = false;
        let mut at = 0;
        loop {
            let hook = self.0.idle_hooks.borrow().get(at).cloned();
            let Some(hook) = hook else { return progressed };
            progressed |= hook.on_idle();
            at += 1;
        }
    }

    fn take_messages(&self) -> bool {
        let mut progressed = false;
        while let Some(job) = self.0.jobs.pop() {
            job(self);
            progressed = true;
        }
        let mut at = 0;
        loop {
            let inbox = self.0.inboxes.borrow().get(at).cloned();
            let Some(inbox) = inbox else { return progressed };
            progressed |= inbox.take();
            at += 1;
        }
    }

    fn fire_timers(&self) -> bool {
        if self.0.timers.borrow().is_empty() {
            return false;
        }
        let now = self.now();
        let mut fired = false;
        loop {
            let due = self.0.timers.borrow_mut().pop_due(now);
            let Some(task) = due else { return fired };
            self.wake(task);
            fired = true;
        }
    }

    fn has_messages(&self) -> bool {
        !self.0.jobs.is_empty() || self.0.inboxes.borrow().iter().any(|inbox| inbox.waiting())
    }

    /// Turns until [`stop`](Shard::stop), sleeping when there is nothing to do.
    pub fn run(&self) {
        while !self.0.stopping.get() {
            let turn = self.turn_of(true);
            if !turn.progressed && !self.0.stopping.get() {
                let deadline = self.trim_if_unused(turn.next_deadline);
                self.0.reactor.park(deadline, &|| !self.has_messages());
            }
        }
        self.0.stopping.set(false);
    }

    /// Called before a sleep until `deadline`: returns buffers to the system that have not been used for
    /// [`TRIM_EVERY`]. Gives the deadline at which this is due again, if that is earlier.
    fn trim_if_unused(&self, deadline: Option<Nanos>) -> Option<Nanos> {
        let pool = &self.0.pool;
        if pool.kept() == 0 {
            return deadline;
        }
        let now = self.now();
        if now >= self.0.next_trim.get() {
            pool.trim_unused();
            self.0.next_trim.set(now + TRIM_EVERY);
        }
        let next = self.0.next_trim.get();
        Some(deadline.map_or(next, |deadline| deadline.min(next)))
    }

    /// Runs `future` to its end on this thread and gives its result; other tasks run meanwhile.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let result: Rc<RefCell<Option<T>>> = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        self.spawn(async move {
            *slot.borrow_mut() = Some(future.await);
        });
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            let turn = self.turn();
            if !turn.progressed && result.borrow().is_none() {
                self.0.reactor.park(turn.next_deadline, &|| !self.has_messages());
            }
        }
    }
}
