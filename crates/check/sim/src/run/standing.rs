//! How the arrays of a run stand on one another, and what is known of each.
//!
//! Does not ask the engine: whoever looks around notes what it found.

use braid_array::stacking::PREFIX;
use braid_array::state::geometry::REGION;
use braid_layout::{Layout, Slot};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Something in a slot: a leaf by its index, or an array by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A simulated member.
    Leaf(usize),
    /// An array.
    Array(usize),
}

/// Who was being rebuilt, by the images: slot, name and component byte.
pub(super) type Rebuilding = Vec<(Slot, String, u64)>;

/// The name under which an array is the member of another.
pub(super) fn member_name(nr: usize) -> String {
    format!("{PREFIX}a{nr}")
}

/// What is known of each array.
pub(super) struct Standing {
    /// By array: its redundancy matches its data.
    pub(super) synced: Vec<bool>,
    /// By array: it must start next time.
    pub(super) expected: Vec<bool>,
    /// Arrays that were made anew and that the one above has not taken yet: it finds no superblock of its own there.
    pub(super) blank: BTreeSet<usize>,
    /// By array: its superblocks say that a member is missing and that parity may not match, so it must not start by itself.
    pub(super) dirty_degraded: Vec<bool>,
    /// By array: who is being rebuilt.
    pub(super) rebuilding: Vec<Option<Rebuilding>>,
}

impl Standing {
    /// Before anything is there: so many arrays, of members that are zeroes or not.
    pub(super) fn of(arrays: usize, zeroes: bool) -> Standing {
        Standing {
            synced: vec![zeroes; arrays],
            expected: vec![true; arrays],
            blank: BTreeSet::new(),
            dirty_degraded: vec![false; arrays],
            rebuilding: Vec::new(),
        }
    }
}

/// The layouts of the arrays that were created, by number, and what maps bytes of leaves to units of the arrays above: see
/// [`crate::world::World::unit_of`].
#[derive(Default)]
pub(super) struct Links(pub(super) Vec<Link>);

/// One array.
pub(super) struct Link {
    /// Its layout.
    pub(super) layout: Rc<Layout>,
    /// The array above, this one's slot there, and where its component starts.
    pub(super) above: Option<(usize, Slot, u64)>,
}

impl Links {
    /// The unit that component byte `at` of `slot` of array `nr` belongs to: of this array, or of the first
    /// above it that has units.
    pub(super) fn unit(&self, nr: usize, slot: Option<Slot>, at: u64) -> Option<u64> {
        let link = self.0.get(nr)?;
        let up = |logical: Option<u64>| {
            let (above, slot, start) = link.above?;
            let at = logical?.checked_sub(start)?;
            let used = self.0.get(above)?.layout.used_size(slot);
            (at < used).then(|| self.unit(above, Some(slot), at)).flatten()
        };
        let unit = match &*link.layout {
            Layout::Parity(parity) => at / parity.chunk_size(),
            Layout::Mirror(_) => at / REGION,
            Layout::Raid10(raid10) => raid10.logical(slot?, at)? / raid10.chunk_size(),
            Layout::Striped(striped) => return up(striped.logical(slot?, at)),
            Layout::Linear(linear) => return up(linear.logical(slot?, at)),
        };
        Some((nr as u64) << 48 | unit)
    }
}
