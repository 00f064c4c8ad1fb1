//! Work for units that another shard owns: sent over the array's mesh, answered the same way.
//!
//! Payload and read buffers travel as loans, so no byte is copied and no count is shared. How work is carried out is
//! known above: [`Mesh::attach`] is given that.

use crate::engine::split::{RequestInFlight, Split};
use crate::engine::window::{Window, WindowReport};
use crate::state::extent::Extent;
use braid_device::{Bufs, Completion, IoError, Op, Sought};
use braid_shard::mailbox::{Attached, MeshEnd, Outboxes};
use braid_shard::sync::{Promise, Promised, promise};
use braid_shard::{Buf, BufMut, IdleHook, Loan, Shard, ShardId};
use slab::Slab;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// The messages between the shards of one array.
#[derive(Debug)]
pub(crate) enum Msg {
    /// Carry this out, and answer under `id`.
    Do { id: u32, work: Work },
    /// A part has ended.
    Done { id: u32, result: Result<(), IoError>, loan: Option<Loan> },
    /// A window has ended.
    WindowDone { id: u32, report: WindowReport },
    /// A loan whose last borrower is gone.
    Return(Loan),
}

/// Work for a unit that the receiver owns.
#[derive(Debug)]
pub(crate) enum Work {
    /// Write the loan's bytes at `extent` of `unit`.
    Write { unit: u64, extent: Extent, fua: bool, loan: Loan },
    /// Write zeroes at `extent` of `unit`.
    Zero { unit: u64, extent: Extent, unmap: bool, fua: bool },
    /// Fill the loan with the array's bytes at `offset`, from redundancy where needed.
    Recover { offset: u64, loan: Loan, error: Option<IoError> },
    /// Fill the loan with the array's bytes that are sought, if any member or combination has them.
    FindAgreeing { sought: Sought, loan: Loan },
    /// Carry out one window of a job.
    Window(Window),
}

/// The receiver of the end of one part of a request.
pub(crate) enum PieceDone {
    /// Whoever made the request, of which this is all: a write.
    Alone { request: RequestInFlight, fua: bool, done: Completion },
    /// A part of a request that this shard has split.
    Part { split: Rc<Split>, index: u32 },
    /// The shard that asked.
    Peer { to: ShardId, id: u32 },
    /// Nobody: whoever is told has another part.
    Nobody,
}

enum Pending {
    /// `onto`: where the bytes of a read go whose own buffer could not travel.
    Part {
        split: Rc<Split>,
        index: u32,
        onto: Option<BufMut>,
    },
    Agreeing(Promise<Option<BufMut>>),
    Window(Promise<WindowReport>),
}

/// The mesh of one array on one shard.
pub(crate) struct Mesh {
    shard: Shard,
    link: RefCell<Option<(Rc<Outboxes<Msg>>, Attached)>>,
    pending: RefCell<Slab<Pending>>,
    hook: RefCell<Option<Rc<dyn IdleHook>>>,
}

impl PieceDone {
    /// Tells that the part has ended. `payload` is what was lent for a write.
    #[inline(always)]
    pub(crate) fn finish(
        self,
        mesh: &Mesh,
        result: Result<(), IoError>,
        buf: Option<BufMut>,
        payload: Option<Buf>,
    ) {
        match self {
            PieceDone::Alone { request, fua, done } => {
                let result = request.told(result);
                drop((payload, request));
                done.finish(result, Op::Write { bufs: Bufs::new(), fua });
            }
            part => part.finish_part(mesh, result, buf, payload),
        }
    }

    #[inline(never)]
    fn finish_part(
        self,
        mesh: &Mesh,
        result: Result<(), IoError>,
        buf: Option<BufMut>,
        payload: Option<Buf>,
    ) {
        match self {
            PieceDone::Part { split, index } => {
                drop(payload);
                split.part_done(index, result, buf);
            }
            PieceDone::Peer { to, id } => {
                // A payload that somebody still holds goes home when the last holder drops it.
                let loan = match (buf, payload) {
                    (Some(buf), _) => buf.into_loan().ok(),
                    (None, Some(payload)) => payload.into_loan().ok(),
                    (None, None) => None,
                };
                mesh.send(to, Msg::Done { id, result, loan });
            }
            PieceDone::Alone { .. } | PieceDone::Nobody => {}
        }
    }
}

impl Mesh {
    pub(crate) fn new(shard: &Shard) -> Rc<Mesh> {
        Rc::new(Mesh {
            shard: shard.clone(),
            link: RefCell::new(None),
            pending: RefCell::new(Slab::new()),
            hook: RefCell::new(None),
        })
    }

    /// Connects to the other shards. `carry_out` is given the work that they send, with the sender and the number under
    /// which it waits for an answer.
    pub(crate) fn attach(
        self: &Rc<Mesh>,
        end: MeshEnd<Msg>,
        carry_out: impl Fn(ShardId, u32, Work) + 'static,
    ) {
        let weak = Rc::downgrade(self);
        let link = end.attach(&self.shard, move |from, message| {
            let Some(mesh) = weak.upgrade() else { return };
            match message {
                Msg::Do { id, work } => carry_out(from, id, work),
                Msg::Done { id, result, loan } => mesh.part_ended(id, result, loan),
                Msg::WindowDone { id, report } => mesh.window_ended(id, report),
                Msg::Return(loan) => mesh.give_back(loan),
            }
        });
        *self.link.borrow_mut() = Some(link);
        let hook: Rc<dyn IdleHook> = Rc::new(ReturnLoans(Rc::downgrade(self)));
        self.shard.on_idle(Rc::clone(&hook));
        *self.hook.borrow_mut() = Some(hook);
    }

    pub(crate) fn detach(&self) {
        if let Some(hook) = self.hook.borrow_mut().take() {
            self.shard.remove_idle_hook(&hook);
        }
    }

    /// Sends a message to the engine of another shard; to none when this one has been stopped.
    pub(crate) fn send(&self, to: ShardId, message: Msg) {
        if let Some((out, _)) = self.link.borrow().as_ref() {
            out.send(to, message);
        }
    }

    fn expect_part(&self, split: Rc<Split>, index: u32, onto: Option<BufMut>) -> u32 {
        self.pending.borrow_mut().insert(Pending::Part { split, index, onto }) as u32
    }

    pub(crate) fn write(
        &self,
        to: ShardId,
        unit: u64,
        extent: Extent,
        payload: Buf,
        fua: bool,
        part: (Rc<Split>, u32),
    ) {
        let loan = match payload.into_loan() {
            Ok(loan) => loan,
            // Part of memory that is itself on loan (a nested array's request): travel as a copy.
            Err(payload) => match self.shard.pool().copy_of(&payload).freeze().into_loan() {
                Ok(loan) => loan,
                Err(_) => unreachable!("fresh memory is not on loan"),
            },
        };
        let id = self.expect_part(part.0, part.1, None);
        self.send(to, Msg::Do { id, work: Work::Write { unit, extent, fua, loan } });
    }

    pub(crate) fn zero(
        &self,
        to: ShardId,
        unit: u64,
        extent: Extent,
        unmap: bool,
        fua: bool,
        part: (Rc<Split>, u32),
    ) {
        let id = self.expect_part(part.0, part.1, None);
        self.send(to, Msg::Do { id, work: Work::Zero { unit, extent, unmap, fua } });
    }

    /// Has `buf` filled by shard `to`; `error` is what the member said that should have given it.
    pub(crate) fn recover(
        &self,
        to: ShardId,
        offset: u64,
        buf: BufMut,
        error: Option<IoError>,
        part: (Rc<Split>, u32),
    ) {
        let pool = self.shard.pool();
        let (loan, onto) = match buf.into_loan() {
            Ok(loan) if loan.home() == self.shard.id() => (loan, None),
            // Memory that is itself on loan (a nested array's request): other memory travels.
            other => {
                let onto = match other {
                    Ok(loan) => pool.adopt_mut(loan).ok(),
                    Err(buf) => Some(buf),
                };
                let len = onto.as_ref().map_or(0, |buf| buf.len());
                match pool.get(len).into_loan() {
                    Ok(loan) => (loan, onto),
                    Err(_) => unreachable!("fresh memory is not on loan"),
                }
            }
        };
        let id = self.expect_part(part.0, part.1, onto);
        self.send(to, Msg::Do { id, work: Work::Recover { offset, loan, error } });
    }

    /// Has shard `to` look for `sought`.
    pub(crate) fn find_agreeing(&self, to: ShardId, sought: Sought) -> Promised<Option<BufMut>> {
        let (give, wait) = promise(&self.shard);
        match self.shard.pool().get(sought.len).into_loan() {
            Ok(loan) => {
                let id = self.pending.borrow_mut().insert(Pending::Agreeing(give)) as u32;
                self.send(to, Msg::Do { id, work: Work::FindAgreeing { sought, loan } });
            }
            Err(_) => give.fulfil(None),
        }
        wait
    }

    pub(crate) fn window(&self, to: ShardId, window: Window) -> Promised<WindowReport> {
        let (give, wait) = promise(&self.shard);
        let id = self.pending.borrow_mut().insert(Pending::Window(give)) as u32;
        self.send(to, Msg::Do { id, work: Work::Window(window) });
        wait
    }

    fn part_ended(&self, id: u32, result: Result<(), IoError>, loan: Option<Loan>) {
        let pending = self.pending.borrow_mut().try_remove(id as usize);
        match (pending, loan) {
            (Some(Pending::Part { split, index, onto }), Some(loan)) => {
                match (self.shard.pool().reclaim(loan), onto) {
                    (Ok(buf), Some(mut onto)) => {
                        onto.copy_from_slice(&buf);
                        split.part_done(index, result, Some(onto));
                    }
                    (Ok(buf), None) => split.part_done(index, result, Some(buf)),
                    (Err(loan), onto) => {
                        let buf = self.copied(loan, onto);
                        split.part_done(index, result, buf);
                    }
                }
            }
            (Some(Pending::Part { split, index, onto }), None) => {
                split.part_done(index, result, onto);
            }
            (Some(Pending::Agreeing(promise)), loan) => {
                let found = loan.and_then(|loan| match self.shard.pool().reclaim(loan) {
                    Ok(buf) => Some(buf),
                    Err(loan) => self.copied(loan, None),
                });
                promise.fulfil(found.filter(|_| result.is_ok()));
            }
            (_, Some(loan)) => self.give_back(loan),
            (_, None) => {}
        }
    }

    fn window_ended(&self, id: u32, report: WindowReport) {
        let pending = self.pending.borrow_mut().try_remove(id as usize);
        if let Some(Pending::Window(promise)) = pending {
            promise.fulfil(report);
        }
    }

    /// Copies data that the other shard read into memory of its own, because a device that was given up still holds the
    /// buffer that was lent for it.
    fn copied(&self, loan: Loan, onto: Option<BufMut>) -> Option<BufMut> {
        let theirs = match self.shard.pool().adopt_mut(loan) {
            Ok(theirs) => theirs,
            Err(loan) => {
                self.give_back(loan);
                return onto;
            }
        };
        let mut own = onto.unwrap_or_else(|| self.shard.pool().get(theirs.len()));
        let len = own.len().min(theirs.len());
        own[..len].copy_from_slice(&theirs[..len]);
        Some(own)
    }

    fn give_back(&self, loan: Loan) {
        if let Err(stray) = self.shard.pool().release(loan) {
            // Not ours: pass it on to its home rather than leak it.
            self.send(stray.home(), Msg::Return(stray));
        }
    }
}

struct ReturnLoans(Weak<Mesh>);

impl IdleHook for ReturnLoans {
    fn on_idle(&self) -> bool {
        let Some(mesh) = self.0.upgrade() else { return false };
        let mut loans = Vec::new();
        mesh.shard.pool().take_returns(&mut loans);
        let any = !loans.is_empty();
        for loan in loans {
            mesh.send(loan.home(), Msg::Return(loan));
        }
        any
    }
}
