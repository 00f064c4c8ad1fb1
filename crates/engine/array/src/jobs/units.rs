//! The units of a window, at any level: locking them, and counting what differs.

use crate::engine::Engine;
use crate::engine::lock::Held;
use crate::engine::window::Window;
use braid_shard::plant::planted;

/// Sectors of 512 bytes in the 4096-byte blocks in which `a` and `b` (of equal length) differ.
pub(crate) fn differing_sectors(a: &[u8], b: &[u8]) -> u64 {
    const BLOCK: usize = 4096;
    if a == b {
        return 0;
    }
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK));
    blocks.filter(|(a, b)| a != b).map(|(a, _)| a.len().div_ceil(512) as u64).sum()
}

/// Locks the units of a window, in ascending order, wholly.
pub(crate) async fn lock_units(engine: &Engine, window: &Window) -> Vec<Held> {
    let mut held = Vec::with_capacity(window.count as usize);
    let end = if planted("window-unlocked") { window.first } else { window.first + window.count };
    for unit in window.first..end {
        held.push(engine.locks.lock(unit, 0, u64::MAX).await);
    }
    held
}
