//! Requests as they come through the device: read on the shard, taken apart, and each started as a task.
//!
//! Each turn of the shard reads a bounded number of requests, so that those that were started reach the bricks first. The
//! requests in flight are bounded too: with too many bytes of writes in flight, nothing is read until some have ended.

use super::asked::{Asked, asked};
use super::ring::Uring;
use super::vigil::Vigil;
use crate::abi::request::{Header, WriteHead, opcode};
use crate::abi::{BEFORE_PAYLOAD, READ_MIN};
use crate::channel::{Channel, Received, body};
use crate::reply::{Reply, Worker};
use crate::serve::{self, Server};
use braid_filesystem::FileSystem;
use braid_shard::BufMut;
use braid_shard::ring::RingOp;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Payloads up to so many bytes are copied out of the buffer that requests are read into; for longer ones that costs
/// more than another buffer.
const COPIED_MAX: usize = 32 << 10;
/// Requests, and bytes of payloads, that one turn reads.
const REQUESTS_AT_ONCE: usize = 16;
const BYTES_AT_ONCE: usize = 1 << 20;

/// Reads requests until the mount ends.
pub(crate) struct Receiver<F> {
    server: Rc<Server<F>>,
    channel: Arc<Channel>,
    /// Waits for requests, and sends some replies.
    worker: Worker,
    /// The other way that requests come.
    uring: Option<Rc<Uring<F>>>,
    /// The longest payload.
    largest: usize,
    head: [u8; BEFORE_PAYLOAD],
    scratch: Vec<u8>,
    vigil: Vigil,
}

impl<F: FileSystem + 'static> Receiver<F> {
    pub(crate) fn new(
        server: Rc<Server<F>>,
        channel: Arc<Channel>,
        descriptor: Rc<OwnedFd>,
        largest: usize,
        uring: Option<Rc<Uring<F>>>,
    ) -> Receiver<F> {
        let largest = largest.max(READ_MIN);
        let worker = Worker { shard: server.shard.clone(), descriptor };
        Receiver {
            server,
            channel,
            worker,
            uring,
            largest,
            head: [0; BEFORE_PAYLOAD],
            scratch: Vec::new(),
            vigil: Vigil::default(),
        }
    }

    fn buffer(&self) -> BufMut {
        self.server.shard.pool().get(self.largest)
    }

    /// To the end.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) async fn run(mut self) -> std::io::Result<()> {
        let mut buffer = self.buffer();
        let (mut requests, mut bytes) = (0, 0);
        loop {
            let len = match self.channel.receive(&mut self.head, &mut buffer)? {
                Received::Request(len) => len,
                Received::End => return Ok(()),
                Received::Nothing => {
                    (requests, bytes) = (0, 0);
                    match self.stays_awake() {
                        true => self.server.shard.next_turn().await,
                        false => self.readable().await?,
                    }
                    continue;
                }
            };
            self.vigil.came();
            let Some(header) =
                Header::parse(&self.head).filter(|header| header.len as usize == len)
            else {
                return Err(std::io::Error::other("a request of another length than it says"));
            };
            match header.opcode {
                opcode::WRITE => {
                    bytes += len;
                    buffer = self.write(&header, buffer, len).await;
                }
                opcode::DESTROY => {
                    Reply::new(&self.channel, header.unique).done();
                    return Ok(());
                }
                _ => self.start(&header, &buffer, len),
            }
            requests += 1;
            if requests >= REQUESTS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                (requests, bytes) = (0, 0);
                self.server.shard.next_turn().await;
            }
        }
    }

    fn stays_awake(&mut self) -> bool {
        // Over io_uring nobody waits for what comes here.
        self.uring.is_none() && self.vigil.stays(self.server.shard.now(), self.server.is_idle())
    }

    async fn readable(&self) -> std::io::Result<()> {
        let wait = RingOp::Readable { fd: Rc::clone(&self.worker.descriptor) };
        match self.server.shard.perform(wait).await {
            Some((result, _)) if result >= 0 => Ok(()),
            Some((error, _)) => Err(std::io::Error::from_raw_os_error(-error)),
            None => Err(std::io::Error::other("the shard cannot wait for requests")),
        }
    }

    fn reply(&self, header: &Header, ends_a_users_call: bool) -> Reply {
        match ends_a_users_call {
            true => Reply::by_worker(&self.worker, header.unique),
            false => Reply::new(&self.channel, header.unique),
        }
    }

    fn start(&mut self, header: &Header, rest: &[u8], len: usize) {
        let body = body(&self.head, rest, len, &mut self.scratch);
        match asked(&self.server, header, body) {
            Asked::Work(work) => {
                let reply = self.reply(header, work.ends_a_users_call());
                serve::begin(&self.server, work, reply);
            }
            // Nobody waits for a reply about what was forgotten.
            Asked::Nothing(Ok(())) => {}
            Asked::Nothing(Err(error)) => Reply::new(&self.channel, header.unique).error(error),
        }
    }

    /// Starts a write whose payload is at the front of `buffer`; gives the buffer for what comes next.
    async fn write(&mut self, header: &Header, mut buffer: BufMut, len: usize) -> BufMut {
        let head = WriteHead::parse(&self.head[crate::abi::HEADER..]);
        let Some(head) = head.filter(|head| {
            head.size == len.saturating_sub(BEFORE_PAYLOAD) && head.size <= buffer.len()
        }) else {
            Reply::new(&self.channel, header.unique).error(Errno::INVAL);
            return buffer;
        };
        let (data, next) = if head.size <= COPIED_MAX {
            (self.server.shard.pool().copy_of(&buffer[..head.size]), buffer)
        } else {
            buffer.truncate(head.size);
            (buffer, self.buffer())
        };
        let share = self.server.writes.take(data.len() as u64).await;
        let work = head.of(header.ino, data, Some(share));
        let reply = self.reply(header, work.ends_a_users_call());
        serve::begin(&self.server, work, reply);
        next
    }
}
