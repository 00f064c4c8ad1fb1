//! One request, from the kernel's pages to the target and back.
//!
//! The payload of a write is copied out of the kernel's pages before anything is done with it: a program may change a page
//! while it is being written, and parity must be that of what is written.

use crate::abi::request::{Job, REQUEST_BYTES_MAX, Verb, bytes_at};
use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Outcome, Request};
use braid_shard::Shard;
use braid_shard::sync::{Budget, Share};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The target behind a queue, and what its requests are carried out with.
pub(crate) struct Backend {
    pub shard: Shard,
    /// The device's own file.
    pub file: Rc<OwnedFd>,
    /// Number of the queue.
    pub number: u16,
    pub device: Rc<dyn Device>,
    pub sets: IoSets,
    /// For payloads.
    pub budget: Rc<Budget>,
    pub read_only: bool,
}

/// Does it. Gives the answer for the driver, the bytes that were moved or a negative errno, and the bytes that were read and
/// written.
pub(crate) async fn execute(queue: &Backend, tag: u16, job: &Job) -> (i32, (u64, u64)) {
    let changes = !matches!(job.verb, Verb::Read | Verb::Flush);
    if changes && queue.read_only {
        return (failed(Errno::ROFS), (0, 0));
    }
    let done = match job.verb {
        Verb::Read => read(queue, tag, job).await,
        Verb::Write { fua } => write(queue, tag, job, fua).await,
        Verb::Flush => submit(queue, Request::flush()).await,
        Verb::Discard => match submit(queue, of(job, Op::Discard { len: job.len })).await {
            // It is a hint.
            Err(error) if error == Errno::OPNOTSUPP => Ok(()),
            done => done,
        },
        Verb::WriteZeroes { unmap, fua } => {
            submit(queue, of(job, Op::WriteZeroes { len: job.len, unmap, fua })).await
        }
        Verb::Unknown => Err(Errno::OPNOTSUPP),
    };
    match (done, job.verb) {
        (Err(error), _) => (failed(error), (0, 0)),
        // Reads and writes are at most 32 MiB.
        (Ok(()), Verb::Read) => (job.len as i32, (job.len, 0)),
        (Ok(()), Verb::Write { .. }) => (job.len as i32, (0, job.len)),
        (Ok(()), _) => (0, (0, 0)),
    }
}

fn failed(error: Errno) -> i32 {
    -error.raw_os_error()
}

fn of(job: &Job, op: Op) -> Request {
    Request { offset: job.offset, op }
}

/// Errors for which the kernel has a word that is of use to those above; everything else is an I/O error.
fn errno(error: IoError) -> Errno {
    match error.kind {
        IoErrorKind::NoSpace => Errno::NOSPC,
        IoErrorKind::Unsupported => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}

async fn submit(queue: &Backend, request: Request) -> Result<(), Errno> {
    outcome(queue, request).await.map(drop)
}

async fn outcome(queue: &Backend, request: Request) -> Result<Op, Errno> {
    request.check(queue.device.info()).map_err(errno)?;
    let Outcome { result, op } = queue.sets.one(&*queue.device, request).await;
    result.map(|()| op).map_err(errno)
}

/// Memory for a payload.
async fn room(queue: &Backend, job: &Job) -> Result<Share, Errno> {
    if !(1..=u64::from(REQUEST_BYTES_MAX)).contains(&job.len) {
        return Err(Errno::IO);
    }
    Ok(queue.budget.take(job.len.next_power_of_two().max(4096)).await)
}

async fn read(queue: &Backend, tag: u16, job: &Job) -> Result<(), Errno> {
    let _room = room(queue, job).await?;
    let buf = queue.shard.pool().get(job.len as usize);
    let Op::Read(bufs) = outcome(queue, Request::read(job.offset, buf)).await? else {
        return Err(Errno::IO);
    };
    let mut at = bytes_at(queue.number, tag);
    for buf in &bufs {
        put(queue, buf, at)?;
        at += buf.len() as u64;
    }
    Ok(())
}

async fn write(queue: &Backend, tag: u16, job: &Job, fua: bool) -> Result<(), Errno> {
    let _room = room(queue, job).await?;
    let mut buf = queue.shard.pool().get(job.len as usize);
    take(queue, &mut buf, bytes_at(queue.number, tag))?;
    submit(queue, Request::write(job.offset, buf.freeze(), fua)).await
}

/// Copies all of `bytes` to the request's pages. The call copies and waits for nothing.
fn put(queue: &Backend, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(&*queue.file, bytes, at) {
            Ok(done @ 1..) => {
                bytes = bytes.get(done..).unwrap_or_default();
                at += done as u64;
            }
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::IO),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `bytes` from the request's pages.
fn take(queue: &Backend, mut bytes: &mut [u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pread(&*queue.file, &mut *bytes, at) {
            Ok(done @ 1..) => {
                bytes = bytes.get_mut(done..).unwrap_or_default();
                at += done as u64;
            }
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::IO),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
