//! A device whose requests are carried out on another shard, by the device that is open there.
//!
//! Buffers stay on their shard: what is written is copied on the way there, what was read on the way back. It is for servers
//! that want one connection. Invariant: each request completes once; one whose shard or device is not there any more is gone.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, Outcome, Request,
};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use slab::Slab;

use super::life::Life;

/// See the module's documentation.
pub(super) struct Forward {
    info: DeviceInfo,
    life: Arc<Life>,
    shard: Shard,
    there: Remote,
    waiting: Rc<Waiting>,
}

/// The requests of a shard that are under way elsewhere, of all its devices.
#[derive(Default)]
struct Waiting(RefCell<Slab<(Completion, Op)>>);

/// A request without its buffers.
enum Work {
    /// The lengths of the buffers.
    Read(Vec<usize>),
    Write {
        bytes: Vec<u8>,
        fua: bool,
    },
    Flush,
    Discard(u64),
    WriteZeroes {
        len: u64,
        unmap: bool,
        fua: bool,
    },
}

/// The outcome, with what was read.
type Done = Result<Vec<u8>, IoError>;

impl Forward {
    pub(super) fn new(shard: &Shard, info: DeviceInfo, life: Arc<Life>, there: Remote) -> Forward {
        let waiting = shard.local::<Waiting>();
        Forward { info, life, shard: shard.clone(), there, waiting }
    }
}

impl Device for Forward {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let Request { offset, op } = request;
        let work = Work::of(&op);
        let key = self.waiting.0.borrow_mut().insert((done, op));
        let (life, back) = (Arc::clone(&self.life), self.shard.remote());
        let sent = self.there.run(move |shard| {
            let answer = move |done: Done| {
                // A shard that has ended has nobody who waits.
                back.run(move |shard| shard.local::<Waiting>().complete(key, done));
            };
            let Some(device) = life.device_in_use(shard) else {
                return answer(Err(IoError::new(IoErrorKind::Gone)));
            };
            let own = shard.clone();
            shard.spawn(async move {
                let request = Request { offset, op: work.into_op(&own) };
                answer(read(IoSets::new(&own).one(&*device, request).await));
            });
        });
        if !sent {
            self.waiting.complete(key, Err(IoError::new(IoErrorKind::Gone)));
        }
    }
}

impl Work {
    fn of(op: &Op) -> Work {
        match op {
            Op::Read(bufs) => Work::Read(bufs.iter().map(|buf| buf.len()).collect()),
            Op::Write { bufs, fua } => {
                let mut bytes = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
                bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
                Work::Write { bytes, fua: *fua }
            }
            Op::Flush => Work::Flush,
            Op::Discard { len } => Work::Discard(*len),
            Op::WriteZeroes { len, unmap, fua } => {
                Work::WriteZeroes { len: *len, unmap: *unmap, fua: *fua }
            }
        }
    }

    /// The same with buffers of `shard`.
    fn into_op(self, shard: &Shard) -> Op {
        match self {
            Work::Read(lengths) => {
                Op::Read(lengths.into_iter().map(|len| shard.pool().get(len)).collect())
            }
            Work::Write { bytes, fua } => {
                let buf = shard.pool().copy_of(&bytes).freeze();
                Op::Write { bufs: std::iter::once(buf).collect(), fua }
            }
            Work::Flush => Op::Flush,
            Work::Discard(len) => Op::Discard { len },
            Work::WriteZeroes { len, unmap, fua } => Op::WriteZeroes { len, unmap, fua },
        }
    }
}

fn read(outcome: Outcome) -> Done {
    outcome.result?;
    let mut bytes = Vec::new();
    if let Op::Read(bufs) = &outcome.op {
        bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
    }
    Ok(bytes)
}

impl Waiting {
    fn complete(&self, key: usize, done: Done) {
        // Taken out first: who is told may ask for more.
        let waiting = self.0.borrow_mut().try_remove(key);
        let Some((completion, mut op)) = waiting else { return };
        let result = done.and_then(|bytes| match &mut op {
            Op::Read(bufs) => {
                let mut rest = &bytes[..];
                for buf in bufs {
                    let Some((piece, after)) = rest.split_at_checked(buf.len()) else {
                        return Err(IoError::new(IoErrorKind::Medium));
                    };
                    buf.copy_from_slice(piece);
                    rest = after;
                }
                Ok(())
            }
            _ => Ok(()),
        });
        completion.finish(result, op);
    }
}
