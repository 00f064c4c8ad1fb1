//! The geometry of arrays: every md level and layout as pure functions.
//!
//! [`buckets`] places the stripes of a volume's files. Everything else is about arrays.
//!
//! For levels linear, 0, 1, 4, 5, 6 and 10 this crate validates the numbers that describe the geometry, maps bytes
//! of the array to members and back, finds P and Q and the order of the data inside Q, and has the names of levels
//! and layouts. Formulas are those of the Linux md
//! driver (`raid0.c`, `raid5.c`, `raid10.c`), because both must read an array in the same way.
//!
//! It does not know members, superblocks, requests or parity arithmetic. No I/O, no clock, no thread;
//! the functions of the request path do not allocate.
//!
//! Units: offsets and sizes are **bytes** in `u64`. An *array offset* counts from the start of the
//! array; a *component offset* counts from the start of a member's data area. A *slot* is a position
//! in the array, `0..slots`.
//!
//! Invariant: a [`Layout`] maps every byte below `array_size` to places that are
//! inside their components, that no other byte uses, and no two of which are on the same slot.

#![forbid(unsafe_code)]

pub mod buckets;
mod divide;
mod error;
mod level;
mod linear;
mod names;
mod parity;
mod place;
mod raid0;
mod raid1;
mod raid10;
mod reach;
mod spec;

pub use error::LayoutError;
pub use level::Level;
pub use linear::Linear;
pub use names::{default_layout, layout_name, layout_number};
pub use parity::{Parity, Role, StripeMap};
pub use place::{Place, Slot};
pub use raid0::{Raid0, Zone};
pub use raid1::Raid1;
pub use raid10::{Copies, Raid10};
pub use spec::{MAX_CHUNK_SIZE, MAX_SLOTS, SECTOR, Spec};

/// The checked geometry of one array.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Level 0.
    Striped(Raid0),
    /// Level linear.
    Linear(Linear),
    /// Level 1.
    Mirror(Raid1),
    /// Levels 4, 5 and 6.
    Parity(Parity),
    /// Level 10.
    Raid10(Raid10),
}

impl Layout {
    /// Checks the numbers of `spec` and builds the geometry.
    ///
    /// # Errors
    /// A [`LayoutError`] naming the first number that no array of this level can have. Safe on
    /// numbers from an untrusted superblock: all arithmetic is checked.
    pub fn new(spec: &Spec) -> Result<Layout, LayoutError> {
        spec.check_slots()?;
        Ok(match spec.level {
            Level::Linear => Layout::Linear(Linear::new(spec)?),
            Level::Raid0 => Layout::Striped(Raid0::new(spec)?),
            Level::Raid1 => Layout::Mirror(Raid1::new(spec)?),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Layout::Parity(Parity::new(spec)?),
            Level::Raid10 => Layout::Raid10(Raid10::new(spec)?),
        })
    }

    /// Size of the array in bytes.
    pub fn array_size(&self) -> u64 {
        match self {
            Layout::Striped(l) => l.array_size(),
            Layout::Linear(l) => l.array_size(),
            Layout::Mirror(l) => l.array_size(),
            Layout::Parity(l) => l.array_size(),
            Layout::Raid10(l) => l.array_size(),
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        match self {
            Layout::Striped(l) => l.slots(),
            Layout::Linear(l) => l.slots(),
            Layout::Mirror(l) => l.slots(),
            Layout::Parity(l) => l.slots(),
            Layout::Raid10(l) => l.slots(),
        }
    }

    /// Chunk size in bytes; 0 where the array has no chunks (level 1, and linear without rounding).
    pub fn chunk_size(&self) -> u64 {
        match self {
            Layout::Striped(l) => l.chunk_size(),
            Layout::Linear(l) => l.chunk_size(),
            Layout::Mirror(_) => 0,
            Layout::Parity(l) => l.chunk_size(),
            Layout::Raid10(l) => l.chunk_size(),
        }
    }

    /// Bytes of the component that the array uses on the member of `slot`, which a resync or a rebuild has to cover; 0
    /// for a slot that does not exist.
    pub fn used_size(&self, slot: Slot) -> u64 {
        if slot >= self.slots() {
            return 0;
        }
        match self {
            Layout::Striped(l) => l.used_size(slot),
            Layout::Linear(l) => l.used_size(slot),
            Layout::Mirror(l) => l.array_size(),
            Layout::Parity(l) => l.used_component_size(),
            Layout::Raid10(l) => l.used_component_size(),
        }
    }

    /// The number of members whose loss the array survives, whichever they are. A level 10 array often survives
    /// more: ask [`Layout::survives`].
    pub fn tolerance(&self) -> usize {
        match self {
            Layout::Striped(_) | Layout::Linear(_) => 0,
            Layout::Mirror(l) => l.slots().saturating_sub(1),
            Layout::Parity(l) => l.parity_count(),
            Layout::Raid10(l) => l.copy_count().saturating_sub(1),
        }
    }

    /// True if every byte of the array is still available when exactly the slots for which `working`
    /// is true have a usable member.
    pub fn survives(&self, working: impl Fn(Slot) -> bool) -> bool {
        match self {
            Layout::Raid10(l) => l.survives(working),
            _ => (0..self.slots()).filter(|&slot| !working(slot)).count() <= self.tolerance(),
        }
    }
}
