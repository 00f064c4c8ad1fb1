//! The io_uring of a shard: a reactor, and operations that own their buffers until they end.
//!
//! An operation is given as a [`RingOp`] together with a [`RingSink`] and a token; when the kernel
//! is done the sink gets the result and the operation back, buffers included. Operations are
//! prepared now and handed to the kernel in one system call at the end of the turn.
//!
//! Invariant: an entry that the kernel knows is never moved, reused or freed before its
//! completion has been seen; dropping the ring waits for all of them. Nor does the shard sleep
//! without a limit while an operation has not been handed to the kernel.

mod operation;
pub mod perform;
mod queues;
mod refusal;

use crate::mailbox::Doorbell;
use crate::reactor::{Nanos, Reactor};
use io_uring::{opcode, types};
use queues::{Prepared, Queues};
use rustix::fd::AsRawFd;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub use operation::{ARGUMENT, BufMuts, Bufs, Command, RingOp};
pub use refusal::RingError;

/// Entries of the submission queue; more operations wait in a queue of ours.
const ENTRIES: u32 = 512;

/// Threads that the kernel may use for operations that would wait where they are submitted: syncs, holes, all of what is
/// asked of most network file systems. By default it is four for each processor; a member that does not answer would
/// soon have them all, and the syncs of other members would wait for it.
const WORKERS: u32 = 256;

/// Time that the kernel may take to release cancelled requests, all in all and at a time.
const LETS_GO_WITHIN: Duration = Duration::from_secs(2);
const CANCEL_NANOS: u32 = 100_000_000;
/// Operations handed to the kernel in one call. A device starts on a call's operations when the
/// call ends: with all of a turn in one, it idles while they are prepared and the shard idles while
/// it works (measured on a virtio disk, 4 KiB random reads at depth 32: 8 gives 1.1 times the rate
/// of all at once, random writes the same).
const SUBMITTED_AT_ONCE: usize = 8;
/// Buffers that one vectored operation may have (the kernel's UIO_MAXIOV is 1024).
pub const SEGMENTS_MAX: usize = 512;
/// A deadline that is nearer than this, in nanoseconds, is waited for awake: to fall asleep and be
/// woken takes longer.
const SPIN_WITHIN: Nanos = 20_000;
/// Nanoseconds to sleep when the kernel takes no operation for want of memory, or because too many
/// completions wait, before it is asked again.
const REFUSED_NANOS: Nanos = 1_000_000;
/// `user_data` of the read that waits for the doorbell.
const BELL: u64 = u64::MAX;

/// The time zero of all rings of the process, so that times agree between shards.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// IORING_ENTER_GETEVENTS of the kernel's io_uring.h.
const ENTER_GETEVENTS: u32 = 1;
/// IORING_ENTER_EXT_ARG: the argument is a structure with a time limit.
const ENTER_EXT_ARG: u32 = 8;

/// Gets completed operations back.
pub trait RingSink {
    /// `result` is what the system call would have returned: at least 0, or a negative errno.
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
    /// Number of commands among them, which end when their driver wants.
    commands: Cell<usize>,
    unsubmitted: Cell<usize>,
    /// The kernel did not let go of what was cancelled.
    held_on: Cell<bool>,
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
        // From Linux 5.15 on; where it is refused there are as many as there are.
        let _ = queues.submitter().register_iowq_max_workers(&mut [WORKERS, 0]);
        // Timers are usually 50 us late, to save power; a modelled SSD answers in less. Where
        // this is refused, timers stay that late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Ring {
            queues: RefCell::new(queues),
            entries: RefCell::new(Vec::new()),
            free: RefCell::new(Vec::new()),
            waiting: RefCell::new(VecDeque::new()),
            in_flight: Cell::new(0),
            commands: Cell::new(0),
            unsubmitted: Cell::new(0),
            held_on: Cell::new(false),
            bell,
            bell_armed: Cell::new(false),
            bell_count: RefCell::new(Box::new(0)),
            origin: origin(),
            done: RefCell::new(Vec::new()),
        })
    }

    /// True if [`RingOp::Command`] is possible: from Linux 6.1 on.
    pub fn takes_commands(&self) -> bool {
        self.queues.borrow().take_commands()
    }

    /// Prepares `op`; `sink` gets it back with `token` when it has ended. Never completes at once, but for a command
    /// that is not possible.
    pub fn submit(&self, op: RingOp, sink: Rc<dyn RingSink>, token: u64) {
        self.submit_so(op, sink, token, false);
    }

    /// [`submit`](Ring::submit), and a thread of the kernel's begins it: for files where beginning alone can wait, with
    /// this thread in the kernel.
    pub fn submit_by_worker(&self, op: RingOp, sink: Rc<dyn RingSink>, token: u64) {
        self.submit_so(op, sink, token, true);
    }

    fn submit_so(&self, mut op: RingOp, sink: Rc<dyn RingSink>, token: u64, by_worker: bool) {
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
        // SAFETY: what the entry points to (buffers, vectors, descriptor) is owned by the InFlight
        // of its index, which stays as it is until the completion has been seen.
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

    /// Submits everything, and collects completions; waits for at least one, or until `timeout`, if
    /// asked. It does not wait without a limit while something is left that the kernel does not take.
    ///
    /// # Errors
    /// The kernel's answer when it is neither a wait that ended nor a shortage that passes:
    /// nothing can be submitted to this ring any more.
    fn enter(&self, wait: bool, timeout: Option<Nanos>) -> io::Result<bool> {
        let entered = match self.hand_over() {
            Ok(true) => {
                let prepared = self.queues.borrow_mut().unsubmitted();
                self.wait(prepared, wait, timeout)
            }
            Ok(false) => {
                let timeout = timeout.unwrap_or(REFUSED_NANOS).min(REFUSED_NANOS);
                self.wait(0, wait, Some(timeout))
            }
            Err(error) => Err(error),
        };
        // Entries that the kernel did not take stay for the next call.
        self.unsubmitted.set(self.queues.borrow_mut().unsubmitted());
        entered?;
        Ok(self.collect())
    }

    /// Hands what was prepared to the kernel, but for a last piece that goes with the call that
    /// waits. False when the kernel takes no more for now.
    fn hand_over(&self) -> io::Result<bool> {
        loop {
            self.push_waiting();
            let last = self.waiting.borrow().is_empty();
            loop {
                let prepared = self.queues.borrow_mut().unsubmitted();
                if prepared == 0 || (last && prepared <= SUBMITTED_AT_ONCE) {
                    break;
                }
                let piece = prepared.min(SUBMITTED_AT_ONCE) as u32;
                // SAFETY: entries of the queue point to memory that their InFlight owns.
                let taken = unsafe {
                    let queues = self.queues.borrow();
                    queues.submitter().enter::<libc::sigset_t>(piece, 0, 0, None)
                };
                match taken {
                    Ok(taken) if taken > 0 => {}
                    Ok(_) => return Ok(false),
                    Err(error) if passes(&error) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            if last {
                return Ok(true);
            }
        }
    }

    /// Submits `prepared` entries and, when asked, waits. The kernel waits only after it has taken
    /// all of them.
    fn wait(&self, prepared: usize, wait: bool, timeout: Option<Nanos>) -> io::Result<()> {
        let queues = self.queues.borrow();
        let (submitter, prepared) = (queues.submitter(), prepared as u32);
        // With DEFER_TASKRUN completions appear only when the kernel is entered for events, so a
        // call that does not wait asks for zero of them.
        let (events, timed) = (u32::from(wait), ENTER_GETEVENTS | ENTER_EXT_ARG);
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
            Err(error) if !passes(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn collect(&self) -> bool {
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
        // The counter is boxed and lives as long as the ring, which leaks it when this read is still
        // armed as it goes; only one such read is armed at a time. With a full queue it goes first
        // of those that wait, all of which are handed over before the shard sleeps.
        self.bell_armed.set(true);
        let bell = Prepared::Plain(sqe);
        // SAFETY: the counter stays where it is until the completion has been seen, as said.
        if !unsafe { self.queues.borrow_mut().push(&bell) } {
            self.waiting.borrow_mut().push_front(bell);
        }
    }
}

/// The kernel may take the same later: it was interrupted, the time was over, it is short of memory, or
/// completions must be fetched first.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}

/// Nothing that the shard has under way can go on, and nobody waiting for it would ever hear: the
/// thread ends with what the kernel said.
fn lost(error: &io::Error) -> ! {
    panic!(
        "the kernel refuses io_uring_enter: {error}; a filter of system calls that was set after the start does this"
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
            if self.collect() {
                return true;
            }
            if !self.queues.borrow_mut().holds_back() {
                return false;
            }
        }
        self.enter(false, None).unwrap_or_else(|error| lost(&error))
    }

    fn poll_before_park(&self) -> bool {
        self.in_flight.get() > 0 && self.collect()
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
            self.enter(true, timeout).unwrap_or_else(|error| lost(&error));
        }
        self.bell.awake();
    }
}

impl Ring {
    /// Cancels what is in flight and gives it back to its sinks, most with `ECANCELED`. Returns
    /// although some is left only when the kernel does not let go of it for seconds (a file system whose server does
    /// not answer), and of commands: those end with the ring, and their sinks hear no more of them.
    pub(crate) fn cancel_all(&self) {
        // Once it has not let go in time, nobody waits for it again.
        let patience = if self.held_on.get() { Duration::ZERO } else { LETS_GO_WITHIN };
        let until = Instant::now() + patience;
        while self.in_flight.get() > self.commands.get() && Instant::now() < until {
            // Prepared entries are submitted first, so that they can be cancelled. Requests of a
            // ring that is lost are leaked.
            if self.enter(false, None).is_err() {
                break;
            }
            // Sockets and pending accepts may never complete by themselves. Refused by old
            // kernels: the wait below then relies on the operations' own end.
            let cancel = types::CancelBuilder::any();
            let wait = Some(types::Timespec::new().nsec(CANCEL_NANOS));
            let _ = self.queues.borrow().submitter().register_sync_cancel(wait, cancel);
            if self.in_flight.get() > self.commands.get() {
                let _ = self.enter(true, Some(1_000_000));
            }
        }
        self.held_on.set(self.in_flight.get() > self.commands.get());
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
        // Better to leak what the kernel may still write to than to reuse it.
        for mut entry in self.entries.take() {
            match entry.op.take() {
                // Its descriptor goes: that the last one is closed is what ends others' waiting.
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
