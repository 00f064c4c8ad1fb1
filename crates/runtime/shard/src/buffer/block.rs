//! Blocks of memory: their heads, the lists of the pool that they return to, and the loans on which they travel.
//!
//! They hold one another: a block knows its pool and the loan that its memory came by, a pool the loans that go home,
//! and a loan its block. So they are in one file.

use super::memory::{CLASS_MIN_SHIFT, CLASSES, KEEP_PER_CLASS, block_layout, class_of};
use crate::id::ShardId;
use std::alloc::dealloc;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

/// The head of a block: the number of its handles, and the pool that its memory goes back to.
pub(super) struct Block {
    pub(super) handles: Cell<u32>,
    pub(super) memory: NonNull<u8>,
    pub(super) capacity: usize,
    pub(super) pool: Rc<PoolInner>,
    /// Set when the memory belongs to another shard's block.
    pub(super) origin: Cell<Option<Loan>>,
}

pub(super) struct PoolInner {
    pub(super) shard: ShardId,
    /// Unlike the shard's number, never the same for two pools of the process.
    pub(super) identity: u64,
    pub(super) free: RefCell<[Vec<NonNull<u8>>; CLASSES]>,
    /// Blocks of each class that have been free ever since the last trim.
    pub(super) unused: RefCell<[usize; CLASSES]>,
    /// Uninitialised heads for reuse. They are boxed because handles point to them.
    #[allow(clippy::vec_box)]
    pub(super) heads: RefCell<Vec<Box<std::mem::MaybeUninit<Block>>>>,
    pub(super) outstanding: Cell<usize>,
    pub(super) kept: Cell<usize>,
    /// Loans whose last handle here was dropped, to be sent home.
    pub(super) returns: RefCell<Vec<Loan>>,
}

impl PoolInner {
    pub(super) fn take_kept(&self, class: usize) -> Option<NonNull<u8>> {
        let mut free = self.free.borrow_mut();
        let memory = free[class].pop();
        let unused = &mut self.unused.borrow_mut()[class];
        *unused = free[class].len().min(*unused);
        memory
    }

    /// Returns `count` blocks of a class to the system: those that have been free for the longest time.
    pub(super) fn release_kept(&self, class: usize, count: usize) {
        let capacity = 1 << (class as u32 + CLASS_MIN_SHIFT);
        let blocks = &mut self.free.borrow_mut()[class];
        for memory in blocks.drain(..count.min(blocks.len())) {
            // SAFETY: every block in class `class` came from `allocate` with this size and
            // nothing points to it any more: it is in the free list.
            unsafe { dealloc(memory.as_ptr(), block_layout(capacity)) };
            self.kept.set(self.kept.get() - capacity);
        }
    }

    pub(super) fn release_all(&self) {
        (0..CLASSES).for_each(|class| self.release_kept(class, usize::MAX));
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// Drops one handle; the last one returns the memory and the head.
pub(super) fn release(block: NonNull<Block>) {
    // SAFETY: the caller owns a handle, so the block is alive.
    let head = unsafe { block.as_ref() };
    let handles = head.handles.get() - 1;
    head.handles.set(handles);
    if handles > 0 {
        return;
    }
    // SAFETY: that was the last handle, so nobody else uses the head; it is initialised, and it is not used again
    // until `Pool::head` has written a new one into it.
    let head = unsafe { block.as_ptr().read() };
    // SAFETY: the pointer came from Box::into_raw of a Box<MaybeUninit<Block>>.
    let empty = unsafe { Box::from_raw(block.as_ptr().cast::<std::mem::MaybeUninit<Block>>()) };
    head.pool.heads.borrow_mut().push(empty);
    match head.origin.take() {
        Some(loan) => head.pool.returns.borrow_mut().push(loan),
        None => free_memory(&head.pool, head.memory, head.capacity),
    }
}

fn free_memory(pool: &PoolInner, memory: NonNull<u8>, capacity: usize) {
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

pub(super) fn add_handle(block: NonNull<Block>) {
    // SAFETY: the caller owns a handle, so the block is alive.
    let head = unsafe { block.as_ref() };
    let handles = head.handles.get();
    if handles == u32::MAX {
        // Only leaked handles get here, four billion of them; with one more the count would wrap to zero.
        std::process::abort();
    }
    head.handles.set(handles + 1);
}

pub(super) fn address(block: NonNull<Block>, start: u32) -> *mut u8 {
    // SAFETY: the caller owns a handle, so the block is alive, and `start` is within its memory.
    unsafe { block.as_ref().memory.as_ptr().add(start as usize) }
}

/// A handle on its way to another shard or back. While it exists, its memory stays allocated.
/// Only [`Pool::release`](super::Pool::release) on its home shard frees it: dropping a loan anywhere else leaks its
/// block, because another shard might still use the memory.
#[derive(Debug)]
pub struct Loan {
    pub(super) block: NonNull<Block>,
    pub(super) start: u32,
    pub(super) memory: NonNull<u8>,
    pub(super) len: u32,
    pub(super) home: ShardId,
    /// The pool's identity. The shard's number would not do: two pools of a process may have the same.
    pub(super) pool: u64,
    pub(super) writable: bool,
}

// SAFETY: a loan counts as one handle on its block, but touches the block's (unsynchronised) count at
// home only: the handle is made again by Pool::reclaim and Pool::release alone, after they have
// checked that the pool is the block's own, and a pool never leaves its thread. The memory behind it
// is used by one shard at a time for writing, since the loan replaces the only writable handle.
unsafe impl Send for Loan {}

impl Loan {
    /// The shard whose memory this is.
    pub fn home(&self) -> ShardId {
        self.home
    }

    /// Bytes in the range.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True for a range of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn lend(block: NonNull<Block>, start: u32, len: u32, writable: bool) -> Loan {
    // SAFETY: the caller owns a handle, so the block is alive.
    let pool = &unsafe { block.as_ref() }.pool;
    let (home, pool) = (pool.shard, pool.identity);
    // SAFETY: an address inside an allocation is not null.
    let memory = unsafe { NonNull::new_unchecked(address(block, start)) };
    Loan { block, start, memory, len, home, pool, writable }
}

/// Lends the range of `own` to another shard or, when it is itself on loan, makes the loan that goes home; for that
/// `own` must be the only handle and cover all of it.
pub(super) fn into_loan<H>(
    own: H,
    parts: impl Fn(&H) -> (NonNull<Block>, u32, u32, bool),
) -> Result<Loan, H> {
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

/// The loan goes home with the memory, so dropping the handle must free only the head.
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
