//! Requests as they come over io_uring: taken from the entry that they are in, and each started as a task.

use super::asked::{self, Asked};
use super::vigil::Vigil;
use crate::abi::request::{WriteHead, opcode};
use crate::abi::ring::{self, Arrived};
use crate::reply::Reply;
use crate::serve::{self, Server};
use crate::uring::{Entries, unexpected};
use braid_filesystem::FileSystem;
use braid_shard::BufMut;
use braid_shard::ring::{BufMuts, RingOp, RingSink};
use braid_shard::sync::Notify;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Receives the requests of one mount as long as it lives.
pub(crate) struct Uring<F> {
    server: Rc<Server<F>>,
    entries: Rc<Entries>,
    scratch: RefCell<Vec<u8>>,
    vigil: RefCell<Vigil>,
    /// Requests that have come.
    came: Cell<u64>,
    /// One has come, or the mount has ended.
    changed: Rc<Notify>,
}

impl<F: FileSystem + 'static> Uring<F> {
    /// Makes `entries` known to the kernel, which sends requests there when it knows all of them.
    pub fn start(server: Rc<Server<F>>, entries: Rc<Entries>) -> Rc<Uring<F>> {
        let changed = Rc::new(Notify::new(&server.shard));
        let uring = Rc::new(Uring {
            server,
            entries,
            scratch: RefCell::default(),
            vigil: RefCell::default(),
            came: Cell::new(0),
            changed,
        });
        let sink: Weak<Uring<F>> = Rc::downgrade(&uring);
        uring.entries.register(Weak::clone(&sink) as _);
        uring.server.shard.spawn(stay_awake(sink, Rc::clone(&uring.changed)));
        uring
    }

    fn arrived(&self, nr: usize, memory: BufMuts) {
        let Some((headers, payload)) = self.entries.arrived(nr, memory) else { return };
        let asked = match ring::parse(&headers) {
            Some(arrived) if arrived.payload <= payload.len() => self.asked(&arrived, payload),
            _ => Asked::Nothing(Err(Errno::INVAL)),
        };
        // From here on all of the entry's memory but a write's data is there for the reply.
        drop(headers);
        let reply = Reply::into_entry(&self.entries, nr);
        match asked {
            Asked::Work(work) => serve::begin(&self.server, work, reply),
            Asked::Nothing(Ok(())) => reply.done(),
            Asked::Nothing(Err(error)) => reply.error(error),
        }
    }

    fn asked(&self, arrived: &Arrived<'_>, mut payload: BufMut) -> Asked {
        if arrived.header.opcode == opcode::WRITE {
            let head = WriteHead::parse(arrived.fields).filter(|head| head.size == arrived.payload);
            let Some(head) = head else { return Asked::Nothing(Err(Errno::INVAL)) };
            payload.truncate(head.size);
            return Asked::Work(head.of(arrived.header.ino, payload, None));
        }
        let mut scratch = self.scratch.borrow_mut();
        let body = if arrived.payload == 0 {
            arrived.fields
        } else if arrived.fields.is_empty() {
            &payload[..arrived.payload]
        } else {
            scratch.clear();
            scratch.extend_from_slice(arrived.fields);
            scratch.extend_from_slice(&payload[..arrived.payload]);
            &scratch
        };
        asked::asked(&self.server, &arrived.header, body)
    }
}

impl<F: FileSystem + 'static> RingSink for Uring<F> {
    fn ring_done(&self, token: u64, result: i32, op: RingOp) {
        let RingOp::Command(command) = op else { return };
        if let Some(error) = unexpected(result) {
            tracing::warn!(
                entry = token,
                "FUSE over io_uring: the kernel takes no more of this entry: {error}"
            );
        }
        if result >= 0 {
            self.vigil.borrow_mut().came();
            self.came.set(self.came.get() + 1);
            self.changed.notify_all();
            self.arrived(token as usize, command.into_memory());
        }
    }
}

impl<F> Drop for Uring<F> {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

/// Keeps the shard awake for a moment after each request, as long as the mount lives.
async fn stay_awake<F: FileSystem + 'static>(uring: Weak<Uring<F>>, changed: Rc<Notify>) {
    let mut seen = 0;
    loop {
        let has_changed = || match uring.upgrade() {
            Some(uring) if uring.came.get() == seen => None,
            other => Some(other),
        };
        let Some(own) = changed.wait_for(has_changed).await else { return };
        seen = own.came.get();
        let shard = own.server.shard.clone();
        drop(own);
        loop {
            // The requests that came in this turn are begun first.
            shard.next_turn().await;
            let Some(own) = uring.upgrade() else { return };
            let is_awake = own.vigil.borrow_mut().stays(shard.now(), own.server.is_idle());
            if !is_awake {
                break;
            }
        }
    }
}
