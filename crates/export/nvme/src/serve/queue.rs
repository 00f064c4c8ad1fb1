//! The commands of one connection, from the capsule until their completion has been sent.
//!
//! Owns the bound on how many a host may have outstanding, what each holds in memory, and the outcomes that wait for the
//! writer. Does not know where commands come from, and no opcode.
//! Invariant: a command holds its slot until its completion has left or the connection is dead, so memory is bounded even if
//! the host never reads.

use super::work::{Work, outcome as outcome_of};
use crate::protocol::{Command, Decoder, Encoder, FatalError, Status, Violation};
use braid_device::{BufMuts, Completion, IoError, Outcome, Sink};
use braid_export::memory::{Account, Way};
use braid_export::{Figures, Hold};
use braid_shard::sync::Notify;
use braid_shard::{BufMut, Shard};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Payload bytes of finished reads above which no further command is started until they have been sent: what was read
/// last should still be in the cache when it goes out.
const UNSENT_BYTES_MAX: u64 = 512 << 10;

/// Names a command: the tag under which its data comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub u16);

/// The stage that a command is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// For memory, or for the end of a hold.
    Waiting,
    /// For its data.
    Receiving,
    /// For the device.
    Busy,
    /// For the writer.
    Ended,
    /// For an event.
    Parked,
}

struct Slot {
    command: Command,
    work: Work,
    /// Bytes of its data, in either direction.
    bytes: u32,
    phase: Phase,
    /// It counts as under way.
    started: bool,
    /// Its data, as far as it has come from the host.
    data: Option<BufMut>,
    got: u32,
    /// A digest of its data was wrong.
    damaged: bool,
    /// Bytes of the budget that it holds, and those for data that came with it.
    held: u64,
    held_in_capsule: u64,
    /// It holds the connection's own piece of memory.
    private: bool,
    /// Requests that devices have, and the first error.
    parts: u32,
    failed: Option<IoError>,
}

/// The end of a command.
#[derive(Debug)]
pub(super) enum Answer {
    /// None yet: the host is to send the data.
    Ready,
    /// The device is done; a read's data, if it gave any.
    Device(Result<(), Status>, BufMuts),
    /// An admin command.
    Admin(Status, u64, Vec<u8>),
}

/// The memory that data in a capsule comes to lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Budget,
    Private,
    Ended,
}

/// A piece of a command's data, while it is received.
pub(super) struct Part {
    token: Token,
    pub piece: BufMut,
    tail: BufMut,
}

/// See the module's documentation.
pub(super) struct Queue {
    pub shard: Shard,
    pub encoder: Cell<Encoder>,
    pub account: Rc<Account>,
    /// For data that comes with commands; the reader alone waits for it.
    in_capsules: Rc<Account>,
    pub figures: RefCell<Arc<Figures>>,
    /// Entries of the submission queue.
    size: Cell<u16>,
    head: Cell<u16>,
    /// The host does not want to know the head.
    without_flow: Cell<bool>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<Token>>,
    pending: RefCell<VecDeque<Token>>,
    pub(super) ended: RefCell<VecDeque<(Token, Answer)>>,
    used: Cell<usize>,
    in_flight: Cell<u64>,
    /// Bytes that hosts have been asked for and have not sent.
    expected: Cell<u64>,
    private_used: Cell<bool>,
    unsent: Cell<u64>,
    held: Cell<bool>,
    stopping: Cell<bool>,
    closing: Cell<bool>,
    /// Nothing can be sent any more.
    pub(super) dead: Cell<bool>,
    farewell: RefCell<Option<Vec<u8>>>,
    pub(super) to_write: Notify,
    to_start: Notify,
    room: Notify,
}

impl Queue {
    pub fn new(
        shard: &Shard,
        (account, in_capsules): (Rc<Account>, Rc<Account>),
        encoder: Encoder,
    ) -> Rc<Queue> {
        Rc::new(Queue {
            shard: shard.clone(),
            encoder: Cell::new(encoder),
            account,
            in_capsules,
            figures: RefCell::default(),
            // Until it is connected: one command.
            size: Cell::new(2),
            head: Cell::new(0),
            without_flow: Cell::new(false),
            slots: RefCell::default(),
            free: RefCell::default(),
            pending: RefCell::default(),
            ended: RefCell::default(),
            used: Cell::new(0),
            in_flight: Cell::new(0),
            expected: Cell::new(0),
            private_used: Cell::new(false),
            unsent: Cell::new(0),
            held: Cell::new(false),
            stopping: Cell::new(false),
            closing: Cell::new(false),
            dead: Cell::new(false),
            farewell: RefCell::default(),
            to_write: Notify::new(shard),
            to_start: Notify::new(shard),
            room: Notify::new(shard),
        })
    }

    /// Gives the queue `entries`; `without_flow`: completions do not tell the head.
    pub fn connect(&self, entries: u16, without_flow: bool) {
        self.size.set(entries.max(2));
        // The Connect command was its first.
        self.head.set(1);
        self.without_flow.set(without_flow);
    }

    /// The head, as completions tell it.
    pub fn head(&self) -> u16 {
        if self.without_flow.get() { 0xffff } else { self.head.get() }
    }

    pub fn is_without_flow(&self) -> bool {
        self.without_flow.get()
    }

    /// Takes a command.
    ///
    /// # Errors
    /// The host has more outstanding than its queue has entries.
    pub fn admit(&self, command: Command) -> Result<Token, Violation> {
        // A completion may have come to the host before it is known here that it has left.
        if self.used.get() > 2 * usize::from(self.size.get()) {
            let why = "more commands are outstanding than the queue has entries";
            return Err(Decoder::wrong_data(FatalError::LimitExceeded, 0, why));
        }
        self.head.set((self.head.get() + 1) % self.size.get());
        self.used.set(self.used.get() + 1);
        let slot = Slot {
            command,
            work: Work::Admin,
            bytes: 0,
            phase: Phase::Waiting,
            started: false,
            data: None,
            got: 0,
            damaged: false,
            held: 0,
            held_in_capsule: 0,
            private: false,
            parts: 0,
            failed: None,
        };
        let mut slots = self.slots.borrow_mut();
        Ok(match self.free.borrow_mut().pop() {
            Some(token) => {
                if let Some(place) = slots.get_mut(usize::from(token.0)) {
                    *place = slot;
                }
                token
            }
            None => {
                slots.push(slot);
                // At most some three hundred slots exist, so the index fits.
                Token(slots.len() as u16 - 1)
            }
        })
    }

    fn with<T>(&self, token: Token, act: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.slots.borrow_mut().get_mut(usize::from(token.0)).map(act)
    }

    /// The command, its work, and the bytes of its data.
    pub fn command(&self, token: Token) -> Option<(Command, Work, u32)> {
        self.with(token, |slot| (slot.command, slot.work, slot.bytes))
    }

    /// Waits for memory for `bytes` of data behind a command: of the budget, or the connection's own piece, which comes free
    /// when another of its commands has ended. False when the connection ends.
    pub async fn room_in_capsule(&self, token: Token, bytes: u32) -> bool {
        let wanted = Account::size_of(bytes);
        let own = || match self.closing.get() || self.stopping.get() {
            true => Some(Room::Ended),
            false => (!self.private_used.replace(true)).then_some(Room::Private),
        };
        let its_share = self.in_capsules.allows(wanted);
        let room = match its_share && self.in_capsules.try_take(wanted) {
            true => Room::Budget,
            false if !its_share => self.room.wait_for(own).await,
            false => {
                let (mut budget, mut own) =
                    (pin!(self.in_capsules.take(wanted)), pin!(self.room.wait_for(own)));
                poll_fn(|cx| match budget.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Room::Budget),
                    Poll::Pending => own.as_mut().poll(cx),
                })
                .await
            }
        };
        self.with(token, |slot| match room {
            Room::Budget => slot.held_in_capsule = wanted,
            Room::Private => slot.private = true,
            Room::Ended => {}
        });
        room != Room::Ended
    }

    /// So many bytes of data begin to come with a command.
    pub fn comes(&self, bytes: u32) {
        self.in_capsules.begin(Way::In, bytes.into());
    }

    /// Data that came with a command.
    pub fn came(&self, token: Token, data: BufMut, damaged: bool) {
        self.in_capsules.done(Way::In);
        self.with(token, |slot| {
            slot.got = data.len() as u32;
            (slot.data, slot.damaged) = (Some(data), damaged);
        });
    }

    /// Decides the work of a command, with `bytes` of data.
    pub fn plan(&self, token: Token, work: Work, bytes: u32) {
        self.with(token, |slot| (slot.work, slot.bytes) = (work, bytes));
    }

    /// Bytes of memory that a command needs in order to start.
    fn needs(&self, token: Token) -> u64 {
        let needs = |slot: &mut Slot| {
            let buffer = Account::size_of(slot.bytes);
            let there = slot.data.is_some();
            match slot.work {
                // A connection's own piece is taken again when this one has ended, so it may wait for nobody.
                _ if slot.private => 0,
                // The data of the disk and those of the host.
                Work::Compare { .. } if there => buffer,
                Work::Compare { .. } => 2 * buffer,
                _ if there => 0,
                _ => buffer,
            }
        };
        self.with(token, needs).unwrap_or(0)
    }

    /// True when the command may start now; its memory is taken then. Else it is started later: in order, but for those that
    /// need none. These wait for no other, since the reader may wait for them, and the others for what it would read.
    pub fn may_start(&self, token: Token) -> bool {
        let needs = self.needs(token);
        let now = match needs {
            0 => !self.held.get(),
            _ => self.pending.borrow().is_empty() && self.has_room(needs),
        };
        if now && self.account.try_take(needs) {
            self.with(token, |slot| slot.held += needs);
            return true;
        }
        self.pending.borrow_mut().push_back(token);
        self.to_start.notify_all();
        false
    }

    fn has_room(&self, bytes: u64) -> bool {
        let fits = self.account.allows(bytes) && self.unsent.get() <= UNSENT_BYTES_MAX;
        !self.held.get() && (fits || self.in_flight.get() == 0)
    }

    /// The next command that had to wait, with its memory; `None` when the connection ends.
    pub async fn next(&self) -> Option<Token> {
        loop {
            let (token, needs) = self
                .to_start
                .wait_for(|| {
                    if self.closing.get() || self.stopping.get() {
                        return Some(None);
                    }
                    let pending = self.pending.borrow();
                    let without = pending.iter().copied().find(|token| self.needs(*token) == 0);
                    if let Some(token) = without.filter(|_| !self.held.get()) {
                        return Some(Some((token, 0)));
                    }
                    let first = pending.front().copied()?;
                    let needs = self.needs(first);
                    self.has_room(needs).then_some(Some((first, needs)))
                })
                .await?;
            self.account.take(needs).await;
            // It may have been held, or have ended, while it waited for memory.
            if self.closing.get() || self.stopping.get() || self.held.get() {
                self.account.give(needs);
                continue;
            }
            self.pending.borrow_mut().retain(|waiting| *waiting != token);
            self.with(token, |slot| slot.held += needs);
            return Some(token);
        }
    }

    /// Notes that a command is under way.
    pub fn start(&self, token: Token) {
        if self.with(token, |slot| std::mem::replace(&mut slot.started, true)) == Some(false) {
            self.in_flight.set(self.in_flight.get() + 1);
        }
    }

    /// Data that has come whole.
    pub fn take_data(&self, token: Token) -> Option<(BufMut, bool)> {
        self.with(token, |slot| {
            let whole = slot.got == slot.bytes;
            slot.data.take_if(|_| whole).map(|data| (data, slot.damaged))
        })?
    }

    /// Gives the data back: it is needed when the device is done.
    pub fn keep_data(&self, token: Token, data: BufMut) {
        self.with(token, |slot| slot.data = Some(data));
    }

    /// Asks the host for the data of a command.
    pub fn ask_for_data(&self, token: Token) {
        let bytes = self.with(token, |slot| {
            slot.phase = Phase::Receiving;
            slot.data = Some(self.shard.pool().get(slot.bytes as usize));
            u64::from(slot.bytes)
        });
        self.expect(self.expected.get() + bytes.unwrap_or(0), true);
        self.ended.borrow_mut().push_back((token, Answer::Ready));
        self.to_write.notify_all();
    }

    /// The clock of a host that was asked for data runs anew with each command whose data has come.
    fn expect(&self, bytes: u64, only_begin: bool) {
        let before = self.expected.replace(bytes);
        match (bytes, before) {
            (0, _) => self.account.done(Way::In),
            (_, 0) => self.account.begin(Way::In, bytes),
            _ if !only_begin => self.account.begin(Way::In, bytes),
            _ => {}
        }
    }

    /// The memory for a piece of a command's data.
    ///
    /// # Errors
    /// Nobody has asked for it.
    pub fn part(
        &self,
        (command, tag): (u16, u16),
        offset: u32,
        length: u32,
    ) -> Result<Part, Violation> {
        let token = Token(tag);
        let found = self.with(token, |slot| {
            if slot.phase != Phase::Receiving || slot.command.id() != command {
                return Err((FatalError::InvalidHeader, 10, "data that nobody has asked for"));
            }
            let fits = offset == slot.got && length <= slot.bytes - slot.got;
            let Some(data) = slot.data.as_mut().filter(|_| fits) else {
                return Err((FatalError::OutOfRange, 12, "data outside of what was asked for"));
            };
            // Both ends are within the buffer: just checked.
            let mut piece = data.split_off(slot.got as usize);
            let tail = piece.split_off(length as usize);
            Ok(Part { token, piece, tail })
        });
        let unknown = (FatalError::InvalidHeader, 10, "data with a tag that nobody has given");
        let found = found.unwrap_or(Err(unknown));
        found.map_err(|(error, at, why)| Decoder::wrong_data(error, at, why))
    }

    /// Gives a piece back that has been filled. Gives the command when that was the last of its data.
    pub fn filled(&self, part: Part, damaged: bool) -> Option<Token> {
        let Part { token, mut piece, tail } = part;
        let length = piece.len() as u32;
        let whole = self.with(token, |slot| {
            // They were cut from one another.
            let joined = piece.rejoin(tail).is_ok()
                && slot.data.as_mut().is_some_and(|data| data.rejoin(piece).is_ok());
            slot.got += length;
            slot.damaged |= damaged || !joined;
            let whole = slot.got == slot.bytes;
            if whole {
                slot.phase = Phase::Busy;
            }
            whole.then_some(u64::from(slot.bytes))
        })?;
        self.expect(self.expected.get() - whole?, false);
        Some(token)
    }

    /// The obligation to complete `parts` requests of a command, one after the other.
    pub fn busy(&self, token: Token, parts: u32) {
        self.with(token, |slot| (slot.phase, slot.parts) = (Phase::Busy, parts));
    }

    /// One of them.
    pub fn completion(self: &Rc<Self>, token: Token) -> Completion {
        Completion::new(Rc::clone(self) as Rc<dyn Sink>, u64::from(token.0))
    }

    /// Ends a command.
    pub fn answer(&self, token: Token, answer: Answer) {
        let sent = match &answer {
            Answer::Device(Ok(()), bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            _ => 0,
        };
        self.with(token, |slot| slot.phase = Phase::Ended);
        self.unsent.set(self.unsent.get() + sent);
        self.ended.borrow_mut().push_back((token, answer));
        self.to_write.notify_all();
    }

    /// Notes that so many bytes of reads have left.
    pub fn sent(&self, bytes: u64) {
        self.unsent.set(self.unsent.get() - bytes);
    }

    /// Keeps a command until something happens.
    pub fn park(&self, token: Token) {
        self.with(token, |slot| slot.phase = Phase::Parked);
    }

    /// Releases a command's slot and memory.
    pub fn release(&self, token: Token) {
        let freed = self.with(token, |slot| {
            slot.phase = Phase::Free;
            slot.data = None;
            let private = std::mem::take(&mut slot.private);
            let held = (std::mem::take(&mut slot.held), std::mem::take(&mut slot.held_in_capsule));
            (held, private, std::mem::take(&mut slot.started))
        });
        let Some(((held, in_capsule), private, started)) = freed else { return };
        if held > 0 {
            self.account.give(held);
        }
        if in_capsule > 0 {
            self.in_capsules.give(in_capsule);
        }
        if private {
            self.private_used.set(false);
        }
        self.in_flight.set(self.in_flight.get() - u64::from(started));
        self.used.set(self.used.get() - 1);
        self.free.borrow_mut().push(token);
    }

    /// Lets go on whoever waits for what was released.
    pub fn released(&self) {
        self.room.notify_all();
        if !self.pending.borrow().is_empty() {
            self.to_start.notify_all();
        }
    }

    /// The last message of the connection.
    pub fn terminate(&self, message: Vec<u8>) {
        *self.farewell.borrow_mut() = Some(message);
        self.to_write.notify_all();
    }

    pub fn take_farewell(&self) -> Option<Vec<u8>> {
        self.farewell.borrow_mut().take()
    }

    /// No further command will come: those that wait for something else than the device are forgotten.
    pub fn close(&self) {
        self.closing.set(true);
        self.pending.borrow_mut().clear();
        let waiting =
            |slot: &Slot| matches!(slot.phase, Phase::Waiting | Phase::Receiving | Phase::Parked);
        let forgotten: Vec<Token> = {
            let slots = self.slots.borrow();
            let all = slots.iter().enumerate().filter(|(_, slot)| waiting(slot));
            all.map(|(nr, _)| Token(nr as u16)).collect()
        };
        // An R2T that has not left names a slot that is released here.
        self.ended.borrow_mut().retain(|(_, answer)| !matches!(answer, Answer::Ready));
        forgotten.into_iter().for_each(|token| self.release(token));
        self.account.done(Way::In);
        self.to_write.notify_all();
        self.to_start.notify_all();
        self.room.notify_all();
    }

    /// The writer has nothing more to do.
    pub fn is_finished(&self) -> bool {
        self.closing.get() && self.used.get() == 0 && self.farewell.borrow().is_none()
    }

    /// Waits for that.
    pub async fn finished(&self) {
        self.room.wait_for(|| self.is_finished().then_some(())).await;
    }
}

impl Hold for Queue {
    /// Counts commands whose completion has not left.
    fn hold(&self, held: bool) -> u64 {
        self.held.set(held);
        if !held {
            self.to_start.notify_all();
        }
        self.in_flight.get()
    }

    fn stop(&self) {
        self.stopping.set(true);
        self.to_start.notify_all();
        self.room.notify_all();
    }
}

impl Sink for Queue {
    fn complete(&self, token: u64, outcome: Outcome) {
        let Outcome { result, op } = outcome;
        let token = Token(token as u16);
        let last = self.with(token, |slot| {
            if let Err(error) = result {
                slot.failed.get_or_insert(error);
            }
            slot.parts = slot.parts.saturating_sub(1);
            (slot.parts == 0).then(|| (slot.work, slot.failed, slot.data.take()))
        });
        let Some(Some((work, failed, data))) = last else { return };
        let (result, bufs) = outcome_of(work, failed, op, data);
        self.answer(token, Answer::Device(result, bufs));
    }
}
