//! The shard itself: run queue, turns, timers, idle hooks.

use crate::buffer::Pool;
use crate::executor::{Group, Spawner, TaskId, new_group};
use crate::mailbox::{Inbox, Remote, RemoteJobs};
use crate::reactor::{Nanos, Reactor};
use crate::ring::Ring;
use crate::timer::Timers;
use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Number of a shard, from 0.
pub type ShardId = u16;

/// Tasks advanced in one turn before completions and messages are looked at again. Bounds the
/// data that a turn touches, so that what completes at submit stays in the L2 cache.
const TASKS_PER_TURN_MAX: usize = 256;

/// Turns after which idle hooks are called although tasks are still runnable: without a bound,
/// tasks that always have more to do would keep what the hooks hold back for ever.
const BUSY_TURNS_MAX: u32 = 4;

/// Between two looks at the buffers that a shard keeps for reuse: what it did not use in this time goes back to the
/// system.
const TRIM_EVERY: Nanos = 10_000_000_000;

/// Called when nothing on the shard is runnable, or nothing has been for a while: a plug submits what it has collected.
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

pub(crate) struct Core {
    id: ShardId,
    pub(crate) pool: Pool,
    run: RefCell<VecDeque<TaskId>>,
    pub(crate) groups: RefCell<Vec<Rc<dyn Group>>>,
    pub(crate) current: Cell<TaskId>,
    timers: RefCell<Timers>,
    idle_hooks: RefCell<Vec<Rc<dyn IdleHook>>>,
    /// Turns since the idle hooks were called.
    busy_turns: Cell<u32>,
    /// When the pool is looked at again.
    next_trim: Cell<Nanos>,
    /// Turns so far, and the tasks that wait for the next one.
    turns: Cell<u64>,
    /// The time that was asked for last in the running part of a turn.
    recent: Cell<Option<Nanos>>,
    next_turn: RefCell<Vec<TaskId>>,
    inboxes: RefCell<Vec<Rc<dyn Inbox>>>,
    reactor: Rc<dyn Reactor>,
    ring: Option<Rc<Ring>>,
    boxed: OnceCell<Spawner<Pin<Box<dyn Future<Output = ()>>>>>,
    remote: RemoteJobs,
    locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    stopping: Cell<bool>,
    /// Nothing is started any more.
    abandoned: Cell<bool>,
}

/// A handle on the shard of this thread; cheap to clone, not `Send`.
#[derive(Clone)]
pub struct Shard(Rc<Core>);

impl Shard {
    /// A shard over any reactor (the simulator's). [`threads::start`](crate::threads::start)
    /// makes the real ones.
    pub fn with_reactor(id: ShardId, reactor: Rc<dyn Reactor>) -> Shard {
        Shard::build(id, reactor, None, RemoteJobs::new(id))
    }

    /// A real shard on this thread, over its own io_uring.
    ///
    /// # Errors
    /// When the kernel refuses an io_uring (not available, forbidden, or out of locked memory).
    pub fn with_ring(id: ShardId) -> Result<Shard, crate::ring::RingError> {
        let jobs = RemoteJobs::new(id);
        let ring = Rc::new(Ring::new(jobs.doorbell())?);
        Ok(Shard::build(id, Rc::clone(&ring) as Rc<dyn Reactor>, Some(ring), jobs))
    }

    fn build(
        id: ShardId,
        reactor: Rc<dyn Reactor>,
        ring: Option<Rc<Ring>>,
        remote: RemoteJobs,
    ) -> Shard {
        let core = Rc::new(Core {
            id,
            pool: Pool::new(id),
            run: RefCell::new(VecDeque::with_capacity(1024)),
            groups: RefCell::new(Vec::new()),
            current: Cell::new(TaskId::NONE),
            timers: RefCell::new(Timers::default()),
            idle_hooks: RefCell::new(Vec::new()),
            busy_turns: Cell::new(0),
            next_trim: Cell::new(0),
            turns: Cell::new(0),
            recent: Cell::new(None),
            next_turn: RefCell::new(Vec::new()),
            inboxes: RefCell::new(Vec::new()),
            reactor,
            ring,
            boxed: OnceCell::new(),
            remote,
            locals: RefCell::new(HashMap::new()),
            stopping: Cell::new(false),
            abandoned: Cell::new(false),
        });
        let boxed = new_group(&core, |future: Pin<Box<dyn Future<Output = ()>>>| future);
        // The cell was made empty four lines above, so this set cannot be refused.
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

    /// A handle that other threads may use to run something here.
    pub fn remote(&self) -> Remote {
        self.0.remote.remote()
    }

    /// The time now.
    pub fn now(&self) -> Nanos {
        self.0.reactor.now()
    }

    /// The time when it was first asked for in this part of the turn (tasks, idle hooks, messages, completions):
    /// what is submitted or completes together costs one look at the clock.
    pub fn recently(&self) -> Nanos {
        match self.0.recent.get() {
            Some(time) => time,
            None => {
                let now = self.now();
                self.0.recent.set(Some(now));
                now
            }
        }
    }

    fn next_part(&self) {
        self.0.recent.set(None);
    }

    /// A spawner with a slab of its own for the futures that `make` makes.
    pub fn spawner<A, F, M>(&self, make: M) -> Spawner<A>
    where
        A: 'static,
        F: Future<Output = ()> + 'static,
        M: Fn(A) -> F + 'static,
    {
        new_group(&self.0, make)
    }

    /// Starts a task of any type, boxed: for jobs and connections, not for requests.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if let (Some(boxed), false) = (self.0.boxed.get(), self.0.abandoned.get()) {
            boxed.spawn(Box::pin(future));
        }
    }

    /// The shard's only `T`, made when it is first asked for: what crates keep per shard.
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

    /// The task being advanced now: what a leaf future notes before it returns `Pending`.
    pub fn current_task(&self) -> TaskId {
        self.0.current.get()
    }

    /// Puts a task on the run queue.
    pub fn wake(&self, task: TaskId) {
        if task != TaskId::NONE {
            self.0.run.borrow_mut().push_back(task);
        }
    }

    /// Wakes `task` at `deadline`; the leaf future checks the clock itself.
    pub fn wake_at(&self, deadline: Nanos, task: TaskId) {
        self.0.timers.borrow_mut().add(deadline, task);
    }

    /// Completes after `nanos` nanoseconds.
    pub fn sleep(&self, nanos: Nanos) -> Sleep {
        Sleep {
            shard: self.clone(),
            deadline: self.now().saturating_add(nanos),
            armed: TaskId::NONE,
        }
    }

    /// Lets everything else that is runnable run first.
    pub fn yield_now(&self) -> Yield {
        Yield { shard: self.clone(), yielded: false }
    }

    /// Lets everything that is runnable run, and what then completes or has been sent here by others.
    pub fn next_turn(&self) -> NextTurn {
        NextTurn { shard: self.clone(), after: None }
    }

    /// Turns so far: what happens while this stays the same happens in one turn.
    #[inline]
    pub fn turns(&self) -> u64 {
        self.0.turns.get()
    }

    /// Has `hook` called whenever nothing is runnable, and every few turns while something always
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
        self.0.groups.borrow().iter().map(|group| group.live()).sum()
    }

    /// Ends the shard's work for good: cancels what the ring has in flight, drops every task
    /// unfinished, and what crates keep per shard. A thread's end, or a simulated crash. Without
    /// this, tasks that hold handles on their shard would keep each other, its ring and its files
    /// for ever. Not to be called from a task.
    pub fn abandon(&self) {
        self.0.abandoned.set(true);
        self.cancel_ring();
        let groups = self.0.groups.take();
        for group in &groups {
            group.abandon();
        }
        drop(groups);
        let hooks = self.0.idle_hooks.take();
        let inboxes = self.0.inboxes.take();
        let locals = self.0.locals.take();
        drop((hooks, inboxes, locals, self.0.timers.take()));
        // Cancel the requests that they submitted while they were dropped.
        self.cancel_ring();
        self.0.run.borrow_mut().clear();
        self.0.next_turn.borrow_mut().clear();
        // A loan that was on its way keeps the pool alive; not what the pool keeps for reuse.
        self.0.pool.trim();
    }

    fn cancel_ring(&self) {
        if let Some(ring) = &self.0.ring {
            ring.cancel_all();
        }
    }

    /// Advances what is runnable, lets plugs submit, takes completions and messages; never waits.
    pub fn turn(&self) -> Turn {
        self.turn_of(false)
    }

    /// `parks`: the caller does, after a turn without progress.
    fn turn_of(&self, parks: bool) -> Turn {
        self.next_part();
        let mut progressed = self.run_tasks();
        let busy_turns = self.0.busy_turns.get() + 1;
        let mut more = false;
        if self.0.run.borrow().is_empty() || busy_turns >= BUSY_TURNS_MAX {
            self.0.busy_turns.set(0);
            self.next_part();
            more |= self.run_idle_hooks();
        } else {
            self.0.busy_turns.set(busy_turns);
        }
        self.next_part();
        more |= self.take_messages();
        self.next_part();
        more |= !self.0.run.borrow().is_empty() || !self.0.next_turn.borrow().is_empty();
        progressed |= more;
        progressed |= if parks && !more && !self.0.stopping.get() {
            self.0.reactor.poll_before_park()
        } else {
            self.0.reactor.poll()
        };
        self.next_part();
        progressed |= self.fire_timers();
        self.0.turns.set(self.0.turns.get() + 1);
        self.0.run.borrow_mut().extend(self.0.next_turn.borrow_mut().drain(..));
        let next_deadline = self.0.timers.borrow().next();
        Turn { progressed: progressed || !self.0.run.borrow().is_empty(), next_deadline }
    }

    fn run_tasks(&self) -> bool {
        let mut ran = 0;
        while ran < TASKS_PER_TURN_MAX {
            let Some(task) = self.0.run.borrow_mut().pop_front() else { break };
            let group = self.0.groups.borrow().get(task.group as usize).cloned();
            if let Some(group) = group {
                group.poll_task(task.index);
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
        let mut progressed = self.0.remote.run_pending(self);
        let mut at = 0;
        loop {
            let inbox = self.0.inboxes.borrow().get(at).cloned();
            let Some(inbox) = inbox else { return progressed };
            progressed |= inbox.take(self);
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
        self.0.remote.has_pending() || self.0.inboxes.borrow().iter().any(|inbox| inbox.waiting())
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

    /// Before a sleep until `deadline`: gives back what the pool has kept for long. Gives a deadline that is
    /// early enough for the next time.
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

/// See [`Shard::sleep`].
pub struct Sleep {
    shard: Shard,
    deadline: Nanos,
    armed: TaskId,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.shard.now() >= self.deadline {
            return Poll::Ready(());
        }
        let task = self.shard.current_task();
        if self.armed != task {
            self.armed = task;
            self.shard.wake_at(self.deadline, task);
        }
        Poll::Pending
    }
}

/// See [`Shard::next_turn`].
pub struct NextTurn {
    shard: Shard,
    after: Option<u64>,
}

impl Future for NextTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let core = &self.shard.0;
        let now = core.turns.get();
        match self.after {
            Some(turn) if turn != now => return Poll::Ready(()),
            Some(_) => {}
            None => {
                core.next_turn.borrow_mut().push(self.shard.current_task());
                self.after = Some(now);
            }
        }
        Poll::Pending
    }
}

/// See [`Shard::yield_now`].
pub struct Yield {
    shard: Shard,
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.shard.wake(self.shard.current_task());
        Poll::Pending
    }
}
