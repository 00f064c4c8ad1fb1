//! Aligned buffers of one shard, counted without atomics.
//!
//! A [`Pool`] cuts memory into power-of-two classes, each block aligned to 4096 bytes, and keeps
//! what is given back, so that steady state allocates nothing. [`BufMut`] is the only handle on
//! its range and may write it; [`Buf`] is one of any number of readers. Both can be cut into
//! parts; [`BufMut::freeze`] turns one into the other.
//!
//! Handles never leave their thread. A range that another shard shall work on travels as a
//! [`Loan`]: the home block stays counted until the loan is back, the borrower makes handles of
//! its own over the same memory, and the last of them sends the loan home.
//!
//! Invariant: the ranges of two live `BufMut`s never overlap, nor does a `BufMut` with a `Buf`.

mod lasting;
mod loan;
mod racy;
mod shared;
#[cfg(test)]
mod tests;

use crate::shard::ShardId;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use lasting::Lasting;
pub use loan::Loan;
pub use shared::SharedMemory;

/// Alignment of every block, in bytes: enough for O_DIRECT with 4Kn disks.
pub const ALIGN: usize = 4096;
/// Bytes that no buffer reaches: positions in a block are 32 bits.
pub const LEN_MAX: usize = 1 << 31;
/// Smallest block, in bytes.
const CLASS_MIN_SHIFT: u32 = 12;
/// Largest block that is kept for reuse, in bytes; larger ones go back to the system.
const CLASS_MAX_SHIFT: u32 = 25;
const CLASSES: usize = (CLASS_MAX_SHIFT - CLASS_MIN_SHIFT + 1) as usize;
/// Free memory that a pool keeps per class, in bytes; the rest goes back to the system.
const KEEP_PER_CLASS: usize = 64 << 20;

/// The head of a block: how many handles there are, and where the memory goes afterwards.
struct Block {
    handles: Cell<u32>,
    memory: NonNull<u8>,
    capacity: usize,
    pool: Rc<PoolInner>,
    /// Set when the memory belongs to another shard's block.
    origin: Cell<Option<Loan>>,
}

struct PoolInner {
    shard: ShardId,
    /// Unlike the shard's number, never the same for two pools of the process.
    identity: u64,
    free: RefCell<[Vec<NonNull<u8>>; CLASSES]>,
    /// Blocks of each class that have been free all the time since the last trimming.
    unused: RefCell<[usize; CLASSES]>,
    /// Heads for reuse, not initialised. Boxed: handles point to them.
    #[allow(clippy::vec_box)]
    heads: RefCell<Vec<Box<std::mem::MaybeUninit<Block>>>>,
    outstanding: Cell<usize>,
    kept: Cell<usize>,
    /// Loans whose last borrower is gone, to be sent home.
    returns: RefCell<Vec<Loan>>,
}

/// The buffers of one shard. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Rc<PoolInner>);

impl Pool {
    /// An empty pool of shard `shard`.
    pub fn new(shard: ShardId) -> Pool {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        Pool(Rc::new(PoolInner {
            shard,
            identity: POOLS.fetch_add(1, Ordering::Relaxed),
            free: RefCell::new(std::array::from_fn(|_| Vec::new())),
            unused: RefCell::new([0; CLASSES]),
            heads: RefCell::new(Vec::new()),
            outstanding: Cell::new(0),
            kept: Cell::new(0),
            returns: RefCell::new(Vec::new()),
        }))
    }

    /// A buffer of `len` bytes, aligned to [`ALIGN`]. The content is whatever was there before
    /// (zero when the memory is fresh); the caller overwrites it.
    ///
    /// # Panics
    /// When `len` is [`LEN_MAX`] or more: nothing that long is ever one buffer.
    pub fn get(&self, len: usize) -> BufMut {
        assert!(len < LEN_MAX, "a buffer of {len} bytes");
        let class = class_of(len);
        let kept = class.and_then(|class| self.0.take_kept(class));
        let capacity = class.map_or(round_up(len), |class| 1 << (class as u32 + CLASS_MIN_SHIFT));
        let memory = match kept {
            Some(memory) => {
                self.0.kept.set(self.0.kept.get() - capacity);
                memory
            }
            None => allocate(capacity),
        };
        self.0.outstanding.set(self.0.outstanding.get() + capacity);
        BufMut { block: self.head(memory, capacity, None), start: 0, len: len as u32 }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(&self, len: usize) -> BufMut {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> BufMut {
        let mut buf = self.get(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// One buffer of `parts`, in their order; `None` when there are none. Those that were cut from one buffer become that again,
    /// without a copy; where one is other memory, all are copied.
    pub fn joined(&self, parts: impl IntoIterator<Item = BufMut>) -> Option<BufMut> {
        let mut parts = parts.into_iter();
        let mut whole = parts.next()?;
        let stray = parts.by_ref().find_map(|part| whole.rejoin(part).err());
        let Some(stray) = stray else { return Some(whole) };
        let rest: Vec<BufMut> = std::iter::once(stray).chain(parts).collect();
        let len = whole.len() + rest.iter().map(|part| part.len()).sum::<usize>();
        let mut joined = self.get(len);
        let mut at = 0;
        for part in std::iter::once(whole).chain(rest) {
            joined[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
        }
        Some(joined)
    }

    /// Bytes in buffers that are in use.
    pub fn outstanding(&self) -> usize {
        self.0.outstanding.get()
    }

    /// Bytes kept for reuse.
    pub fn kept(&self) -> usize {
        self.0.kept.get()
    }

    /// Gives back to the system what has been kept without being used since this was last called.
    pub fn trim_unused(&self) {
        let mut unused = self.0.unused.borrow_mut();
        for (class, unused) in unused.iter_mut().enumerate() {
            // The last one in is the first one out, so those are at the bottom.
            self.0.release_kept(class, *unused);
            *unused = self.0.free.borrow()[class].len();
        }
    }

    /// Gives what is kept for reuse back to the system.
    pub fn trim(&self) {
        self.0.release_all();
    }

    fn head(&self, memory: NonNull<u8>, capacity: usize, origin: Option<Loan>) -> NonNull<Block> {
        let mut head = self
            .0
            .heads
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Box::new(std::mem::MaybeUninit::uninit()));
        head.write(Block {
            handles: Cell::new(1),
            memory,
            capacity,
            pool: Rc::clone(&self.0),
            origin: Cell::new(origin),
        });
        // SAFETY: Box::into_raw never gives null; the head was initialised by the line above and
        // MaybeUninit<Block> has Block's layout.
        unsafe { NonNull::new_unchecked(Box::into_raw(head).cast::<Block>()) }
    }

    /// A writable handle on memory lent by another shard.
    ///
    /// # Errors
    /// Gives the loan back when it was lent for reading only.
    pub fn adopt_mut(&self, loan: Loan) -> Result<BufMut, Loan> {
        if !loan.writable {
            return Err(loan);
        }
        let (memory, len) = (loan.memory, loan.len);
        Ok(BufMut { block: self.head(memory, len as usize, Some(loan)), start: 0, len })
    }

    /// A reading handle on memory lent by another shard.
    pub fn adopt(&self, loan: Loan) -> Buf {
        let (memory, len) = (loan.memory, loan.len);
        Buf { block: self.head(memory, len as usize, Some(loan)), start: 0, len }
    }

    /// Loans of other shards whose last handle here was dropped; the caller sends them home.
    pub fn take_returns(&self, into: &mut Vec<Loan>) {
        into.append(&mut self.0.returns.borrow_mut());
    }

    /// The handle that a loan was made of, now that the loan is back home.
    ///
    /// # Errors
    /// Gives the loan back when it is not this shard's.
    pub fn reclaim(&self, loan: Loan) -> Result<BufMut, Loan> {
        if loan.pool != self.0.identity || !loan.writable {
            return Err(loan);
        }
        Ok(loan.into_handle())
    }

    /// Lets go of a loan that is back home, of either kind.
    ///
    /// # Errors
    /// Gives the loan back when it is not this shard's.
    pub fn settle(&self, loan: Loan) -> Result<(), Loan> {
        if loan.pool != self.0.identity {
            return Err(loan);
        }
        drop(loan.into_handle());
        Ok(())
    }
}

fn class_of(len: usize) -> Option<usize> {
    let shift = len.max(1).next_power_of_two().trailing_zeros().max(CLASS_MIN_SHIFT);
    (shift <= CLASS_MAX_SHIFT).then(|| (shift - CLASS_MIN_SHIFT) as usize)
}

fn round_up(len: usize) -> usize {
    len.div_ceil(ALIGN) * ALIGN
}

fn block_layout(capacity: usize) -> Layout {
    match Layout::from_size_align(capacity, ALIGN) {
        Ok(layout) => layout,
        // Only for sizes beyond isize::MAX, which no caller's u32 length reaches.
        Err(_) => handle_alloc_error(Layout::new::<u8>()),
    }
}

fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = block_layout(capacity);
    // SAFETY: `capacity` is at least ALIGN, so the layout is not empty. Zeroed, so that no read
    // of a fresh buffer is a read of uninitialised memory.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

impl PoolInner {
    fn take_kept(&self, class: usize) -> Option<NonNull<u8>> {
        let mut free = self.free.borrow_mut();
        let memory = free[class].pop();
        let unused = &mut self.unused.borrow_mut()[class];
        *unused = free[class].len().min(*unused);
        memory
    }

    /// Frees those `count` blocks of a class that have been free for the longest.
    fn release_kept(&self, class: usize, count: usize) {
        let capacity = 1 << (class as u32 + CLASS_MIN_SHIFT);
        let blocks = &mut self.free.borrow_mut()[class];
        for memory in blocks.drain(..count.min(blocks.len())) {
            // SAFETY: every block in class `class` came from `allocate` with this size and
            // nothing points to it any more: it is in the free list.
            unsafe { dealloc(memory.as_ptr(), block_layout(capacity)) };
            self.kept.set(self.kept.get() - capacity);
        }
    }

    fn release_all(&self) {
        (0..CLASSES).for_each(|class| self.release_kept(class, usize::MAX));
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// Drops one handle; the last one gives memory and head back.
fn release(block: NonNull<Block>) {
    // SAFETY: the caller owns a handle, so the block is alive.
    let head = unsafe { block.as_ref() };
    let handles = head.handles.get() - 1;
    head.handles.set(handles);
    if handles > 0 {
        return;
    }
    // SAFETY: that was the last handle: the head is ours, initialised, and never used again
    // before `Pool::head` writes it anew.
    let head = unsafe { block.as_ptr().read() };
    // SAFETY: the pointer came from Box::into_raw of a Box<MaybeUninit<Block>>.
    let empty = unsafe { Box::from_raw(block.as_ptr().cast::<std::mem::MaybeUninit<Block>>()) };
    head.pool.heads.borrow_mut().push(empty);
    match head.origin.take() {
        Some(loan) => head.pool.returns.borrow_mut().push(loan),
        None => give_back(&head.pool, head.memory, head.capacity),
    }
}

fn give_back(pool: &PoolInner, memory: NonNull<u8>, capacity: usize) {
    pool.outstanding.set(pool.outstanding.get() - capacity);
    if let Some(class) = class_of(capacity) {
        let mut free = pool.free.borrow_mut();
        if (free[class].len() + 1) * capacity <= KEEP_PER_CLASS {
            free[class].push(memory);
            pool.kept.set(pool.kept.get() + capacity);
            return;
        }
    }
    // SAFETY: `memory` came from `allocate(capacity)` and its last handle is gone.
    unsafe { dealloc(memory.as_ptr(), block_layout(capacity)) };
}

fn add_handle(block: NonNull<Block>) {
    // SAFETY: the caller owns a handle, so the block is alive.
    let head = unsafe { block.as_ref() };
    let handles = head.handles.get();
    if handles == u32::MAX {
        // Handles that were forgotten, four billion times; one more and the count would lie.
        std::process::abort();
    }
    head.handles.set(handles + 1);
}

fn address(block: NonNull<Block>, start: u32) -> *mut u8 {
    // SAFETY: the caller owns a handle, so the block is alive, and `start` is within its memory.
    unsafe { block.as_ref().memory.as_ptr().add(start as usize) }
}

fn lend(block: NonNull<Block>, start: u32, len: u32, writable: bool) -> Loan {
    // SAFETY: the caller owns a handle, so the block is alive.
    let pool = &unsafe { block.as_ref() }.pool;
    let (home, pool) = (pool.shard, pool.identity);
    // SAFETY: an address inside an allocation is not null.
    let memory = unsafe { NonNull::new_unchecked(address(block, start)) };
    Loan { block, start, memory, len, home, pool, writable }
}

/// The sole handle on a range of aligned memory: may be written. `!Send`.
pub struct BufMut {
    block: NonNull<Block>,
    start: u32,
    len: u32,
}

/// One of any number of reading handles on a range of aligned memory. `!Send`.
pub struct Buf {
    block: NonNull<Block>,
    start: u32,
    len: u32,
}

impl BufMut {
    /// Cuts the range in two: `self` keeps the first `at` bytes, the rest is returned.
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

    /// Puts back what [`split_off`](BufMut::split_off) cut.
    ///
    /// # Errors
    /// Gives `rest` back when it does not follow `self` in the same block.
    pub fn rejoin(&mut self, rest: BufMut) -> Result<(), BufMut> {
        if rest.block != self.block || rest.start != self.start + self.len {
            return Err(rest);
        }
        self.len += rest.len;
        Ok(())
    }

    /// Shortens to `len` bytes; the rest of the range is not reachable any more.
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len as usize) as u32;
    }

    /// Gives up writing; the result can be cloned.
    pub fn freeze(self) -> Buf {
        let buf = Buf { block: self.block, start: self.start, len: self.len };
        std::mem::forget(self);
        buf
    }

    /// Turns the handle into something that can travel to another shard.
    ///
    /// # Errors
    /// Gives the handle back when it is a part of memory that is itself on loan.
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

    /// The writable handle, when this is the only handle on the whole block.
    ///
    /// # Errors
    /// Gives the handle back when there are others.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        // SAFETY: `self` is a handle, so the block is alive.
        let head = unsafe { self.block.as_ref() };
        let read_only_loan = {
            let origin = head.origin.take();
            let read_only = origin.as_ref().is_some_and(|loan| !loan.writable);
            head.origin.set(origin);
            read_only
        };
        if head.handles.get() != 1 || read_only_loan {
            return Err(self);
        }
        let buf = BufMut { block: self.block, start: self.start, len: self.len };
        std::mem::forget(self);
        Ok(buf)
    }

    /// Turns the handle into something that can travel to another shard.
    ///
    /// # Errors
    /// Gives the handle back when it is a part of memory that is itself on loan.
    pub fn into_loan(self) -> Result<Loan, Buf> {
        into_loan(self, |own| (own.block, own.start, own.len, false))
    }
}

/// Memory of this shard is lent; memory on loan is handed back, when nothing else uses it.
fn into_loan<H>(own: H, parts: impl Fn(&H) -> (NonNull<Block>, u32, u32, bool)) -> Result<Loan, H> {
    let (block, start, len, writable) = parts(&own);
    // SAFETY: `own` is a handle, so the block is alive.
    let head = unsafe { block.as_ref() };
    let Some(origin) = head.origin.take() else {
        std::mem::forget(own);
        return Ok(lend(block, start, len, writable));
    };
    let whole = start == 0 && len as usize == head.capacity && head.handles.get() == 1;
    if !whole {
        head.origin.set(Some(origin));
        return Err(own);
    }
    drop(own_without_origin(own, block));
    Ok(origin)
}

/// The origin was taken, so dropping the handle must free only the head.
fn own_without_origin<H>(own: H, block: NonNull<Block>) -> HeadOnly {
    std::mem::forget(own);
    HeadOnly(block)
}

struct HeadOnly(NonNull<Block>);

impl Drop for HeadOnly {
    fn drop(&mut self) {
        // SAFETY: made from the last handle of an initialised head, which nobody uses any more.
        let head = unsafe { self.0.as_ptr().read() };
        // SAFETY: the pointer came from Box::into_raw of a Box<MaybeUninit<Block>>.
        let empty =
            unsafe { Box::from_raw(self.0.as_ptr().cast::<std::mem::MaybeUninit<Block>>()) };
        head.pool.heads.borrow_mut().push(empty);
    }
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
