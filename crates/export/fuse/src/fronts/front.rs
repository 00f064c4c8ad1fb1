//! A mount on a shard that is not its file system's.

use super::message::{self, Msg, Shared};
use crate::abi::request::{self, Header, WriteHead, opcode};
use crate::channel::Channel;
use crate::receive::{Receiver, RingTaker, Taker, Taking, Uring};
use crate::reply::{Reply, Way, Worker};
use crate::uring::Entries;
use crate::watchdog::Progress;
use crate::work::Work;
use braid_filesystem::{Ino, Leased, Leases};
use braid_shard::mailbox::{Attached, MeshEnd, Outboxes};
use braid_shard::sync::{Budget, Notify, Share};
use braid_shard::{Buf, BufMut, Shard, ShardId};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The parts of a front.
pub(crate) struct NewFront {
    /// The file system's shard.
    pub home: ShardId,
    /// The device, by a descriptor of this front's own.
    pub channel: Arc<Channel>,
    /// The same, to be waited on.
    pub descriptor: OwnedFd,
    /// The way to the home shard.
    pub end: MeshEnd<Msg>,
    pub shared: Arc<Shared>,
    /// Bytes of reads, and of writes, that may be under way.
    pub memory: u64,
    /// The longest payload.
    pub largest: usize,
    /// Requests under way on the home shard from which on this one takes part.
    pub share_from: usize,
    /// The part of the queues that it serves, and of how many, where requests come over io_uring.
    pub queues: Option<(u16, u16)>,
    /// The kernel collects writes.
    pub writeback: bool,
}

/// See the module's documentation.
pub(crate) struct Front {
    shard: Shard,
    home: ShardId,
    /// `None` when the mount has ended: its bricks are to be closed.
    leases: RefCell<Option<Rc<dyn Leases>>>,
    out: Rc<Outboxes<Msg>>,
    shared: Arc<Shared>,
    reads: Rc<Budget>,
    writes: Rc<Budget>,
    /// Writes that are at the home shard, with their shares of the budget.
    sent: RefCell<Slab<Share>>,
    /// Replies to what came over io_uring and is at the home shard.
    replies: RefCell<Slab<Reply>>,
    /// Files of which leases are asked for.
    asked: RefCell<HashSet<Ino>>,
    writeback: bool,
    share_from: usize,
    /// Reads under way here.
    under_way: Cell<usize>,
    begun: Cell<u64>,
    closing: Cell<bool>,
    /// It was called, something has ended, or it closes.
    changed: Notify,
}

/// The fronts of a shard.
#[derive(Default)]
struct Fronts(RefCell<Slab<Kept>>);

struct Kept {
    front: Rc<Front>,
    _attached: Attached,
    /// Its part of the io_uring's queues.
    _uring: Option<Rc<Uring<Front>>>,
}

/// Starts a front and gives its number on this shard.
pub(crate) fn start(shard: &Shard, leases: Rc<dyn Leases>, new: NewFront) -> usize {
    let fronts = shard.local::<Fronts>();
    let key = fronts.0.borrow().vacant_key();
    let on = shard.clone();
    let hears = move |_, message| {
        let front = on.local::<Fronts>().0.borrow().get(key).map(|kept| Rc::clone(&kept.front));
        match front {
            Some(front) => front.hear(message),
            None => drop_message(&on, message),
        }
    };
    let (out, attached) = new.end.attach(shard, hears);
    let front = Rc::new(Front {
        shard: shard.clone(),
        home: new.home,
        leases: RefCell::new(Some(leases)),
        out,
        shared: new.shared,
        reads: Budget::new(shard, new.memory),
        writes: Budget::new(shard, new.memory),
        sent: RefCell::default(),
        replies: RefCell::default(),
        asked: RefCell::default(),
        writeback: new.writeback,
        share_from: new.share_from,
        under_way: Cell::new(0),
        begun: Cell::new(0),
        closing: Cell::new(false),
        changed: Notify::new(shard),
    });
    let descriptor = Rc::new(new.descriptor);
    let uring = new.queues.and_then(|queues| {
        let (fd, largest) = (Rc::clone(&descriptor), new.largest);
        let entries = Entries::new(shard, fd, largest, new.memory as usize, queues)?;
        Some(Uring::start(Rc::clone(&front), entries))
    });
    let over_io_uring = uring.is_some();
    fronts.0.borrow_mut().insert(Kept {
        front: Rc::clone(&front),
        _attached: attached,
        _uring: uring,
    });
    if over_io_uring {
        // Requests that come through the device then need no reply, and are few.
        return key;
    }
    let way = Way { channel: new.channel, worker: Worker { shard: shard.clone(), descriptor } };
    let receiver = Receiver::new(front, way, new.largest, None);
    shard.spawn(async move {
        if let Err(error) = receiver.run().await {
            tracing::warn!("a further reader of /dev/fuse has ended: {error}");
        }
    });
    key
}

fn drop_message(shard: &Shard, message: Msg) {
    if let Msg::Return(loan) = message {
        // Another pool's loan is not for us to free.
        let _ = shard.pool().release(loan);
    }
}

/// The progress of a front; `None` when it has ended.
pub(crate) fn progress(shard: &Shard, key: usize) -> Option<Progress> {
    let fronts = shard.local::<Fronts>();
    let fronts = fronts.0.borrow();
    let front = &fronts.get(key)?.front;
    Some(Progress { under_way: front.under_way.get(), begun: front.begun.get() })
}

/// Ends a front of a mount whose kernel side is gone; `done` is called when nothing of it is under way any more, and the bricks
/// that it had are closed.
pub(crate) fn end(shard: &Shard, key: usize, done: impl FnOnce(()) + 'static) {
    let fronts = shard.local::<Fronts>();
    let Some(front) = fronts.0.borrow().get(key).map(|kept| Rc::clone(&kept.front)) else {
        return done(());
    };
    front.closing.set(true);
    front.changed.notify_all();
    let on = shard.clone();
    shard.spawn(async move {
        let is_idle = || {
            let at_home = front.sent.borrow().len() + front.replies.borrow().len();
            front.under_way.get() == 0 && at_home == 0
        };
        front.changed.wait_for(|| is_idle().then_some(())).await;
        let leases = front.leases.take();
        drop(leases);
        let removed = on.local::<Fronts>().0.borrow_mut().try_remove(key);
        drop((front, removed));
        done(());
    });
}

impl Front {
    fn hear(&self, message: Msg) {
        match message {
            Msg::Called => self.changed.notify_all(),
            Msg::Leased { ino, lease } => {
                self.asked.borrow_mut().remove(&ino);
                if let Some(leases) = self.leases() {
                    leases.keep(ino, lease);
                }
            }
            Msg::Ended { id } => {
                let share = self.sent.borrow_mut().try_remove(id);
                drop(share);
                self.ended();
            }
            Msg::Answer { id, error, body } => {
                if let Some(reply) = self.answered(id) {
                    reply.with_answer(error, &body);
                }
            }
            Msg::Content { id, loan } => {
                let reply = self.answered(id);
                match (reply, self.shard.pool().reclaim(loan)) {
                    (Some(reply), Ok(content)) => reply.content(content.freeze()),
                    // A reply that is dropped is an error.
                    (_, other) => drop(other),
                }
            }
            Msg::Return(loan) => {
                if let Err(stray) = self.shard.pool().release(loan) {
                    // Not ours: passed on to its home rather than leaked.
                    self.out.send(stray.home(), Msg::Return(stray));
                }
            }
            // For the home shard.
            Msg::Request { .. } | Msg::Write { .. } | Msg::Ask { .. } => {}
            Msg::RingRequest { .. } | Msg::RingWrite { .. } => {}
        }
    }

    fn answered(&self, id: usize) -> Option<Reply> {
        let reply = self.replies.borrow_mut().try_remove(id);
        self.ended();
        reply
    }

    fn leases(&self) -> Option<Rc<dyn Leases>> {
        self.leases.borrow().clone()
    }

    fn send(&self, message: Msg) {
        self.out.send(self.home, message);
    }

    fn pass_on(&self, header: &Header, body: &[u8]) {
        self.send(Msg::Request { header: *header, body: body.into() });
    }

    fn ask(&self, ino: Ino, offset: u64) {
        if self.asked.borrow_mut().insert(ino) {
            self.send(Msg::Ask { ino, offset });
        }
    }

    /// A read, and the leases that suffice for it; asks for one where that may help. `None`: it is no read.
    fn read_of(&self, header: &Header, body: &[u8]) -> Option<(Read, Option<Rc<dyn Leases>>)> {
        if header.opcode != opcode::READ {
            return None;
        }
        let Ok(Work::Read { ino, offset, len, direct }) = request::parse(header, body) else {
            return None;
        };
        let leases = self.leases();
        let leased = leases.as_ref().map_or(Leased::No, |leases| leases.suffice(ino, offset, len));
        if leased == Leased::Ask {
            self.ask(ino, offset);
        }
        let leases = leases.filter(|_| leased == Leased::Yes);
        Some((Read { ino, offset, len, direct }, leases))
    }

    /// Reads by leases; `None`: they turn out not to suffice.
    async fn read(
        &self,
        read: &Read,
        leases: Option<Rc<dyn Leases>>,
        room: Option<BufMut>,
    ) -> Option<Buf> {
        let data = leases?.read(read.ino, read.offset, read.len, room).await?;
        // The kernel may hold back what makes the file longer.
        let may_be_longer = read.direct && self.writeback && data.len() < read.len;
        (!may_be_longer).then_some(data)
    }

    fn read_begins(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.begun.set(self.begun.get() + 1);
    }

    fn read_ends(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.ended();
    }

    /// Something has ended here or at the home shard.
    fn ended(&self) {
        if self.closing.get() {
            self.changed.notify_all();
        }
    }

    fn called(&self) -> Option<&std::sync::atomic::AtomicBool> {
        self.shared.called.get(usize::from(self.shard.id()) % message::FRONTS_MAX)
    }
}

impl Taking for Front {
    fn shard(&self) -> &Shard {
        &self.shard
    }

    fn is_idle(&self) -> bool {
        self.under_way.get() == 0 && self.replies.borrow().is_empty()
    }
}

impl RingTaker for Front {
    fn start(
        self: &Rc<Self>,
        header: &Header,
        body: &[u8],
        entries: &Rc<Entries>,
        nr: usize,
    ) -> Option<Result<(), rustix::io::Errno>> {
        let reply = Reply::into_entry(entries, nr);
        let Some((read, leases)) = self.read_of(header, body) else {
            self.pass_entry_on(*header, body.into(), reply, None);
            return None;
        };
        let (own, header, body) = (Rc::clone(self), *header, Box::<[u8]>::from(body));
        self.read_begins();
        self.shard.spawn(async move {
            let room = leases.as_ref().and_then(|_| reply.room());
            match own.read(&read, leases, room).await {
                Some(data) => reply.content(data),
                None => {
                    let room = reply.room().map(|mut room| {
                        // Whole blocks around what is read.
                        let from = read.offset % ROOM_UNIT;
                        let end = from as usize + read.len;
                        room.truncate(end.next_multiple_of(ROOM_UNIT as usize));
                        room
                    });
                    own.pass_entry_on(header, body, reply, room);
                }
            }
            own.read_ends();
        });
        None
    }

    fn write(self: &Rc<Self>, header: &Header, head: WriteHead, data: BufMut, reply: Reply) {
        self.begun.set(self.begun.get() + 1);
        match data.into_loan() {
            Ok(loan) => {
                let id = self.replies.borrow_mut().insert(reply);
                self.send(Msg::RingWrite { header: *header, head, id, loan });
            }
            // The shard's own memory can be lent.
            Err(_) => reply.error(rustix::io::Errno::IO),
        }
    }
}

impl Front {
    fn pass_entry_on(&self, header: Header, body: Box<[u8]>, reply: Reply, room: Option<BufMut>) {
        let id = self.replies.borrow_mut().insert(reply);
        let room = room.and_then(|room| room.into_loan().ok());
        self.send(Msg::RingRequest { header, body, id, room });
    }
}

/// Reads are of whole blocks of so many bytes.
const ROOM_UNIT: u64 = 4096;

/// A read.
struct Read {
    ino: Ino,
    offset: u64,
    len: usize,
    direct: bool,
}

impl Taker for Front {
    fn take(self: &Rc<Self>, header: &Header, body: &[u8], way: &Way) {
        let Some((read, Some(leases))) = self.read_of(header, body) else {
            return self.pass_on(header, body);
        };
        let (own, way, header) = (Rc::clone(self), way.clone(), *header);
        let body: Box<[u8]> = body.into();
        self.read_begins();
        self.shard.spawn(async move {
            let share = own.reads.take(read.len as u64).await;
            match own.read(&read, Some(leases), None).await {
                Some(data) => way.reply(header.unique, read.direct).content(data),
                None => own.send(Msg::Request { header, body }),
            }
            drop(share);
            own.read_ends();
        });
    }

    async fn take_write(
        self: &Rc<Self>,
        header: &Header,
        head: WriteHead,
        data: BufMut,
        way: &Way,
    ) {
        let share = self.writes.take(data.len() as u64).await;
        match data.into_loan() {
            Ok(loan) => {
                let id = self.sent.borrow_mut().insert(share);
                self.send(Msg::Write { header: *header, head, id, loan });
            }
            // The shard's own memory can be lent.
            Err(_) => way.reply(header.unique, false).error(rustix::io::Errno::IO),
        }
    }

    async fn until_wanted(&self) -> bool {
        if self.closing.get() {
            return false;
        }
        if self.shared.depth.load(Ordering::Relaxed) >= self.share_from {
            return true;
        }
        let Some(called) = self.called() else { return false };
        // Whoever calls from now on sends a message.
        called.store(false, Ordering::SeqCst);
        let is_wanted = || {
            let wanted = self.closing.get() || called.load(Ordering::SeqCst);
            wanted.then_some(())
        };
        self.changed.wait_for(is_wanted).await;
        !self.closing.get()
    }
}
