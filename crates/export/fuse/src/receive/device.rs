//! Requests as they come through the device: read on the shard, taken apart, and each started as a task.
//!
//! Each turn of the shard reads a bounded number of requests, so that those that were started reach the bricks first. The
//! requests in flight are bounded too: with too many bytes of writes in flight, nothing is read until some have ended.

use super::crowd::Crowd;
use super::taker::Taker;
use super::vigil::Vigil;
use crate::abi::request::{Header, WriteHead, opcode};
use crate::abi::{BEFORE_PAYLOAD, READ_MIN};
use crate::channel::{Received, body};
use crate::reply::Way;
use braid_shard::BufMut;
use braid_shard::ring::RingOp;
use rustix::io::Errno;
use std::any::Any;
use std::rc::Rc;

/// Payloads up to so many bytes are copied out of the buffer that requests are read into; for longer ones that costs
/// more than another buffer.
const COPIED_MAX: usize = 32 << 10;
/// Requests, and bytes of payloads, that one turn reads.
const REQUESTS_AT_ONCE: usize = 16;
const BYTES_AT_ONCE: usize = 1 << 20;

/// Reads requests until the mount ends.
pub(crate) struct Receiver<T> {
    taker: Rc<T>,
    /// The device.
    way: Way,
    /// The other way that requests come, which lasts as long as this one.
    uring: Option<Rc<dyn Any>>,
    /// The longest payload.
    largest: usize,
    head: [u8; BEFORE_PAYLOAD],
    scratch: Vec<u8>,
    vigil: Vigil,
    crowd: Crowd,
}

impl<T: Taker> Receiver<T> {
    /// Reads from the device of `way`, payloads up to `largest` bytes.
    pub(crate) fn new(
        taker: Rc<T>,
        way: Way,
        largest: usize,
        uring: Option<Rc<dyn Any>>,
    ) -> Receiver<T> {
        Receiver {
            taker,
            way,
            uring,
            largest: largest.max(READ_MIN),
            head: [0; BEFORE_PAYLOAD],
            scratch: Vec::new(),
            vigil: Vigil::default(),
            crowd: Crowd::default(),
        }
    }

    fn buffer(&self) -> BufMut {
        self.taker.shard().pool().get(self.largest)
    }

    /// To the end.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) async fn run(mut self) -> std::io::Result<()> {
        let mut buffer = self.buffer();
        let (mut requests, mut bytes) = (0, 0);
        loop {
            let len = match self.way.channel.receive(&mut self.head, &mut buffer)? {
                Received::Request(len) => len,
                Received::End => return Ok(()),
                Received::Nothing => {
                    (requests, bytes) = (0, 0);
                    let stays = self.stays_awake();
                    self.crowd.was_empty(!stays);
                    self.taker.crowd(self.crowd.waiting());
                    if stays {
                        self.taker.shard().next_turn().await;
                    } else if !self.taker.until_wanted().await {
                        return Ok(());
                    } else {
                        self.readable().await?;
                    }
                    continue;
                }
            };
            self.vigil.came();
            self.crowd.came();
            self.taker.crowd(self.crowd.waiting());
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
                    self.way.reply(header.unique, false).done();
                    return Ok(());
                }
                _ => self.start(&header, &buffer, len),
            }
            requests += 1;
            if requests >= REQUESTS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                (requests, bytes) = (0, 0);
                self.taker.shard().next_turn().await;
            }
        }
    }

    fn stays_awake(&mut self) -> bool {
        // Over io_uring nobody waits for what comes here.
        self.uring.is_none() && self.vigil.stays(self.taker.shard().now(), self.taker.is_idle())
    }

    async fn readable(&self) -> std::io::Result<()> {
        let wait = RingOp::Readable { fd: Rc::clone(&self.way.worker.descriptor) };
        match self.taker.shard().perform(wait).await {
            Some((result, _)) if result >= 0 => Ok(()),
            Some((error, _)) => Err(std::io::Error::from_raw_os_error(-error)),
            None => Err(std::io::Error::other("the shard cannot wait for requests")),
        }
    }

    fn start(&mut self, header: &Header, rest: &[u8], len: usize) {
        let body = body(&self.head, rest, len, &mut self.scratch);
        self.taker.take(header, body, &self.way);
    }

    /// Starts a write whose payload is at the front of `buffer`; gives the buffer for what comes next.
    async fn write(&mut self, header: &Header, mut buffer: BufMut, len: usize) -> BufMut {
        let head = WriteHead::parse(&self.head[crate::abi::HEADER..]);
        let Some(head) = head.filter(|head| {
            head.size == len.saturating_sub(BEFORE_PAYLOAD) && head.size <= buffer.len()
        }) else {
            self.way.reply(header.unique, false).error(Errno::INVAL);
            return buffer;
        };
        let (data, next) = if head.size <= COPIED_MAX {
            (self.taker.shard().pool().copy_of(&buffer[..head.size]), buffer)
        } else {
            buffer.truncate(head.size);
            (buffer, self.buffer())
        };
        self.taker.take_write(header, head, data, &self.way).await;
        next
    }
}
