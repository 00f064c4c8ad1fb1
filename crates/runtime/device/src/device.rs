//! What a device is: its description, the requests it takes, the errors it gives.

use crate::completion::Completion;
use braid_shard::buffer::SharedMemory;
use braid_shard::ring::{BufMuts, Bufs};
use braid_shard::{Buf, BufMut};
use smallvec::smallvec;

/// What a device says of itself. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// How messages name it: a path, `ram:256M`, an array's name.
    pub name: String,
    /// Size; requests never reach beyond it.
    pub size: u64,
    /// Every offset and length must be a multiple of this (512 to 4096).
    pub logical_block: u32,
    /// Writes smaller than this cost a read inside the device.
    pub physical_block: u32,
    /// The smallest request that goes to one place only, a chunk of an array; 0 when it does not say. Linux calls
    /// it `io_min`.
    pub minimum_io: u32,
    /// The size of request that the device likes best, a multiple of `minimum_io`; 0 when it does not say. Linux
    /// calls it `io_opt`.
    pub optimal_io: u32,
    /// Discards do something.
    pub discards: bool,
    /// Write-zeroes is cheaper than writing zero bytes.
    pub writes_zeroes: bool,
    /// Written data may be lost at a power cut until a flush.
    pub volatile_cache: bool,
    /// Requests gain from being collected, sorted and merged before they are submitted.
    pub wants_plug: bool,
    /// Seeks cost time.
    pub rotational: bool,
    /// Reads and writes bypass the page cache (or there is none).
    pub direct: bool,
}

impl DeviceInfo {
    /// The description of a plain memory-like device, for kinds to start from.
    pub fn plain(name: impl Into<String>, size: u64) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            size,
            logical_block: 512,
            physical_block: 4096,
            minimum_io: 0,
            optimal_io: 0,
            discards: true,
            writes_zeroes: true,
            volatile_cache: false,
            wants_plug: false,
            rotational: false,
            direct: true,
        }
    }
}

/// What shall be done. Buffers are owned by the request until it completes. The length and the
/// place in memory of each buffer are multiples of the device's logical block: with O_DIRECT the
/// disk reads and writes them in place.
#[derive(Debug)]
pub enum Op {
    /// Fill the buffers, in order, from consecutive bytes.
    Read(BufMuts),
    /// Write the buffers, in order, to consecutive bytes. With `fua` they are on stable storage
    /// at completion.
    Write {
        /// The payload.
        bufs: Bufs,
        /// Force unit access.
        fua: bool,
    },
    /// Make everything durable that was completed before this was submitted.
    Flush,
    /// The content of `len` bytes is not needed any more; reading gives anything.
    Discard {
        /// Bytes.
        len: u64,
    },
    /// Make `len` bytes read as zero.
    WriteZeroes {
        /// Bytes.
        len: u64,
        /// Space may be released; false: it must stay allocated.
        unmap: bool,
        /// On stable storage at completion.
        fua: bool,
    },
}

/// An operation and its place, in bytes. `offset` is 0 for a flush.
#[derive(Debug)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// What to do there.
    pub op: Op,
}

impl Request {
    /// Reads `buf.len()` bytes at `offset`.
    pub fn read(offset: u64, buf: BufMut) -> Request {
        Request { offset, op: Op::Read(smallvec![buf]) }
    }

    /// Writes `buf` at `offset`.
    pub fn write(offset: u64, buf: Buf, fua: bool) -> Request {
        Request { offset, op: Op::Write { bufs: smallvec![buf], fua } }
    }

    /// Makes completed writes durable.
    pub fn flush() -> Request {
        Request { offset: 0, op: Op::Flush }
    }

    /// Bytes that the request covers; 0 for a flush.
    pub fn len(&self) -> u64 {
        match &self.op {
            Op::Read(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Op::Write { bufs, .. } => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Op::Flush => 0,
            Op::Discard { len } | Op::WriteZeroes { len, .. } => *len,
        }
    }

    /// True when it covers no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks bounds and alignment against `info`.
    ///
    /// # Errors
    /// [`IoErrorKind::Invalid`] when it reaches beyond the end or is not aligned.
    pub fn check(&self, info: &DeviceInfo) -> Result<(), IoError> {
        let len = self.len();
        let block = u64::from(info.logical_block.max(1));
        let end = self.offset.checked_add(len).filter(|end| *end <= info.size);
        if end.is_none() || !self.offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(IoError::new(IoErrorKind::Invalid));
        }
        Ok(())
    }
}

/// What kind of failure it was: decides what the array does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The medium could not give or take these blocks; others may work.
    Medium,
    /// The device is gone, shrank, or does not answer: nothing there can be trusted.
    Gone,
    /// The request is outside the device or not aligned.
    Invalid,
    /// The device cannot do this operation.
    Unsupported,
    /// No space is left (a sparse file on a full filesystem).
    NoSpace,
    /// The array has lost more members than its level allows. (One that has lost some blocks only says
    /// [`Medium`](IoErrorKind::Medium).)
    Lost,
    /// The array is being stopped, or is read-only.
    Refused,
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct IoError {
    /// What kind it was.
    pub kind: IoErrorKind,
    /// The system's error number, 0 when there is none.
    pub errno: i32,
}

impl IoError {
    /// An error that the system gave no number for.
    pub fn new(kind: IoErrorKind) -> IoError {
        IoError { kind, errno: 0 }
    }

    /// The kind that an errno of a block device or file stands for.
    pub fn from_errno(errno: i32) -> IoError {
        let kind = match errno {
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::EBADF | libc::ETIMEDOUT => {
                IoErrorKind::Gone
            }
            libc::EINVAL => IoErrorKind::Invalid,
            libc::EOPNOTSUPP | libc::ENOSYS => IoErrorKind::Unsupported,
            libc::ENOSPC | libc::EDQUOT => IoErrorKind::NoSpace,
            libc::EROFS | libc::EPERM | libc::EACCES => IoErrorKind::Refused,
            _ => IoErrorKind::Medium,
        };
        IoError { kind, errno }
    }

    /// Whoever gave this error to a read is of no use any more: it is gone, or it is an array that has lost
    /// too much or was stopped. Of other errors, other blocks may know nothing.
    pub fn means_gone(&self) -> bool {
        matches!(self.kind, IoErrorKind::Gone | IoErrorKind::Lost | IoErrorKind::Refused)
    }

    fn text(&self) -> String {
        let what = match self.kind {
            IoErrorKind::Medium => "medium error",
            IoErrorKind::Gone => "device gone",
            IoErrorKind::Invalid => "request out of range or not aligned",
            IoErrorKind::Unsupported => "operation not supported",
            IoErrorKind::NoSpace => "no space left",
            IoErrorKind::Lost => "data lost: too many members have failed",
            IoErrorKind::Refused => "refused: read-only or stopping",
        };
        match self.errno {
            0 => what.to_string(),
            errno => format!("{what} ({})", std::io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A flat range of bytes on one shard.
pub trait Device {
    /// What it is. Constant for the life of the device, except that an array may grow.
    fn info(&self) -> &DeviceInfo;

    /// Takes `request`; completes `done` exactly once, perhaps before this returns. Requests in
    /// flight at the same time may be carried out in any order. The caller has checked bounds and
    /// alignment ([`Request::check`]).
    fn submit(&self, request: Request, done: Completion);

    /// What comes from now on is cut from requests of about so many bytes (0: not known any more). A device that
    /// itself hands on what it gets, merged or shared out, makes it no smaller than that if it can.
    fn cut_from(&self, bytes: u64) {
        let _ = bytes;
    }

    /// How many arrays lie above each other in it: 0 for all that is no array. Every layer may take its time to find out
    /// that a member does not answer.
    fn layers(&self) -> u32 {
        0
    }

    /// A request may stay under way for long, or for ever. False where all complete at submit: nobody need look.
    fn may_hang(&self) -> bool {
        true
    }

    /// Requests wait because what the device lies on is full: they are not overdue.
    fn waits_for_space(&self) -> bool {
        false
    }

    /// The device's bytes, when they are memory of this process and nothing but memory: then who
    /// holds a range may also work on it in place ([`braid_shard::buffer::in_place`]). `None` for
    /// every device that must see each request.
    fn memory(&self) -> Option<&SharedMemory> {
        None
    }
}
