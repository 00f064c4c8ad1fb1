//! The io_uring of a shard: a reactor, and operations that own their buffers until they end.
//!
//! An operation is submitted as a [`RingOp`] together with a [`RingSink`] and a token. When the kernel
//! has completed it the sink gets the result and the operation back, buffers included. Operations are
//! prepared immediately, and handed to the kernel at the end of the turn in as few system calls as is fast.
//!
//! Invariant: an entry that the kernel knows is never moved, reused or freed before its
//! completion has been seen: dropping the ring cancels what is in flight, and leaks what the kernel does not
//! release in time. Nor does the shard sleep without a time limit while an operation is not yet submitted.

mod enter;
mod operation;
mod queues;
mod refusal;
pub mod socket;

use crate::doorbell::Doorbell;
use crate::reactor::{Nanos, Reactor};
use enter::{ENTER_EXT_ARG, ENTER_GETEVENTS, is_transient};
use io_uring::{opcode, types};
use queues::{Prepared, Queues};
use rustix::fd::{AsRawFd, OwnedFd};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub use operation::{ARGUMENT, BufMuts, Bufs, Command, RingOp};
pub use refusal::RingError;

/// Entries of the submission queue; further operations wait in a queue of the ring's own.
const ENTRIES: u32 = 512;

/// Threads that the kernel may use for operations that would block at submission: fsync, fallocate, and every operation
/// on most network file systems. The default is four for each processor; a member that does not answer would
/// soon occupy them all, and the syncs of other members would have to wait for it.
const WORKERS: u32 = 256;

/// The ring stops waiting for cancelled requests after this time.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Nanoseconds that one call that cancels may take.
const CANCEL_CALL_NANOS: u32 = 100_000_000;
/// Operations submitted in one call. A device starts on the operations of a call when the
/// call ends: with a whole turn in one call, the device idles while they are prepared and the shard idles while
/// the device works (measured on a virtio disk, 4 KiB random reads at depth 32: calls of 8 give 1.1 times the
/// rate of a single call; random writes are the same).
const SUBMIT_BATCH: usize = 8;
/// Buffers that one vectored operation may have (the kernel's UIO_MAXIOV is 1024).
pub const SEGMENTS_MAX: usize = 512;
/// The shard spins until a deadline that is nearer than this, in nanoseconds: falling asleep and being
/// woken takes longer.
const SPIN_WITHIN: Nanos = 20_000;
/// Nanoseconds to sleep before the next attempt when the kernel accepts no operation because it is short of memory, or
/// because too many completions wait.
const RETRY_NANOS: Nanos = 1_000_000;
/// Called by each ring of the process before it hands anything to the kernel.
static BEFORE: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Has `check` be called on every shard right before anything is handed to the kernel, so that a process which was stopped for
/// a while can end itself rather than go on with what it had prepared. Once in a process; false when there is one already.
pub fn before_submissions(check: Box<dyn Fn() + Send + Sync>) -> bool {
    BEFORE.set(check).is_ok()
}

fn check_before() {
    if let Some(check) = BEFORE.get() {
        check();
    }
}

/// `user_data` of the read that waits for the doorbell.
const BELL: u64 = u64::MAX;

/// The origin of time for all rings of the process, so that times agree between shards.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Gets completed operations back.
pub trait RingSink {
    /// Delivers `op`. `result` is that of the corresponding system call: at least 0, or a negative errno.
    fn ring_done(&self, token: u64, result: i32, op: RingOp);
}

struct InFlight {
    op: Option<RingOp>,
    sink: Option<Rc<dyn RingSink>>,
    token: u64,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

impl InFlight {
    fn is_command(&self) -> bool {
        matches!(self.op, Some(RingOp::Command(_)))
    }
}

/// See the module's documentation.
pub struct Ring {
    queues: RefCell<Queues>,
    /// Boxed: the kernel holds pointers into an entry while it is in flight.
    #[allow(clippy::vec_box)]
    entries: RefCell<Vec<Box<InFlight>>>,
    free: RefCell<Vec<u32>>,
    /// Prepared, but the submission queue was full.
    waiting: RefCell<VecDeque<Prepared>>,
    in_flight: Cell<usize>,
    /// Commands among them. Only their driver decides when they end.
    commands: Cell<usize>,
    unsubmitted: Cell<usize>,
    /// The kernel has not released cancelled operations in time.
    cancel_timed_out: Cell<bool>,
    bell: Arc<Doorbell>,
    bell_armed: Cell<bool>,
    bell_count: RefCell<Box<u64>>,
    origin: Instant,
    done: RefCell<Vec<(u64, i32)>>,
}

impl Ring {
    /// A ring whose sleep ends when `bell` rings.
    ///
    /// # Errors
    /// When the kernel refuses an io_uring or an eventfd, or its io_uring lacks what braid uses.
    pub fn new(bell: Arc<Doorbell>) -> Result<Ring, RingError> {
        if bell.event().is_none() {
            return Err(RingError::Doorbell);
        }
        let queues = Queues::new(ENTRIES).map_err(|error| RingError::of_setup(&error))?;
        refusal::check(&queues)?;
        // Possible from Linux 5.15 on. If it is refused the kernel's default stays.
        let _ = queues.submitter().register_iowq_max_workers(&mut [WORKERS, 0]);
        // By default Linux fires timers up to 50 us late, to save power, and a modelled SSD answers in
        // less. If this is refused, timers stay that late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Ring {
            queues: RefCell::new(queues),
            entries: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            waiting: RefCell::new(VecDeque::new()),
            in_flight: Cell::new(0),
            commands: Cell::new(0),
            unsubmitted: Cell::new(0),
            cancel_timed_out: Cell::new(false),
            bell,
            bell_armed: Cell::new(false),
            bell_count: RefCell::new(Box::new(0)),
            origin: origin(),
            done: RefCell::new(Vec::new()),
        })
    }

    /// True if the kernel supports [`RingOp::Command`], as it does from Linux 6.1 on.
    pub fn takes_commands(&self) -> bool {
        self.queues.borrow().take_commands()
    }

    /// Prepares `op`; `sink` gets it back with `token` when it has ended. That is never during this call, except for a
    /// command that the ring does not support.
    pub fn submit(&self, op: RingOp, sink: Rc<dyn RingSink>, token: u64) {
        self.submit_with(op, sink, token, false);
    }

    /// Like [`submit`](Ring::submit), but a worker thread of the kernel starts the operation: for files on which even
    /// the start can block, and would block this thread.
    pub fn submit_by_worker(&self, op: RingOp, sink: Rc<dyn RingSink>, token: u64) {
        self.submit_with(op, sink, token, true);
    }

    fn submit_with(&self, mut op: RingOp, sink: Rc<dyn RingSink>, token: u64, by_worker: bool) {
        if matches!(op, RingOp::Command(_)) {
            if !self.takes_commands() {
                return sink.ring_done(token, -libc::EOPNOTSUPP, op);
            }
            self.commands.set(self.commands.get() + 1);
        }
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut entries = self.entries.borrow_mut();
            entries.push(Box::new(InFlight {
                op: None,
                sink: None,
                token: 0,
                vectors: Vec::new(),
                // SAFETY: msghdr is plain data for which all zero bytes are valid.
                message: unsafe { std::mem::zeroed() },
            }));
            entries.len() as u32 - 1
        });
        let mut entries = self.entries.borrow_mut();
        let entry = &mut *entries[index as usize];
        let prepared = operation::prepare(&mut op, &mut entry.vectors, &mut entry.message);
        entry.op = Some(op);
        entry.sink = Some(sink);
        entry.token = token;
        drop(entries);
        self.in_flight.set(self.in_flight.get() + 1);
        let prepared = prepared.user_data(u64::from(index));
        self.push(if by_worker { prepared.by_worker() } else { prepared });
    }

    /// Operations that the kernel has, or will have at the end of the turn.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    fn push(&self, entry: Prepared) {
        // SAFETY: the InFlight of its index owns the memory that the entry points to (buffers, vectors,
        // descriptor), and stays as it is until the completion has been seen.
        if unsafe { self.queues.borrow_mut().push(&entry) } {
            self.unsubmitted.set(self.unsubmitted.get() + 1);
        } else {
            self.waiting.borrow_mut().push_back(entry);
        }
    }

    fn push_waiting(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(entry) = waiting.front() {
            // SAFETY: as in `push`.
            if !unsafe { self.queues.borrow_mut().push(entry) } {
                return;
            }
            waiting.pop_front();
            self.unsubmitted.set(self.unsubmitted.get() + 1);
        }
    }

    /// Submits everything and reaps completions. With `wait` it first waits for at least one, or until `timeout`; the
    /// wait is always limited while there are operations that the kernel does not accept yet.
    ///
    /// # Errors
    /// The kernel's answer when it is not transient: nothing can be submitted to this ring any more.
    fn enter(&self, wait: bool, timeout: Option<Nanos>) -> io::Result<bool> {
        let entered = match self.submit_batches() {
            Ok(true) => {
                let prepared = self.queues.borrow_mut().unsubmitted();
                self.wait(prepared, wait, timeout)
            }
            Ok(false) => {
                let timeout = timeout.unwrap_or(RETRY_NANOS).min(RETRY_NANOS);
                self.wait(0, wait, Some(timeout))
            }
            Err(error) => Err(error),
        };
        // Entries that the kernel did not accept stay for the next call.
        self.unsubmitted.set(self.queues.borrow_mut().unsubmitted());
        entered?;
        Ok(self.reap())
    }

    /// Submits the prepared operations in batches, except for the last batch, which goes with the call that
    /// waits. False when the kernel accepts no more for now.
    fn submit_batches(&self) -> io::Result<bool> {
        loop {
            self.push_waiting();
            let last = self.waiting.borrow().is_empty();
            loop {
                let prepared = self.queues.borrow_mut().unsubmitted();
                if prepared == 0 || (last && prepared <= SUBMIT_BATCH) {
                    break;
                }
                let batch = prepared.min(SUBMIT_BATCH) as u32;
                check_before();
                // SAFETY: entries of the queue point to memory that their InFlight owns.
                let taken = unsafe {
                    let queues = self.queues.borrow();
                    queues.submitter().enter::<libc::sigset_t>(batch, 0, 0, None)
                };
                match taken {
                    Ok(taken) if taken > 0 => {}
                    Ok(_) => return Ok(false),
                    Err(error) if is_transient(&error) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            if last {
                return Ok(true);
            }
        }
    }

    /// Submits `prepared` entries and, with `wait`, waits for a completion. The kernel waits only if it has accepted
    /// all of them.
    fn wait(&self, prepared: usize, wait: bool, timeout: Option<Nanos>) -> io::Result<()> {
        let queues = self.queues.borrow();
        let (submitter, prepared) = (queues.submitter(), prepared as u32);
        // With DEFER_TASKRUN completions appear only when the kernel is entered for events, so even a
        // call that does not wait asks for events, zero of them.
        let (events, timed) = (u32::from(wait), ENTER_GETEVENTS | ENTER_EXT_ARG);
        // Also where nothing was prepared: the call carries on what the kernel has put off.
        check_before();
        // SAFETY: entries of the queue point to memory that their InFlight owns; the argument is
        // the structure that the flag announces, and outlives the call.
        let result = unsafe {
            match timeout.filter(|_| wait) {
                None => submitter.enter::<libc::sigset_t>(prepared, events, ENTER_GETEVENTS, None),
                Some(nanos) => {
                    let span = types::Timespec::new()
                        .sec(nanos / 1_000_000_000)
                        .nsec((nanos % 1_000_000_000) as u32);
                    let args = types::SubmitArgs::new().timespec(&span);
                    submitter.enter(prepared, events, timed, Some(&args))
                }
            }
        };
        match result {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn reap(&self) -> bool {
        let mut done = std::mem::take(&mut *self.done.borrow_mut());
        self.queues.borrow_mut().completed(&mut done);
        let any = !done.is_empty();
        for (user_data, result) in done.drain(..) {
            if user_data == BELL {
                self.bell_armed.set(false);
                continue;
            }
            self.finish(user_data as u32, result);
        }
        *self.done.borrow_mut() = done;
        any
    }

    fn finish(&self, index: u32, result: i32) {
        let (op, sink, token) = {
            let mut entries = self.entries.borrow_mut();
            let Some(entry) = entries.get_mut(index as usize) else { return };
            let Some(op) = entry.op.take() else { return };
            (op, entry.sink.take(), entry.token)
        };
        self.free.borrow_mut().push(index);
        self.in_flight.set(self.in_flight.get() - 1);
        if matches!(op, RingOp::Command(_)) {
            self.commands.set(self.commands.get() - 1);
        }
        if let Some(sink) = sink {
            sink.ring_done(token, result, op);
        }
    }

    fn arm_bell(&self) {
        let Some(event) = self.bell.event() else { return };
        if self.bell_armed.get() {
            return;
        }
        let mut count = self.bell_count.borrow_mut();
        let target: *mut u64 = &mut **count;
        let sqe = opcode::Read::new(types::Fd(event.as_raw_fd()), target.cast::<u8>(), 8)
            .build()
            .user_data(BELL);
        // The counter is boxed and lives as long as the ring, which leaks it if this read is still
        // armed when the ring is dropped; only one such read is armed at a time. If the queue is full the read
        // goes to the front of the waiting operations, all of which are submitted before the shard sleeps.
        self.bell_armed.set(true);
        let bell = Prepared::Plain(sqe);
        // SAFETY: the counter stays where it is until the completion has been seen; see above.
        if !unsafe { self.queues.borrow_mut().push(&bell) } {
            self.waiting.borrow_mut().push_front(bell);
        }
    }
}

/// Ends the thread with the kernel's answer. Without its ring the shard can complete nothing that it has in flight, and
/// whoever waits for that would wait for ever.
fn die(error: &io::Error) -> ! {
    panic!(
        "the kernel refuses io_uring_enter: {error}; a seccomp filter that was installed after the start causes this"
    )
}

impl Reactor for Ring {
    fn now(&self) -> Nanos {
        self.origin.elapsed().as_nanos() as Nanos
    }

    fn poll(&self) -> bool {
        if self.unsubmitted.get() == 0 && self.waiting.borrow().is_empty() {
            if self.in_flight.get() == 0 {
                return false;
            }
            if self.reap() {
                return true;
            }
            if !self.queues.borrow_mut().holds_back() {
                return false;
            }
        }
        self.enter(false, None).unwrap_or_else(|error| die(&error))
    }

    fn poll_before_park(&self) -> bool {
        self.in_flight.get() > 0 && self.reap()
    }

    fn park(&self, deadline: Option<Nanos>, still_idle: &dyn Fn() -> bool) {
        if let Some(deadline) = deadline
            && deadline.saturating_sub(self.now()) < SPIN_WITHIN
        {
            while self.now() < deadline && still_idle() && !self.poll() {
                std::hint::spin_loop();
            }
            return;
        }
        self.arm_bell();
        self.bell.going_to_sleep();
        if still_idle() {
            let timeout = deadline.map(|deadline| deadline.saturating_sub(self.now()));
            self.enter(true, timeout).unwrap_or_else(|error| die(&error));
        }
        self.bell.awake();
    }
}

impl Ring {
    /// Cancels the operations in flight on `fd`: each ends with `ECANCELED`, or as it would have anyway. Blocks for a
    /// tenth of a second at most; for sockets, where it is at once.
    ///
    /// # Errors
    /// When the kernel cannot (before Linux 6.0); the operations go on then.
    pub fn cancel_on(&self, fd: &OwnedFd) -> io::Result<()> {
        // What the kernel does not have yet cannot be cancelled.
        self.enter(false, None)?;
        let cancel = types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all();
        let wait = Some(types::Timespec::new().nsec(CANCEL_CALL_NANOS));
        match self.queues.borrow().submitter().register_sync_cancel(wait, cancel) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Cancels the operations in flight and returns them to their sinks, most with `ECANCELED`. Some are left if the
    /// kernel does not release them within seconds (a file system whose server does not answer). Commands are always
    /// left: they end with the ring, and their sinks are dropped.
    pub(crate) fn cancel_all(&self) {
        // If the kernel has not released them in time once, a second wait would be in vain.
        let timeout = if self.cancel_timed_out.get() { Duration::ZERO } else { CANCEL_TIMEOUT };
        let until = Instant::now() + timeout;
        while self.in_flight.get() > self.commands.get() && Instant::now() < until {
            // Prepared entries are submitted first, so that they can be cancelled. If the ring cannot be
            // entered any more its requests are leaked.
            if self.enter(false, None).is_err() {
                break;
            }
            // Receives and accepts may never complete by themselves. Old kernels cannot cancel
            // synchronously; then the wait below depends on the operations to end.
            let cancel = types::CancelBuilder::any();
            let wait = Some(types::Timespec::new().nsec(CANCEL_CALL_NANOS));
            let _ = self.queues.borrow().submitter().register_sync_cancel(wait, cancel);
            if self.in_flight.get() > self.commands.get() {
                let _ = self.enter(true, Some(1_000_000));
            }
        }
        self.cancel_timed_out.set(self.in_flight.get() > self.commands.get());
        let sinks: Vec<_> = {
            let mut entries = self.entries.borrow_mut();
            let commands = entries.iter_mut().filter(|entry| entry.is_command());
            commands.filter_map(|entry| entry.sink.take()).collect()
        };
        drop(sinks);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.cancel_all();
        // Memory that the kernel may still write to must not be reused, so it is leaked.
        for mut entry in self.entries.take() {
            match entry.op.take() {
                // Only the memory is leaked. The descriptor is closed, because waiters on the other side may be woken
                // only by the close of the last one.
                Some(RingOp::Command(command)) => std::mem::forget(command.into_memory()),
                Some(op) => std::mem::forget((op, entry)),
                None => {}
            }
        }
        if self.bell_armed.get() {
            std::mem::forget(std::mem::replace(&mut *self.bell_count.borrow_mut(), Box::new(0)));
        }
    }
}

#[cfg(test)]
mod tests;
