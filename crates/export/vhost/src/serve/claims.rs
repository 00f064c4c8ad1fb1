//! Rings in use, in the whole process: each is one connection's at a time.
//!
//! A front end that comes back brings the rings of before, and what was under way in them may still be with devices: a write
//! that lands late would land on what came after it. So a ring is claimed until all of its requests have ended, also when
//! its connection has long gone, and whoever brings it again waits. Rings of other guests wait for nobody.

use crate::memory::FileId;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A ring: the file of the memory that it is in, and where its descriptors are, as the guest counts.
pub(super) type RingId = (FileId, u64);

static CLAIMED: Mutex<Vec<RingId>> = Mutex::new(Vec::new());

fn claimed() -> MutexGuard<'static, Vec<RingId>> {
    // Every change is a single call, so a panic elsewhere leaves the list whole.
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ring that is ours until this is dropped.
pub(super) struct Claim(RingId);

impl Claim {
    /// Claims a ring; `None` as long as it is another's.
    pub fn new(ring: RingId) -> Option<Claim> {
        let mut all = claimed();
        if all.contains(&ring) {
            return None;
        }
        all.push(ring);
        Some(Claim(ring))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claimed().retain(|ring| *ring != self.0);
    }
}
