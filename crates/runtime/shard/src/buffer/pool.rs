//! The pool of a shard: where its buffers come from and return to, and where loans are borrowed and reclaimed.

use super::block::{Block, Class, Kind, Loan, PoolInner};
use super::handle::{Buf, BufMut};
use super::memory::{CLASS_MIN_SHIFT, CLASSES, LEN_MAX, allocate, class_of, round_up};
use super::region;
use crate::id::ShardId;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

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
            classes: RefCell::default(),
            heads: RefCell::default(),
            outstanding: Cell::new(0),
            returns: RefCell::new(Vec::new()),
        }))
    }

    /// A buffer of `len` bytes, aligned to [`ALIGN`](super::ALIGN). It still has its previous content (zeroes when the
    /// memory is fresh), so the caller must overwrite it.
    ///
    /// # Panics
    /// When `len` is [`LEN_MAX`] or more.
    // Where the length is known little of it is left.
    #[inline(always)]
    pub fn get(&self, len: usize) -> BufMut {
        if len < LEN_MAX
            && let Some(class) = class_of(len)
            && let Some(block) = self.0.take_kept(class)
        {
            // SAFETY: a block that the pool kept is initialised.
            let head = unsafe { block.as_ref() };
            self.0.outstanding.set(self.0.outstanding.get() + head.capacity);
            head.handles.set(1);
            head.pool.set(Some(Rc::clone(&self.0)));
            return BufMut { block, start: 0, len: len as u32 };
        }
        self.fresh(len)
    }

    /// [`get`](Pool::get) of memory that the pool has not kept.
    #[cold]
    #[inline(never)]
    fn fresh(&self, len: usize) -> BufMut {
        assert!(len < LEN_MAX, "a buffer of {len} bytes");
        let class = class_of(len);
        let capacity = class.map_or(round_up(len), |class| 1 << (class as u32 + CLASS_MIN_SHIFT));
        self.0.outstanding.set(self.0.outstanding.get() + capacity);
        let kind = class.map_or(Kind::Large, Kind::Kept);
        let mut classes = self.0.classes.borrow_mut();
        let class = class.and_then(|class| classes.get_mut(class));
        let (memory, region) = match class.filter(|_| capacity <= region::BLOCK_MAX) {
            Some(class) => {
                let (memory, number) = class.regions.take(capacity);
                (memory, Some(number))
            }
            None => (allocate(capacity), None),
        };
        let block = self.head(memory, capacity, (kind, region), None);
        BufMut { block, start: 0, len: len as u32 }
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

    /// One buffer of `parts`, in their order; `None` when there are none. Parts that were split from one buffer, and
    /// lie next to each other, are joined again without a copy; otherwise all are copied.
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
        let classes = self.0.classes.borrow();
        classes.iter().zip(CLASS_MIN_SHIFT..).map(|(class, shift)| class.free.len() << shift).sum()
    }

    /// Returns the blocks to the system that have been free ever since this was last called.
    pub fn trim_unused(&self) {
        for class in 0..CLASSES {
            let unused = self.0.classes.borrow()[class].unused;
            self.0.release_kept(class, unused);
            let Class { free, unused, .. } = &mut self.0.classes.borrow_mut()[class];
            *unused = free.len();
        }
    }

    /// Returns all free blocks to the system.
    pub fn trim(&self) {
        self.0.release_all();
    }

    fn head(
        &self,
        memory: NonNull<u8>,
        capacity: usize,
        (kind, region): (Kind, Option<u32>),
        origin: Option<Loan>,
    ) -> NonNull<Block> {
        self.0.heads.borrow_mut().put(Block {
            handles: Cell::new(1),
            memory,
            capacity,
            kind,
            region,
            pool: Cell::new(Some(Rc::clone(&self.0))),
            origin: Cell::new(origin),
        })
    }

    /// A writable handle on memory lent by another shard.
    ///
    /// # Errors
    /// Returns the loan when it was lent for reading only.
    pub fn adopt_mut(&self, loan: Loan) -> Result<BufMut, Loan> {
        if !loan.writable {
            return Err(loan);
        }
        let (memory, len) = (loan.memory, loan.len);
        Ok(BufMut {
            block: self.head(memory, len as usize, (Kind::Lent, None), Some(loan)),
            start: 0,
            len,
        })
    }

    /// A reading handle on memory lent by another shard.
    pub fn adopt(&self, loan: Loan) -> Buf {
        let (memory, len) = (loan.memory, loan.len);
        Buf {
            block: self.head(memory, len as usize, (Kind::Lent, None), Some(loan)),
            start: 0,
            len,
        }
    }

    /// Loans of other shards whose last handle here was dropped; the caller sends them home.
    pub fn take_returns(&self, into: &mut Vec<Loan>) {
        into.append(&mut self.0.returns.borrow_mut());
    }

    /// The handle that a loan was made of, now that the loan is back home.
    ///
    /// # Errors
    /// Returns the loan when it is not this shard's, or was made of a read-only handle.
    pub fn reclaim(&self, loan: Loan) -> Result<BufMut, Loan> {
        if loan.pool != self.0.identity || !loan.writable {
            return Err(loan);
        }
        Ok(BufMut::of(loan))
    }

    /// Drops the handle that a loan was made of, writable or not, now that the loan is back home.
    ///
    /// # Errors
    /// Returns the loan when it is not this shard's.
    pub fn release(&self, loan: Loan) -> Result<(), Loan> {
        if loan.pool != self.0.identity {
            return Err(loan);
        }
        drop(BufMut::of(loan));
        Ok(())
    }
}
