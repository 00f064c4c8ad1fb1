//! The settings of an array as they are now, and what goes on because of them or because they change.

use crate::options::AssembleOptions;
use crate::settings::Settings;
use braid_shard::sync::Budget;
use braid_shard::{Nanos, Shard};
use std::cell::Cell;
use std::rc::Rc;

/// See the module's documentation.
pub(super) struct InEffect {
    pub(super) settings: Cell<Settings>,
    /// Bytes that caches may take at most.
    pub(super) memory_max: u64,
    /// Nanoseconds without a write after which the array is marked clean.
    pub(super) safe_mode_delay: Nanos,
    /// The right to change settings, or sizes.
    pub(super) turn: Rc<Budget>,
    /// A task gives the memory of idle caches back.
    pub(super) cooling: Cell<bool>,
    /// Tasks mark the array clean and run jobs that are due.
    pub(super) watched: Cell<bool>,
}

impl InEffect {
    pub(super) fn new(shard: &Shard, options: &AssembleOptions) -> InEffect {
        InEffect {
            settings: Cell::new(options.settings),
            memory_max: options.memory_max,
            safe_mode_delay: options.safe_mode_delay_ms.max(1).saturating_mul(1_000_000),
            turn: Budget::new(shard, 1),
            cooling: Cell::new(false),
            watched: Cell::new(false),
        }
    }
}
