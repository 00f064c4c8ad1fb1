//! Foreground I/O as control has seen it last: jobs make room for it.

use braid_shard::Nanos;
use std::cell::Cell;

/// Tells if there is foreground I/O on any shard.
#[derive(Default)]
pub(crate) struct Foreground {
    pub(super) requests: Cell<u64>,
    pub(super) seen: Cell<Option<Nanos>>,
    pub(super) asked: Cell<Nanos>,
    pub(super) asking: Cell<bool>,
}
