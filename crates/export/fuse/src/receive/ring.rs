//! Requests as they come over io_uring: taken from the entry that they are in, and each started as a task.

use super::asked::{Asked, asked};
use super::taking::Taking;
use super::vigil::Vigil;
use crate::abi::request::{Header, WriteHead, opcode};
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

/// Takes the requests of one mount that come over io_uring, on one shard.
pub(crate) trait RingTaker: Taking {
    /// Starts a request that is no write, which came in an entry, or gives its answer: nothing more, or an error. The entry's memory
    /// is free when this has returned.
    fn start(
        self: &Rc<Self>,
        header: &Header,
        body: &[u8],
        entries: &Rc<Entries>,
        nr: usize,
    ) -> Option<Result<(), Errno>>;

    /// Starts a write.
    fn write(self: &Rc<Self>, header: &Header, head: WriteHead, data: BufMut, reply: Reply);
}

impl<F: FileSystem + 'static> RingTaker for Server<F> {
    fn start(
        self: &Rc<Self>,
        header: &Header,
        body: &[u8],
        entries: &Rc<Entries>,
        nr: usize,
    ) -> Option<Result<(), Errno>> {
        match asked(self, header, body) {
            Asked::Work(work) => {
                serve::begin(self, work, Reply::into_entry(entries, nr));
                None
            }
            Asked::Nothing(answer) => Some(answer),
        }
    }

    fn write(self: &Rc<Self>, header: &Header, head: WriteHead, data: BufMut, reply: Reply) {
        serve::begin(self, head.of(header.ino, data, None), reply);
    }
}

/// Receives the requests of one mount as long as it lives.
pub(crate) struct Uring<T> {
    taker: Rc<T>,
    entries: Rc<Entries>,
    scratch: RefCell<Vec<u8>>,
    vigil: RefCell<Vigil>,
    /// Requests that have come.
    came: Cell<u64>,
    /// One has come, or the mount has ended.
    changed: Rc<Notify>,
}

impl<T: RingTaker> Uring<T> {
    /// Makes `entries` known to the kernel, which sends requests there when it knows all of them.
    pub fn start(taker: Rc<T>, entries: Rc<Entries>) -> Rc<Uring<T>> {
        let changed = Rc::new(Notify::new(taker.shard()));
        let uring = Rc::new(Uring {
            taker,
            entries,
            scratch: RefCell::default(),
            vigil: RefCell::default(),
            came: Cell::new(0),
            changed,
        });
        let sink: Weak<Uring<T>> = Rc::downgrade(&uring);
        uring.entries.register(Weak::clone(&sink) as _);
        uring.taker.shard().spawn(stay_awake(sink, Rc::clone(&uring.changed)));
        uring
    }

    fn arrived(&self, nr: usize, memory: BufMuts) {
        let Some((headers, payload)) = self.entries.arrived(nr, memory) else { return };
        match self.take(headers, payload, nr) {
            None => {}
            Some(Ok(())) => Reply::into_entry(&self.entries, nr).done(),
            Some(Err(error)) => Reply::into_entry(&self.entries, nr).error(error),
        }
    }

    /// Begins the request in entry `nr`, or gives its answer. A request may be answered before its start returns, and a reply
    /// needs the entry's memory, so that all of it but a write's data is let go of first.
    fn take(&self, headers: BufMut, mut payload: BufMut, nr: usize) -> Option<Result<(), Errno>> {
        let arrived = ring::parse(&headers).filter(|arrived| arrived.payload <= payload.len());
        let Some(Arrived { header, fields, payload: len }) = arrived else {
            return Some(Err(Errno::INVAL));
        };
        if header.opcode == opcode::WRITE {
            let head = WriteHead::parse(fields).filter(|head| head.size == len);
            let Some(head) = head else { return Some(Err(Errno::INVAL)) };
            payload.truncate(head.size);
            drop(headers);
            self.taker.write(&header, head, payload, Reply::into_entry(&self.entries, nr));
            return None;
        }
        let mut body = self.scratch.take();
        body.clear();
        body.extend_from_slice(fields);
        body.extend_from_slice(&payload[..len]);
        drop((headers, payload));
        let answer = self.taker.start(&header, &body, &self.entries, nr);
        self.scratch.replace(body);
        answer
    }
}

impl<T: RingTaker> RingSink for Uring<T> {
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

impl<T> Drop for Uring<T> {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

/// Keeps the shard awake for a moment after each request, as long as the mount lives.
async fn stay_awake<T: RingTaker>(uring: Weak<Uring<T>>, changed: Rc<Notify>) {
    let mut seen = 0;
    loop {
        let has_changed = || match uring.upgrade() {
            Some(uring) if uring.came.get() == seen => None,
            other => Some(other),
        };
        let Some(own) = changed.wait_for(has_changed).await else { return };
        seen = own.came.get();
        let shard = own.taker.shard().clone();
        drop(own);
        loop {
            // The requests that came in this turn are begun first.
            shard.next_turn().await;
            let Some(own) = uring.upgrade() else { return };
            let is_awake = own.vigil.borrow_mut().stays(shard.now(), own.taker.is_idle());
            if !is_awake {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::fields::Out;
    use crate::receive::taking::Taking;
    use braid_shard::Shard;
    use braid_shard::reactor::{Nanos, Reactor};

    /// Nothing happens here.
    struct Still;

    impl Reactor for Still {
        fn now(&self) -> Nanos {
            0
        }

        fn poll(&self) -> bool {
            false
        }

        fn park(&self, _: Option<Nanos>, _: &dyn Fn() -> bool) {}
    }

    /// Notes what it is given, and if it could be answered at once.
    struct Noting {
        shard: Shard,
        entries: Rc<Entries>,
        seen: RefCell<Vec<(u32, Vec<u8>, bool)>>,
    }

    impl Taking for Noting {
        fn shard(&self) -> &Shard {
            &self.shard
        }

        fn is_idle(&self) -> bool {
            true
        }
    }

    impl RingTaker for Noting {
        fn start(
            self: &Rc<Self>,
            header: &Header,
            body: &[u8],
            entries: &Rc<Entries>,
            nr: usize,
        ) -> Option<Result<(), Errno>> {
            let is_free = entries.is_free(nr);
            self.seen.borrow_mut().push((header.opcode, body.to_vec(), is_free));
            Some(Ok(()))
        }

        fn write(self: &Rc<Self>, header: &Header, _: WriteHead, data: BufMut, reply: Reply) {
            let bytes = data.to_vec();
            drop(data);
            let is_free = self.entries.is_free(0);
            self.seen.borrow_mut().push((header.opcode, bytes, is_free));
            reply.done();
        }
    }

    /// A request in the memory of an entry.
    fn request(entries: &Entries, opcode: u32, fields: &[u8], payload: &[u8]) -> BufMuts {
        let mut memory = entries.memory(0).expect("nobody has it");
        let len = (crate::abi::HEADER + fields.len() + payload.len()) as u32;
        let head = Out::new().u32(len).u32(opcode).u64(7).u64(1).u32(0).u32(0).u32(0).u32(0);
        memory[0][..head.bytes().len()].copy_from_slice(head.bytes());
        memory[0][128..128 + fields.len()].copy_from_slice(fields);
        let entry = Out::new().u64(0).u64(7).u32(payload.len() as u32).u32(0);
        memory[0][256..][..entry.bytes().len()].copy_from_slice(entry.bytes());
        memory[1][..payload.len()].copy_from_slice(payload);
        memory
    }

    #[test]
    fn a_request_can_be_answered_as_soon_as_it_begins() {
        let shard = Shard::with_reactor(0, Rc::new(Still));
        let fd = Rc::new(std::fs::File::open("/dev/null").expect("it is there").into());
        let entries = Entries::new(&shard, fd, 4096, 0, (0, 1)).expect("queues");
        let seen = RefCell::default();
        let taker = Rc::new(Noting { shard, entries: Rc::clone(&entries), seen });
        let uring = Uring::start(Rc::clone(&taker), Rc::clone(&entries));
        uring.arrived(0, request(&entries, opcode::LOOKUP, b"", b"name\0"));
        uring.arrived(0, request(&entries, opcode::GETXATTR, b"8 bytes.", b"security.x\0"));
        let write = Out::new().u64(1).u64(0).u32(4).u32(0).u64(0).u32(0).u32(0);
        uring.arrived(0, request(&entries, opcode::WRITE, write.bytes(), b"data"));
        let expected = [
            (opcode::LOOKUP, b"name\0".to_vec(), true),
            (opcode::GETXATTR, b"8 bytes.security.x\0".to_vec(), true),
            (opcode::WRITE, b"data".to_vec(), true),
        ];
        assert_eq!(*taker.seen.borrow(), expected);
    }
}
