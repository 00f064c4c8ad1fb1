//! The requests that a device takes.

use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use braid_shard::ring::{BufMuts, Bufs};
use braid_shard::{Buf, BufMut};
use smallvec::SmallVec;
use std::ops::Deref;

/// An operation. The request owns its buffers until it completes. The length and the
/// address of each buffer are multiples of the device's logical block, because with O_DIRECT the
/// disk accesses them directly.
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
    /// Make all writes durable that completed before this was submitted.
    Flush,
    /// The content of `len` bytes is not needed any more; reads may return anything.
    Discard {
        /// Bytes.
        len: u64,
    },
    /// Make `len` bytes read as zero.
    WriteZeroes {
        /// Bytes.
        len: u64,
        /// Space may be released. If false it must stay allocated.
        unmap: bool,
        /// On stable storage at completion.
        fua: bool,
    },
}

/// An operation and its offset in bytes, which is 0 for a flush.
#[derive(Debug)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// The operation.
    pub op: Op,
}

impl Request {
    /// Reads `buf.len()` bytes at `offset`.
    #[inline(always)]
    pub fn read(offset: u64, buf: BufMut) -> Request {
        Request { offset, op: Op::Read(BufMuts::from_buf([buf])) }
    }

    /// Writes `buf` at `offset`.
    #[inline(always)]
    pub fn write(offset: u64, buf: Buf, fua: bool) -> Request {
        Request { offset, op: Op::Write { bufs: Bufs::from_buf([buf]), fua } }
    }

    /// Makes completed writes durable.
    pub fn flush() -> Request {
        Request { offset: 0, op: Op::Flush }
    }

    /// Bytes that the request covers; 0 for a flush.
    // Where the request has just been made nothing is left of this.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        match &self.op {
            Op::Read(bufs) => len_of(bufs),
            Op::Write { bufs, .. } => len_of(bufs),
            Op::Flush => 0,
            Op::Discard { len } | Op::WriteZeroes { len, .. } => *len,
        }
    }

    /// True when it covers no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks bounds and alignment against `info`, and returns the number of bytes that the request covers.
    ///
    /// # Errors
    /// [`IoErrorKind::Invalid`] when it reaches beyond the end or is not aligned.
    #[inline]
    pub fn check(&self, info: &DeviceInfo) -> Result<u64, IoError> {
        let len = self.len();
        let block = u64::from(info.logical_block.max(1));
        let end = self.offset.checked_add(len).filter(|end| *end <= info.size);
        // Blocks are powers of two, nearly always.
        let is_aligned = match block.is_power_of_two() {
            true => (self.offset | len) & (block - 1) == 0,
            false => self.offset.is_multiple_of(block) && len.is_multiple_of(block),
        };
        if end.is_none() || !is_aligned {
            return Err(IoError::new(IoErrorKind::Invalid));
        }
        Ok(len)
    }
}

/// The only buffer of a request.
///
/// # Errors
/// The buffers, when there is none or more than one.
#[inline(always)]
pub fn only<B>(bufs: SmallVec<[B; 1]>) -> Result<B, SmallVec<[B; 1]>> {
    match bufs.into_inner() {
        Ok([buf]) => Ok(buf),
        Err(bufs) => only_spilled(bufs),
    }
}

#[cold]
fn only_spilled<B>(mut bufs: SmallVec<[B; 1]>) -> Result<B, SmallVec<[B; 1]>> {
    match bufs.len() {
        1 => bufs.pop().ok_or(bufs),
        _ => Err(bufs),
    }
}

#[inline]
fn len_of<B: Deref<Target = [u8]>>(bufs: &[B]) -> u64 {
    match bufs {
        [buf] => buf.len() as u64,
        bufs => sum_of(bufs),
    }
}

/// Out of the way of the commonest request, which has one buffer.
#[cold]
#[inline(never)]
fn sum_of<B: Deref<Target = [u8]>>(bufs: &[B]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}
