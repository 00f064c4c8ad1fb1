//! A [`Mirror`] on a shard, used from the thread of the store, which waits; the shard does not.
//!
//! The mirror lives where the devices of its regions are open and is used there only. So every request is a message to that
//! shard and an answer. A commit is one of each, however many blocks it has, because little else makes up its cost beside
//! the flush.

use crate::ahead::Coming;
use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Request};
use braid_mirror::Mirror;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use slab::Slab;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver};

/// The most bytes of one request to the mirror.
const REQUEST_MAX: usize = 1 << 20;

/// The most requests to the mirror that are in flight at a time.
const TOGETHER_MAX: usize = 64;

/// Bytes to write: their offset, and whole blocks.
pub(crate) type Write = (u64, Vec<u8>);

/// Mirrors of this shard that stores use: they stay here, the stores' threads know their numbers.
#[derive(Default)]
struct Known {
    mirrors: RefCell<Slab<Rc<Mirror>>>,
}

/// The way to a mirror, to be sent to another thread. The mirror stays in use until this is dropped.
pub(crate) struct Route {
    shard: Remote,
    number: usize,
}

impl Route {
    /// To a mirror whose devices are open on `shard`.
    pub(crate) fn new(shard: &Shard, mirror: Rc<Mirror>) -> Route {
        let number = shard.local::<Known>().mirrors.borrow_mut().insert(mirror);
        Route { shard: shard.remote(), number }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        let number = self.number;
        self.shard.run(move |shard| {
            let known = shard.local::<Known>();
            let mirror = known.mirrors.borrow_mut().try_remove(number);
            drop(mirror);
        });
    }
}

/// See the module's documentation.
pub(crate) enum Handle {
    /// On another thread's shard.
    Far(Route),
    /// On a shard of this thread, which runs while this waits: a test is a function of its seed so.
    #[cfg(test)]
    Near(Shard, Rc<Mirror>),
}

impl Handle {
    /// Runs `work` with the mirror on its shard. The result comes through the channel; none, when the shard has ended.
    fn begin<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Shard, Rc<Mirror>) -> F + Send + 'static,
    ) -> Receiver<Result<T, IoError>>
    where
        F: Future<Output = Result<T, IoError>> + 'static,
    {
        let gone = IoError::new(IoErrorKind::Gone);
        let (send, receive) = mpsc::sync_channel(1);
        match self {
            Handle::Far(Route { shard, number }) => {
                let number = *number;
                // A shard that has ended drops the job, and with it the sender.
                shard.run(move |shard| {
                    let mirror = shard.local::<Known>().mirrors.borrow().get(number).cloned();
                    match mirror {
                        Some(mirror) => {
                            let work = work(shard.clone(), mirror);
                            shard.spawn(async move {
                                let _ = send.send(work.await);
                            });
                        }
                        None => {
                            let _ = send.send(Err(gone));
                        }
                    }
                });
            }
            #[cfg(test)]
            Handle::Near(shard, mirror) => {
                let work = work(shard.clone(), Rc::clone(mirror));
                let _ = send.send(shard.block_on(work));
            }
        }
        receive
    }

    /// The same, and waits for the result.
    fn ask<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Shard, Rc<Mirror>) -> F + Send + 'static,
    ) -> Result<T, IoError>
    where
        F: Future<Output = Result<T, IoError>> + 'static,
    {
        self.begin(work).recv().unwrap_or(Err(IoError::new(IoErrorKind::Gone)))
    }

    /// The same for work that neither waits nor fails.
    fn tell<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mirror) -> T + Send + 'static,
    ) -> Result<T, IoError> {
        self.ask(move |_, mirror| {
            let done = work(&mirror);
            async move { Ok(done) }
        })
    }

    /// Bytes of the mirror as a device.
    pub(crate) fn size(&self) -> Result<u64, IoError> {
        self.tell(|mirror| mirror.info().size)
    }

    /// Bytes of a region that holds it, and true when it was just made.
    pub(crate) fn region(&self) -> Result<(u64, bool), IoError> {
        self.tell(|mirror| (mirror.region_size(), mirror.is_new()))
    }

    /// Uses what the mirror has [grown](Mirror::take_growth) by. False: nothing.
    pub(crate) fn take_growth(&self) -> Result<bool, IoError> {
        self.tell(Mirror::take_growth)
    }

    /// See [`Mirror::must_verify`].
    pub(crate) fn must_verify(&self) -> Result<bool, IoError> {
        self.tell(Mirror::must_verify)
    }

    /// See [`Mirror::begin_verification`].
    pub(crate) fn begin_verification(&self) -> Result<(), IoError> {
        self.tell(Mirror::begin_verification)
    }

    /// See [`Mirror::end_verification`].
    pub(crate) fn end_verification(&self) -> Result<bool, IoError> {
        self.tell(Mirror::end_verification)
    }

    /// See [`Mirror::adopt`].
    pub(crate) fn adopt(&self) -> Result<(), IoError> {
        self.ask(|_, mirror| async move { mirror.adopt().await })
    }

    /// See [`Mirror::note_verified`].
    pub(crate) fn note_verified(&self) -> Result<(), IoError> {
        self.ask(|_, mirror| async move { mirror.note_verified().await })
    }

    /// See [`Mirror::root`].
    pub(crate) fn root(&self) -> Result<Vec<u8>, IoError> {
        self.ask(|_, mirror| async move { mirror.root().await })
    }

    /// Fills `out`, whole blocks, from byte `offset` of the device on.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let len = out.len();
        let bytes = self.ask(move |shard, mirror| read_all(shard, mirror, offset, len))?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    /// Begins to read what will probably be asked for: see [`Mirror::read_ahead`].
    pub(crate) fn read_ahead(&self, offset: u64, len: usize) -> Coming {
        self.begin(move |_, mirror| async move { mirror.read_ahead(offset, len).await })
    }

    /// Writes, and does not flush.
    pub(crate) fn write(&self, writes: Vec<Write>) -> Result<(), IoError> {
        self.ask(|shard, mirror| write_all(shard, mirror, writes))
    }

    /// See [`Mirror::commit`].
    pub(crate) fn commit(&self, writes: Vec<Write>, root: Option<Vec<u8>>) -> Result<(), IoError> {
        self.ask(|shard, mirror| async move {
            let copy = |(offset, data): &Write| {
                let parts = (*offset..).step_by(REQUEST_MAX).zip(data.chunks(REQUEST_MAX));
                parts.map(|(at, part)| (at, shard.pool().copy_of(part).freeze())).collect()
            };
            let pieces: Vec<Vec<_>> = writes.iter().map(copy).collect();
            drop(writes);
            let pieces = pieces.into_iter().flatten().collect();
            mirror.commit(pieces, root.as_deref()).await
        })
    }

    /// Makes durable what was written.
    pub(crate) fn flush(&self) -> Result<(), IoError> {
        self.ask(|shard, mirror| async move {
            IoSets::new(&shard).one(&*mirror, Request::flush()).await.result
        })
    }
}

async fn read_all(
    shard: Shard,
    mirror: Rc<Mirror>,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, IoError> {
    let sets = IoSets::new(&shard);
    let mut bytes = Vec::with_capacity(len);
    for at in (0..len).step_by(REQUEST_MAX) {
        let piece = (len - at).min(REQUEST_MAX);
        let request = Request::read(offset + at as u64, shard.pool().get(piece));
        let outcome = sets.one(&*mirror, request).await;
        outcome.result?;
        match outcome.op {
            Op::Read(bufs) => bufs.iter().for_each(|buf| bytes.extend_from_slice(buf)),
            _ => return Err(IoError::new(IoErrorKind::Gone)),
        }
    }
    Ok(bytes)
}

async fn write_all(shard: Shard, mirror: Rc<Mirror>, writes: Vec<Write>) -> Result<(), IoError> {
    let sets = IoSets::new(&shard);
    let parts: Vec<(u64, &[u8])> = writes
        .iter()
        .flat_map(|(offset, data)| (*offset..).step_by(REQUEST_MAX).zip(data.chunks(REQUEST_MAX)))
        .collect();
    for together in parts.chunks(TOGETHER_MAX) {
        let mut set = sets.start();
        for (offset, data) in together {
            let buf = shard.pool().copy_of(data).freeze();
            set.submit(0, &*mirror, Request::write(*offset, buf, false));
        }
        for (_, outcome) in set.finish().await {
            outcome.result?;
        }
    }
    Ok(())
}
