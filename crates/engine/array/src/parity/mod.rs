//! Levels 4, 5 and 6: writes with parity, recovery from it, and its scrub.

pub(crate) mod blocks;
mod compare;
mod compute;
mod holes;
mod one_block;
pub(crate) mod plan;
pub(crate) mod recover;
pub(crate) mod scrub;
pub(crate) mod segment;
pub(crate) mod waiting;
mod write;

use crate::engine::Engine;
use braid_layout::{Layout, Parity};

/// The parity geometry of an engine that has one: tasks of this module are started for no other.
pub(crate) fn geometry(engine: &Engine) -> Option<&Parity> {
    match &engine.geometry.layout {
        Layout::Parity(parity) => Some(parity),
        _ => None,
    }
}
