//! The home shard of a mount: what comes from its fronts, and when they are called.

use super::message::{Msg, Shared};
use crate::channel::Channel;
use crate::receive::{Asked, Taker, asked};
use crate::reply::{Elsewhere, Reply, Way, Worker};
use crate::serve::{self, Server};
use crate::work::Held;
use braid_filesystem::FileSystem;
use braid_shard::mailbox::{Attached, MeshEnd, Outboxes};
use braid_shard::{Buf, BufMut, IdleHook, Shard, ShardId};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The way to the fronts of one mount.
struct Link {
    shard: Shard,
    out: Rc<Outboxes<Msg>>,
    /// Requests of fronts' entries that wait for the kernel.
    parked: Cell<usize>,
}

/// Requests of fronts' entries that may wait for the kernel: the shortest queue has more entries.
const PARKED_MAX: usize = 16;

/// The links of a shard, with what keeps them.
#[derive(Default)]
struct Links(RefCell<Slab<Kept>>);

struct Kept {
    link: Rc<Link>,
    hook: Rc<dyn IdleHook>,
    _attached: Attached,
}

/// Sends loans home whose last borrower is gone.
struct ReturnLoans(Weak<Link>);

/// Tells a front that its write has ended, when it is dropped.
struct EndOfWrite {
    link: Weak<Link>,
    to: ShardId,
    id: usize,
}

/// A reply into an entry of a front's io_uring.
struct OtherEntry {
    link: Rc<Link>,
    to: ShardId,
    id: usize,
    room: Cell<Option<BufMut>>,
}

impl OtherEntry {
    fn new(link: &Rc<Link>, to: ShardId, id: usize, room: Option<BufMut>) -> OtherEntry {
        OtherEntry { link: Rc::clone(link), to, id, room: Cell::new(room) }
    }
}

impl Elsewhere for OtherEntry {
    fn room(&self) -> Option<BufMut> {
        self.room.take()
    }

    fn park(&self) -> bool {
        let parked = self.link.parked.get();
        if parked < PARKED_MAX {
            self.link.parked.set(parked + 1);
        }
        parked < PARKED_MAX
    }

    fn unpark(&self) {
        self.link.parked.set(self.link.parked.get().saturating_sub(1));
    }

    fn send(self: Box<Self>, error: i32, body: &[u8]) {
        drop(self.room.take());
        // The entry's memory is free before the answer comes to it.
        self.link.return_loans();
        self.link.out.send(self.to, Msg::Answer { id: self.id, error, body: body.into() });
    }

    fn content(self: Box<Self>, content: Buf) {
        // It is all of the room, or is copied.
        match content.try_into_mut().map(BufMut::into_loan) {
            Ok(Ok(loan)) if loan.home() == self.to => {
                self.link.out.send(self.to, Msg::Content { id: self.id, loan });
            }
            Ok(Ok(loan)) => {
                let body = self.link.shard.pool().reclaim(loan);
                let bytes = body.map(|body| body.to_vec()).unwrap_or_default();
                self.send(0, &bytes);
            }
            Ok(Err(content)) => {
                let bytes = content.to_vec();
                drop(content);
                self.send(0, &bytes);
            }
            Err(content) => {
                let bytes = content.to_vec();
                drop(content);
                self.send(0, &bytes);
            }
        }
    }
}

impl Link {
    fn return_loans(&self) -> bool {
        let mut loans = Vec::new();
        self.shard.pool().take_returns(&mut loans);
        let any = !loans.is_empty();
        for loan in loans {
            self.out.send(loan.home(), Msg::Return(loan));
        }
        any
    }
}

impl IdleHook for ReturnLoans {
    fn on_idle(&self) -> bool {
        self.0.upgrade().is_some_and(|link| link.return_loans())
    }
}

impl Drop for EndOfWrite {
    fn drop(&mut self) {
        let Some(link) = self.link.upgrade() else { return };
        // The memory is there before the word that it is free.
        link.return_loans();
        link.out.send(self.to, Msg::Ended { id: self.id });
    }
}

/// Joins mount `key` of this shard with its fronts, whose devices are in `devices`; gives the number of the link.
pub(crate) fn attach<F: FileSystem + 'static>(
    shard: &Shard,
    key: usize,
    end: MeshEnd<Msg>,
    devices: BTreeMap<ShardId, (Arc<Channel>, OwnedFd)>,
    shared: &Arc<Shared>,
    share_from: usize,
) -> usize {
    let way = |(channel, descriptor): (Arc<Channel>, OwnedFd)| Way {
        channel,
        worker: Worker { shard: shard.clone(), descriptor: Rc::new(descriptor) },
    };
    let ways: BTreeMap<ShardId, Way> =
        devices.into_iter().map(|(id, device)| (id, way(device))).collect();
    let fronts: Vec<ShardId> = ways.keys().copied().collect();
    let (on, known) = (shard.clone(), Rc::new(RefCell::new(Weak::<Link>::new())));
    let link_of = Rc::clone(&known);
    let (out, attached) = end.attach(shard, move |from, message| {
        if let (Some(way), Some(link)) = (ways.get(&from), link_of.borrow().upgrade()) {
            hear::<F>(&on, key, &link, (from, way), message);
        }
    });
    let link = Rc::new(Link { shard: shard.clone(), out, parked: Cell::new(0) });
    *known.borrow_mut() = Rc::downgrade(&link);
    let hook: Rc<dyn IdleHook> = Rc::new(ReturnLoans(Rc::downgrade(&link)));
    shard.on_idle(Rc::clone(&hook));
    if let Some(server) = serve::find::<F>(shard, key) {
        let (caller, shared) = (Rc::downgrade(&link), Arc::clone(shared));
        server.depth.tell_to(move |depth| {
            shared.depth.store(depth, Ordering::Relaxed);
            if depth < share_from {
                return;
            }
            for front in &fronts {
                let Some(called) = shared.called.get(usize::from(*front)) else { continue };
                if !called.load(Ordering::Relaxed)
                    && !called.swap(true, Ordering::SeqCst)
                    && let Some(link) = caller.upgrade()
                {
                    link.out.send(*front, Msg::Called);
                }
            }
        });
    }
    shard.local::<Links>().0.borrow_mut().insert(Kept { link, hook, _attached: attached })
}

/// Nothing is heard from the fronts any more.
pub(crate) fn detach(shard: &Shard, link: usize) {
    let removed = shard.local::<Links>().0.borrow_mut().try_remove(link);
    if let Some(kept) = removed {
        kept.link.return_loans();
        shard.remove_idle_hook(&kept.hook);
    }
}

fn hear<F: FileSystem + 'static>(
    shard: &Shard,
    key: usize,
    link: &Rc<Link>,
    (from, way): (ShardId, &Way),
    message: Msg,
) {
    // After the end nobody waits for an answer.
    let server: Option<Rc<Server<F>>> = serve::find::<F>(shard, key);
    match message {
        Msg::Request { header, body } => {
            if let Some(server) = server {
                server.take(&header, &body, way);
            }
        }
        Msg::Write { header, head, id, loan } => {
            let told = EndOfWrite { link: Rc::downgrade(link), to: from, id };
            // Payloads are lent to be written to.
            let (Ok(data), Some(server)) = (shard.pool().adopt_mut(loan), server) else { return };
            let work = head.of(header.ino, data, Some(Held::Sent(Box::new(told))));
            let reply = way.reply(header.unique, work.ends_a_users_call());
            serve::begin(&server, work, reply);
        }
        Msg::Ask { ino, offset } => {
            let Some(server) = server else { return };
            let link = Rc::clone(link);
            shard.spawn(async move {
                let lease = server.lease(ino, offset).await;
                link.out.send(from, Msg::Leased { ino, lease });
            });
        }
        Msg::Return(loan) => {
            if let Err(stray) = shard.pool().release(loan) {
                link.out.send(stray.home(), Msg::Return(stray));
            }
        }
        Msg::RingRequest { header, body, id, room } => {
            let room = room.and_then(|loan| shard.pool().adopt_mut(loan).ok());
            let reply = Reply::elsewhere(Box::new(OtherEntry::new(link, from, id, room)));
            // Without a server it is dropped, and the front hears that.
            let Some(server) = server else { return };
            match asked(&server, &header, &body) {
                Asked::Work(work) => serve::begin(&server, work, reply),
                Asked::Nothing(Ok(())) => reply.done(),
                Asked::Nothing(Err(error)) => reply.error(error),
            }
        }
        Msg::RingWrite { header, head, id, loan } => {
            let reply = Reply::elsewhere(Box::new(OtherEntry::new(link, from, id, None)));
            let (Ok(data), Some(server)) = (shard.pool().adopt_mut(loan), server) else { return };
            serve::begin(&server, head.of(header.ino, data, None), reply);
        }
        // For fronts.
        Msg::Answer { .. }
        | Msg::Content { .. }
        | Msg::Called
        | Msg::Leased { .. }
        | Msg::Ended { .. } => {}
    }
}
