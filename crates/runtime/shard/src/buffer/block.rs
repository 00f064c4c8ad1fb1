//! Blocks of memory: their heads, the lists of the pool that they return to, and the loans on which they travel.
//!
//! They hold one another: a block knows its pool and the loan that its memory came by, a pool the loans that go home,
//! and a loan its block. So they are in one file.

use super::memory::{CLASS_MIN_SHIFT, CLASSES, KEEP_PER_CLASS, block_layout};
use super::region::Regions;
use crate::id::ShardId;
use std::alloc::dealloc;
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;

/// The head of a block: the number of its handles, and the pool that it goes back to.
pub(super) struct Block {
    pub(super) handles: Cell<u32>,
    pub(super) memory: NonNull<u8>,
    pub(super) capacity: usize,
    pub(super) kind: Kind,
    /// The region that its memory was cut from, if it is a small one of this pool.
    pub(super) region: Option<u32>,
    /// There while the block has handles. A block that the pool keeps must not hold the pool: neither would ever be freed.
    pub(super) pool: Cell<Option<Rc<PoolInner>>>,
    /// Set when the memory belongs to another shard's block.
    pub(super) origin: Cell<Option<Loan>>,
}

/// The end of a block whose last handle was dropped.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Kept for reuse in this class, memory and head, while there is room.
    Kept(usize),
    /// Its memory goes back to the system.
    Large,
    /// Its memory is another shard's, and the loan goes home.
    Lent,
}

/// The free blocks of one class.
#[derive(Default)]
pub(super) struct Class {
    pub(super) regions: Regions,
    /// Used last in, first out.
    pub(super) free: Vec<NonNull<Block>>,
    /// Blocks that have been free ever since the last trim: the first so many.
    pub(super) unused: usize,
}

pub(super) struct PoolInner {
    pub(super) shard: ShardId,
    /// Unlike the shard's number, never the same for two pools of the process.
    pub(super) identity: u64,
    pub(super) classes: RefCell<[Class; CLASSES]>,
    pub(super) heads: RefCell<Heads>,
    pub(super) outstanding: Cell<usize>,
    /// Loans whose last handle here was dropped, to be sent home.
    pub(super) returns: RefCell<Vec<Loan>>,
}

impl PoolInner {
    /// A free block of a class, without handles.
    #[inline]
    pub(super) fn take_kept(&self, class: usize) -> Option<NonNull<Block>> {
        let mut classes = self.classes.borrow_mut();
        let Class { free, unused, .. } = classes.get_mut(class)?;
        let block = free.pop()?;
        *unused = free.len().min(*unused);
        Some(block)
    }

    /// Returns `count` blocks of a class to the system: those that have been free for the longest time.
    pub(super) fn release_kept(&self, class: usize, count: usize) {
        let Class { free, regions, .. } = &mut self.classes.borrow_mut()[class];
        let mut of_regions = Vec::new();
        for block in free.drain(..count.min(free.len())) {
            // SAFETY: a block in this list is initialised, has no handles, and leaves the list here.
            let Memory { at, capacity, region } = unsafe { self.heads.borrow_mut().take(block) };
            match region {
                Some(number) => of_regions.push((at, number)),
                // SAFETY: nobody uses the memory of such a block, and without a region it was allocated by itself.
                None => unsafe { dealloc(at.as_ptr(), block_layout(capacity)) },
            }
        }
        // SAFETY: nobody uses their memory, and the regions of a class have blocks of its size only.
        unsafe { regions.give_back(&of_regions, 1 << (class as u32 + CLASS_MIN_SHIFT)) };
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

/// Heads that no block has. Handles point to heads, so they stay where they are while the pool is there, and their memory
/// is had for many at once.
#[derive(Default)]
pub(super) struct Heads {
    unused: Vec<NonNull<Block>>,
    chunks: Vec<NonNull<[MaybeUninit<Block>]>>,
}

/// Heads in a chunk.
const HEADS: usize = 1024;

/// The memory of a block.
struct Memory {
    at: NonNull<u8>,
    capacity: usize,
    region: Option<u32>,
}

impl Heads {
    /// A place for `block`. The pool must outlive it.
    pub(super) fn put(&mut self, block: Block) -> NonNull<Block> {
        let place = match self.unused.pop() {
            Some(place) => place,
            None => self.grow(),
        };
        // SAFETY: the place is one of a chunk, and no other block has it.
        unsafe { place.write(block) };
        place
    }

    fn grow(&mut self) -> NonNull<Block> {
        let chunk = NonNull::from(Box::leak(Box::new_uninit_slice(HEADS)));
        let first = chunk.cast::<Block>();
        // SAFETY: the places lie one after the other within the chunk.
        self.unused.extend((1..HEADS).map(|nr| unsafe { first.add(nr) }));
        self.chunks.push(chunk);
        first
    }

    /// Takes a head back, and gives the memory that it was of.
    ///
    /// # Safety
    /// The head is initialised, and nobody uses it any more.
    unsafe fn take(&mut self, place: NonNull<Block>) -> Memory {
        // SAFETY: as the caller promises; it is not used again before `put` has written another.
        let block = unsafe { place.read() };
        self.unused.push(place);
        Memory { at: block.memory, capacity: block.capacity, region: block.region }
    }
}

impl Drop for Heads {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: it was leaked by `grow`, and no block outlives its pool.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

/// Drops one handle; with the last one the block goes back to its pool.
#[inline]
pub(super) fn release(block: NonNull<Block>) {
    // SAFETY: the caller owns a handle, so the block is alive.
    let head = unsafe { block.as_ref() };
    let handles = head.handles.get() - 1;
    head.handles.set(handles);
    if handles == 0 {
        // SAFETY: that was the last handle.
        unsafe { to_pool(block) };
    }
}

/// Takes a block back.
///
/// # Safety
/// The head is initialised, and the block has no handles.
unsafe fn to_pool(block: NonNull<Block>) {
    // SAFETY: as the caller promises.
    let head = unsafe { block.as_ref() };
    // A block that had handles has its pool, too.
    let Some(pool) = head.pool.take() else { return };
    if let Kind::Kept(class) = head.kind
        && let Some(class) = pool.classes.borrow_mut().get_mut(class)
        && (class.free.len() + 1) * head.capacity <= KEEP_PER_CLASS
    {
        class.free.push(block);
        return pool.outstanding.set(pool.outstanding.get() - head.capacity);
    }
    // SAFETY: as the caller promises, and the block is in no list.
    unsafe { release_block(&pool, block) };
}

/// Takes a block back that is not kept.
///
/// # Safety
/// The head is initialised, and nobody uses the block any more.
#[cold]
unsafe fn release_block(pool: &PoolInner, block: NonNull<Block>) {
    // SAFETY: as the caller promises.
    let head = unsafe { block.as_ref() };
    let (kind, loan) = (head.kind, head.origin.take());
    // SAFETY: as the caller promises.
    let Memory { at, capacity, region } = unsafe { pool.heads.borrow_mut().take(block) };
    let class = match kind {
        Kind::Lent => return pool.returns.borrow_mut().extend(loan),
        Kind::Kept(class) => class,
        Kind::Large => 0,
    };
    pool.outstanding.set(pool.outstanding.get() - capacity);
    if let Some(class) = pool.classes.borrow_mut().get_mut(class) {
        match region {
            // SAFETY: it is no loan, nobody uses it any more, and blocks of a class are as large as those of its regions.
            Some(number) => unsafe { class.regions.give_back(&[(at, number)], capacity) },
            // SAFETY: it is no loan, nobody uses it any more, and without a region it was allocated by itself.
            None => unsafe { dealloc(at.as_ptr(), block_layout(capacity)) },
        }
    }
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

fn lend(block: NonNull<Block>, pool: &PoolInner, start: u32, len: u32, writable: bool) -> Loan {
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
        let Some(pool) = head.pool.take() else { return Err(own) };
        let loan = lend(block, &pool, start, len, writable);
        head.pool.set(Some(pool));
        std::mem::forget(own);
        return Ok(loan);
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
        // SAFETY: made from the last handle, so the head is initialised.
        let pool = unsafe { self.0.as_ref() }.pool.take();
        if let Some(pool) = pool {
            // SAFETY: as above, and nobody uses the head any more.
            unsafe { pool.heads.borrow_mut().take(self.0) };
        }
    }
}
