//! Levels 1 and 10: copies of the same bytes on several members.

pub(crate) mod recover;
pub(crate) mod scrub;
pub(crate) mod write;

use crate::engine::Engine;
use crate::geometry::REGION;
use braid_layout::{Layout, Place};
use smallvec::SmallVec;

/// Where the copies of some bytes of one unit are.
pub(crate) type Places = SmallVec<[Place; 4]>;

/// The copies of the bytes of `unit` that start at byte `within` of it.
pub(crate) fn places(engine: &Engine, unit: u64, within: u64) -> Places {
    match &engine.geometry.layout {
        Layout::Mirror(mirror) => {
            (0..mirror.slots()).map(|slot| Place { slot, offset: unit * REGION + within }).collect()
        }
        Layout::Raid10(raid10) => (0..raid10.copy_count())
            .map(|copy| {
                let place = raid10.copy(unit, copy);
                Place { slot: place.slot, offset: place.offset + within }
            })
            .collect(),
        _ => Places::new(),
    }
}
