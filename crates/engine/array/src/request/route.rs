//! Work for units that another shard owns: sent over the array's mesh, answered the same way.
//!
//! Payload and read buffers travel as loans, so no byte is copied and no count is shared.

use crate::engine::Engine;
use crate::jobs::window::{Window, WindowReport};
use crate::request::gather::Gather;
use crate::state::extent::Extent;
use braid_device::IoError;
use braid_shard::mailbox::{Attached, MeshEnd, Outboxes};
use braid_shard::sync::{Promise, Promised, promise};
use braid_shard::{Buf, BufMut, IdleHook, Loan, Shard, ShardId};
use slab::Slab;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// The messages between the shards of one array.
#[derive(Debug)]
pub(crate) enum Msg {
    /// Write the loan's bytes at `extent` of `unit`.
    Write { id: u32, unit: u64, extent: Extent, fua: bool, loan: Loan },
    /// Write zeroes at `extent` of `unit`.
    Zero { id: u32, unit: u64, extent: Extent, unmap: bool, fua: bool },
    /// Fill the loan with the array's bytes at `offset`, from redundancy where needed.
    Recover { id: u32, offset: u64, loan: Loan },
    /// Carry out one window of a job.
    Window { id: u32, window: Window },
    /// A part has ended.
    Done { id: u32, result: Result<(), IoError>, loan: Option<Loan> },
    /// A window has ended.
    WindowDone { id: u32, report: WindowReport },
    /// A loan whose last borrower is gone.
    Return(Loan),
}

/// The receiver of the end of one part of a request.
pub(crate) enum PieceDone {
    /// A gather of this shard.
    Part { gather: Rc<Gather>, index: u32 },
    /// The shard that asked.
    Peer { to: ShardId, id: u32 },
}

enum Pending {
    /// `onto`: where the bytes of a read go whose own buffer could not travel.
    Part {
        gather: Rc<Gather>,
        index: u32,
        onto: Option<BufMut>,
    },
    Window(Promise<WindowReport>),
}

/// The mesh of one array on one shard.
pub(crate) struct Router {
    shard: Shard,
    link: RefCell<Option<(Rc<Outboxes<Msg>>, Attached)>>,
    pending: RefCell<Slab<Pending>>,
    hook: RefCell<Option<Rc<dyn IdleHook>>>,
}

impl PieceDone {
    /// Tells that the part has ended. `payload` is what was lent for a write.
    pub(crate) fn finish(
        self,
        engine: &Engine,
        result: Result<(), IoError>,
        buf: Option<BufMut>,
        payload: Option<Buf>,
    ) {
        match self {
            PieceDone::Part { gather, index } => {
                drop(payload);
                gather.part_done(index, result, buf);
            }
            PieceDone::Peer { to, id } => {
                // A payload that somebody still holds goes home when the last holder lets go.
                let loan = match (buf, payload) {
                    (Some(buf), _) => buf.into_loan().ok(),
                    (None, Some(payload)) => payload.into_loan().ok(),
                    (None, None) => None,
                };
                engine.router.send(to, Msg::Done { id, result, loan });
            }
        }
    }
}

impl Router {
    pub(crate) fn new(shard: &Shard) -> Router {
        Router {
            shard: shard.clone(),
            link: RefCell::new(None),
            pending: RefCell::new(Slab::new()),
            hook: RefCell::new(None),
        }
    }

    /// Connects `engine` to the other shards.
    pub(crate) fn attach(&self, end: MeshEnd<Msg>, engine: &Rc<Engine>) {
        let weak = Rc::downgrade(engine);
        let link = end.attach(&self.shard, move |from, message| {
            if let Some(engine) = weak.upgrade() {
                received(&engine, from, message);
            }
        });
        *self.link.borrow_mut() = Some(link);
        let hook: Rc<dyn IdleHook> = Rc::new(ReturnLoans(Rc::downgrade(engine)));
        self.shard.on_idle(Rc::clone(&hook));
        *self.hook.borrow_mut() = Some(hook);
    }

    pub(crate) fn detach(&self) {
        if let Some(hook) = self.hook.borrow_mut().take() {
            self.shard.remove_idle_hook(&hook);
        }
    }

    fn send(&self, to: ShardId, message: Msg) {
        if let Some((out, _)) = self.link.borrow().as_ref() {
            out.send(to, message);
        }
    }

    fn expect_part(&self, gather: Rc<Gather>, index: u32, onto: Option<BufMut>) -> u32 {
        self.pending.borrow_mut().insert(Pending::Part { gather, index, onto }) as u32
    }

    pub(crate) fn write(
        &self,
        to: ShardId,
        unit: u64,
        extent: Extent,
        payload: Buf,
        fua: bool,
        part: (Rc<Gather>, u32),
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
        self.send(to, Msg::Write { id, unit, extent, fua, loan });
    }

    pub(crate) fn zero(
        &self,
        to: ShardId,
        unit: u64,
        extent: Extent,
        unmap: bool,
        fua: bool,
        part: (Rc<Gather>, u32),
    ) {
        let id = self.expect_part(part.0, part.1, None);
        self.send(to, Msg::Zero { id, unit, extent, unmap, fua });
    }

    /// Has `buf` filled by shard `to`.
    pub(crate) fn recover(&self, to: ShardId, offset: u64, buf: BufMut, part: (Rc<Gather>, u32)) {
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
        self.send(to, Msg::Recover { id, offset, loan });
    }

    pub(crate) fn window(&self, to: ShardId, window: Window) -> Promised<WindowReport> {
        let (give, wait) = promise(&self.shard);
        let id = self.pending.borrow_mut().insert(Pending::Window(give)) as u32;
        self.send(to, Msg::Window { id, window });
        wait
    }
}

struct ReturnLoans(Weak<Engine>);

impl IdleHook for ReturnLoans {
    fn on_idle(&self) -> bool {
        let Some(engine) = self.0.upgrade() else { return false };
        let mut loans = Vec::new();
        engine.shard.pool().take_returns(&mut loans);
        let any = !loans.is_empty();
        for loan in loans {
            engine.router.send(loan.home(), Msg::Return(loan));
        }
        any
    }
}

fn received(engine: &Rc<Engine>, from: ShardId, message: Msg) {
    let pool = engine.shard.pool();
    match message {
        Msg::Write { id, unit, extent, fua, loan } => {
            let payload = pool.adopt(loan);
            crate::write::start::write_unit(
                engine,
                unit,
                extent,
                payload,
                fua,
                PieceDone::Peer { to: from, id },
            );
        }
        Msg::Zero { id, unit, extent, unmap, fua } => {
            let done = PieceDone::Peer { to: from, id };
            crate::write::start::zero_unit(engine, unit, extent, unmap, fua, done);
        }
        Msg::Recover { id, offset, loan } => match pool.adopt_mut(loan) {
            Ok(buf) => {
                let done = PieceDone::Peer { to: from, id };
                crate::read::start::recover_here(engine, offset, buf, done, None);
            }
            Err(loan) => engine.router.send(
                from,
                Msg::Done {
                    id,
                    result: Err(IoError::new(braid_device::IoErrorKind::Invalid)),
                    loan: Some(loan),
                },
            ),
        },
        Msg::Window { id, window } => {
            let engine = Rc::clone(engine);
            engine.shard.clone().spawn(async move {
                let report = crate::jobs::window::carry_out(&engine, window).await;
                engine.router.send(from, Msg::WindowDone { id, report });
            });
        }
        Msg::Done { id, result, loan } => {
            let pending = engine.router.pending.borrow_mut().try_remove(id as usize);
            match (pending, loan) {
                (Some(Pending::Part { gather, index, onto }), Some(loan)) => {
                    match (pool.reclaim(loan), onto) {
                        (Ok(buf), Some(mut onto)) => {
                            onto.copy_from_slice(&buf);
                            gather.part_done(index, result, Some(onto));
                        }
                        (Ok(buf), None) => gather.part_done(index, result, Some(buf)),
                        (Err(loan), onto) => {
                            let buf = copied(engine, loan, onto);
                            gather.part_done(index, result, buf);
                        }
                    }
                }
                (Some(Pending::Part { gather, index, onto }), None) => {
                    gather.part_done(index, result, onto);
                }
                (_, Some(loan)) => settle(engine, loan),
                (_, None) => {}
            }
        }
        Msg::WindowDone { id, report } => {
            let pending = engine.router.pending.borrow_mut().try_remove(id as usize);
            if let Some(Pending::Window(promise)) = pending {
                promise.fulfil(report);
            }
        }
        Msg::Return(loan) => settle(engine, loan),
    }
}

/// Copies data that the other shard read into memory of its own, because a device that was given up still holds the
/// buffer that was lent for it.
fn copied(engine: &Engine, loan: Loan, onto: Option<BufMut>) -> Option<BufMut> {
    let theirs = match engine.shard.pool().adopt_mut(loan) {
        Ok(theirs) => theirs,
        Err(loan) => {
            settle(engine, loan);
            return onto;
        }
    };
    let mut own = onto.unwrap_or_else(|| engine.shard.pool().get(theirs.len()));
    let len = own.len().min(theirs.len());
    own[..len].copy_from_slice(&theirs[..len]);
    Some(own)
}

fn settle(engine: &Engine, loan: Loan) {
    if let Err(stray) = engine.shard.pool().settle(loan) {
        // Not ours: pass it on to its home rather than leak it.
        engine.router.send(stray.home(), Msg::Return(stray));
    }
}
