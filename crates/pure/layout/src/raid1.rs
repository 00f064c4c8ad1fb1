//! Level 1: every member holds the whole array.
//!
//! Owns the size of a mirror. Invariant: component offset and array offset are the same number on
//! every slot.

use crate::spec::SECTOR;
use crate::{LayoutError, Level, Spec};

/// The geometry of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid1 {
    slots: usize,
    size: u64,
}

impl Raid1 {
    pub(crate) fn new(spec: &Spec) -> Result<Self, LayoutError> {
        spec.check_component_limit()?;
        let size = spec.component_size - spec.component_size % SECTOR;
        if size == 0 {
            return Err(LayoutError::ComponentTooSmall {
                level: Level::Raid1,
                component_size: spec.component_size,
                min: SECTOR,
            });
        }
        Ok(Raid1 { slots: spec.raid_disks, size })
    }

    /// Size of the array, and of every component, in bytes.
    pub fn array_size(&self) -> u64 {
        self.size
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }
}
