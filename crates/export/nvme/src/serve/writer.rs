//! The writer of a connection: everything that is ready goes out in one vectored send.

use super::controller::Controller;
use super::queue::{Answer, Queue, Token};
use super::work::Work;
use crate::protocol::log::ErrorEntry;
use crate::protocol::{Command, Completion, Crc32c, Status};
use braid_export::memory::Way;
use braid_export::stream::{Outgoing, Stream};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Payload bytes of one send; with them, buffers come back while a long batch goes on.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A command whose completion is in a batch, and the payload of it.
struct Sent {
    token: Token,
    bytes: u64,
}

/// The controller of an I/O queue, and the queue's number; empty until it is connected.
pub(super) type Whose = RefCell<Option<(Arc<Controller>, u16)>>;

/// See the module's documentation.
pub(super) struct Writer {
    pub queue: Rc<Queue>,
    pub stream: Rc<Stream>,
    /// Of an I/O queue, with the queue's number.
    pub controller: Rc<Whose>,
}

impl Writer {
    /// Sends until the queue is closed and its last command has ended. When sending fails it shuts the socket down, so that
    /// the reader ends too, and drops what follows.
    pub async fn run(self) {
        let mut out = Outgoing::new();
        let mut sent = Vec::new();
        let queue = &self.queue;
        loop {
            let due = || !queue.ended.borrow().is_empty();
            let farewell = queue
                .to_write
                .wait_for(|| match queue.take_farewell() {
                    Some(words) => Some(Some(words)),
                    None => (due() || queue.is_finished()).then_some(None),
                })
                .await;
            if let Some(words) = farewell {
                out.heads().extend(words);
                self.send(&mut out).await;
                queue.dead.set(true);
                self.stream.shutdown();
                continue;
            }
            if !due() {
                // Finished: the reader may be waiting for that.
                return queue.released();
            }
            self.collect(&mut out, &mut sent);
            self.send(&mut out).await;
            for Sent { token, bytes } in sent.drain(..) {
                queue.sent(bytes);
                queue.release(token);
            }
            queue.released();
        }
    }

    async fn send(&self, out: &mut Outgoing) {
        let queue = &self.queue;
        if queue.dead.get() {
            out.clear();
        } else if !out.is_empty() {
            queue.account.begin(Way::Out, out.payload_bytes() as u64);
            if out.send(&self.stream).await.is_err() {
                queue.dead.set(true);
                out.clear();
                self.stream.shutdown();
            }
            queue.account.done(Way::Out);
        }
    }

    /// Encodes what is ready, as much as one send should carry.
    fn collect(&self, out: &mut Outgoing, sent: &mut Vec<Sent>) {
        let (queue, encoder) = (&self.queue, self.queue.encoder.get());
        while out.has_room(1) && out.payload_bytes() < BATCH_BYTES_MAX {
            let Some((token, answer)) = queue.ended.borrow_mut().pop_front() else { return };
            let Some((command, work, bytes)) = queue.command(token) else { continue };
            let complete = |status, result, out: &mut Outgoing| {
                let (head, command) = (queue.head(), command.id());
                encoder.completion(&Completion { result, head, command, status }, out.heads());
            };
            match answer {
                Answer::Ready => {
                    encoder.ready(command.id(), token.0, bytes, out.heads());
                    continue;
                }
                Answer::Admin(status, result, data) => {
                    if !data.is_empty() {
                        encoder.data(command.id(), data.len() as u32, false, out.heads());
                        let digest = encoder.data_digest().then(|| Crc32c::of(&data));
                        out.data(queue.shard.pool().copy_of(&data).freeze());
                        out.heads().extend(digest.map(u32::to_le_bytes).into_iter().flatten());
                    }
                    complete(status, result, out);
                    sent.push(Sent { token, bytes: 0 });
                }
                Answer::Device(result, bufs) => {
                    self.count(&command, work, bytes, result);
                    let moved: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
                    let mut status = result.err().unwrap_or(Status::SUCCESS);
                    let mut told = false;
                    if status.is_success() && matches!(work, Work::Read { .. }) {
                        if moved == u64::from(bytes) && out.has_room(bufs.len()) {
                            // Without flow control there is nothing to tell beside the success.
                            told = queue.is_without_flow();
                            encoder.data(command.id(), bytes, told, out.heads());
                            let mut digest = Crc32c::new();
                            for buf in bufs {
                                if encoder.data_digest() {
                                    digest.update(&buf);
                                }
                                out.data(buf.freeze());
                            }
                            if encoder.data_digest() {
                                out.heads().extend(digest.value().to_le_bytes());
                            }
                        } else {
                            // The device gave back another read than was asked for.
                            status = Status::INTERNAL;
                        }
                    }
                    if !told {
                        complete(status, 0, out);
                    }
                    sent.push(Sent { token, bytes: moved });
                }
            }
        }
    }

    fn count(&self, command: &Command, work: Work, bytes: u32, result: Result<(), Status>) {
        let moved = if result.is_ok() { u64::from(bytes) } else { 0 };
        let (read, written) = match work {
            Work::Read { .. } => (moved, 0),
            Work::Write { .. } => (0, moved),
            _ => (0, 0),
        };
        self.queue.figures.borrow().ended(read, written, result.is_err());
        if let (Err(status), Some((controller, queue))) = (result, &*self.controller.borrow()) {
            controller.failed(ErrorEntry {
                count: 0,
                queue: *queue,
                command: command.id(),
                status: status.0,
                block: command.block(),
                namespace: command.namespace(),
            });
        }
    }
}
