//! Handles on ranges of blocks: [`BufMut`], which may write, and [`Buf`], of which there may be many.

use super::block::{Block, Kind, Loan, add_handle, address, into_loan, release};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

/// The sole handle on a range of aligned memory: may be written. `!Send`.
pub struct BufMut {
    pub(super) block: NonNull<Block>,
    pub(super) start: u32,
    pub(super) len: u32,
}

/// One of any number of reading handles on a range of aligned memory. `!Send`.
pub struct Buf {
    pub(super) block: NonNull<Block>,
    pub(super) start: u32,
    pub(super) len: u32,
}

impl BufMut {
    /// The handle that `loan` was made of. Only on its home shard.
    pub(super) fn of(loan: Loan) -> BufMut {
        BufMut { block: loan.block, start: loan.start, len: loan.len }
    }

    /// Splits the range in two: `self` keeps the first `at` bytes, the rest is returned.
    ///
    /// # Panics
    /// When `at` is beyond the end.
    pub fn split_off(&mut self, at: usize) -> BufMut {
        assert!(at <= self.len as usize, "split at {at} of {} bytes", self.len);
        add_handle(self.block);
        let rest =
            BufMut { block: self.block, start: self.start + at as u32, len: self.len - at as u32 };
        self.len = at as u32;
        rest
    }

    /// Appends a part that [`split_off`](BufMut::split_off) has cut off.
    ///
    /// # Errors
    /// Returns `rest` when it does not follow `self` in the same block.
    pub fn rejoin(&mut self, rest: BufMut) -> Result<(), BufMut> {
        if rest.block != self.block || rest.start != self.start + self.len {
            return Err(rest);
        }
        self.len += rest.len;
        Ok(())
    }

    /// Shortens the buffer to `len` bytes; the rest of the range cannot be reached any more.
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len as usize) as u32;
    }

    /// Makes the buffer read-only, so that it can be cloned.
    pub fn freeze(self) -> Buf {
        let buf = Buf { block: self.block, start: self.start, len: self.len };
        std::mem::forget(self);
        buf
    }

    /// Turns the handle into a loan, which can be sent to another shard.
    ///
    /// # Errors
    /// Returns the handle when it is one of several on memory that is itself on loan.
    pub fn into_loan(self) -> Result<Loan, BufMut> {
        into_loan(self, |own| (own.block, own.start, own.len, true))
    }
}

impl Buf {
    /// A further handle on part of the range.
    ///
    /// # Panics
    /// When `range` is not within the handle's.
    pub fn slice(&self, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end && range.end <= self.len as usize, "slice out of range");
        add_handle(self.block);
        Buf {
            block: self.block,
            start: self.start + range.start as u32,
            len: (range.end - range.start) as u32,
        }
    }

    /// True when no memory is held by this handle but its own range, and that is the shard's own: keeping it costs no more
    /// than its length says.
    #[inline]
    pub fn is_all_of_its_memory(&self) -> bool {
        // SAFETY: `self` is a handle, so the block is alive.
        let head = unsafe { self.block.as_ref() };
        self.start == 0 && self.len as usize == head.capacity && !matches!(head.kind, Kind::Lent)
    }

    /// The writable handle, when this is the only handle on the whole block.
    ///
    /// # Errors
    /// Returns the handle when there are others.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        // SAFETY: `self` is a handle, so the block is alive.
        let head = unsafe { self.block.as_ref() };
        if head.handles.get() != 1 || (matches!(head.kind, Kind::Lent) && is_read_only(head)) {
            return Err(self);
        }
        let buf = BufMut { block: self.block, start: self.start, len: self.len };
        std::mem::forget(self);
        Ok(buf)
    }

    /// Turns the handle into a loan, which can be sent to another shard.
    ///
    /// # Errors
    /// Returns the handle when it is one of several on memory that is itself on loan.
    pub fn into_loan(self) -> Result<Loan, Buf> {
        into_loan(self, |own| (own.block, own.start, own.len, false))
    }
}

/// The block's memory is another shard's, which has lent it for reading only.
#[inline(never)]
fn is_read_only(head: &Block) -> bool {
    let origin = head.origin.take();
    let read_only = origin.as_ref().is_some_and(|loan| !loan.writable);
    head.origin.set(origin);
    read_only
}

macro_rules! handle {
    ($name:ident) => {
        impl Drop for $name {
            fn drop(&mut self) {
                release(self.block);
            }
        }

        impl Deref for $name {
            type Target = [u8];

            fn deref(&self) -> &[u8] {
                // SAFETY: the range lies within the block's memory, is initialised (fresh memory
                // is zeroed), and no live BufMut other than `self` overlaps it.
                unsafe {
                    std::slice::from_raw_parts(address(self.block, self.start), self.len as usize)
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({} bytes)"), self.len)
            }
        }
    };
}

handle!(BufMut);
handle!(Buf);

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and no other live handle overlaps the range of a BufMut.
        unsafe {
            std::slice::from_raw_parts_mut(address(self.block, self.start), self.len as usize)
        }
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        add_handle(self.block);
        Buf { block: self.block, start: self.start, len: self.len }
    }
}
