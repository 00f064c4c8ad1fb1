//! The system calls that one request takes, one after the other: the rest after a short read or
//! write, zeroes written where a range cannot be zeroed, a sync after a durable zeroing.

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

/// Times that an interrupted call is made again before it counts as failed.
const TRIES_MAX: u32 = 64;
/// Bytes of the buffer of zeroes, and how often one write repeats it.
const ZEROES: usize = 64 << 10;
const ZEROES_REPEATED: usize = 64;

/// The state that all requests of a device share.
pub(super) struct Means {
    /// There until it is dropped.
    fd: Option<Rc<OwnedFd>>,
    /// The descriptor for flushes, when it is not `fd`.
    flush_fd: Option<Rc<OwnedFd>>,
    slow_to_close: Arc<AtomicBool>,
    pub(super) pool: Pool,
    pub(super) logical_block: usize,
    /// It is a regular file, which anybody may truncate.
    may_shrink: bool,
    zeroes: RefCell<Option<Buf>>,
    /// Found out by trying: the calls that this file does not take.
    no_holes: Cell<bool>,
    no_zero_range: Cell<bool>,
}

impl Means {
    pub(super) fn new(
        (fd, flush_fd): (OwnedFd, Option<OwnedFd>),
        pool: Pool,
        logical_block: u32,
        whole: &Whole,
    ) -> Means {
        Means {
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
            None => unreachable!("only dropping takes it away"),
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

impl Drop for Means {
    fn drop(&mut self) {
        // Operations hold handles of their own, and hold the device: when it goes they have ended.
        let all = self.flush_fd.take().into_iter().chain(self.fd.take());
        for fd in all.map(Rc::try_unwrap).filter_map(Result::ok) {
            closing::close(fd, &self.slow_to_close);
        }
    }
}

/// One request on its way.
pub(super) struct Flight {
    pub(super) done: Completion,
    offset: u64,
    /// Bytes of data moved so far.
    position: usize,
    tries: u32,
    work: Work,
}

enum Work {
    Read {
        /// Buffers that are filled, while the rest is read; see [`cut`].
        filled: BufMuts,
        /// The last of `filled` and the first of the rest were one buffer.
        split: bool,
    },
    Write {
        /// All buffers, while the rest of them is written.
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
    /// All is zero; only the sync is outstanding.
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
        means: &Means,
        offset: u64,
        op: Op,
        done: Completion,
    ) -> Result<(Flight, RingOp), (Completion, IoError, Op)> {
        let fd = means.fd();
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
                let fd = means.flush_fd.as_ref().map_or(fd, Rc::clone);
                (Work::Flush, RingOp::Sync { fd })
            }
            Op::Discard { len } if means.no_holes.get() => {
                let error = IoError::new(IoErrorKind::Unsupported);
                return Err((done, error, Op::Discard { len }));
            }
            Op::Discard { len } => (Work::Discard { len }, means.punch(offset, len)),
            Op::WriteZeroes { len, unmap, fua } => {
                let by = if unmap { ZeroBy::Hole } else { ZeroBy::Range };
                let mut flight = Flight::new(done, offset, Work::Zero { len, unmap, fua, by });
                let call = flight.zero_call(means);
                return Ok((flight, call));
            }
        };
        Ok((Flight::new(done, offset, work), call))
    }

    fn new(done: Completion, offset: u64, work: Work) -> Flight {
        Flight { done, offset, position: 0, tries: 0, work }
    }

    /// The next step after a call that gave `result`. `still_whole` tells if the file still has its size.
    pub(super) fn next(
        &mut self,
        means: &Means,
        result: i32,
        call: RingOp,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let moved = match usize::try_from(result) {
            Ok(moved) => moved,
            Err(_) => return self.failed(means, -result, call, still_whole),
        };
        match call {
            RingOp::Read { bufs, .. } => self.read(means, moved, bufs, still_whole),
            RingOp::Write { bufs, .. } => self.written(means, moved, bufs, still_whole),
            call => self.after_other(means, call, still_whole),
        }
    }

    fn failed(
        &mut self,
        means: &Means,
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
                    means.no_holes.set(true);
                    let error = IoError { kind: IoErrorKind::Unsupported, errno };
                    return Step::End(Err(error), Op::Discard { len: *len });
                }
                Work::Zero { by: by @ (ZeroBy::Hole | ZeroBy::Range), .. } => {
                    let unable =
                        if *by == ZeroBy::Hole { &means.no_holes } else { &means.no_zero_range };
                    unable.set(true);
                    return Step::Call(self.zero_call(means));
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
        means: &Means,
        moved: usize,
        bufs: BufMuts,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.tries = 0;
        let all = self.all_read(bufs);
        if moved >= asked {
            // A write that was under way while the file was truncated has made it grow again, with
            // zeroes below: what was read is data only if the file is whole after the read.
            let data = !means.may_shrink || still_whole();
            let result = if data { Ok(()) } else { Err(IoError::new(IoErrorKind::Gone)) };
            return Step::End(result, Op::Read(all));
        }
        // A rest that is not whole blocks would be refused by O_DIRECT: it is read again.
        let progress = moved / means.logical_block * means.logical_block;
        if progress == 0 {
            // End of file before the end of the member.
            still_whole();
            return Step::End(Err(IoError::new(IoErrorKind::Gone)), Op::Read(all));
        }
        self.position += progress;
        let (filled, rest, split) = cut(all, self.position);
        self.work = Work::Read { filled, split };
        let offset = self.offset + self.position as u64;
        Step::Call(RingOp::Read { fd: means.fd(), offset, bufs: rest })
    }

    /// All buffers of a read again, in one list.
    fn all_read(&mut self, bufs: BufMuts) -> BufMuts {
        match &mut self.work {
            Work::Read { filled, split } => join(std::mem::take(filled), bufs, *split),
            _ => bufs,
        }
    }

    fn written(
        &mut self,
        means: &Means,
        moved: usize,
        bufs: Bufs,
        still_whole: &dyn Fn() -> bool,
    ) -> Step {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.tries = 0;
        let short = moved < asked;
        let progress = match short {
            true => moved / means.logical_block * means.logical_block,
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
                // Written with RWF_DSYNC if that was asked.
                *by = ZeroBy::Synced;
                return self.after_other(means, means.sync(), still_whole);
            }
            return Step::Call(self.zero_call(means));
        }
        if !short {
            let op = self.all_written(bufs);
            return Step::End(Ok(()), op);
        }
        let Work::Write { all, fua } = &mut self.work else {
            // Only these two kinds of work make write calls.
            return Step::End(Ok(()), Op::Flush);
        };
        let durable = *fua;
        let all = all.get_or_insert(bufs);
        let rest = after(all, self.position);
        let offset = self.offset + self.position as u64;
        Step::Call(RingOp::Write { fd: means.fd(), offset, bufs: rest, durable })
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

    /// After a call that moved no data and succeeded.
    fn after_other(&mut self, means: &Means, call: RingOp, still_whole: &dyn Fn() -> bool) -> Step {
        match &mut self.work {
            Work::Zero { len, unmap, fua, by } => {
                if *fua && matches!(by, ZeroBy::Hole | ZeroBy::Range) {
                    *by = ZeroBy::Synced;
                    return Step::Call(means.sync());
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

    /// Zeroes the rest in the cheapest way that has not been refused.
    fn zero_call(&mut self, means: &Means) -> RingOp {
        let Work::Zero { len, unmap, fua, by } = &mut self.work else {
            // Called for zeroing only; a sync does no harm.
            return means.sync();
        };
        if *by == ZeroBy::Hole && means.no_holes.get() {
            *by = ZeroBy::Range;
        }
        if *by == ZeroBy::Range && means.no_zero_range.get() {
            // A hole reads as zero too, but space must stay allocated when unmap is not allowed.
            *by = ZeroBy::Writing;
        }
        debug_assert!(*unmap || *by != ZeroBy::Hole, "space must stay allocated");
        match *by {
            ZeroBy::Hole => means.punch(self.offset, *len),
            ZeroBy::Range => means.fallocate(
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                self.offset,
                *len,
            ),
            ZeroBy::Writing | ZeroBy::Synced => {
                let left = len.saturating_sub(self.position as u64);
                let now = left.min((ZEROES * ZEROES_REPEATED) as u64) as usize;
                let zeroes = means.zeroes();
                let mut bufs: Bufs = SmallVec::new();
                for start in (0..now).step_by(ZEROES) {
                    bufs.push(zeroes.slice(0..ZEROES.min(now - start)));
                }
                let offset = self.offset + self.position as u64;
                RingOp::Write { fd: means.fd(), offset, bufs, durable: *fua }
            }
        }
    }

    /// The operation as it came, with its buffers.
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

/// Cuts a list after `at` bytes. True: a buffer was cut in two there.
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
        // They were one buffer, so they follow each other; kept apart nothing would be lost.
        before.push(first);
    }
    before.extend(rest);
    before
}

/// Handles on what follows the first `at` bytes.
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
