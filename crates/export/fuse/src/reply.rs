//! Replies to requests, on the way that the request came.
//!
//! Invariant: a request is answered once; one that is dropped is answered EIO.

use crate::abi::fields::Out;
use crate::channel::{Channel, reply_header};
use crate::errno;
use crate::uring::Entries;
use braid_shard::ring::RingOp;
use braid_shard::{Buf, BufMut, Shard};
use rustix::io::Errno;
use smallvec::smallvec;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// The kernel waits for it.
pub(crate) struct Reply(Option<To>);

/// Where it goes.
enum To {
    /// To the device, with the request's number.
    Device(Arc<Channel>, u64),
    /// The same, by a thread of the kernel's.
    Worker(Worker, u64),
    /// Into the entry of the io_uring that the request came in.
    Ring(Rc<Entries>, usize),
    /// Into one of another shard.
    Elsewhere(Box<dyn Elsewhere>),
}

/// A reply that another shard puts where it belongs.
pub(crate) trait Elsewhere {
    /// Memory from which [`content`](Elsewhere::content) gets there without a copy.
    fn room(&self) -> Option<BufMut>;
    /// See [`Reply::park`].
    fn park(&self) -> bool;
    /// See [`Reply::unpark`].
    fn unpark(&self);
    /// Sends it, with an error or bytes.
    fn send(self: Box<Self>, error: i32, body: &[u8]);
    /// Sends the content of a file.
    fn content(self: Box<Self>, content: Buf);
}

/// Sends replies to the device through the shard's io_uring, on threads of the kernel's: see
/// [`Work::ends_a_users_call`](crate::work::Work::ends_a_users_call).
#[derive(Clone)]
pub(crate) struct Worker {
    pub shard: Shard,
    /// The device.
    pub descriptor: Rc<OwnedFd>,
}

/// The device that requests were read from, and go back to.
#[derive(Clone)]
pub(crate) struct Way {
    pub channel: Arc<Channel>,
    pub worker: Worker,
}

impl Way {
    /// The reply to request number `unique`.
    pub fn reply(&self, unique: u64, ends_a_users_call: bool) -> Reply {
        match ends_a_users_call {
            true => Reply::by_worker(&self.worker, unique),
            false => Reply::new(&self.channel, unique),
        }
    }
}

impl Worker {
    fn send(self, unique: u64, error: i32, body: Option<Buf>) {
        let len = body.as_ref().map_or(0, |body| body.len());
        let header = reply_header(len, error, unique);
        let mut bufs = smallvec![self.shard.pool().copy_of(header.bytes()).freeze()];
        bufs.extend(body);
        let write = RingOp::WriteByWorker { fd: self.descriptor, bufs };
        let shard = self.shard.clone();
        self.shard.spawn(async move {
            match shard.perform(write).await {
                Some((refused, _)) if refused < 0 => {
                    tracing::debug!(unique, refused, "a reply was not taken");
                }
                _ => {}
            }
        });
    }
}

impl To {
    fn send(self, error: i32, body: &[u8]) {
        match self {
            To::Device(channel, unique) => {
                if let Err(refused) = channel.send(unique, error, &[body]) {
                    // ENOENT: nobody waits any more.
                    tracing::debug!(unique, %refused, "a reply was not taken");
                }
            }
            To::Worker(worker, unique) => {
                let body = (!body.is_empty()).then(|| worker.shard.pool().copy_of(body).freeze());
                worker.send(unique, error, body);
            }
            To::Ring(entries, entry) => entries.answer(entry, error, body),
            To::Elsewhere(other) => other.send(error, body),
        }
    }
}

impl Reply {
    /// To request number `unique`, which was read from the device.
    pub fn new(channel: &Arc<Channel>, unique: u64) -> Reply {
        Reply(Some(To::Device(Arc::clone(channel), unique)))
    }

    /// The same, sent by `worker`.
    pub fn by_worker(worker: &Worker, unique: u64) -> Reply {
        Reply(Some(To::Worker(worker.clone(), unique)))
    }

    /// To the request in an entry of the io_uring.
    pub fn into_entry(entries: &Rc<Entries>, entry: usize) -> Reply {
        Reply(Some(To::Ring(Rc::clone(entries), entry)))
    }

    /// To a request that another shard has got.
    pub fn elsewhere(other: Box<dyn Elsewhere>) -> Reply {
        Reply(Some(To::Elsewhere(other)))
    }

    /// Memory from which [`Reply::content`] reaches the kernel without a further copy.
    pub fn room(&self) -> Option<BufMut> {
        match &self.0 {
            Some(To::Ring(entries, entry)) => entries.room(*entry),
            Some(To::Elsewhere(other)) => other.room(),
            _ => None,
        }
    }

    /// It is to wait until the kernel has done something; false when too many do.
    pub fn park(&self) -> bool {
        match &self.0 {
            Some(To::Ring(entries, entry)) => entries.park(*entry),
            Some(To::Elsewhere(other)) => other.park(),
            _ => true,
        }
    }

    /// It waits no more.
    pub fn unpark(&self) {
        match &self.0 {
            Some(To::Ring(entries, entry)) => entries.unpark(*entry),
            Some(To::Elsewhere(other)) => other.unpark(),
            _ => {}
        }
    }

    /// Done, and nothing to say about it.
    pub fn done(self) {
        self.send(0, &[]);
    }

    /// With a body.
    pub fn with(self, body: &Out) {
        self.send(0, body.bytes());
    }

    /// With bytes as they are.
    pub fn data(self, bytes: &[u8]) {
        self.send(0, bytes);
    }

    /// With the content of a file, which may lie in the [room](Reply::room).
    pub fn content(mut self, content: Buf) {
        match self.0.take() {
            Some(To::Ring(entries, entry)) => entries.answer_with(entry, content),
            Some(To::Worker(worker, unique)) => worker.send(unique, 0, Some(content)),
            Some(To::Elsewhere(other)) => other.content(content),
            Some(to) => to.send(0, &content),
            None => {}
        }
    }

    /// With what another shard says: an error number, negative, or 0 and a body.
    pub fn with_answer(self, error: i32, body: &[u8]) {
        self.send(error, body);
    }

    /// Not done.
    pub fn error(self, error: Errno) {
        self.send(-error.raw_os_error(), &[]);
    }

    fn send(mut self, error: i32, body: &[u8]) {
        if let Some(to) = self.0.take() {
            to.send(error, body);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.send(-Errno::IO.raw_os_error(), &[]);
        }
    }
}

/// Answers with success, or an error of the file system.
pub(crate) fn answer(result: Result<(), braid_filesystem::Errno>, reply: Reply) {
    match result {
        Ok(()) => reply.done(),
        Err(error) => reply.error(errno::of(error)),
    }
}

/// An extended attribute, or the list of them: its length when room for 0 bytes is given, ERANGE when it does not
/// fit, else itself.
pub(crate) fn answer_sized(
    result: Result<Vec<u8>, braid_filesystem::Errno>,
    room: usize,
    reply: Reply,
) {
    match result {
        // At most 64 KiB each, so a length fits.
        Ok(bytes) if room == 0 => {
            reply.with(&crate::abi::reply::xattr_size(
                u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            ));
        }
        Ok(bytes) if bytes.len() > room => reply.error(Errno::RANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(errno::of(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::testing::{pair, read};

    #[test]
    fn a_request_is_answered_once_and_a_dropped_one_with_eio() {
        let (channel, kernel) = pair();
        Reply::new(&channel, 7).data(b"abc");
        let out = Out::new().u32(19).u32(0).u64(7);
        assert_eq!(read(&kernel), [out.bytes(), b"abc"].concat());
        drop(Reply::new(&channel, 8));
        assert_eq!(read(&kernel), Out::new().u32(16).u32((-5i32).cast_unsigned()).u64(8).bytes());
        Reply::new(&channel, 9).error(Errno::NOENT);
        assert_eq!(read(&kernel), Out::new().u32(16).u32((-2i32).cast_unsigned()).u64(9).bytes());
        Reply::new(&channel, 10).done();
        assert_eq!(read(&kernel).len(), 16);
    }
}
