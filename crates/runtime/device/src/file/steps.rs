//! The sequence of system calls for one request: a short read or write is continued, zeroes are written if the
//! file system cannot zero a range, and a durable zeroing ends with a sync.

use super::closing;
use super::whole::Whole;
use crate::completion::Completion;
use crate::error::{IoError, IoErrorKind};
use crate::request::Op;
use braid_shard::ring::{BufMuts, Bufs, RingOp};
use braid_shard::{Buf, Pool};
use rustix::fs::FallocateFlags;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An interrupted call is repeated this many times before it counts as failed.
const TRIES_MAX: u32 = 64;
/// Bytes of the buffer of zeroes, and the number of times that one write may contain it.
const ZEROES: usize = 64 << 10;
const ZEROES_REPEATED: usize = 64;

/// The state that all requests of a device share.
pub(super) struct Context {
    /// `None` only while it is being dropped.
    fd: Option<Rc<OwnedFd>>,
    /// The descriptor for flushes, when it is not `fd`.
    flush_fd: Option<Rc<OwnedFd>>,
    slow_to_close: Arc<AtomicBool>,
    pub(super) pool: Pool,
    pub(super) logical_block: usize,
    /// True for a regular file, which any process may truncate.
    may_shrink: bool,
    zeroes: RefCell<Option<Buf>>,
    /// The file system has refused to punch a hole.
    no_holes: Cell<bool>,
    /// The file system has refused to zero a range.
    no_zero_range: Cell<bool>,
}

impl Context {
    pub(super) fn new(
        (fd, flush_fd): (OwnedFd, Option<OwnedFd>),
        pool: Pool,
        logical_block: u32,
        whole: &Whole,
    ) -> Context {
        Context {
            fd: Some(Rc::new(fd)),
            flush_fd: flush_fd.map(Rc::new),
            slow_to_close: whole.slow_to_close(),
            pool,
            logical_block: logical_block.max(512) as usize,
            may_shrink: whole.is_file(),
            zeroes: RefCell::new(None),
            no_holes: Cell::new(false),
            no_zero_range: Cell::new(false),
        }
    }

    fn fd(&self) -> Rc<OwnedFd> {
        match &self.fd {
            Some(fd) => Rc::clone(fd),
            None => unreachable!("the descriptor is there until the context is dropped"),
        }
    }

    fn zeroes(&self) -> Buf {
        let mut kept = self.zeroes.borrow_mut();
        kept.get_or_insert_with(|| self.pool.zeroed(ZEROES).freeze()).clone()
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> RingOp {
        let mode = flags.bits() as i32;
        RingOp::Fallocate { fd: self.fd(), mode, offset, len }
    }

    fn punch(&self, offset: u64, len: u64) -> RingOp {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    fn sync(&self) -> RingOp {
        RingOp::Sync { fd: self.fd() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Operations in flight keep the device alive, so none is left that holds a reference to a descriptor.
        let all = self.flush_fd.take().into_iter().chain(self.fd.take());
        for fd in all.map(Rc::try_unwrap).filter_map(Result::ok) {
            closing::close(fd, &self.slow_to_close);
        }
    }
}

/// One request in flight.
pub(super) struct Flight {
    pub(super) done: Completion,
    offset: u64,
    /// Bytes transferred so far.
    position: usize,
    tries: u32,
    work: Work,
}

enum Work {
    Read {
        /// Buffers that are filled, while the rest is being read; see [`cut`].
        filled: BufMuts,
        /// The last of `filled` and the first of the rest belong to one buffer.
        split: bool,
    },
    Write {
        /// All buffers, while the rest of them is being written.
        all: Option<Bufs>,
        fua: bool,
    },
    Flush,
    Discard {
        len: u64,
    },
    Zero {
        len: u64,
        unmap: bool,
        fua: bool,
        by: ZeroBy,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ZeroBy {
    Hole,
    Range,
    Writing,
    /// Everything is zero; only the sync is missing.
    Synced,
}

/// The next step of a request.
pub(super) enum Step {
    Call(RingOp),
    End(Result<(), IoError>, Op),
}

impl Flight {
    /// The first call for `op`.
    pub(super) fn start(
        context: &Context,
        offset: u64,
        op: Op,
        done: Completion,
    ) -> Result<(Flight, RingOp), (Completion, IoError, Op)> {
        let fd = context.fd();
        let (work, call) = match op {
            Op::Read(bufs) => {
                let work = Work::Read { filled: BufMuts::new(), split: false };
                (work, RingOp::Read { fd, offset, bufs })
            }
            Op::Write { bufs, fua } => {
                let call = RingOp::Write { fd, offset, bufs, durable: fua };
                (Work::Write { all: None, fua }, call)
            }
            Op::Flush => {
                let fd = context.flush_fd.as_ref().map_or(fd, Rc::clone);
                (Work::Flush, RingOp::Sync { fd })
            }
            Op::Discard { len } if context.no_holes.get() => {
                let error = IoError::new(IoErrorKind::Unsupported);
                return Err((done, error, Op::Discard { len }));
            }
            Op::Discard { len } => (Work::Discard { len }, context.punch(offset, len)),
            Op::WriteZeroes { len, unmap, fua } => {
                let by = if unmap { ZeroBy::Hole } else { ZeroBy::Range };
                let mut flight = Flight::new(done, offset, Work::Zero { len, unmap, fua, by });
                let call = flight.zero_call(context);
                return Ok((flight, call));
            }
        };
        Ok((Flight::new(done, offset, work), call))
    }

    fn new(done: Completion, offset: u64, work: Work) -> Flight {
        Flight { done, offset, position: 0, tries: 0, work }
    }

    /// The next step after a call that returned `result`. `still_whole` checks that the file still has its size.
    pub(super) fn next(
        &mut self,
        context: &Context,
        result: i32,
        call: RingOp,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let moved = match usize::try_from(result) {
            Ok(moved) => moved,
            Err(_) => return self.failed(context, -result, call, still_whole),
        };
        match call {
            RingOp::Read { bufs, .. } => self.read(context, moved, bufs, still_whole),
            RingOp::Write { bufs, .. } => self.written(context, moved, bufs, still_whole),
            call => self.after_other(context, call, still_whole),
        }
    }

    fn failed(
        &mut self,
        context: &Context,
        errno: i32,
        call: RingOp,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let interrupted = matches!(errno, libc::EINTR | libc::EAGAIN);
        if interrupted && self.tries < TRIES_MAX {
            self.tries += 1;
            return Step::Call(call);
        }
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS);
        if unsupported && still_whole() {
            match &mut self.work {
                Work::Discard { len } => {
                    context.no_holes.set(true);
                    let error = IoError { kind: IoErrorKind::Unsupported, errno };
                    return Step::End(Err(error), Op::Discard { len: *len });
                }
                Work::Zero { by: by @ (ZeroBy::Hole | ZeroBy::Range), .. } => {
                    let unable = if *by == ZeroBy::Hole {
                        &context.no_holes
                    } else {
                        &context.no_zero_range
                    };
                    unable.set(true);
                    return Step::Call(self.zero_call(context));
                }
                _ => {}
            }
        }
        let error = match still_whole() {
            true if errno == libc::ECANCELED => IoError { kind: IoErrorKind::Gone, errno },
            true => IoError::from_errno(errno),
            false => IoError { kind: IoErrorKind::Gone, errno },
        };
        let op = self.give_up(call);
        Step::End(Err(error), op)
    }

    fn read(
        &mut self,
        context: &Context,
        moved: usize,
        bufs: BufMuts,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.tries = 0;
        let all = self.all_read(bufs);
        if moved >= asked {
            // A write that was in flight while the file was truncated makes it grow again, with zeroes in
            // the gap. So the read data is valid only if the file still has its size after the read.
            let data = !context.may_shrink || still_whole();
            let result = if data { Ok(()) } else { Err(IoError::new(IoErrorKind::Gone)) };
            return Step::End(result, Op::Read(all));
        }
        // O_DIRECT refuses offsets that are not aligned, so a partial block is read again.
        let progress = moved / context.logical_block * context.logical_block;
        if progress == 0 {
            // The file ends before the end of the member.
            still_whole();
            return Step::End(Err(IoError::new(IoErrorKind::Gone)), Op::Read(all));
        }
        self.position += progress;
        let (filled, rest, split) = cut(all, self.position);
        self.work = Work::Read { filled, split };
        let offset = self.offset + self.position as u64;
        Step::Call(RingOp::Read { fd: context.fd(), offset, bufs: rest })
    }

    /// All buffers of a read, joined to one list again.
    fn all_read(&mut self, bufs: BufMuts) -> BufMuts {
        match &mut self.work {
            Work::Read { filled, split } => join(std::mem::take(filled), bufs, *split),
            _ => bufs,
        }
    }

    fn written(
        &mut self,
        context: &Context,
        moved: usize,
        bufs: Bufs,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.tries = 0;
        let short = moved < asked;
        let progress = match short {
            true => moved / context.logical_block * context.logical_block,
            false => moved,
        };
        if short && progress == 0 {
            let kind = if still_whole() { IoErrorKind::NoSpace } else { IoErrorKind::Gone };
            let op = self.all_written(bufs);
            return Step::End(Err(IoError::new(kind)), op);
        }
        self.position += progress;
        if let Work::Zero { len, by, .. } = &mut self.work {
            if self.position as u64 >= *len {
                // No sync is needed: a durable zeroing writes with RWF_DSYNC.
                *by = ZeroBy::Synced;
                return self.after_other(context, context.sync(), still_whole);
            }
            return Step::Call(self.zero_call(context));
        }
        if !short {
            let op = self.all_written(bufs);
            return Step::End(Ok(()), op);
        }
        let Work::Write { all, fua } = &mut self.work else {
            // Cannot happen: only these two kinds of work make write calls.
            return Step::End(Ok(()), Op::Flush);
        };
        let durable = *fua;
        let all = all.get_or_insert(bufs);
        let rest = after(all, self.position);
        let offset = self.offset + self.position as u64;
        Step::Call(RingOp::Write { fd: context.fd(), offset, bufs: rest, durable })
    }

    fn all_written(&mut self, bufs: Bufs) -> Op {
        match &mut self.work {
            Work::Write { all, fua } => Op::Write { bufs: all.take().unwrap_or(bufs), fua: *fua },
            Work::Zero { len, unmap, fua, .. } => {
                Op::WriteZeroes { len: *len, unmap: *unmap, fua: *fua }
            }
            _ => Op::Flush,
        }
    }

    /// The next step after a successful call that transfers no data.
    fn after_other(
        &mut self,
        context: &Context,
        call: RingOp,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        match &mut self.work {
            Work::Zero { len, unmap, fua, by } => {
                if *fua && matches!(by, ZeroBy::Hole | ZeroBy::Range) {
                    *by = ZeroBy::Synced;
                    return Step::Call(context.sync());
                }
                let op = Op::WriteZeroes { len: *len, unmap: *unmap, fua: *fua };
                Step::End(Ok(()), op)
            }
            Work::Flush if !still_whole() => {
                Step::End(Err(IoError::new(IoErrorKind::Gone)), Op::Flush)
            }
            _ => Step::End(Ok(()), self.give_up(call)),
        }
    }

    /// The call that zeroes the rest in the cheapest way that has not been refused.
    fn zero_call(&mut self, context: &Context) -> RingOp {
        let Work::Zero { len, unmap, fua, by } = &mut self.work else {
            // Cannot happen, and a sync would do no harm.
            return context.sync();
        };
        if *by == ZeroBy::Hole && context.no_holes.get() {
            *by = ZeroBy::Range;
        }
        if *by == ZeroBy::Range && context.no_zero_range.get() {
            // A hole would read as zero too, but without `unmap` the space must stay allocated.
            *by = ZeroBy::Writing;
        }
        debug_assert!(*unmap || *by != ZeroBy::Hole, "space must stay allocated");
        match *by {
            ZeroBy::Hole => context.punch(self.offset, *len),
            ZeroBy::Range => context.fallocate(
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                self.offset,
                *len,
            ),
            ZeroBy::Writing | ZeroBy::Synced => {
                let left = len.saturating_sub(self.position as u64);
                let now = left.min((ZEROES * ZEROES_REPEATED) as u64) as usize;
                let zeroes = context.zeroes();
                let mut bufs: Bufs = SmallVec::new();
                for start in (0..now).step_by(ZEROES) {
                    bufs.push(zeroes.slice(0..ZEROES.min(now - start)));
                }
                let offset = self.offset + self.position as u64;
                RingOp::Write { fd: context.fd(), offset, bufs, durable: *fua }
            }
        }
    }

    /// The original operation with its buffers.
    fn give_up(&mut self, call: RingOp) -> Op {
        match call {
            RingOp::Read { bufs, .. } => Op::Read(self.all_read(bufs)),
            RingOp::Write { bufs, .. } => self.all_written(bufs),
            _ => match &self.work {
                Work::Discard { len } => Op::Discard { len: *len },
                Work::Zero { len, unmap, fua, .. } => {
                    Op::WriteZeroes { len: *len, unmap: *unmap, fua: *fua }
                }
                _ => Op::Flush,
            },
        }
    }
}

/// Cuts a list after `at` bytes. The flag is true if that was within a buffer, which was split.
fn cut(bufs: BufMuts, at: usize) -> (BufMuts, BufMuts, bool) {
    let (mut before, mut rest) = (BufMuts::new(), BufMuts::new());
    let mut split = false;
    let mut seen = 0;
    for mut buf in bufs {
        let len = buf.len();
        if seen >= at {
            rest.push(buf);
        } else if seen + len > at {
            rest.push(buf.split_off(at - seen));
            before.push(buf);
            split = true;
        } else {
            before.push(buf);
        }
        seen += len;
    }
    (before, rest, split)
}

/// Undoes [`cut`].
fn join(mut before: BufMuts, rest: BufMuts, split: bool) -> BufMuts {
    if before.is_empty() {
        return rest;
    }
    let mut rest = rest.into_iter();
    if split
        && let (Some(last), Some(first)) = (before.last_mut(), rest.next())
        && let Err(first) = last.rejoin(first)
    {
        // Cannot happen: they were one buffer. As two buffers they hold the same data.
        before.push(first);
    }
    before.extend(rest);
    before
}

/// The buffers after the first `at` bytes.
fn after(bufs: &Bufs, at: usize) -> Bufs {
    let mut rest = Bufs::new();
    let mut seen = 0;
    for buf in bufs {
        let skip = at.saturating_sub(seen).min(buf.len());
        if skip < buf.len() {
            rest.push(buf.slice(skip..buf.len()));
        }
        seen += buf.len();
    }
    rest
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
