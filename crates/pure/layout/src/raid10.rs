//! Level 10: striped copies, near, far and offset.
//!
//! Owns where the copies of each chunk are and which chunk a member's bytes belong to
//! (`raid10.c`). Invariant: all copies of a chunk are on distinct slots and no two chunks share a
//! place. Shapes of which the kernel's formula does not have this (near and far copies at once, sets
//! that are too small) are refused.

use smallvec::SmallVec;

use crate::divide::{Divisor, wrapped};
use crate::names::RAID10_OFFSET;
use crate::spec::within_limit;
use crate::{LayoutError, Level, Place, Slot, Spec};

const LEVEL: Level = Level::Raid10;

/// The places of all copies of one chunk. Up to four copies need no memory from the heap.
pub type Copies = SmallVec<[Place; 4]>;

/// The geometry of a level 10 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid10 {
    slots: usize,
    chunk_shift: u32,
    /// Chunks of the array.
    chunks: u64,
    /// Rows (chunks of one component) in use.
    rows: u64,
    /// Component byte at which the first row starts.
    start: u64,
    /// The number of the first chunk.
    first_chunk: u64,
    shape: Shape,
    by_slots: Divisor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Copies on consecutive slots of the chunk's row, going on in the next row.
    Near { copies: usize, by_copies: Divisor },
    /// Copy f is `f * stride` rows further down, on the slot f places on within its set.
    Far { copies: usize, stride: u64, sets: Sets, by_stride: Divisor },
    /// As far, but the copies are in the `copies` rows that follow one another.
    Offset { copies: usize, sets: Sets, by_copies: Divisor },
}

/// The sets within which far and offset copies go round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sets {
    size: usize,
    /// First slot of the last set, which also takes the slots left over.
    last_start: usize,
    last_size: usize,
}

impl Sets {
    fn new(slots: usize, size: usize) -> Sets {
        Sets { size, last_start: (slots / size - 1) * size, last_size: size + slots % size }
    }

    /// First slot and size of the set of a slot.
    fn of(&self, slot: Slot) -> (usize, usize) {
        if slot >= self.last_start {
            (self.last_start, self.last_size)
        } else {
            (slot - slot % self.size, self.size)
        }
    }

    /// The slot `steps` places on (fewer than the set's size) in the set of `slot`.
    fn forward(&self, slot: Slot, steps: usize) -> Slot {
        let (start, size) = self.of(slot);
        start + wrapped(slot - start + steps, size)
    }

    /// The slot `steps` places back (fewer than the set's size) in the set of `slot`.
    fn back(&self, slot: Slot, steps: usize) -> Slot {
        let (start, size) = self.of(slot);
        start + wrapped(slot - start + size - steps, size)
    }
}

impl Raid10 {
    pub(crate) fn new(spec: &Spec) -> Result<Self, LayoutError> {
        let (slots, layout) = (spec.raid_disks, spec.layout);
        // Bits 0-7 near copies, 8-15 far copies, 16 offset, 17-18 how slots form sets.
        let (near, far) = ((layout & 0xff) as usize, ((layout >> 8) & 0xff) as usize);
        let mode = layout >> 17;
        if near == 0 || far == 0 || mode > 2 {
            return Err(LayoutError::UnknownLayout { level: LEVEL, layout });
        }
        if near > 1 && far > 1 {
            return Err(LayoutError::Raid10NearAndFar { near, far });
        }
        let copies = near * far;
        if copies < 2 || copies > slots {
            return Err(LayoutError::Raid10Copies { copies, slots });
        }
        let set_size = match mode {
            0 => slots,
            1 if slots % far == 0 => slots / far,
            1 => return Err(LayoutError::Raid10Sets { layout, slots, far }),
            _ => copies,
        };
        if set_size < far {
            return Err(LayoutError::Raid10Sets { layout, slots, far });
        }

        let chunk_shift = spec.paged_chunk_shift()?;
        let per_component = spec.component_chunks(chunk_shift, far as u64)?;
        let (n, near_u, far_u) = (slots as u64, near as u64, far as u64);
        let places = within_limit(LEVEL, (per_component / far_u).checked_mul(n))?;
        // With one near copy or one far copy `places * far_u` is at most `per_component * n`.
        let chunks = places / near_u;
        within_limit(LEVEL, chunks.checked_mul(1 << chunk_shift))?;
        let taken = within_limit(LEVEL, chunks.checked_mul(near_u * far_u))?;
        let rows = taken.div_ceil(n);

        let by = |divisor: usize| Divisor::new(divisor as u64, rows * n);
        let sets = Sets::new(slots, set_size);
        let shape = if far == 1 {
            Shape::Near { copies, by_copies: by(near) }
        } else if layout & RAID10_OFFSET != 0 {
            Shape::Offset { copies, sets, by_copies: by(far) }
        } else {
            let stride = rows / far_u;
            Shape::Far { copies, stride, sets, by_stride: Divisor::new(stride, rows) }
        };
        let (start, first_chunk) = (0, 0);
        Ok(Raid10 {
            slots,
            chunk_shift,
            chunks,
            rows,
            start,
            first_chunk,
            shape,
            by_slots: by(slots),
        })
    }

    /// As [`Parity::starting_at`](crate::Parity::starting_at).
    ///
    /// # Errors
    /// A place within a sector, or behind which the component does not fit.
    pub fn starting_at(self, start: u64) -> Result<Raid10, LayoutError> {
        within_limit(LEVEL, self.used_component_size().checked_add(start))?;
        match start.is_multiple_of(crate::spec::SECTOR) {
            true => Ok(Raid10 { start, ..self }),
            false => Err(LayoutError::TooLarge { level: LEVEL }),
        }
    }

    /// The same, with chunks numbered from `first_chunk` on: while an array is reshaped no chunk of its old shape has the
    /// number of one of the new shape.
    pub fn numbered_from(self, first_chunk: u64) -> Raid10 {
        Raid10 { first_chunk, ..self }
    }

    /// Component byte at which the first row starts.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The number of the first chunk: 0, unless it is [`numbered_from`](Raid10::numbered_from) another.
    #[inline]
    pub fn first_chunk(&self) -> u64 {
        self.first_chunk
    }

    /// Size of the array in bytes.
    pub fn array_size(&self) -> u64 {
        self.chunks << self.chunk_shift
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Chunk size in bytes, a power of two.
    pub fn chunk_size(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Number of chunks of the array.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Bytes used on every member; the last chunk row may be only partly in use.
    pub fn used_component_size(&self) -> u64 {
        self.rows << self.chunk_shift
    }

    /// Number of copies of every chunk, at least 2.
    pub fn copy_count(&self) -> usize {
        match self.shape {
            Shape::Near { copies, .. }
            | Shape::Far { copies, .. }
            | Shape::Offset { copies, .. } => copies,
        }
    }

    /// Layout far: all first copies stand before the others, striped over the slots.
    #[inline]
    pub fn is_far(&self) -> bool {
        matches!(self.shape, Shape::Far { .. })
    }

    /// Layout offset: the copies of a row of chunks stand in the rows that follow it.
    #[inline]
    pub fn is_offset(&self) -> bool {
        matches!(self.shape, Shape::Offset { .. })
    }

    /// The chunk number of an array offset, and the offset within that chunk.
    #[inline]
    pub fn locate(&self, offset: u64) -> (u64, u64) {
        (self.first_chunk + (offset >> self.chunk_shift), offset & (self.chunk_size() - 1))
    }

    /// The places of all copies of chunk `chunk_nr` (one of [`Raid10::chunks`]); the offset of each
    /// is that of the chunk's first byte.
    #[inline]
    pub fn copies(&self, chunk_nr: u64) -> Copies {
        let first = self.first(chunk_nr);
        let mut copies = Copies::new();
        for copy in 0..self.copy_count() {
            copies.push(self.place(first, copy));
        }
        copies
    }

    /// The place of one copy (below [`Raid10::copy_count`]) of chunk `chunk_nr` (one of [`Raid10::chunks`]).
    #[inline]
    pub fn copy(&self, chunk_nr: u64, copy: usize) -> Place {
        self.place(self.first(chunk_nr), copy)
    }

    /// Row and slot of the first copy of a chunk.
    #[inline]
    fn first(&self, chunk_nr: u64) -> (u64, Slot) {
        debug_assert!(chunk_nr >= self.first_chunk && chunk_nr - self.first_chunk < self.chunks);
        let chunk_nr = chunk_nr - self.first_chunk;
        let (near, rows) = match self.shape {
            Shape::Near { copies, .. } => (copies as u64, 1),
            Shape::Far { .. } => (1, 1),
            Shape::Offset { copies, .. } => (1, copies as u64),
        };
        let (row, slot) = self.by_slots.div_rem(chunk_nr * near);
        (row * rows, slot as usize)
    }

    /// The place of a copy whose chunk has its first copy at `row` on `slot`.
    #[inline]
    fn place(&self, (row, slot): (u64, Slot), copy: usize) -> Place {
        debug_assert!(copy < self.copy_count());
        let (slot, row) = match self.shape {
            Shape::Near { .. } => {
                let slot = slot + copy;
                (wrapped(slot, self.slots), row + u64::from(slot >= self.slots))
            }
            Shape::Far { stride, sets, .. } => {
                (sets.forward(slot, copy), row + copy as u64 * stride)
            }
            Shape::Offset { sets, .. } => (sets.forward(slot, copy), row + copy as u64),
        };
        Place { slot, offset: self.start + (row << self.chunk_shift) }
    }

    /// The rows that chunks `0..nth` of the array begin or lie in, counted from its start: those in which chunk `nth` or a
    /// later one has a copy come no earlier than `.0`, those of earlier ones end at `.1`. `None`: copies of later chunks
    /// lie before those of earlier ones (far).
    pub(crate) fn rows_at(&self, nth: u64) -> Option<(u64, u64)> {
        let n = self.slots as u64;
        match self.shape {
            Shape::Near { copies, .. } => {
                let places = nth * copies as u64;
                Some((places / n, places.div_ceil(n)))
            }
            Shape::Offset { copies, .. } => {
                let copies = copies as u64;
                Some((nth / n * copies, nth.div_ceil(n) * copies))
            }
            Shape::Far { .. } => None,
        }
    }

    /// The chunks all of whose copies lie in the first `rows` rows, and the first chunk of which all copies lie behind them,
    /// and those of later chunks too. `None` as in [`rows_at`](Raid10::rows_at).
    pub(crate) fn chunks_at(&self, rows: u64) -> Option<(u64, u64)> {
        let n = self.slots as u64;
        // No row is behind the last one: at most the places of a component, which fit.
        let rows = rows.min(self.rows);
        let (below, from) = match self.shape {
            Shape::Near { copies, .. } => {
                let copies = copies as u64;
                (rows * n / copies, (rows * n).div_ceil(copies))
            }
            Shape::Offset { copies, .. } => {
                let copies = copies as u64;
                (rows / copies * n, rows.div_ceil(copies) * n)
            }
            Shape::Far { .. } => return None,
        };
        Some((below.min(self.chunks), from.min(self.chunks)))
    }

    /// The array offset that a member's byte holds a copy of; `None` for the unused places at the
    /// end and for what is out of range.
    pub fn logical(&self, slot: Slot, component_offset: u64) -> Option<u64> {
        let component_offset = component_offset.checked_sub(self.start)?;
        let row = component_offset >> self.chunk_shift;
        if slot >= self.slots || row >= self.rows {
            return None;
        }
        let n = self.slots as u64;
        let chunk_nr = match self.shape {
            Shape::Near { by_copies, .. } => by_copies.div_rem(row * n + slot as u64).0,
            Shape::Far { copies, sets, by_stride, .. } => {
                let (copy, row) = by_stride.div_rem(row);
                if copy >= copies as u64 {
                    return None;
                }
                row * n + sets.back(slot, copy as usize) as u64
            }
            Shape::Offset { sets, by_copies, .. } => {
                let (row, copy) = by_copies.div_rem(row);
                row * n + sets.back(slot, copy as usize) as u64
            }
        };
        let within = component_offset & (self.chunk_size() - 1);
        (chunk_nr < self.chunks).then_some((chunk_nr << self.chunk_shift) + within)
    }

    /// True if every chunk has a copy on a slot for which `working` answers true.
    pub fn survives(&self, working: impl Fn(Slot) -> bool) -> bool {
        // The slots of a chunk's copies repeat after as many chunks as there are slots.
        (0..self.chunks.min(self.slots as u64)).all(|nth| {
            let chunk_nr = self.first_chunk + nth;
            (0..self.copy_count()).any(|copy| working(self.copy(chunk_nr, copy).slot))
        })
    }
}

#[cfg(test)]
#[path = "raid10_tests.rs"]
mod tests;
