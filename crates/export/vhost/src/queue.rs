//! A ring in the guest's memory: what the driver makes available, and what has been used.
//!
//! The indices and notifications of the ring are `virtio-queue`'s. Chains are walked here, since those that an interrupted
//! server left are found by their heads, which no iterator over what is available gives any more.
//!
//! Invariant: a chain that is given has at most [`PARTS_MAX`] parts, each within the guest's memory, and those that
//! the device reads stand before those that it writes. A descriptor is read once.

use crate::inflight::{InflightError, Left, Tracker};
use crate::memory::Memory;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

/// Requests that a ring may hold.
pub const RING_SIZE_MAX: u16 = 1024;
/// Parts of the payload of a request.
pub const SEGMENTS_MAX: u32 = 254;
/// Parts of a chain: the payload's, the header and the status.
pub const PARTS_MAX: usize = SEGMENTS_MAX as usize + 2;

const DESCRIPTOR_BYTES: u64 = 16;
const F_NEXT: u16 = 1;
const F_WRITE: u16 = 2;
const F_INDIRECT: u16 = 4;

/// The driver broke a rule of the ring.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The ring cannot be where it is said to be, or of that size.
    #[error(
        "a ring of {size} requests cannot be at {descriptors:#x}, {available:#x} and {used:#x}"
    )]
    Place {
        /// Requests that it may hold.
        size: u16,
        /// The guest's address of its descriptors.
        descriptors: u64,
        /// That of what is available.
        available: u64,
        /// That of what is used.
        used: u64,
    },
    /// An address in the front end that no region has.
    #[error("a ring at {0:#x} in the front end is in none of the guest's memory")]
    Unknown(u64),
    /// Its indices are impossible.
    #[error("the ring: {0}")]
    Ring(#[from] virtio_queue::Error),
    /// The memory that tracks requests.
    #[error("{0}")]
    Tracking(#[from] InflightError),
    /// A head, or the next descriptor of one, that there is not.
    #[error("a chain goes to descriptor {index} of {of}")]
    Index {
        /// Its number.
        index: u16,
        /// Entries of the table.
        of: u32,
    },
    /// A chain that comes back to itself.
    #[error("a chain of descriptors has no end")]
    Loop,
    /// A chain with more parts than a request may have.
    #[error("a chain has more than {PARTS_MAX} parts")]
    Long,
    /// A table of descriptors in a table, or one of an impossible length.
    #[error("a chain goes to a table of {0} bytes that cannot be")]
    Table(u32),
    /// A part outside of the guest's memory.
    #[error("a chain has {length} bytes at {address:#x}, outside of the guest's memory")]
    Memory {
        /// The guest's address.
        address: u64,
        /// Bytes.
        length: u32,
    },
    /// A part for the device to read behind one to write.
    #[error("a chain has a part to read behind one to write")]
    Order,
    /// The file of the guest's memory was made shorter.
    #[error("memory of the guest is gone: its file was made shorter")]
    Gone,
    /// It has no room for an answer, or no request in it.
    #[error("a chain is too short for a request and its status")]
    Short,
}

/// Consecutive bytes of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The guest's address.
    pub address: GuestAddress,
    /// Bytes, at least one.
    pub length: u32,
}

/// Parts in their order. Nearly all requests have one or two.
pub type Parts = SmallVec<[Part; 2]>;

/// A request as the driver has laid it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The number of its first descriptor, under which it is used.
    pub head: u16,
    /// Parts that the device reads.
    pub readable: Parts,
    /// Parts that it writes.
    pub writable: Parts,
}

/// Where a ring is, and where it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Requests that it may hold.
    pub size: u16,
    /// Addresses in the front end: descriptors.
    pub descriptors: u64,
    /// The available ring.
    pub available: u64,
    /// The used ring.
    pub used: u64,
    /// The index of the first request that is not taken yet.
    pub base: u16,
    /// Notifications are asked for by index.
    pub event_index: bool,
}

/// See the module's documentation.
pub struct Ring {
    queue: Queue,
    memory: Rc<Memory>,
    tracker: Option<Tracker>,
    /// Heads that an interrupted server has left.
    left: VecDeque<u16>,
}

impl Ring {
    /// Takes a ring into use; `tracker` keeps what is under way in it, and has what was.
    ///
    /// # Errors
    /// A place outside of the guest's memory or not aligned, an impossible size, impossible marks.
    pub fn start(
        memory: &Rc<Memory>,
        place: Place,
        tracker: Option<Tracker>,
    ) -> Result<Ring, QueueError> {
        let of_user = |address: u64| memory.of_user(address).ok_or(QueueError::Unknown(address));
        let (descriptors, available, used) =
            (of_user(place.descriptors)?, of_user(place.available)?, of_user(place.used)?);
        let size = place.size;
        let impossible = || QueueError::Place { size, descriptors, available, used };
        let mut queue = Queue::new(RING_SIZE_MAX)?;
        queue.try_set_size(size).map_err(|_| impossible())?;
        queue.try_set_desc_table_address(GuestAddress(descriptors)).map_err(|_| impossible())?;
        queue.try_set_avail_ring_address(GuestAddress(available)).map_err(|_| impossible())?;
        queue.try_set_used_ring_address(GuestAddress(used)).map_err(|_| impossible())?;
        queue.set_event_idx(place.event_index);
        queue.set_ready(true);
        if available == 0 || !queue.is_valid(memory.guest()) {
            return Err(impossible());
        }
        let used = queue.used_idx(memory.guest(), Ordering::Acquire)?.0;
        queue.set_next_used(used);
        queue.set_next_avail(place.base);
        let left = tracker.as_ref().map(|tracker| tracker.open(used)).transpose()?;
        let Left { heads, known } = left.unwrap_or_default();
        if known {
            // Heads that the last server took are used or marked, and marked heads were taken.
            queue.set_next_avail(used.wrapping_add(heads.len() as u16));
        }
        Ok(Ring { queue, memory: Rc::clone(memory), tracker, left: heads.into() })
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Rc<Memory> {
        &self.memory
    }

    /// The index of the first request that is not taken yet.
    pub fn base(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Takes the next request; `None` when there is none now.
    ///
    /// # Errors
    /// A driver that breaks the rules: the ring is of no further use.
    pub fn pop(&mut self) -> Result<Option<Chain>, QueueError> {
        let head = match self.left.pop_front() {
            // It is marked already.
            Some(head) => head,
            None => {
                let memory = &self.memory;
                let next = self.queue.iter(memory.guest())?.next();
                let Some(chain) = next else {
                    self.check_memory()?;
                    return Ok(None);
                };
                let head = chain.head_index();
                self.check_index(head, u32::from(self.queue.size()))?;
                if let Some(tracker) = &self.tracker {
                    tracker.began(head)?;
                }
                head
            }
        };
        let chain = self.walk(head)?;
        self.check_memory()?;
        Ok(Some(chain))
    }

    /// Checks that the guest's memory was there for all reads so far.
    fn check_memory(&self) -> Result<(), QueueError> {
        if self.memory.is_broken() { Err(QueueError::Gone) } else { Ok(()) }
    }

    /// Tells the driver that the request with this head has ended, with so many bytes written.
    ///
    /// # Errors
    /// A head that there is not.
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), QueueError> {
        if let Some(tracker) = &self.tracker {
            tracker.ending(head)?;
        }
        self.queue.add_used(self.memory.guest(), head, written)?;
        self.check_memory()?;
        if let Some(tracker) = &self.tracker {
            tracker.ended(head, self.queue.next_used())?;
        }
        Ok(())
    }

    /// Asks the driver not to say that there is something: it is looked for anyway.
    ///
    /// # Errors
    /// Memory that is not there.
    pub fn ask_for_no_kick(&mut self) -> Result<(), QueueError> {
        Ok(self.queue.disable_notification(self.memory.guest())?)
    }

    /// Asks the driver to say when there is something. True when there is by now.
    ///
    /// # Errors
    /// Memory that is not there.
    pub fn ask_for_kick(&mut self) -> Result<bool, QueueError> {
        Ok(self.queue.enable_notification(self.memory.guest())? || !self.left.is_empty())
    }

    /// The driver wants to be told of what has ended since this was last asked.
    ///
    /// # Errors
    /// Memory that is not there.
    pub fn wants_call(&mut self) -> Result<bool, QueueError> {
        Ok(self.queue.needs_notification(self.memory.guest())?)
    }

    fn check_index(&self, index: u16, of: u32) -> Result<(), QueueError> {
        if u32::from(index) < of { Ok(()) } else { Err(QueueError::Index { index, of }) }
    }

    fn walk(&self, head: u16) -> Result<Chain, QueueError> {
        let guest = self.memory.guest();
        let mut table = GuestAddress(self.queue.desc_table());
        let mut count = u32::from(self.queue.size());
        let (mut index, mut steps, mut indirect) = (head, 0, false);
        let mut chain = Chain { head, readable: Parts::new(), writable: Parts::new() };
        loop {
            self.check_index(index, count)?;
            if steps == count {
                return Err(QueueError::Loop);
            }
            steps += 1;
            let at = table.0.checked_add(u64::from(index) * DESCRIPTOR_BYTES);
            let outside = |address| QueueError::Memory { address, length: DESCRIPTOR_BYTES as u32 };
            let at = at.ok_or(outside(table.0))?;
            let [address, rest] =
                guest.read_obj::<[u64; 2]>(GuestAddress(at)).map_err(|_| outside(at))?;
            let (address, rest) = (u64::from_le(address), u64::from_le(rest));
            let (length, flags, next) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
            if flags & F_INDIRECT != 0 {
                let whole = length > 0 && u64::from(length) % DESCRIPTOR_BYTES == 0;
                if indirect || flags & F_NEXT != 0 || !whole {
                    return Err(QueueError::Table(length));
                }
                (table, count) = (GuestAddress(address), length / DESCRIPTOR_BYTES as u32);
                (index, steps, indirect) = (0, 0, true);
                continue;
            }
            self.take_part(&mut chain, (address, length), flags & F_WRITE != 0)?;
            if flags & F_NEXT == 0 {
                return Ok(chain);
            }
            index = next;
        }
    }

    fn take_part(
        &self,
        chain: &mut Chain,
        (address, length): (u64, u32),
        writable: bool,
    ) -> Result<(), QueueError> {
        if chain.readable.len() + chain.writable.len() == PARTS_MAX {
            return Err(QueueError::Long);
        }
        if !writable && !chain.writable.is_empty() {
            return Err(QueueError::Order);
        }
        if length == 0 {
            return Ok(());
        }
        let access = if writable { Permissions::Write } else { Permissions::Read };
        let guest = self.memory.guest();
        if !GuestMemory::check_range(guest, GuestAddress(address), length as usize, access) {
            return Err(QueueError::Memory { address, length });
        }
        let part = Part { address: GuestAddress(address), length };
        if writable {
            chain.writable.push(part)
        } else {
            chain.readable.push(part)
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
